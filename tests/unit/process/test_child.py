"""The waits before a child process restarts."""

from __future__ import annotations

from headrace.process.child import RestartHistory


def test_the_first_restart_has_no_wait() -> None:
    assert RestartHistory().backoff(uptime=0.1) == 0.0


def test_short_uptimes_in_a_row_lengthen_the_wait_until_restarts_end() -> None:
    record = RestartHistory()
    waits = [record.backoff(uptime=1.0) for _ in range(6)]
    assert waits[:5] == [0.0, 1.0, 2.0, 4.0, 8.0]
    assert waits[5] is None
    assert record.restarts == 5


def test_a_long_uptime_resets_the_number_of_restarts() -> None:
    record = RestartHistory()
    for _ in range(4):
        record.backoff(uptime=1.0)
    assert record.backoff(uptime=60.0) == 0.0
