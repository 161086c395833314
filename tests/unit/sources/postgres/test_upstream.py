from __future__ import annotations

from typing import Any

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.postgres.settings import connect_parameters
from headrace.sources.postgres.upstream import Postgres
from headrace.triggers.upstream import load_upstream


def test_an_upstream_is_created_again_from_its_arguments() -> None:
    upstream = Postgres(
        ["sales.refunds", "orders"], slot="shop", format="outbox", payload="body", key="customer", lane="region", progress_table="progress"
    )
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert upstream.stream_key() == "postgres:postgresql/shop/public.orders,sales.refunds"
    assert upstream.serialize()[1]["publication"] == "shop"
    assert upstream.serialize()[1]["progress_table"] == "public.progress"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slot": "Shop"}, "Invalid slot 'Shop'"),
        ({"slot": "x" * 64}, "Invalid slot"),
        ({"slot": 5}, "Invalid slot 5"),
        ({"tables": []}, "No tables"),
        ({"tables": 5}, "Invalid tables 5"),
        ({"tables": None}, "Invalid tables None"),
        ({"tables": ["orders", 5]}, "Invalid table 5"),
        ({"create_publication": "no"}, "Invalid create_publication 'no'"),
        ({"create_publication": 1}, "Invalid create_publication 1"),
        ({"create_publication": None}, "Invalid create_publication None"),
        ({"tables": "a.b.c"}, r"Invalid table 'a\.b\.c'"),
        ({"tables": "a."}, "Invalid table"),
        ({"tables": ""}, "Invalid table"),
        ({"format": "xml"}, "Invalid format 'xml'"),
        ({"payload": "body"}, "columns of an outbox"),
        ({"connection": ""}, "Invalid connection"),
        ({"progress_table": "a.b.c"}, "Invalid table"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UpstreamError, match=message):
        Postgres(**({"tables": "orders", "slot": "shop"} | arguments))


def test_a_connection_becomes_parameters_and_its_options_stay_before_those_of_the_upstream() -> None:
    connection = parse_connection(
        "postgresql", "postgresql://ada:s%20x@db.example:5433/shop?sslmode=require&options=-c%20work_mem=8MB&replication=true"
    )
    parameters = connect_parameters(connection)
    assert {name: parameters[name] for name in ("host", "port", "user", "password", "dbname", "sslmode")} == {
        "host": "db.example",
        "port": 5433,
        "user": "ada",
        "password": "s x",
        "dbname": "shop",
        "sslmode": "require",
    }
    assert parameters["options"].startswith("-c work_mem=8MB -c TimeZone=UTC")
    assert "replication" not in parameters


def test_a_connection_of_another_kind_is_an_error() -> None:
    with pytest.raises(UpstreamError, match="not 'postgresql'"):
        connect_parameters(parse_connection("db", "mysql://db.example/shop"))
