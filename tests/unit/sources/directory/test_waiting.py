from __future__ import annotations

import random

from headrace.sources.directory.waiting import Candidate, Selection, Waiting


def selected(candidates: list[Candidate], limit: int) -> Selection:
    selection = Selection(limit)
    for candidate in candidates:
        selection.add(candidate)
        if selection.is_full:
            list(selection.steps())
    list(selection.steps())
    return selection


def test_a_selection_retains_the_first_candidates() -> None:
    chance = random.Random(9)
    candidates = [Candidate(chance.randrange(50), f"{number:05}") for number in range(30_000)]
    for limit in (100, 5_000, 29_999, 30_000, 40_000):
        chance.shuffle(candidates)
        selection = selected(candidates, limit)
        assert selection.selected == sorted(candidates)[:limit]
        assert (selection.cut is None) == (limit >= len(candidates))


def test_omitted_candidates_are_read_by_later_scans_in_order() -> None:
    chance = random.Random(8)
    there = [Candidate(chance.randrange(9), f"{number:04}") for number in range(5_000)]
    everything, waiting = sorted(there), Waiting(500)
    taken: list[Candidate] = []
    while True:
        waiting.begin_scan()
        gone = set(taken)
        waiting.end_scan(selected([one for one in there if one not in gone], 500))
        while (one := waiting.pop()) is not None:
            taken.append(one)
            if waiting.needs_scan:
                break
        else:
            break
        if len(taken) == len(there):
            break
    assert taken == everything


def test_a_candidate_added_during_a_scan_is_retained() -> None:
    waiting = Waiting(4)
    waiting.end_scan(selected([Candidate(number, f"{number}") for number in range(9)], 4))
    waiting.add(Candidate(50, "late"))
    assert len(waiting) == 4
    waiting.begin_scan()
    waiting.add(Candidate(60, "new"))
    waiting.end_scan(selected([Candidate(number, f"{number}") for number in range(2)], 4))
    assert [waiting.pop() for _ in range(4)] == [Candidate(0, "0"), Candidate(1, "1"), Candidate(60, "new"), None]


def test_late_candidates_are_sorted_by_time() -> None:
    waiting = Waiting()
    waiting.end_scan(selected([Candidate(10, "b"), Candidate(30, "d")], 10))
    for late in (Candidate(20, "c"), Candidate(5, "a"), Candidate(20, "c")):
        waiting.add(late)
    assert [one.file for one in iter(waiting.pop, None)] == ["a", "b", "c", "d"]


def test_a_burst_over_the_limit_requires_a_scan() -> None:
    waiting = Waiting(100)
    for number in range(1_000):
        waiting.add(Candidate(number, f"{number}"))
    taken = 0
    for _ in range(75):
        assert not waiting.needs_scan
        taken += waiting.pop() is not None
    assert (taken, len(waiting), waiting.needs_scan) == (75, 25, True)
