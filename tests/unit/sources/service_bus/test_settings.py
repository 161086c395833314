from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.core.connection import parse_connection
from headrace.core.connection_settings.azure import Identity
from headrace.errors import UpstreamError
from headrace.sources.service_bus.settings import ClientSettings, Policy, client_settings

HOST = "shop.servicebus.windows.net"
KEY = "c2VjcmV0/+=="
STRING = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=reader;SharedAccessKey={KEY}"
POLICY = Policy("reader", KEY)
PRINCIPAL = {"tenant_id": "t", "client_id": "c", "client_secret": "top-secret"}


def settings(text: str) -> ClientSettings:
    return client_settings(parse_connection("bus", text))


def of_extra(**extra: Any) -> str:
    return json.dumps({"kind": "servicebus", "extra": extra})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"servicebus://{HOST}", ClientSettings(HOST, False, None, Identity(), None)),
        (f"servicebus://reader:c2VjcmV0%2F%2B%3D%3D@{HOST}", ClientSettings(HOST, False, POLICY, Identity(), None)),
        (f"servicebus://{HOST}?client_id=c", ClientSettings(HOST, False, None, Identity(client="c"), None)),
        (
            json.dumps({"kind": "servicebus", "host": HOST, "extra": PRINCIPAL}),
            ClientSettings(HOST, False, None, Identity("t", "c", "top-secret"), None),
        ),
        (
            "servicebus://reader:key@127.0.0.1:5672?emulator=true",
            ClientSettings("127.0.0.1:5672", True, Policy("reader", "key"), Identity(), None),
        ),
        (f"servicebus://{HOST}?emulator=false&ca_bundle=/ca.pem", ClientSettings(HOST, False, None, Identity(), "/ca.pem")),
    ],
)
def test_a_connection_gives_address_and_credentials(text: str, expected: ClientSettings) -> None:
    assert settings(text) == expected


@pytest.mark.parametrize("value", [True, "true", "1"])
def test_an_emulator_is_named_by_a_setting(value: object) -> None:
    text = json.dumps({"kind": "servicebus", "host": "127.0.0.1", "login": "reader", "password": "key", "extra": {"emulator": value}})
    assert settings(text).is_emulator


@pytest.mark.parametrize(
    ("text", "address", "is_emulator"),
    [
        (STRING, HOST, False),
        (f"{STRING};EntityPath=orders", HOST, False),
        (f"  {STRING};\n", HOST, False),
        (STRING.replace(f"{HOST}/", HOST), HOST, False),
        (f"{STRING.replace(HOST, '127.0.0.1:5672')};UseDevelopmentEmulator=true;", "127.0.0.1:5672", True),
        (f"{STRING};UseDevelopmentEmulator=false", HOST, False),
    ],
)
def test_a_connection_string_gives_the_same(text: str, address: str, is_emulator: bool) -> None:
    extra = {"connection_string": text, "ca_bundle": "/ca.pem"}
    assert settings(of_extra(**extra)) == ClientSettings(address, is_emulator, POLICY, Identity(), "/ca.pem")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sqs://", "is of kind 'sqs', not 'servicebus'"),
        ("servicebus://", "names no namespace"),
        (f"servicebus://{HOST}?region=eu", "unknown settings: region"),
        (f"servicebus://reader@{HOST}", "a part of a shared access policy"),
        (f"servicebus://:top-secret@{HOST}", "a part of a shared access policy"),
        (f"servicebus://reader:top-secret@{HOST}?client_id=c", "several credentials"),
        (f"servicebus://{HOST}?tenant_id=t&client_secret=top-secret", "a part of a service principal"),
        ("servicebus://127.0.0.1?emulator=true", "would send a token without TLS"),
        (f"servicebus://{HOST}?connection_string={HOST}", "a connection string and other settings"),
        (json.dumps({"kind": "servicebus", "login": "top-secret", "extra": {"connection_string": STRING}}), "and other settings"),
        (of_extra(connection_string=STRING, emulator=True), "a connection string and other settings"),
        (of_extra(connection_string=STRING, **PRINCIPAL), "several credentials"),
        (of_extra(connection_string=STRING.partition(";")[2]), "without an Endpoint"),
        (of_extra(connection_string=STRING.replace("sb://", "https://")), "without an Endpoint"),
        (of_extra(connection_string="top-secret"), "without an Endpoint"),
        (of_extra(connection_string=f"Endpoint=sb://{HOST}/"), "without a key"),
        (of_extra(connection_string=f"Endpoint=sb://{HOST}/;SharedAccessSignature=top-secret"), "without a key"),
        (of_extra(connection_string=f"Endpoint=sb://{HOST}/;SharedAccessKey={KEY}"), "a part of a shared access policy"),
        (of_extra(connection_string=f"Endpoint=sb://{HOST}/;SharedAccessKeyName=reader"), "a part of a shared access policy"),
    ],
)
def test_an_invalid_connection_is_refused_without_its_secrets(text: str, reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason) as raised:
        settings(text)
    assert raised.value.hint
    shown = f"{raised.value} {raised.value.hint} {raised.value.__cause__} {raised.value.__context__}"
    assert not any(secret in shown for secret in ("top-secret", KEY, "Endpoint=sb", STRING))
