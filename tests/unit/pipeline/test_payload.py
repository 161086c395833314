from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from headrace.pipeline.payload_types import Unsure, in_order, merged, types_of, widest, without_nulls


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (LongType(), LongType(), LongType()),
        (LongType(), DoubleType(), DoubleType()),
        (LongType(), DecimalType(20, 0), DoubleType()),
        (NullType(), LongType(), LongType()),
        (BooleanType(), LongType(), StringType()),
        (struct(a=LongType()), StringType(), StringType()),
        (ArrayType(LongType()), ArrayType(DoubleType()), ArrayType(DoubleType())),
        (ArrayType(NullType()), ArrayType(struct(a=LongType())), ArrayType(struct(a=LongType()))),
        (struct(a=LongType()), struct(b=NullType(), a=DoubleType()), struct(a=DoubleType(), b=NullType())),
    ],
)
def test_the_widest_of_two_types(one: DataType, other: DataType, both: DataType) -> None:
    assert widest(one, other) == both
    if not isinstance(both, StructType):
        assert widest(other, one) == both


def test_fields_keep_their_place_and_new_ones_come_last() -> None:
    assert merged(struct(b=LongType(), a=NullType()), struct(c=LongType(), a=StringType())).names == ["b", "a", "c"]


def test_payloads_have_the_types_that_spark_would_find() -> None:
    found = in_order(types_of(['{"n": 1, "gate": null, "tags": []}', '{"n": 1.5, "a": {"z": true, "b": ["x"]}}']))
    assert found == struct(
        a=struct(b=ArrayType(StringType()), z=BooleanType()), gate=NullType(), n=DoubleType(), tags=ArrayType(NullType())
    )
    assert without_nulls(found) == struct(a=struct(b=ArrayType(StringType()), z=BooleanType()), n=DoubleType())
    assert without_nulls(types_of(['{"gate": null}'])) is None


@pytest.mark.parametrize("payload", ["3", "[1]", f'{{"n": {2**63}}}'])
def test_what_is_no_object_or_no_64_bit_number_is_left_to_spark(payload: str) -> None:
    with pytest.raises(Unsure):
        types_of([payload])
