"""Spark accepts each schema that Headrace accepts, and rejects each that Headrace rejects."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from support.pipelines.ddl_cases import RIGHT, WRONG

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_spark_and_headrace_accept_the_same_schemas(spark: SparkSession) -> None:
    del spark  # whoever parses needs the session
    assert [schema for schema in RIGHT if not _reads(schema)] == []
    assert [schema for schema in WRONG if _reads(schema)] == ["", "  "]  # a payload without a field is of no use


def _reads(schema: str) -> bool:
    try:
        StructType.fromDDL(schema)
    except PySparkException:
        return False
    return True
