"""Masking: every notation of a secret is masked in full, and the number of secrets is limited."""

from __future__ import annotations

import json
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.values.masking import Masker

SECRETS = st.text(st.characters(exclude_characters="xyz *", exclude_categories=["Cs"]), min_size=4, max_size=40)
AROUND = st.text("xyz ", max_size=10)


@given(secret=SECRETS, before=AROUND, after=AROUND)
def test_a_secret_is_masked_in_any_notation(secret: str, before: str, after: str) -> None:
    masker = Masker()
    masker.add([secret])
    for written in (
        secret,
        json.dumps(secret),
        json.dumps(secret, ensure_ascii=False),
        repr(secret),
        quote(secret),
        quote(secret, safe=""),
    ):
        quoted = written[0] if written[0] in "'\"" and written != secret else ""
        assert masker(f"{before}{written}{after}") == f"{before}{quoted}***{quoted}{after}"


def test_the_longest_secret_is_masked_first() -> None:
    masker = Masker()
    masker.add(["fish", "fishmonger-9"])
    assert masker("a fishmonger-9 and a fish") == "a *** and a ***"


def test_each_line_of_a_secret_is_masked() -> None:
    masker = Masker()
    masker.add(["-----BEGIN-----\nabcdefgh\n-----END-----"])
    assert masker("key: abcdefgh") == "key: ***"
    assert masker('"-----BEGIN-----\\nabcdefgh\\n-----END-----"') == '"***"'


def test_the_password_of_any_uri_is_masked() -> None:
    assert Masker()("at amqp://ada:swordfish@host/ and http://host/a:b@c") == "at amqp://ada:***@host/ and http://host/a:b@c"


def test_secrets_that_are_too_short_are_not_masked() -> None:
    masker = Masker()
    masker.add(["", "a", "the"])
    assert masker("the cat") == "the cat"


def test_the_least_recently_added_secret_is_dropped_first() -> None:
    masker = Masker(max_forms=3)
    for secret in ("first-1", "second-2", "third-3", "first-1", "fourth-4"):
        masker.add([secret])
    assert masker("first-1 second-2 third-3 fourth-4") == "*** second-2 *** ***"
