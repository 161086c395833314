"""The kernel gives the results of the pure core, batch by batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.ordering import causal_order
from headrace.core.ordering.causal_order import CYCLE, LATE, LOST, CausalOrder
from headrace.pipeline.kernel.forest import NO_ROW, in_order, resolve
from headrace.pipeline.kernel.kernel import Kernel
from headrace.pipeline.kernel.key_index import KeyIndex, column_of, keys_of
from headrace.pipeline.kernel.state import KernelState
from support.ordering.kernel import (
    LOOKBACK,
    RESTORES,
    ROUNDS,
    WIDTHS,
    History,
    Restore,
    apply,
    batch,
    histories,
    hold_equal,
    key,
    of_step,
    subset_steps,
)


@given(histories(), st.lists(st.sampled_from(RESTORES), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
@pytest.mark.slow
def test_each_step_of_the_kernel_equals_the_step_of_the_core(history: History, restores: list[Restore]) -> None:
    hold_equal(history, restores)


@given(histories(), st.lists(st.sampled_from(RESTORES), min_size=1, max_size=5), ROUNDS, WIDTHS)
@settings(max_examples=300, deadline=None)
@pytest.mark.slow
def test_a_step_over_affected_trees_equals_the_step_of_the_core(history: History, restores: list[Restore], rounds: int, wide: int) -> None:
    with subset_steps(rounds, wide):
        hold_equal(history, restores)


@pytest.mark.slow
def test_a_reversed_chain_of_100_000_in_two_batches_is_ordered() -> None:
    n = 100_000
    chain = [(n - i, key(str(i)), key(str(i - 1)) if i else None, -1, 0, str(i)) for i in reversed(range(n))]
    kernel = Kernel(LOOKBACK)
    assert not len(kernel.step(batch(chain[:-1]), 0).seqs)
    assert len(kernel) == n - 1
    step = kernel.step(batch(chain[-1:]), 7)
    assert step.seqs.tolist() == list(range(n, 0, -1))
    assert step.waited.tolist() == [0] + [7] * (n - 1)


def test_10_000_followers_of_one_leader_are_ordered() -> None:
    fan = [(i + 1, key(str(i)), key("root"), -1, -i, str(i)) for i in range(10_000)]
    step = Kernel(LOOKBACK).step(batch([*fan, (10_001, key("root"), None, -1, -5, "root")]), 0)
    assert step.seqs[0] == 10_001
    assert step.seqs[1:].tolist() == sorted(range(1, 10_001), key=lambda seq: (max(1 - seq, -5), 1 - seq))


def test_a_cycle_of_100_000_events_counts_as_one_cycle() -> None:
    n = 100_000
    ring = [(i + 1, key(str(i)), key(str((i + 1) % n)), -1, n - i, str(i)) for i in range(n)]
    kernel = Kernel(LOOKBACK)
    step = kernel.step(batch(ring), 0)
    assert step.seqs.tolist() == list(range(n, 0, -1))
    assert set(step.mark_column().to_pylist()) == {CYCLE}
    assert kernel.cycles == 1


def test_a_duplicate_that_arrives_with_its_leader_is_dropped() -> None:
    kernel = Kernel(LOOKBACK)
    kernel.step(batch([(1, key("b"), key("a"), -1, 0, "b")]), 0)
    again = [(2, key("a"), None, -1, 0, "a"), (3, key("b"), key("a"), 2, 0, "b"), (4, key("a"), None, -1, 0, "a")]
    assert [told.seq for told in of_step(kernel.step(batch(again), 0))] == [2, 1]


def test_the_number_of_lost_leaders_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_order, "GIVEN_UP_LIMIT", 4)
    kernel = Kernel(LOOKBACK)
    kernel.step(batch([(i + 1, key(f"f{i}"), key(f"l{i}"), -1, i, f"f{i}") for i in range(5)]), 0)
    assert {told.mark for told in of_step(kernel.step(batch([]), LOOKBACK))} == {LOST}
    entries: dict[str, bytes] = {}
    apply(kernel.changes(), entries)
    kernel = Kernel.restore(entries, LOOKBACK)
    late = kernel.step(batch([(i + 6, key(f"l{i}"), None, -1, i, f"l{i}") for i in range(5)]), LOOKBACK)
    assert [told.mark for told in of_step(late)] == [None, None, None, LATE, LATE]


@given(histories(), st.lists(st.sampled_from(RESTORES), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_kernel_and_core_drop_the_same_lost_leaders(history: History, restores: list[Restore], limit: int, once: int) -> None:
    with pytest.MonkeyPatch.context() as patch, subset_steps(2, 1):
        patch.setattr(causal_order, "GIVEN_UP_LIMIT", limit)
        patch.setattr(causal_order, "PRUNE_BATCH_SIZE", once)
        hold_equal(history, restores)


def test_a_state_is_restored_from_core_to_kernel_and_back() -> None:
    core = CausalOrder(LOOKBACK)
    core.offer([(1, key("b"), key("a"), -1, 0, "b"), (2, key("ä"), key("x"), -1, 5, "ä")], 0)
    core.expire(LOOKBACK)
    core.offer([(3, key("c"), key("q"), -1, 0, "çç"), (4, key("d"), key("q"), -1, 0, "")], LOOKBACK)
    kernel = Kernel.of_snapshot(core.snapshot(), LOOKBACK)
    assert (kernel.position, kernel.head, kernel.lost, len(kernel)) == (2, 4, 2, 2)
    assert kernel.waiting.id.to_pylist() == ["çç", ""]
    assert (kernel.lowest, kernel.waits(np.array([2, 3, 4, 5])).tolist()) == (3, [False, True, True, False])
    assert [column.tolist() for column in kernel.oldest(1)] == [[3], [LOOKBACK]]
    assert CausalOrder.restore(kernel.snapshot(), LOOKBACK).snapshot() == core.snapshot()
    with pytest.raises(ValueError, match="not an ordering state"):
        KernelState.unpack(b"something else")


def test_changes_that_are_incomplete_or_of_another_version_are_rejected() -> None:
    kernel = Kernel(LOOKBACK)
    kernel.step(batch([(1, key("b"), key("a"), -1, 0, "b"), (2, key("d"), key("c"), -1, 0, "d")]), 0)
    kernel.step(batch([(3, key("a"), None, -1, 0, "a")]), LOOKBACK)
    entries: dict[str, bytes] = {"scope": b"not ours"}
    apply(kernel.changes(), entries)
    assert sorted(entries) == ["order/given_up/w/000000000000", "order/totals", "scope"]
    assert kernel.changes() == {}
    for broken, says in [
        ({"order/x": b""}, "not known to this version"),
        ({"order/totals": b"\2" + bytes(40)}, "another version"),
        ({"order/totals": b"\1"}, "another version"),
        ({"order/w/000000000000": b"\2" + bytes(4)}, "version 2"),
        ({"order/w/000000000000": b"\1\1\0\0\0"}, "bytes instead of"),
        ({"order/given_up/d/000000000000": b"\1"}, "bitmap"),
        ({"order/given_up/d/000000000001": b"\1\0"}, "not there"),
        ({"order/w/1": b""}, "not the key of a segment"),
    ]:
        with pytest.raises(ValueError, match=says):
            Kernel.restore(entries | broken, LOOKBACK)
    del entries["order/totals"]
    with pytest.raises(ValueError, match="no order/totals"):
        Kernel.restore(entries, LOOKBACK)
    assert Kernel.restore({"scope": b"not ours"}, LOOKBACK).snapshot() == Kernel(LOOKBACK).snapshot()


def test_keys_with_one_common_half_are_distinguished() -> None:
    raw = [bytes(16), b"\1" + bytes(15), bytes(8) + b"\1" + bytes(7), bytes(16)]
    keys, valid = keys_of(pa.chunked_array([raw, [None]], pa.binary()))
    index = KeyIndex(keys[:4])
    assert valid.tolist() == [True] * 4 + [False]
    assert index.first().tolist() == [True, True, True, False]
    assert index.find(keys[:4]).tolist() == [0, 1, 2, 0]
    assert index.find(np.array([[9, 9]], dtype=np.uint64)).tolist() == [NO_ROW]
    assert column_of(keys[:3]).to_pylist() == raw[:3]


def test_keys_with_colliding_hashes_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.kernel.key_index.mixed", lambda keys: np.zeros(len(keys), dtype=np.uint64))
    keys, _ = keys_of(pa.array([key("a"), key("b"), key("a")], pa.binary()))
    index = KeyIndex(keys)
    assert index.first().tolist() == [True, True, False]
    assert index.find(keys).tolist() == [0, 1, 0]


def test_a_key_of_a_wrong_length_is_rejected() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        keys_of(pa.array([b"short"]))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.sampled_from("abc")), max_size=40))
def test_the_order_equals_a_sort_by_all_columns(rows: list[tuple[int, int, int, str]]) -> None:
    eff, depth, occurred = (np.array([row[at] for row in rows], dtype=np.int64) for at in range(3))
    order = in_order(eff, depth, occurred, pa.array([row[3] for row in rows], pa.string()), np.arange(len(rows)))
    assert order.tolist() == sorted(range(len(rows)), key=lambda at: (*rows[at], at))


def test_effective_time_is_the_latest_of_all_rows_above() -> None:
    above = np.array([0, 0, 1, 2, 3, 4, 5])
    climbed = resolve(above, np.array([70, 1, 2, 80, 3, 4, 90]))
    assert climbed.eff.tolist() == [70, 70, 70, 80, 80, 80, 90]
    assert climbed.root.tolist() == [0] * 7


def test_depths_of_contracted_trees_add_up() -> None:
    above = np.array([0, 0, 1])
    climbed = resolve(above, np.array([9, 5, 1]), np.array([0, 2, 4]))
    assert climbed.depth.tolist() == [0, 2, 6]
    assert climbed.eff.tolist() == [9, 9, 9]
