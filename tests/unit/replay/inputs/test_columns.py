"""Columns of a history as the ordering reads them, and Parquet split into parts. Without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UsageError
from headrace.replay.inputs.columns import as_micros, as_text
from headrace.replay.inputs.files import files_of
from headrace.replay.inputs.parquet import ParquetParts, parquet_parts
from headrace.replay.options import Fields
from headrace.replay.order.digests import digests
from headrace.replay.schemas import KEY, LEADER, OCCURRED

AT = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
MICROS = int(AT.timestamp()) * 1_000_000


@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(0, 3))
def test_only_equal_values_have_equal_digests(values: list[bytes], skipped: int) -> None:
    given_values = [b"before"] * skipped + values
    whole = digests(pa.array(given_values, pa.binary()))
    part = digests(pa.array(given_values, pa.binary()).slice(skipped))
    assert (whole[skipped:] == part).all()
    alone = [digests(pa.array([value], pa.binary())).tobytes() for value in values]
    assert [half.tobytes() for half in part] == alone
    assert len(set(alone)) == len(set(values))


def test_digests_of_similar_ids_differ() -> None:
    like = pa.array([f"flight-{i // 1000:06d}/leg-{i % 1000:09d}" for i in range(200_000)])
    found = digests(like)
    assert len(np.unique(found[:, 0])) == len(np.unique(found[:, 1])) == len(like)
    crowd = np.bincount((found[:, 0] % np.uint64(64)).astype(np.int64), minlength=64)
    assert crowd.min() > 0.9 * len(like) / 64


def test_null_and_the_empty_text_have_the_same_digest() -> None:
    assert (digests(pa.array([None, ""], pa.string())) == digests(pa.array(["", ""]))).all()
    assert digests(pa.array([], pa.string())).shape == (0, 2)


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([1, None, -3]), ["1", None, "-3"]),
        (pa.array([1.0, None, float("nan"), 2.0**52]), ["1", None, None, str(2**52)]),
        (pa.array([1.0, 1.5]), ["1", "1.5"]),
        (pa.array(["a", "", None]), ["a", None, None]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array([b"\xff\x00", b""]), [b"\xff\x00", None]),
        (pa.array([Decimal("1.50")]), ["1.50"]),
        (pa.nulls(2), [None, None]),
    ],
)
def test_ids_are_converted_to_text(column: pa.Array, texts: list[Any]) -> None:
    assert as_text(column).to_pylist() == texts


@pytest.mark.parametrize(
    ("column", "micros"),
    [
        (pa.array([AT, None], pa.timestamp("ns", "UTC")), [MICROS, None]),
        (pa.array([AT], pa.timestamp("s", "Europe/Vienna")), [MICROS]),
        (pa.array([AT.replace(tzinfo=None)], pa.timestamp("ms")), [MICROS]),
        (pa.array([AT.date()]), [MICROS - 12 * 3_600_000_000 - 30 * 60_000_000]),
        (pa.array([int(AT.timestamp())]), [MICROS]),
        (pa.array([AT.timestamp() + 0.25, float("nan"), float("inf")]), [MICROS + 250_000, None, None]),
        (pa.array(["2026-11-21T12:30:00Z", None]), [MICROS, None]),
        (pa.array(["2026-11-21 13:30:00+01:00", "2026-11-21T12:30:00"]), [MICROS, MICROS]),
        (pa.array([str(AT.timestamp()), "at noon", "1e400"]), [MICROS, None, None]),
        (pa.nulls(1), [None]),
    ],
)
def test_times_are_converted_to_micros(column: pa.Array, micros: list[int | None]) -> None:
    assert as_micros(column).to_pylist() == micros


def test_a_boolean_is_not_a_time() -> None:
    with pytest.raises(pa.ArrowTypeError, match="bool"):
        as_micros(pa.array([True]))


def parts_of(folder: Path, fields: Fields, at_least: int = 1) -> ParquetParts:
    return parquet_parts(files_of([folder]), fields, at_least)


def all_rows(parts: ParquetParts) -> list[dict[str, Any]]:
    return [row for part in range(len(parts.parts)) for batch in parts.read(part) for row in batch.to_pylist()]


def test_row_groups_are_distributed_and_read_once(tmp_path: Path) -> None:
    for number in range(3):
        ids = [f"{number}-{i}" for i in range(100)]
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{number}.parquet", row_group_size=10)
    parts = parts_of(tmp_path, Fields(), at_least=7)
    assert 7 <= len(parts.parts) <= 8
    assert [row[KEY] for row in all_rows(parts)] == [f"{number}-{i}" for number in range(3) for i in range(100)]


def test_files_with_different_columns_and_partition_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "day=21%2F11").mkdir()
    pq.write_table(pa.table({"_id": pa.array([1], pa.int32())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"_id": [2], "up": [1.0]}), tmp_path / "day=21%2F11" / "1.parquet")
    rows = all_rows(parts_of(tmp_path, Fields("_id", "up")))
    assert [(row["_id"], row["up"], row["day"], row[KEY], row[LEADER]) for row in rows] == [
        (1, None, None, "1", None),
        (2, 1.0, "21/11", "2", "1"),
    ]
    assert all(row[OCCURRED] is None for row in rows)


def test_paths_into_struct_columns_are_read(tmp_path: Path) -> None:
    pq.write_table(
        pa.Table.from_pylist([{"leg": {"id": "a", "up": None}}, {"leg": {"id": "b", "up": "a"}}, {"leg": None}]), tmp_path / "0.parquet"
    )
    assert [(row[KEY], row[LEADER]) for row in all_rows(parts_of(tmp_path, Fields("$.leg.id", "$.leg.up")))] == [
        ("a", None),
        ("b", "a"),
        (None, None),
    ]
    for wrong in ("$.leg.no", "$.no.id", "$.leg[0]", "leg.id"):
        with pytest.raises(UsageError, match="has no column"):
            parts_of(tmp_path, Fields(wrong))


def test_errors_in_files_are_reported(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "sure": [True], "legs": [[1]]}), tmp_path / "0.parquet")
    with pytest.raises(UsageError, match="--occurred: a column of type bool is not a time"):
        parts_of(tmp_path, Fields(occurred="sure"))
    with pytest.raises(UsageError, match=r"--follows: a column of type list<.*> is not a name"):
        parts_of(tmp_path, Fields(follows="legs"))
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "1.parquet")
    with pytest.raises(UsageError, match=r"1\.parquet are not those of the files before it.*id has incompatible types"):
        parts_of(tmp_path, Fields())
    (tmp_path / "1.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UsageError, match=r"1\.parquet is not a complete Parquet file"):
        parts_of(tmp_path, Fields())
    (tmp_path / "1.parquet").unlink()
    (tmp_path / "1.parquet").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"1\.parquet cannot be read"):
        parts_of(tmp_path, Fields())
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "_SUCCESS").touch()
    with pytest.raises(UsageError, match="has no files"):
        files_of([tmp_path / "hidden"])
