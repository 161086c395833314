from __future__ import annotations

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.aws.settings import client_settings, profile_of

KINDS = ("sqs", "aws")
HINT = "Set it like this: sqs://ACCESS_KEY:SECRET@?region=eu-west-1"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("sqs://?region=eu-west-1", {"region_name": "eu-west-1"}),
        (
            "aws://key:se%2Fcret@?region=eu-west-1",
            {"region_name": "eu-west-1", "aws_access_key_id": "key", "aws_secret_access_key": "se/cret"},
        ),
        (
            "sqs://key:secret@?region=eu-west-1&session_token=t",
            {"region_name": "eu-west-1", "aws_access_key_id": "key", "aws_secret_access_key": "secret", "aws_session_token": "t"},
        ),
        ("sqs://127.0.0.1:9324?region=x&scheme=http", {"region_name": "x", "endpoint_url": "http://127.0.0.1:9324"}),
        ("sqs://[::1]:9324", {"endpoint_url": "https://[::1]:9324"}),
        ("sqs://?endpoint_url=https://sqs.example/a&ca_bundle=/ca.pem", {"endpoint_url": "https://sqs.example/a", "verify": "/ca.pem"}),
    ],
)
def test_the_settings_of_a_connection(text: str, settings: dict[str, str]) -> None:
    assert client_settings(parse_connection("main", text), KINDS, HINT) == settings


def test_a_profile_of_the_machine() -> None:
    assert profile_of(parse_connection("main", "sqs://?profile=shop")) == "shop"
    assert profile_of(parse_connection("main", "sqs://?region=eu")) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kafka://broker", "of kind 'kafka'"),
        ("sqs://key@?region=eu", "half of the credentials"),
        ("sqs://?regoin=eu", "unknown settings: regoin"),
    ],
)
def test_other_connections_are_refused(text: str, problem: str) -> None:
    with pytest.raises(UpstreamError, match=problem) as raised:
        client_settings(parse_connection("main", text), KINDS, HINT)
    assert raised.value.hint
