from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from headrace.pipeline.payload.inference import InferenceUndecided, OutOfRange, in_order, merged, misfit, types_of, widest, without_nulls


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (LongType(), LongType(), LongType()),
        (LongType(), DoubleType(), DoubleType()),
        (LongType(), StringType(), StringType()),
        (NullType(), LongType(), LongType()),
        (BooleanType(), LongType(), StringType()),
        (struct(a=LongType()), StringType(), StringType()),
        (ArrayType(LongType()), ArrayType(DoubleType()), ArrayType(DoubleType())),
        (ArrayType(NullType()), ArrayType(struct(a=LongType())), ArrayType(struct(a=LongType()))),
        (struct(a=LongType()), struct(b=NullType(), a=DoubleType()), struct(a=DoubleType(), b=NullType())),
    ],
)
def test_widest_returns_a_type_for_both_types(one: DataType, other: DataType, both: DataType) -> None:
    assert widest(one, other) == both
    if not isinstance(both, StructType):
        assert widest(other, one) == both


def test_fields_retain_their_order_and_new_fields_come_last() -> None:
    assert merged(struct(b=LongType(), a=NullType()), struct(c=LongType(), a=StringType())).names == ["b", "a", "c"]


def test_inferred_types_equal_the_types_of_spark() -> None:
    found = in_order(types_of(['{"n": 1, "gate": null, "tags": []}', '{"n": 1.5, "a": {"z": true, "b": ["x"]}}']))
    assert found == struct(
        a=struct(b=ArrayType(StringType()), z=BooleanType()), gate=NullType(), n=DoubleType(), tags=ArrayType(NullType())
    )
    assert without_nulls(found) == struct(a=struct(b=ArrayType(StringType()), z=BooleanType()), n=DoubleType())
    assert without_nulls(types_of(['{"gate": null}'])) is None


@pytest.mark.parametrize("payload", ["3", "[1]"])
def test_payloads_that_are_not_objects_are_left_to_spark(payload: str) -> None:
    with pytest.raises(InferenceUndecided):
        types_of([payload])


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_an_integer_beyond_64_bits_is_text(number: int) -> None:
    """Store B25."""
    assert types_of([f'{{"n": {number}, "m": 1}}']) == struct(n=StringType(), m=LongType())


@pytest.mark.parametrize(
    ("known", "found", "odd"),
    [
        (LongType(), DoubleType(), "n"),
        (LongType(), StringType(), "n"),
        (DoubleType(), LongType(), None),
        (StringType(), struct(x=LongType()), None),
        (NullType(), struct(x=LongType()), None),
        (LongType(), NullType(), None),
        (struct(x=LongType()), struct(y=LongType()), None),
        (struct(x=LongType()), struct(x=DoubleType()), "n.x"),
        (ArrayType(struct(x=LongType())), ArrayType(struct(x=StringType())), "n[].x"),
        (BooleanType(), LongType(), "n"),
    ],
)
def test_the_first_incompatible_field_is_named(known: DataType, found: DataType, odd: str | None) -> None:
    where = misfit(struct(a=StringType(), n=known), struct(a=LongType(), n=found))
    assert (where and where[0]) == odd


@pytest.mark.parametrize("payload", ['{"n": 1e400}', '{"n": [0.5, {"m": -1.0e999}]}'])
def test_a_number_beyond_the_range_of_a_double_is_named(payload: str) -> None:
    """Store B25."""
    with pytest.raises(OutOfRange, match=r"^(1e400|-1\.0e999)$"):
        types_of(["{}", payload])
