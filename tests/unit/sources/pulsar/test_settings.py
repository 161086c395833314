from __future__ import annotations

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.pulsar.settings import settings_of


def test_a_host_alone_has_the_ports_of_the_protocol() -> None:
    plain = settings_of(parse_connection("p", "pulsar://broker"))
    assert (plain.service_url, plain.admin_url, plain.token, plain.tls) == ("pulsar://broker:6650", "http://broker:8080", None, None)
    secure = settings_of(parse_connection("p", "pulsar+ssl://broker?token=s3cret"))
    assert (secure.service_url, secure.admin_url, secure.token, secure.tls) == (
        "pulsar+ssl://broker:6651",
        "https://broker:8443",
        "s3cret",
        {},
    )
    assert "s3cret" not in repr(secure)


def test_all_settings_are_read() -> None:
    settings = settings_of(
        parse_connection("p", "pulsar+ssl://b:1?admin_url=https://a:2/&listener_name=outside&cafile=ca&certfile=cert&keyfile=key")
    )
    assert settings.admin_url == "https://a:2"
    assert settings.listener_name == "outside"
    assert settings.tls == {"cafile": "ca", "certfile": "cert", "keyfile": "key"}


def test_several_hosts_are_all_named() -> None:
    settings = settings_of(parse_connection("p", '{"kind": "pulsar", "host": "a,b", "port": 7}'))
    assert (settings.service_url, settings.admin_url) == ("pulsar://a:7,b:7", "http://a:8080")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kafka://broker", "is of kind 'kafka'"),
        ("pulsar://", "has no host"),
        ("pulsar://broker?tocken=1", "unknown settings: tocken"),
        ("pulsar://ada:secret@broker", "has a login"),
        ("pulsar://broker?cafile=ca.pem", "is without TLS"),
        ("pulsar+ssl://broker?certfile=a.pem", "one of certfile and keyfile"),
        ("pulsar://broker?admin_url=broker:8080", "invalid address of the admin API"),
    ],
)
def test_a_connection_that_does_not_fit_is_rejection(text: str, reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason) as caught:
        settings_of(parse_connection("p", text))
    assert caught.value.hint
