"""The held events of a pipeline equal a list after any sequence of changes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.kernel import segments
from headrace.pipeline.ordering.held_events import HeldEvents
from support.ordering.kernel import apply

PREFIX = "held/0/"


@dataclass
class Model:
    """What is held as a list; `before` is how many were held when the batch began."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)
    before: int = 0
    first: int = 0
    last: int = 0

    def append(self, rows: list[tuple[int, int, int]], now: int) -> None:
        if rows:
            self.first, self.last = self.first if self.rows else now, now
            self.rows += rows

    def take(self, count: int) -> list[tuple[int, int, int]]:
        taken, self.rows = self.rows[:count], self.rows[count:]
        if taken and len(taken) >= self.before:
            self.first = self.last
        self.before = max(0, self.before - len(taken))
        if not self.rows:
            self.first = self.last = 0
        return taken


STEPS = st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 12), max_size=3), st.booleans()), max_size=25)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_any_interleaving_equals_a_list(steps: list[tuple[int, list[int], bool]]) -> None:
    """A step is one batch: so many events come, so many are taken at a time, and the state is restored or not."""
    held, model, entries = HeldEvents(PREFIX), Model(), {"scope": b"not ours"}
    count = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "MAX_SEGMENT_ROWS", 8)
        for now, (fresh, takes, restore) in enumerate(steps, 1):
            rows = [((count + i) * 7 % 101, count + i, i % 4) for i in range(fresh)]
            count += fresh
            columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
            held.append(columns[:, 0], columns[:, 1], columns[:, 2].astype(np.int8), now)
            model.append(rows, now)
            for take in takes:
                seqs, positions, marks = held.take(take)
                assert list(zip(seqs.tolist(), positions.tolist(), marks.tolist(), strict=True)) == model.take(take)
            apply(held.changes(), entries)
            model.before = len(model.rows)
            if restore:
                held = HeldEvents.restore(entries, PREFIX)
            assert held.seqs.tolist() == [row[0] for row in model.rows]
            assert held.lowest == min((row[0] for row in model.rows), default=None)
            assert (len(held), held.first, held.last) == (len(model.rows), model.first, model.last)
    held.take(len(held))
    for _ in range(2):
        apply(held.changes(), entries)
    assert entries == {"scope": b"not ours"}


def test_a_small_batch_among_many_held_events_writes_few_bytes() -> None:
    held = HeldEvents(PREFIX)
    entries: dict[str, bytes] = {}
    many = np.arange(300_000)
    held.append(many, many, np.zeros(len(many), dtype=np.int8), 1)
    apply(held.changes(), entries)
    for now in range(2, 50):
        fresh = np.arange(now * 1_000_000, now * 1_000_000 + 100)
        held.append(fresh, fresh, np.zeros(100, dtype=np.int8), now)
        held.take(100)
        changes = held.changes()
        apply(changes, entries)
        assert sum(len(value) for value in changes.values() if value is not None) < 100_000
    assert HeldEvents.restore(entries, PREFIX).seqs.tolist() == held.seqs.tolist()


def test_a_large_batch_is_stored_compactly() -> None:
    """A plan is one request: what a leader of a million releases has to go into it."""
    held = HeldEvents(PREFIX)
    many = np.random.default_rng(1).permutation(200_000)
    held.append(many, np.arange(len(many)), np.zeros(len(many), dtype=np.int8), 1)
    assert sum(len(value) for value in held.changes().values() if value is not None) < 4 * len(many)


def test_an_incomplete_state_is_rejected() -> None:
    held = HeldEvents(PREFIX)
    entries: dict[str, bytes] = {}
    held.append(np.arange(5), np.arange(5), np.zeros(5, dtype=np.int8), 1)
    apply(held.changes(), entries)
    for broken, says in [
        ({f"{PREFIX}times": b"\2" + bytes(16)}, "another version"),
        ({f"{PREFIX}w/000000000000": b"\1"}, "not a slice of this version"),
        ({f"{PREFIX}w/000000000000": entries[f"{PREFIX}w/000000000000"][:-4] + b"xxxx"}, "cannot be read"),
        ({f"{PREFIX}w/000000000000": entries[f"{PREFIX}w/000000000000"][:8] + b"\1" + bytes(3) + b"x"}, "cannot be read"),
        ({f"{PREFIX}d/000000000000": b"\1\x08"}, "before older ones"),
        ({f"{PREFIX}d/000000000000": b"\2\0"}, "another version"),
    ]:
        with pytest.raises(ValueError, match=says):
            HeldEvents.restore(entries | broken, PREFIX)
    del entries[f"{PREFIX}times"]
    with pytest.raises(ValueError, match="without"):
        HeldEvents.restore(entries, PREFIX)
