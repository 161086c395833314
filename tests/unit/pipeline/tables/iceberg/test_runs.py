from __future__ import annotations

import random

import pytest

from headrace.pipeline.tables.iceberg.runs import MAX_RUNS, PipelineRuns, StoredEntry


def after(runs: PipelineRuns, batch: int, part: str = "") -> PipelineRuns:
    """Return the runs as the next driver reads them."""
    return PipelineRuns.of({"p": runs.with_run(StoredEntry(batch, part, "digest", 1, 5)).to_property()}, "p")


@pytest.mark.parametrize("seed", range(5))
def test_runs_in_any_order_are_known_or_may_be_missing(seed: int) -> None:
    dice, runs, stored = random.Random(seed), PipelineRuns(), set[int]()
    for _ in range(6 * MAX_RUNS):
        batch = max(stored, default=0) + 1 if dice.random() < 0.7 else dice.randrange(max(stored, default=0) + 1)
        if batch in stored:
            continue
        stored.add(batch)
        runs = after(runs, batch)
        assert runs.last == max(stored)
        assert len(runs.entries) <= MAX_RUNS
        for number in range(max(stored) + 2):
            if runs.has_all_of(number):
                assert (runs.find(number, "") is not None) == (number in stored)
    assert runs.has_all_of(runs.last - MAX_RUNS // 2)


def test_all_runs_of_the_two_newest_batches_are_known() -> None:
    runs = PipelineRuns()
    for batch in range(3):
        for part in range(2 * MAX_RUNS):
            assert runs.has_all_of(batch)
            assert runs.find(batch, f"{part}") is None
            runs = after(runs, batch, f"{part}")
    assert (runs.has_all_of(0), len(runs.entries)) == (False, 4 * MAX_RUNS)
