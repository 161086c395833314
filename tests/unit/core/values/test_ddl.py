"""Schemas of payloads are checked without Spark (first-use, small); tests/spark/test_ddl.py asks Spark about the same ones."""

from __future__ import annotations

import pytest

from headrace.core.values.ddl import check_ddl
from support.pipelines.ddl_cases import RIGHT, WRONG


@pytest.mark.parametrize("schema", RIGHT)
def test_what_spark_reads_is_taken(schema: str) -> None:
    check_ddl(schema)


@pytest.mark.parametrize("schema", ["A int, a int", "`a` int, a int", "s struct<A: int, a: int>"])
def test_a_field_that_no_column_could_name_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match="there twice"):
        check_ddl(schema)


@pytest.mark.parametrize(("schema", "words"), WRONG.items())
def test_what_it_cannot_read_is_refused_in_words(schema: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        check_ddl(schema)
    assert words in str(refused.value)
