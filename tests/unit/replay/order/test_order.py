"""Ordering of a whole history through its partitions, compared with one step of the kernel over all of it. Without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.kernel.kernel import Kernel
from headrace.replay.order.crossing import find_crossing
from headrace.replay.order.global_order import Outcome, order_scanned
from headrace.replay.order.keyed_order import distribute, order_shard
from headrace.replay.order.scan import scan
from headrace.replay.schemas import KEY, LEADER, OCCURRED, ORDERING_KEY
from headrace.replay.shuffle_store import ShuffleStore
from support.ordering.kernel import batch, key, of_step

Event = tuple[str, str | None, int]


def each(phase: str, count: int, function: Callable[[int], object]) -> list[Any]:
    return [function(number) for number in range(count)]


def rows(events: Sequence[Event], numbers: Iterable[int]) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {"id": pa.array([id for id, _, _ in events], pa.string()), "n": pa.array(numbers, pa.int64())}
    columns[KEY] = pa.array([id or None for id, _, _ in events], pa.string())
    columns[LEADER] = pa.array([follows for _, follows, _ in events], pa.string())
    columns[OCCURRED] = pa.array([occurred for _, _, occurred in events], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def through(parts: list[list[Event]], ranges: int = 3) -> tuple[list[dict[str, Any]], Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        shelf, out = ShuffleStore(Path(folder)), Path(folder) / "out"
        out.mkdir()
        scanned, start = [], 0
        for number, events in enumerate(parts):
            cut = len(events) // 2
            batches = [rows(events[:cut], range(start, start + cut)), rows(events[cut:], range(start + cut, start + len(events)))]
            scanned.append(scan(batches if events else [], number, len(parts), shelf))
            start += len(events)
        outcome = order_scanned(scanned, ranges, "id", out, shelf, each)
        return [row for path in sorted(out.glob("*.parquet")) for row in pq.read_table(path).to_pylist()], outcome


def by_kernel(parts: list[list[Event]]) -> tuple[list[tuple[int, str | None]], Kernel]:
    """What one step of the kernel makes of the history, where a leader that is not in it is lost at once."""
    events = [event for part in parts for event in part]
    kernel = Kernel(lookback=0)
    offered = [(n + 1, key(id), None if follows is None else key(follows), -1, at, id) for n, (id, follows, at) in enumerate(events)]
    return [(told.seq - 1, told.mark) for told in of_step(kernel.step(batch(offered), 0))], kernel


@st.composite
def split_histories(draw: st.DrawFn) -> list[list[Event]]:
    names = [f"e{i}" for i in range(draw(st.integers(1, 16)))]
    leaders = st.none() | st.sampled_from([*names, "never"])
    events = [(name, draw(leaders), draw(st.integers(0, 3))) for name in names]
    arrivals = draw(st.permutations(events + draw(st.lists(st.sampled_from(events), max_size=5))))
    parts: list[list[Event]] = [[] for _ in range(draw(st.integers(1, 4)))]
    for event in arrivals:
        parts[draw(st.integers(0, len(parts) - 1))].append(event)
    return parts


@pytest.mark.slow
@given(split_histories(), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_partitioned_history_is_ordered_like_one_batch(parts: list[list[Event]], ranges: int) -> None:
    told, outcome = through(parts, ranges)
    expected, kernel = by_kernel(parts)
    assert [(row["n"], row["mark"]) for row in told] == expected
    assert [row["position"] for row in told] == list(range(1, len(told) + 1))
    assert (outcome.events, outcome.cycles, outcome.lost) == (len(expected), kernel.cycles, kernel.lost)
    assert outcome.copies == sum(map(len, parts)) - len(expected)


def test_a_reversed_chain_over_three_partitions_is_ordered() -> None:
    chain = [(str(i), str(i - 1) if i else None, 0) for i in reversed(range(3_000))]
    told, outcome = through([chain[0::3], chain[1::3], chain[2::3]])
    assert [row["id"] for row in told] == [str(i) for i in range(3_000)]
    assert (outcome.events, outcome.lost, outcome.copies) == (3_000, 0, 0)


def test_all_events_of_a_cycle_over_partitions_are_marked() -> None:
    ring: list[Event] = [(str(i), str((i + 1) % 40), i) for i in range(40)]
    told, outcome = through([ring[20:], [*ring[:20], ("hangs", "7", 0)]])
    assert [(row["id"], row["mark"]) for row in told if row["id"] != "hangs"] == [(str(i), "cycle") for i in range(40)]
    assert [row["id"] for row in told].index("hangs") == 8
    assert (outcome.cycles, outcome.in_cycles) == (1, 40)


def test_events_without_an_id_are_left_out_and_counted() -> None:
    told, outcome = through([[("a", None, 0), ("", None, 0)], []])
    assert [row["id"] for row in told] == ["a"]
    assert (outcome.unnamed, outcome.copies) == (1, 0)


@given(split_histories())
@settings(max_examples=25, deadline=None)
def test_one_shard_is_ordered_like_one_batch(parts: list[list[Event]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, events in enumerate(parts):
            batch = rows(events, range(sum(map(len, parts[:number])), sum(map(len, parts[: number + 1]))))
            dealt = distribute([batch.append_column(ORDERING_KEY, pa.nulls(len(events), pa.string()))], number, 1, ShuffleStore(folder))
            assert dealt.rows == [len(events)]
        shard = order_shard(0, len(parts), 7, "id", ShuffleStore(folder), folder)
        told = pq.read_table(folder / "part-00000.parquet").to_pylist()
    expected, kernel = by_kernel(parts)
    assert [(row["n"], row["mark"]) for row in told] == expected
    assert [row["position"] for row in told] == list(range(7, 7 + len(told)))
    assert (shard.cycles, shard.copies) == (kernel.cycles, sum(map(len, parts)) - len(expected))


def test_followers_of_leaders_with_another_key_are_reported_in_any_sharding() -> None:
    keys = {"a": "x", "b": "x", "c": "y", "d": "y", "e": "z"}
    events: list[Event] = [("a", None, 0), ("b", "a", 1), ("c", "b", 2), ("d", "never", 3), ("e", "b", 4)]
    for shards in (1, 2, 7):
        with tempfile.TemporaryDirectory() as name:
            shelf = ShuffleStore(Path(name))
            batch = rows(events, range(5)).append_column(ORDERING_KEY, pa.array([keys[id] for id, _, _ in events]))
            distribute([batch], 0, shards, shelf)
            marks = [order_shard(shard, 1, 1, "id", shelf, Path(name)).marks for shard in range(shards)]
            told = [find_crossing(bucket, shards, 2, shelf) for bucket in range(2)]
        assert sum(mark.get("lost", 0) for mark in marks) == 3
        assert sum(crossing.followers for crossing in told) == 2
        assert sorted(id for crossing in told for id in crossing.ids) == ["c", "e"]
