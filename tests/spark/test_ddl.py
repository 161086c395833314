"""Spark reads each schema that Headrace takes for right, and refuses each that Headrace refuses."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from support.pipelines.ddl_cases import RIGHT, WRONG

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_spark_agrees(spark: SparkSession) -> None:
    del spark  # whoever parses needs the session
    assert [schema for schema in RIGHT if not _reads(schema)] == []
    assert [schema for schema in WRONG if _reads(schema)] == ["", "  "]  # a payload without a field is of no use


def _reads(schema: str) -> bool:
    try:
        StructType.fromDDL(schema)
    except PySparkException:
        return False
    return True
