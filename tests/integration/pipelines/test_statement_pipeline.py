"""Statements sent to PostgreSQL in a pipeline: each has its own result, the first error is raised, and the connection stays usable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.store.dialects.statement_pipeline import MAX_QUEUED_STATEMENTS, StatementPipeline
from support.processes.postgres import database_of

VALUES = {"n": 7, "large": 2**62, "text": "å", "raw": b"\x00\xff", "none": None, "keys": [b"a", b"\\"], "flag": True}


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[StatementPipeline]:
    with psycopg.connect(database_of(tmp_path, empty=True), autocommit=True) as connection:
        yield StatementPipeline(connection)


def test_values_are_returned_unchanged(pipeline: StatementPipeline) -> None:
    names = "%(n)s, %(large)s, %(text)s::text, %(raw)s, %(none)s::text, %(keys)s::bytea[], %(flag)s::boolean, %(n)s"
    for _ in range(2):
        assert pipeline.execute(f"SELECT {names}", VALUES).all() == [(7, 2**62, "å", b"\x00\xff", None, [b"a", b"\\"], True, 7)]


def test_more_statements_than_the_queue_limit_have_ordered_results(pipeline: StatementPipeline) -> None:
    results = [pipeline.execute("SELECT %(n)s + 1", {"n": n}) for n in range(3 * MAX_QUEUED_STATEMENTS)]
    assert [result.all() for result in results] == [[(n + 1,)] for n in range(3 * MAX_QUEUED_STATEMENTS)]


def test_the_first_error_is_raised_and_its_transaction_is_rolled_back(pipeline: StatementPipeline) -> None:
    pipeline.execute("CREATE TABLE numbers (n bigint PRIMARY KEY)", {})
    pipeline.sync()
    first = pipeline.execute("INSERT INTO numbers VALUES (%(n)s)", {"n": 1})
    second = pipeline.execute("INSERT INTO numbers VALUES (%(n)s)", {"n": 1})
    third = pipeline.execute("INSERT INTO numbers VALUES (%(n)s / 0)", {"n": 1})
    assert first.rowcount == 1
    for failed in (second, third):
        with pytest.raises(psycopg.errors.UniqueViolation):
            failed.all()
    with pytest.raises(psycopg.errors.UniqueViolation):
        pipeline.sync()
    assert pipeline.execute("SELECT n FROM numbers", {}).all() == []
    pipeline.sync()


def test_a_statement_is_prepared_again_after_a_failure(pipeline: StatementPipeline) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        pipeline.execute("SELECT n FROM later", {}).all()
    with pytest.raises(psycopg.errors.UndefinedTable):
        pipeline.sync()
    pipeline.execute("CREATE TABLE later (n bigint)", {})
    assert pipeline.execute("SELECT n FROM later", {}).all() == []
    pipeline.sync()


def test_a_text_with_a_nul_is_refused(pipeline: StatementPipeline) -> None:
    with pytest.raises(psycopg.DataError):
        pipeline.execute("SELECT %(text)s::text", {"text": "a\0b"})
    assert pipeline.execute("SELECT %(n)s", {"n": 1}).all() == [(1,)]
