"""Standard Webhooks against the official library, in both directions."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from headrace.core.signatures.standard_webhooks import SECRET_PREFIX, key_of, rejection, secret_of, signed_headers
from headrace.core.signatures.timestamps import TOLERANCE_SECONDS

keys = st.binary(min_size=24, max_size=64)
ids = st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=40)
texts = st.text(st.characters(codec="utf-8"), max_size=200)


def now() -> int:
    return int(datetime.now(UTC).timestamp())


@given(keys, ids, st.dictionaries(texts, texts))
def test_the_official_library_verifies_signed_requests(key: bytes, id: str, value: dict[str, str]) -> None:
    body = json.dumps(value).encode()
    headers = signed_headers(secret_of(key), id, now(), body)
    assert Webhook(secret_of(key)).verify(body, headers) == value
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_of(key)).verify(body + b" ", headers)


@given(keys, ids, texts)
def test_requests_that_the_official_library_signed_are_genuine(key: bytes, id: str, text: str) -> None:
    at = datetime.now(UTC)
    headers = {
        "webhook-id": id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret_of(key)).sign(id, at, text),
    }
    assert rejection([secret_of(key)], headers, text.encode(), at.timestamp()) is None
    assert rejection([secret_of(bytes(32)), secret_of(key)], headers, text.encode(), at.timestamp()) is None
    assert rejection([], headers, text.encode(), at.timestamp()) is not None


@given(keys, ids, st.binary(max_size=200), st.data())
def test_a_changed_request_is_refused(key: bytes, id: str, body: bytes, data: st.DataObject) -> None:
    secret, at = secret_of(key), 1_800_000_000
    headers = signed_headers(secret, id, at, body)
    assert rejection([secret], headers, body, at) is None
    name = data.draw(st.sampled_from(sorted(headers)))
    other = data.draw(st.text(st.characters(codec="latin-1"), max_size=60).filter(lambda text: headers[name] not in text.split()))
    assert rejection([secret], headers | {name: other}, body, at) is not None
    assert rejection([secret], headers, body + b"x", at) is not None
    other_key = data.draw(keys.filter(lambda one: one != key))
    assert rejection([secret_of(other_key)], headers, body, at) is not None


@pytest.mark.parametrize(("age", "accepted"), [(0, True), (300, True), (-300, True), (301, False), (-301, False), (10**9, False)])
def test_an_old_or_early_request_is_refused(age: int, accepted: bool) -> None:
    secret = secret_of(bytes(32))
    headers = signed_headers(secret, "1", 1_800_000_000, b"{}")
    reason = rejection([secret], headers, b"{}", 1_800_000_000 + age)
    assert (reason is None) is accepted
    if reason is not None:
        assert f"at most {TOLERANCE_SECONDS} s" in reason


def test_one_valid_signature_of_several_is_enough() -> None:
    secret = secret_of(bytes(32))
    headers = signed_headers(secret, "1", 1_800_000_000, b"{}")
    both = headers | {"webhook-signature": f"v1a,AAAA v1,AAAA {headers['webhook-signature']}"}
    assert rejection([secret], both, b"{}", 1_800_000_000) is None
    far = headers | {"webhook-signature": "v1,AAAA " * 16 + headers["webhook-signature"]}
    assert rejection([secret], far, b"{}", 1_800_000_000) is not None


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(missing: str) -> None:
    headers = signed_headers(secret_of(bytes(32)), "1", 1_800_000_000, b"{}")
    del headers[missing]
    assert rejection([secret_of(bytes(32))], headers, b"{}", 1_800_000_000) == f"The header {missing} is missing."


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "swordfish swordfish swordfish", "whsec_c2hvcnQ=", SECRET_PREFIX + "A" * 100, "whsec_\ud800"]
)
def test_an_invalid_secret_is_rejected_without_being_shown(secret: str) -> None:
    with pytest.raises(ValueError, match="not one of Standard Webhooks") as refused:
        key_of(secret)
    assert "swordfish" not in str(refused.value)


@given(keys)
def test_a_secret_has_its_key_with_or_without_the_prefix(key: bytes) -> None:
    assert key_of(secret_of(key)) == key_of(secret_of(key).removeprefix(SECRET_PREFIX)) == key
