"""Payloads parsed without Spark equal the result of `from_json`; other payloads are parsed by Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, LongType, NullType, StringType, StructField, StructType

from headrace.pipeline.payload.arrow_parser import structs

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DECLARED = (
    "n long, i int, t string, d double, b boolean, s struct<x: long, deep: struct<t: string>>, a array<long>, o array<struct<x: long>>"
)
ALIKE = [
    '{"n": 1, "i": 2, "t": "x", "d": 0.1, "b": true, "s": {"x": 1, "deep": {"t": "y"}}, "a": [1, null], "o": [{"x": 1}, null, {}]}',
    "{}",
    '{"n": null, "t": null, "d": null, "b": null, "s": null, "a": null}',
    '{"other": {"n": 1}, "t": "\\ud83d\\ude00 é \\n \\u0000 \\" \\\\ /"}',
    '{"n": -9223372036854775808, "i": 2147483647}',
    '{"n": -0, "d": -0.0}',
    '{"d": 1}',
    '{"d": 123456789012345678}',
    '{"d": 99999999999999999999}',
    '{"d": 1.7976931348623157e308}',
    '{"d": 2.2250738585072011e-308}',
    '{"s": {}, "a": [], "o": []}',
    '{"t": "2020-01-01T00:00:00Z"}',
    '{"n":\n1 ,\r\n\t"t" : "" }  ',
]
OTHERS = [
    '{"n": "1"}',
    '{"n": 1.0}',
    '{"n": 1e3}',
    '{"n": 9223372036854775808}',
    '{"i": 2147483648}',
    '{"t": 1}',
    '{"t": {"x": 1}}',
    '{"d": "NaN"}',
    '{"d": 1e400}',
    '{"b": 1}',
    '{"s": []}',
    '{"a": 1}',
    '{"n": 1, "n": 2}',
    '{"t": "\\ud83d"}',
    ' {"n": 1}',
    "null",
    "[1]",
    '"x"',
]


def declared() -> StructType:
    schema = StructType.fromDDL(DECLARED)
    assert isinstance(schema, StructType)
    return schema


def test_payloads_parsed_without_spark_equal_the_result_of_from_json(spark: SparkSession) -> None:
    texts = [*ALIKE, *OTHERS]
    rows = spark.createDataFrame([(text,) for text in texts], "payload string").select(fn.from_json("payload", DECLARED).alias("p"))
    wanted = [None if row.p is None else row.p.asDict(recursive=True) for row in rows.collect()]
    for text, right in zip(texts, wanted, strict=True):
        found = structs(pa.chunked_array([[text, "{}"]], pa.string()), declared(), exact=False)
        assert (found is None) == (text in OTHERS), text
        if found is not None:
            assert repr(found[0].as_py()) == repr(right), text


def test_many_payloads_keep_their_order() -> None:
    texts = [json.dumps({"n": n, "t": "x" * (n % 50)}) for n in range(100_000)]
    payloads = pa.chunked_array([texts[:7], texts[7:60_000], texts[60_000:]])
    found = structs(payloads.slice(3), declared(), exact=False)
    assert found is not None
    assert found.field("n").to_pylist() == list(range(3, 100_000))


@pytest.mark.parametrize("payload", ['{"new": 1}', '{"z": 1}', '{"a": [1]}', '{"n": "x"}'])
def test_payloads_outside_the_learned_schema_are_parsed_by_spark(payload: str) -> None:
    learned = StructType(
        [
            StructField("n", LongType()),
            StructField("z", NullType()),
            StructField("a", ArrayType(NullType())),
            StructField("t", StringType()),
        ]
    )
    fits = ['{"n": 1, "t": "x"}', '{"z": null, "a": [null]}']
    assert structs(pa.chunked_array([[*fits, payload]]), learned, exact=True) is None
    assert structs(pa.chunked_array([fits]), learned, exact=False) is None
    found = structs(pa.chunked_array([fits]), learned, exact=True)
    assert found is not None
    assert found.to_pylist() == [{"n": 1, "z": None, "a": None, "t": "x"}, {"n": None, "z": None, "a": [None], "t": None}]
    assert found.type.field("z").type == pa.string()
