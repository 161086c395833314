"""Segments have the rows of a list after any sequence of changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.kernel import segments
from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.segments import Segments, pack_rows, unpack_rows
from support.ordering.kernel import apply

ROW: np.dtype[np.void] = np.dtype([("number", "<i8")])
PREFIX = "some/"


def pack(rows: Rows) -> bytes:
    return pack_rows(rows.view(ROW))


def unpack(value: bytes, before: int) -> Rows:
    return unpack_rows(value, ROW)[0]["number"].copy()


def stored(entries: dict[str, bytes]) -> list[int]:
    parts: list[Rows] = [np.empty(0, dtype=np.int64)]

    def collect(value: bytes, before: int) -> Rows:
        parts.append(unpack(value, before))
        assert before == sum(map(len, parts[:-1]))
        return parts[-1]

    found = Segments.restore(PREFIX, entries, collect)
    rows: list[int] = np.concatenate(parts)[found.live()].tolist()
    return rows


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    step = st.tuples(st.sampled_from(["append", "remove", "remove first", "changes", "restore"]), st.integers(1, 12), st.integers(0, 2**31))
    return draw(st.lists(step, max_size=40))


@given(steps())
@settings(max_examples=300, deadline=None)
def test_any_interleaving_equals_a_list(given_steps: list[tuple[str, int, int]]) -> None:
    rows: list[int] = []
    entries: dict[str, bytes] = {}
    found, last = Segments(PREFIX), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "MAX_SEGMENT_ROWS", 8)
        for kind, count, seed in given_steps:
            if kind == "append":
                fresh = np.arange(last + 1, last + count + 1)
                found.append(fresh)
                rows += fresh.tolist()
                last += count
            elif kind == "remove":
                gone = np.sort(np.random.default_rng(seed).permutation(np.array(rows, dtype=np.int64))[:count])
                found.remove(gone)
                rows = [row for row in rows if row not in set(gone.tolist())]
            elif kind == "remove first":
                found.remove(np.array(rows[:count], dtype=np.int64))
                rows = rows[count:]
            else:
                apply(found.changes(pack), entries)
                assert stored(entries) == rows
                joined = found.changes(pack)  # further sparse segments
                assert joined.keys() <= entries.keys()
                apply(joined, entries)
                if kind == "restore":
                    apply(found.changes(pack), entries)
                    found = Segments.restore(PREFIX, entries, unpack)
    apply(found.changes(pack), entries)
    assert stored(entries) == rows


def test_batches_of_one_row_are_stored_a_logarithmic_number_of_times() -> None:
    found, written, count = Segments(PREFIX), 0, 5_000
    entries: dict[str, bytes] = {}
    for row in range(count):
        found.append(np.array([row]))
        changes = found.changes(pack)
        written += sum(len(value) for value in changes.values() if value is not None)
        apply(changes, entries)
        assert len(entries) <= 14 + row // segments.MAX_SEGMENT_ROWS
    assert stored(entries) == list(range(count))
    assert written < 8 * count * 12


def test_sparse_segments_are_joined() -> None:
    found = Segments(PREFIX)
    entries: dict[str, bytes] = {}
    rows = np.arange(100 * segments.MAX_SEGMENT_ROWS)
    found.append(rows)
    apply(found.changes(pack), entries)
    assert len(entries) == 100
    found.remove(rows[rows % 100 != 0])
    for _ in range(100):
        changes = found.changes(pack)
        apply(changes, entries)
        assert sum(len(value) for value in changes.values() if value is not None) < 200_000
    assert len(entries) == 1
    assert stored(entries) == rows[::100].tolist()


def test_many_sparse_segments_are_joined_gradually(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_REWRITTEN_BYTES", 50_000)
    found = Segments(PREFIX)
    entries: dict[str, bytes] = {}
    rows = np.arange(100 * segments.MAX_SEGMENT_ROWS)
    found.append(rows)
    apply(found.changes(pack), entries)
    found.remove(rows[rows % 5 != 0])
    changes = found.changes(pack)
    apply(changes, entries)
    assert sum(len(value) for value in changes.values() if value is not None) < 50_000 + 16_400 + 100 * 260
    while changes:
        changes = found.changes(pack)
        apply(changes, entries)
        assert sum(len(value) for value in changes.values() if value is not None) < 16_400
    assert len(entries) < 30
    assert stored(entries) == rows[::5].tolist()


def test_a_removed_row_rewrites_only_its_bitmap() -> None:
    found = Segments(PREFIX)
    entries: dict[str, bytes] = {}
    rows = np.arange(10 * segments.MAX_SEGMENT_ROWS)
    found.append(rows)
    apply(found.changes(pack), entries)
    found.remove(np.array([5_000]))
    changes = found.changes(pack)
    assert list(changes) == [f"{PREFIX}d/000000000002"]
    found.remove(rows[rows != 5_000])
    assert set(found.changes(pack).values()) == {None}


def test_only_present_rows_can_be_removed() -> None:
    found = Segments(PREFIX)
    found.append(np.arange(5))
    with pytest.raises(ValueError, match="in the sequence"):
        found.remove(np.array([7]))
    found.changes(pack)
    found.remove(np.array([3]))
    for row in (3, 7):
        with pytest.raises(ValueError, match="in the sequence"):
            found.remove(np.array([row]))


def test_segments_out_of_order_are_rejected() -> None:
    entries = {f"{PREFIX}w/{0:012d}": pack(np.array([5, 6])), f"{PREFIX}w/{1:012d}": pack(np.array([6, 7]))}
    with pytest.raises(ValueError, match="out of order"):
        Segments.restore(PREFIX, entries, unpack)
