"""The stall detector measures the runner's event loop, not the supervisor's delays."""

from __future__ import annotations

from headrace.triggerer.supervisor.stall_detector import StallDetector


def test_a_turning_loop_is_not_blocked() -> None:
    silence = StallDetector()
    assert [silence.check(beats, 0.25, 0.5) for beats in range(1, 100)] == [0.0] * 99


def test_seconds_without_a_beat_add_up_until_the_next_beat() -> None:
    silence = StallDetector()
    silence.check(1, 0.25, 0.5)
    assert [silence.check(1, 0.25, 0.5) for _ in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert silence.check(2, 0.25, 0.5) == 0.0
    assert silence.check(2, 0.25, 0.5) == 0.25


def test_time_in_which_the_supervisor_was_stopped_does_not_count() -> None:
    silence = StallDetector()
    silence.check(1, 0.25, 0.5)
    assert silence.check(1, 3600.0, 0.5) == 0.5


def test_a_runner_before_its_first_beat_is_not_blocked() -> None:
    silence = StallDetector()
    assert [silence.check(0, 0.25, 0.5) for _ in range(100)] == [0.0] * 100
