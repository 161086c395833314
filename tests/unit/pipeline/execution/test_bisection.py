"""A failed run is split until the events that fail are alone."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from headrace.pipeline.execution.bisection import MAX_FAILED, MAX_FAILED_IN_A_ROW, Searches, is_part, parts_of, split_of
from headrace.pipeline.runs.run import Run, in_order
from headrace.pipeline.runs.slices import Slice


def run_of(count: int) -> Run:
    seqs = np.random.default_rng(count).permutation(count) + 1
    return Run(
        7, 3, "legs", "", "legs", "parquet", None, Slice(seqs, np.arange(10, 10 + count), np.zeros(count, dtype=np.int8), {0: ["x"]})
    )


class Pipeline:
    """Executes runs as the driver does, and fails on some events."""

    def __init__(self, poisoned: set[int]) -> None:
        self.poisoned = poisoned
        self.searches = Searches()
        self.attempts = 0
        self.stored: list[int] = []
        self.letters: list[list[int]] = []

    def take(self, run: Run) -> None:
        queue = [run]
        while queue:
            run = queue.pop(0)
            seqs = run.slice.seqs.tolist()
            if self.searches.given_up(run) is not None:
                self.searches.ended(run)
                self.letters.append(seqs)
                continue
            self.attempts += 1
            if not self.poisoned & set(seqs):
                self.searches.succeeded(run)
                self.stored += seqs
            elif self.searches.failed(run, "no"):
                queue = [*parts_of(run), *queue]
                assert queue == in_order(queue), "another driver would go on in another order"
            else:
                self.letters.append(seqs)


@pytest.mark.parametrize("seed", range(40))
def test_each_failing_event_is_isolated_and_other_events_are_stored_in_order(seed: int) -> None:
    chance = Random(seed)
    whole = run_of(chance.choice([2, 3, 100, 20_000]))
    events = whole.slice.seqs.tolist()
    poisoned = set(chance.sample(events[1:], min(chance.randint(1, 4), len(events) - 1)))
    pipeline = Pipeline(poisoned)
    pipeline.take(whole)
    assert sorted(map(tuple, pipeline.letters)) == sorted((seq,) for seq in poisoned)
    assert pipeline.stored == [seq for seq in events if seq not in poisoned]
    assert pipeline.attempts <= 3 + 2 * 16 * len(poisoned)
    assert pipeline.searches._searches == {}


def test_a_failing_first_event_is_isolated() -> None:
    whole = run_of(100)
    pipeline = Pipeline({int(whole.slice.seqs[0])})
    pipeline.take(whole)
    assert pipeline.letters == [whole.slice.seqs[:1].tolist()]
    assert pipeline.stored == whole.slice.seqs[1:].tolist()
    assert pipeline.attempts == 3


def test_a_pipeline_that_fails_on_all_events_is_called_three_times() -> None:
    whole = run_of(20_000)
    pipeline = Pipeline(set(whole.slice.seqs.tolist()))
    pipeline.take(whole)
    assert [len(letter) for letter in pipeline.letters] == [1, 19_999]
    assert pipeline.attempts == 3


def test_the_number_of_attempts_is_limited() -> None:
    whole = run_of(20_000)
    pipeline = Pipeline(set(whole.slice.seqs[1::2].tolist()))
    pipeline.take(whole)
    assert sorted([*pipeline.stored, *(seq for letter in pipeline.letters for seq in letter)]) == list(range(1, 20_001))
    assert pipeline.attempts <= 2 * MAX_FAILED
    late = Pipeline(set(whole.slice.seqs[1:].tolist()))
    late.take(whole)
    assert late.stored == whole.slice.seqs[:1].tolist()
    assert late.attempts <= MAX_FAILED_IN_A_ROW + 2


def test_parts_are_marked_and_have_unique_numbers() -> None:
    whole = run_of(2**12)
    numbers: set[int] = set()
    runs = [whole]
    while runs:
        run = runs.pop()
        if len(run.slice) == 1:
            continue
        parts = parts_of(run)
        split = split_of(run, parts, 5)
        assert (split.epoch, split.batch, split.number) == (5, 7, run.number)
        assert [Slice.unpack(data).seqs.tolist() for data in split.slices] == [part.slice.seqs.tolist() for part in parts]
        assert all(is_part(part) and part.dead_letter is None for part in parts)
        assert not numbers & {part.number for part in parts}
        numbers |= {part.number for part in parts}
        runs += parts
    assert parts_of(whole)[0].slice.triggers == {0: ["x"]}
    assert not is_part(whole)
    assert max(numbers) < 2**63
