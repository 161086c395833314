"""The schemes of providers: published examples, rotation, and requests that differ in anything that is signed."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.connection import Connection
from headrace.core.signatures.schemes import SCHEMES, secrets_of
from headrace.core.signatures.standard_webhooks import secret_of, signed_headers

NOW = 1_800_000_000
Signed = Callable[[str, bytes], dict[str, str]]


def hexadecimal(secret: str, signed: bytes) -> str:
    return hmac.digest(secret.encode(), signed, "sha256").hex()


SIGNED: dict[str, Signed] = {
    "standard-webhooks": lambda secret, body: signed_headers(secret, "msg_1", NOW, body),
    "github": lambda secret, body: {"x-hub-signature-256": f"sha256={hexadecimal(secret, body)}"},
    "stripe": lambda secret, body: {"stripe-signature": f"t={NOW},v1={hexadecimal(secret, f'{NOW}.'.encode() + body)},v0=00"},
    "slack": lambda secret, body: {
        "x-slack-request-timestamp": f"{NOW}",
        "x-slack-signature": f"v0={hexadecimal(secret, f'v0:{NOW}:'.encode() + body)}",
    },
    "bearer": lambda secret, body: {"authorization": f"Bearer {secret}"},
    "basic": lambda secret, body: {"authorization": "Basic " + b64encode(secret.encode()).decode()},
}
SIGNING = ("standard-webhooks", "github", "stripe", "slack")
FIRST, SECOND, WRONG = (secret_of(bytes([number]) * 32) for number in (1, 2, 3))


@pytest.mark.parametrize("name", SIGNED)
@given(body=st.binary(max_size=100))
def test_each_valid_secret_is_accepted_and_any_other_is_refused(name: str, body: bytes) -> None:
    scheme = SCHEMES[name]
    for secret in (FIRST, SECOND):
        assert scheme.rejection([FIRST, SECOND], SIGNED[name](secret, body), body, NOW) is None
    assert scheme.rejection([FIRST, SECOND], SIGNED[name](WRONG, body), body, NOW) is not None
    assert scheme.rejection([FIRST, SECOND], {}, body, NOW) is not None
    assert scheme.rejection([], SIGNED[name](FIRST, body), body, NOW) is not None


@pytest.mark.parametrize("name", SIGNING)
@given(body=st.binary(max_size=100), other=st.binary(max_size=100))
def test_the_signature_covers_every_byte_of_the_body(name: str, body: bytes, other: bytes) -> None:
    assert (SCHEMES[name].rejection([FIRST], SIGNED[name](FIRST, body), other, NOW) is None) is (body == other)


@pytest.mark.parametrize("name", SIGNED)
@given(value=st.text(st.characters(codec="utf-8"), max_size=100))
def test_no_header_stops_the_verification(name: str, value: str) -> None:
    for header in SIGNED[name](FIRST, b"{}"):
        for text in (value, value.encode().decode("latin-1"), f"t={value},v1={value}", f"Basic {value}", f"Bearer {value}"):
            assert SCHEMES[name].rejection([FIRST], SIGNED[name](FIRST, b"{}") | {header: text}, b"{}", NOW) is not None


@pytest.mark.parametrize("name", ["standard-webhooks", "stripe", "slack"])
def test_a_replay_is_refused_after_the_tolerance(name: str) -> None:
    assert SCHEMES[name].rejection([FIRST], SIGNED[name](FIRST, b"{}"), b"{}", NOW + 300) is None
    assert "301 s old" in (SCHEMES[name].rejection([FIRST], SIGNED[name](FIRST, b"{}"), b"{}", NOW + 301) or "")


def test_the_published_example_of_github() -> None:
    headers = {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    assert SCHEMES["github"].rejection(["It's a Secret to Everybody"], headers, b"Hello, World!", NOW) is None


def test_the_published_example_of_slack() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
        b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
        b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    assert SCHEMES["slack"].rejection(["8f742231b10e8888abcd99yyyzzz85a5"], headers, body, 1531420618) is None


@pytest.mark.parametrize(
    ("name", "headers", "value", "id"),
    [
        ("standard-webhooks", {"webhook-id": "msg_1"}, {}, "msg_1"),
        ("github", {"x-github-delivery": "72d3162e"}, {}, "72d3162e"),
        ("stripe", {}, {"id": "evt_1"}, "evt_1"),
        ("stripe", {}, {"id": 1}, None),
        ("stripe", {}, ["id"], None),
        ("slack", {}, {"event_id": "Ev1"}, "Ev1"),
        ("bearer", {"idempotency-key": "k"}, {}, "k"),
        ("none", {"webhook-id": "w", "idempotency-key": "k"}, {}, "w"),
        ("none", {}, {"id": "x"}, None),
    ],
)
def test_the_id_of_a_delivery(name: str, headers: dict[str, str], value: object, id: str | None) -> None:
    assert SCHEMES[name].delivery_id(headers, value) == id


def test_the_secrets_of_a_connection() -> None:
    def secrets(scheme: str, **fields: object) -> tuple[str, ...]:
        return secrets_of(Connection("hook", "http", **fields), scheme)  # type: ignore[arg-type]

    assert secrets("github", password="a") == ("a",)
    assert secrets("github", password="a", extra={"passwords": "b"}) == ("a", "b")
    assert secrets("github", password="a", extra={"passwords": ["b", "c"]}) == ("a", "b", "c")
    assert secrets("basic", login="ada", password="a", extra={"passwords": ["b"]}) == ("ada:a", "ada:b")
    for scheme, fields, reason in (
        ("github", {}, "no password"),
        ("github", {"password": "cutlass", "extra": {"passwords": 3}}, "neither a text nor a list"),
        ("basic", {"password": "cutlass"}, "no login"),
        ("standard-webhooks", {"password": "cutlass"}, "Standard Webhooks"),
    ):
        with pytest.raises(ValueError, match=reason) as refused:
            secrets(scheme, **fields)
        assert "cutlass" not in str(refused.value)
