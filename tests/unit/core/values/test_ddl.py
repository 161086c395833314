"""Schemas of payloads are checked without Spark; tests/spark/test_ddl.py compares the same schemas with Spark."""

from __future__ import annotations

import pytest

from headrace.core.values.ddl import check_ddl
from support.pipelines.ddl_cases import RIGHT, WRONG


@pytest.mark.parametrize("schema", RIGHT)
def test_a_schema_that_spark_accepts_is_accepted(schema: str) -> None:
    check_ddl(schema)


@pytest.mark.parametrize("schema", ["A int, a int", "`a` int, a int", "s struct<A: int, a: int>"])
def test_a_duplicate_field_is_rejected(schema: str) -> None:
    with pytest.raises(ValueError, match="there twice"):
        check_ddl(schema)


@pytest.mark.parametrize(("schema", "words"), WRONG.items())
def test_an_invalid_schema_is_rejected_with_the_reason(schema: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        check_ddl(schema)
    assert words in str(refused.value)
