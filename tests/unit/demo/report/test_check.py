"""Each defect of an outcome fails the point that names it, and only the right outcome passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.demo.report.check import CheckResult, check, check_tables, feed_is_complete
from headrace.errors import ResourceError
from support.pipelines.flights import Outcome, few_plan, right_outcome

Corrupt = Callable[[Outcome], Outcome]


def checked(outcome: Outcome) -> CheckResult:
    return check_tables(outcome.manifest, outcome.legs, outcome.departures, outcome.board, outcome.dead_letters)


def failing(outcome: Outcome) -> set[str]:
    return {point.what for point in checked(outcome).points if not point.ok}


def follower(outcome: Outcome, mark: str | None = None) -> int:
    """Return the index of a late departure that follows one that is there, was late too, and has this mark."""
    return next(
        place
        for place, row in enumerate(outcome.departures)
        if row.mark == mark and (mark or ((row.knocked_on or 0) > 0 and row.previous_leg_id))
    )


def lose_a_row(outcome: Outcome) -> Outcome:
    return replace(outcome, departures=outcome.departures[1:])


def repeat_a_row(outcome: Outcome) -> Outcome:
    again = outcome.departures[0]._replace(position=10**6)
    return replace(outcome, departures=[*outcome.departures, again])


def give_a_position_twice(outcome: Outcome) -> Outcome:
    rows = list(outcome.departures)
    unrelated = next(
        place for place, row in enumerate(rows) if place and row.tail_number != rows[0].tail_number and row.previous_leg_id is None
    )
    rows[unrelated] = rows[unrelated]._replace(position=rows[0].position)
    return replace(outcome, departures=rows)


def invent_a_row(outcome: Outcome) -> Outcome:
    return replace(outcome, departures=[*outcome.departures, outcome.departures[0]._replace(leg_id="nobody", position=10**6)])


def add_a_withheld_leg(outcome: Outcome) -> Outcome:
    row = outcome.departures[0]._replace(leg_id=outcome.manifest.withheld[0], position=10**6)
    return replace(outcome, departures=[*outcome.departures, row])


def change_a_delay(outcome: Outcome) -> Outcome:
    rows = list(outcome.departures)
    rows[5] = rows[5]._replace(carrier="??")
    return replace(outcome, departures=rows)


def swap_leader_and_follower(outcome: Outcome) -> Outcome:
    rows = list(outcome.departures)
    second = follower(outcome)
    first = next(place for place, row in enumerate(rows) if row.leg_id == rows[second].previous_leg_id)
    rows[first], rows[second] = rows[first]._replace(position=rows[second].position), rows[second]._replace(position=rows[first].position)
    return replace(outcome, departures=rows)


def remove_a_mark(outcome: Outcome) -> Outcome:
    rows = list(outcome.departures)
    place = follower(outcome, "lost")
    rows[place] = rows[place]._replace(mark=None)
    return replace(outcome, departures=rows)


def mark_one_that_is_not_lost(outcome: Outcome) -> Outcome:
    rows = list(outcome.departures)
    rows[0] = rows[0]._replace(mark="late")
    return replace(outcome, departures=rows)


def lose_a_lost_one(outcome: Outcome) -> Outcome:
    rows = list(outcome.departures)
    del rows[follower(outcome, "lost")]
    return replace(outcome, departures=rows)


def miss_the_previous_delay(outcome: Outcome) -> Outcome:
    rows = list(outcome.departures)
    place = follower(outcome)
    rows[place] = rows[place]._replace(previous_delay=None, knocked_on=None)
    return replace(outcome, departures=rows)


def count_too_much_knock_on(outcome: Outcome) -> Outcome:
    rows = list(outcome.departures)
    place = follower(outcome)
    rows[place] = rows[place]._replace(knocked_on=(rows[place].knocked_on or 0) + 1)
    return replace(outcome, departures=rows)


def add_a_batch_twice(outcome: Outcome) -> Outcome:
    return replace(outcome, board=outcome.board + outcome.board[:50])


def divide_an_hour(outcome: Outcome) -> Outcome:
    place = next(place for place, row in enumerate(outcome.board) if row.departures > 1)
    first = outcome.board[place]
    parts = [first._replace(departures=1, cancelled=0, delayed=0, delay_minutes=0), first._replace(departures=first.departures - 1)]
    return replace(outcome, board=[*outcome.board[:place], *parts, *outcome.board[place + 1 :]])


def leave_an_hour_out(outcome: Outcome) -> Outcome:
    return replace(outcome, board=[one for one in outcome.board if one.hour != outcome.board[0].hour])


def lose_a_dead_letter(outcome: Outcome) -> Outcome:
    return replace(outcome, dead_letters=outcome.dead_letters[1:])


def store_a_dead_letter_twice(outcome: Outcome) -> Outcome:
    return replace(outcome, dead_letters=[*outcome.dead_letters, outcome.dead_letters[0]])


def misplace_a_dead_letter(outcome: Outcome) -> Outcome:
    wrong = outcome.dead_letters[0].model_copy(update={"position": 10**9})
    return replace(outcome, dead_letters=[wrong, *outcome.dead_letters[1:]])


def give_no_reason(outcome: Outcome) -> Outcome:
    wrong = outcome.dead_letters[0].model_copy(update={"reason": " "})
    return replace(outcome, dead_letters=[wrong, *outcome.dead_letters[1:]])


LOST, TWICE, INVENTED = "Nothing is lost", "Nothing is there twice", "Nothing is invented or changed"
ORDER, MARKS = "No departure is before the one it follows", "Exactly the events whose leader never came are marked"
KNOCK_ON, BOARD = "Every knock-on delay is right", "The hourly board has one exact row for each hour"
BAD_LINES = "Every bad line is kept as a dead letter"

CORRUPTIONS: list[tuple[Corrupt, set[str]]] = [
    (lose_a_row, {LOST}),
    (repeat_a_row, {TWICE}),
    (give_a_position_twice, {TWICE}),
    (invent_a_row, {INVENTED}),
    (add_a_withheld_leg, {INVENTED}),
    (change_a_delay, {INVENTED}),
    (swap_leader_and_follower, {ORDER}),
    (remove_a_mark, {MARKS}),
    (mark_one_that_is_not_lost, {MARKS}),
    (lose_a_lost_one, {LOST, MARKS}),
    (miss_the_previous_delay, {KNOCK_ON}),
    (count_too_much_knock_on, {KNOCK_ON}),
    (add_a_batch_twice, {BOARD}),
    (divide_an_hour, {BOARD}),
    (leave_an_hour_out, {BOARD}),
    (lose_a_dead_letter, {BAD_LINES}),
    (store_a_dead_letter_twice, {BAD_LINES}),
    (misplace_a_dead_letter, {BAD_LINES}),
    (give_no_reason, {BAD_LINES}),
]


def test_the_right_outcome_passes_every_point() -> None:
    result = checked(right_outcome())
    assert result.ok
    assert all(point.looked_at for point in result.points)


@pytest.mark.parametrize(("corrupt", "points"), CORRUPTIONS, ids=lambda one: one.__name__ if callable(one) else "")
def test_each_defect_fails_the_points_that_name_it(corrupt: Corrupt, points: set[str]) -> None:
    outcome = corrupt(right_outcome())
    assert failing(outcome) >= points
    assert failing(outcome) <= points | {KNOCK_ON, TWICE, ORDER}
    assert not checked(outcome).ok


def test_a_failed_point_counts_all_defects_and_shows_three() -> None:
    outcome = right_outcome()
    lost = [row.leg_id for row in outcome.departures[:10]]
    point = next(point for point in checked(replace(outcome, departures=outcome.departures[10:])).points if point.what == LOST)
    assert (point.failed, len(point.examples)) == (10, 3)
    assert all(any(leg_id in example for leg_id in lost) for example in point.examples)


def test_an_incomplete_feed_is_reported(tmp_path: Path) -> None:
    manifest = few_plan().manifest
    done = tmp_path / "feed" / "done" / "2027-02-05"
    done.mkdir(parents=True)
    for file in few_plan().files:
        (done / file.name).write_bytes(file.data)
    assert feed_is_complete(tmp_path, manifest).ok
    last = done / few_plan().files[-1].name
    last.write_bytes(last.read_bytes()[:10])
    assert not feed_is_complete(tmp_path, manifest).ok
    last.unlink()
    assert not feed_is_complete(tmp_path, manifest).ok


def test_a_missing_feed_or_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="no feed"):
        check(tmp_path, [])
    few_plan().manifest.save(tmp_path)
    with pytest.raises(ResourceError, match="cannot be read"):
        check(tmp_path, [])
