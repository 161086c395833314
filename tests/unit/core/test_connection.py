"""Connections are parsed from a URI or JSON, written as a URI, and hide their secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.connection import Connection, parse_connection
from headrace.errors import SecretError

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20)


URI = "postgresql://ada:s%40cret@db.example:5432/flights?sslmode=require"
JSON = """{"kind": "postgresql", "host": "db.example", "port": 5432, "login": "ada", "password": "s@cret", "database": "flights",
    "extra": {"sslmode": "require"}}"""


@pytest.mark.parametrize("text", [URI, JSON])
def test_a_uri_and_json_parse_to_equal_connections(text: str) -> None:
    found = parse_connection("warehouse", text)
    assert found == Connection("warehouse", "postgresql", "db.example", 5432, "ada", "s@cret", "flights", {"sslmode": "require"})
    assert found.url == URI


@given(host=st.just("db.example") | st.just("::1"), login=TEXT, password=TEXT, database=TEXT, port=st.integers(0, 65535))
def test_a_connection_is_restored_from_its_uri(host: str, login: str, password: str, database: str, port: int) -> None:
    made = Connection("x", "kind", host, port, login, password, database)
    assert parse_connection("x", made.url) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "swordfish",
        "swordfish@host",
        "{swordfish",
        '{"kind": 1}',
        '{"kindd": "swordfish"}',
        '{"host": "swordfish"}',
        "[1]",
        "x://host:swordfish",
    ],
)
def test_an_invalid_connection_is_rejected_without_showing_its_text(text: str) -> None:
    with pytest.raises(SecretError, match="neither a URI nor a JSON object") as refused:
        parse_connection("warehouse", text)
    assert "swordfish" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_the_repr_of_a_connection_has_no_secrets() -> None:
    made = Connection("warehouse", "http", "host", password="swordfish", extra={"token": "haddock", "deep": [{"key": "trout"}]})
    assert not {word for word in ("swordfish", "haddock", "trout") if word in repr(made)}
    assert made.secrets() == ["swordfish", "haddock", "trout"]
