"""Random histories of a scope, run through the pure core and the kernel side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from headrace.core.identity import event_key
from headrace.core.ordering.causal_order import CYCLE, LOST, CausalOrder, Offered, Released
from headrace.pipeline.kernel import appendable_columns, key_runs, segments, waiting_events
from headrace.pipeline.kernel import kernel as kernel_module
from headrace.pipeline.kernel.kernel import Kernel, KernelResult

LOOKBACK = 1_000

Restore: TypeAlias = Literal["", "snapshot", "changes"]
"""What a kernel is made again of after a step; nothing: it goes on."""
RESTORES: tuple[Restore, ...] = ("", "snapshot", "changes")

SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("key", pa.binary()),
        ("leader_key", pa.binary()),
        ("leader_seq", pa.int64()),
        ("occurred", pa.int64()),
        ("id", pa.string()),
    ]
)


class Told(NamedTuple):
    """What became of one event in one step."""

    seq: int
    mark: str | None
    waited: int


def key(id: str) -> bytes:
    return event_key("tests", id)


def batch(offered: Sequence[Offered]) -> pa.Table:
    columns: list[Sequence[object]] = list(zip(*offered, strict=True)) if offered else [[] for _ in SCHEMA]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def of_step(step: KernelResult) -> list[Told]:
    return list(map(Told, step.seqs.tolist(), step.mark_column().to_pylist(), step.waited.tolist()))


def of_released(*parts: Released) -> list[Told]:
    return [told for part in parts for told in map(Told, part.seqs, part.marks, part.waited)]


@dataclass
class History:
    """Batches as the log stamps them, with the pause before each; `again` says which batches begin with the one before."""

    batches: list[list[Offered]]
    pauses: list[int]
    again: list[bool]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Any forest, with cycles, copies and leaders that never come, in any order of arrival, cut anywhere."""
    names = [f"e{i}" for i in range(draw(st.integers(1, 14)))]
    leaders = st.none() | st.sampled_from([*names, "never-1", "never-2", "before"])
    events = [(name, draw(leaders), draw(st.integers(0, 3))) for name in names]
    seqs = {"before": 1}
    offered: list[Offered] = []
    copies = draw(st.lists(st.sampled_from(events), max_size=draw(st.sampled_from([0, 4]))))
    for seq, (name, follows, occurred) in enumerate(draw(st.permutations([*events, *copies])), 2):
        leader = None if follows is None else key(follows)
        offered.append((seq, key(name), leader, seqs.get(follows or "", -1), occurred, name))
        seqs.setdefault(name, seq)
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(offered)), max_size=5))), len(offered)]
    batches = [offered[start:end] for start, end in itertools.pairwise(cuts)]
    pauses = st.sampled_from([0, 1, LOOKBACK // 2, LOOKBACK])
    count = len(batches)
    return History(
        batches,
        draw(st.lists(pauses, min_size=count, max_size=count)),
        draw(st.lists(st.booleans(), min_size=count, max_size=count)),
    )


ROUNDS = st.sampled_from([1, 2, 64])
WIDTHS = st.sampled_from([0, 1, 64])


@contextmanager
def subset_steps(rounds: int, wide: int) -> Iterator[None]:
    """Let each batch be small beside what waits, however small that is; `rounds` and `wide` say how trees are looked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_module, "SUBSET_RATIO", 0)
        patch.setattr(waiting_events, "MAX_GENERATIONS", rounds)
        patch.setattr(waiting_events, "SCAN_RATIO", wide)
        patch.setattr(appendable_columns, "MIN_CAPACITY", 2)
        patch.setattr(waiting_events, "MIN_CAPACITY", 2)
        patch.setattr(key_runs, "MAX_MERGED", 4)
        patch.setattr(segments, "MAX_SEGMENT_ROWS", 4)
        yield


def apply(changes: Mapping[str, bytes | None], entries: dict[str, bytes]) -> None:
    """Store what changed."""
    for key, value in changes.items():
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value


def hold_equal(history: History, restores: Sequence[Restore]) -> None:
    """Assert that the kernel does in each step what the core does, and that the order of both is one that the contract allows.

    After each step the kernel is made again of what `restores` says for it, in turn.
    """
    core, kernel, now = CausalOrder(LOOKBACK), Kernel(LOOKBACK), 0
    entries: dict[str, bytes] = {}
    restore_of = itertools.cycle(restores)
    known = {offered[0]: offered for offered in itertools.chain(*history.batches)}
    before: list[Offered] = []
    for fresh, pause, again in zip(history.batches, history.pauses, history.again, strict=True):
        now += pause
        events = [*before, *fresh, *fresh] if again else fresh
        expected = of_released(core.offer(events, now), core.expire(now))
        told = of_step(kernel.step(batch(events), now))
        assert sorted(told, key=lambda event: event.seq) == sorted(expected, key=lambda event: event.seq)
        assert kernel.snapshot() == core.snapshot()
        if len({offered[1] for offered in known.values()}) == len(known):  # the order of repeated events is not checked
            for order in (told, expected):
                leaders_come_first(order, known)
            siblings_in_order(told, known)
        source = next(restore_of)
        if source == "snapshot":
            kernel, entries = Kernel.of_snapshot(core.snapshot(), LOOKBACK), {}
        elif source == "changes":
            apply(kernel.changes(), entries)
            kernel = Kernel.restore(entries, LOOKBACK)
            assert kernel.snapshot() == core.snapshot()
        before = fresh


def leaders_come_first(told: list[Told], known: dict[int, Offered]) -> None:
    """Assert it of all whose leader is released in the same step and whose mark does not say that they did not wait for it."""
    place = {known[event.seq][1]: at for at, event in enumerate(told)}
    for at, event in enumerate(told):
        leader = known[event.seq][2]
        if event.mark not in {LOST, CYCLE} and leader is not None and leader != known[event.seq][1] and leader in place:
            assert place[leader] < at


def siblings_in_order(told: list[Told], known: dict[int, Offered]) -> None:
    """Assert that followers of one leader, and the members of a cycle, come by (occurred, id)."""
    groups: dict[object, list[tuple[int, str]]] = {}
    here = {known[event.seq][1] for event in told}
    for event in told:
        _, _, leader, _, occurred, id = known[event.seq]
        if event.mark == CYCLE:
            groups.setdefault(CYCLE, []).append((occurred, id))
        elif leader != known[event.seq][1] and (leader in here or event.mark == LOST):
            groups.setdefault((leader, event.mark == LOST), []).append((occurred, id))
    for group in groups.values():
        assert group == sorted(group)
