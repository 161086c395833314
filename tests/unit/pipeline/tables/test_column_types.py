from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from headrace.errors import TypeConflict
from headrace.pipeline.tables.column_types import canonical, check_names, conformed, widened

KINDS = {
    "void": pa.null(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "d(12,2)": pa.decimal128(12, 2),
    "d(12,3)": pa.decimal128(12, 3),
    "d(10,2)": pa.decimal128(10, 2),
    "d(18,0)": pa.decimal128(18, 0),
}


def kind(text: str) -> pa.DataType:
    """Return a type: one of KINDS, `[type]` for a list, `{name type; …}` for a struct, `<type>` for a map from texts."""
    if text[0] == "[":
        return pa.large_list(kind(text[1:-1]))
    if text[0] == "<":
        return pa.map_(pa.string(), kind(text[1:-1]))
    if text[0] == "{":
        return pa.struct([pa.field(*named(part)) for part in text[1:-1].split("; ")])
    return KINDS[text]


def named(text: str) -> tuple[str, pa.DataType]:
    name, _, rest = text.partition(" ")
    return name, kind(rest)


def schema(text: str) -> pa.Schema:
    return canonical(pa.schema([pa.field(*named(part), nullable="void" in part) for part in text.split(", ")] if text else []))


@pytest.mark.parametrize(
    ("table", "rows", "both"),
    [
        ("a long", "a int", "a long"),
        ("a long", "b int", "a long, b int"),
        ("a long, b int", "b int", "a long, b int"),
        ("a short", "a byte", "a short"),
        ("a double", "a float", "a double"),
        ("a double", "a long", "a double"),
        ("a float", "a int", "a float"),
        ("a d(12,2)", "a int", "a d(12,2)"),
        ("a d(12,3)", "a d(10,2)", "a d(12,3)"),
        ("a string", "a void", "a string"),
        ("a [double]", "a [int]", "a [double]"),
        ("a <long>", "a <int>", "a <long>"),
        ("a {x long}", "a {y int; x int}", "a {x long; y int}"),
        ("a [{x int}]", "a [{y int}]", "a [{x int; y int}]"),
        ("", "a long", "a long"),
    ],
)
def test_a_table_takes_narrower_types_and_new_columns(table: str, rows: str, both: str) -> None:
    assert widened(schema(table), schema(rows), "legs") == schema(both)


@pytest.mark.parametrize(
    ("table", "rows", "said"),
    [
        ("a string", "a long", "the column 'a' is string in the table and bigint in the rows"),
        ("a long", "a string", "the column 'a' is bigint in the table and string in the rows"),
        ("a long", "a double", "the column 'a' is bigint in the table and double in the rows"),
        ("a int", "a long", "the column 'a' is int in the table and bigint in the rows"),
        ("a d(18,0)", "a long", "decimal(18,0) in the table and bigint in the rows"),
        ("a d(12,2)", "a d(12,3)", "decimal(12,2) in the table and decimal(12,3) in the rows"),
        ("a int", "a boolean", "int in the table and boolean in the rows"),
        ("a timestamp", "a date", "timestamp in the table and date in the rows"),
        ("a timestamp", "a timestamp_ntz", "timestamp in the table and timestamp_ntz in the rows"),
        ("a string", "a {x int}", "string in the table and struct<x:int> in the rows"),
        ("a [int]", "a [string]", "array<int> in the table and array<string> in the rows"),
        ("a {x int}", "a {X int}", "struct<x:int> in the table and struct<X:int> in the rows"),
        ("a long", "A long", "the column 'A' is 'a' in the table"),
        ("a long", "b void", "the column 'b' is null in all rows and has no type"),
        ("a long", "b [void]", "the column 'b' is null in all rows and has no type"),
    ],
)
def test_incompatible_types_are_rejected_naming_both(table: str, rows: str, said: str) -> None:
    with pytest.raises(TypeConflict, match="its rows do not fit the table 'legs': ") as caught:
        widened(schema(table), schema(rows), "legs")
    assert said in str(caught.value)
    assert "redrive" in (caught.value.hint or "")


def test_names_are_compared_without_case_in_structs_too() -> None:
    inner, pair = StructType([StructField("a", LongType())]), [StructField("x", LongType()), StructField("X", LongType())]
    check_names(StructType([StructField("a", LongType()), StructField("b", inner)]))
    for kind, said in (
        (StructType(pair), "it returns columns of one name: 'x', 'X'"),
        (
            StructType([StructField("p", StructType([StructField("q", ArrayType(StructType(pair)))]))]),
            "the column 'p.q' has fields of one name",
        ),
        (StructType([StructField("p", MapType(StringType(), StructType(pair)))]), "the column 'p' has fields of one name: 'x', 'X'"),
    ):
        with pytest.raises(TypeConflict, match=said):
            check_names(kind)


def test_rows_get_the_columns_and_types_of_the_table() -> None:
    rows = pa.table({"b": pa.array([3], pa.int32()), "s": pa.array([{"y": 1}])})
    made = conformed(rows, schema("a string, b double, s {x string; y long}"), "legs")
    assert made.to_pylist() == [{"a": None, "b": 3.0, "s": {"x": None, "y": 1}}]
    with pytest.raises(TypeConflict, match=r"'b' is double in the table and bigint in the rows: .*9007199254740993"):
        conformed(pa.table({"b": [2**53 + 1]}), schema("b double"), "legs")
