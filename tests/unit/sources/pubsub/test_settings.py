from __future__ import annotations

import json

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.pubsub.settings import ClientSettings, client_settings

KEY = {"type": "service_account", "client_email": "a@b", "private_key": "secret"}


def test_a_connection_gives_project_address_and_credentials() -> None:
    emulator = client_settings(parse_connection("pubsub", "pubsub://127.0.0.1:8085/shop?emulator=true"))
    assert emulator == ClientSettings("shop", "127.0.0.1:8085", is_emulator=True, account=None)
    text = json.dumps({"kind": "pubsub", "database": "shop", "extra": {"credentials": KEY}})
    account = client_settings(parse_connection("pubsub", text))
    assert account == ClientSettings("shop", "pubsub.googleapis.com:443", is_emulator=False, account=KEY)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sqs:///shop", "is of kind 'sqs'"),
        ("pubsub://", "has no project"),
        ("pubsub:///shop?region=eu", "unknown settings: region"),
        ("pubsub:///shop?emulator=true", "an emulator has a host"),
        ("pubsub:///shop?credentials=secret", "not the key of a service account"),
    ],
)
def test_an_invalid_connection_is_refused_without_its_secrets(text: str, reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason) as raised:
        client_settings(parse_connection("pubsub", text))
    assert raised.value.hint
    assert "secret" not in str(raised.value)
