"""Silence is what the runner's loop does, not what happens to whoever listens."""

from __future__ import annotations

from headrace.triggerer.supervisor.stall_detector import StallDetector


def test_a_loop_that_turns_is_not_silent() -> None:
    silence = StallDetector()
    assert [silence.seen(beats, 0.25, 0.5) for beats in range(1, 100)] == [0.0] * 99


def test_silence_adds_up_and_ends_with_a_beat() -> None:
    silence = StallDetector()
    silence.seen(1, 0.25, 0.5)
    assert [silence.seen(1, 0.25, 0.5) for _ in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert silence.seen(2, 0.25, 0.5) == 0.0
    assert silence.seen(2, 0.25, 0.5) == 0.25


def test_a_supervisor_that_was_stopped_itself_does_not_hold_it_against_the_runner() -> None:
    silence = StallDetector()
    silence.seen(1, 0.25, 0.5)
    assert silence.seen(1, 3600.0, 0.5) == 0.5


def test_a_runner_that_imports_its_project_is_not_silent_yet() -> None:
    silence = StallDetector()
    assert [silence.seen(0, 0.25, 0.5) for _ in range(100)] == [0.0] * 100
