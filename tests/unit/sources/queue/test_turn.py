"""The turn of writers: a limit of time, and no lock or thread that an ended attempt leaves."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from headrace.errors import StorageBusy
from headrace.sources.queue import turn as module
from headrace.sources.queue.turn import Turn
from support.sources.kit import PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.queue"


def waiting_threads() -> int:
    return sum(thread.name == "headrace queue turn" for thread in threading.enumerate())


@pytest.mark.parametrize("tries_seconds", [0.0, PATIENCE], ids=["in a thread", "in intervals"])
def test_a_free_turn_ends_the_wait(path: Path, tries_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES_SECONDS", tries_seconds)
    held = Turn(path).acquire(0)
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(Turn(path).acquire(PATIENCE)))
    waiting.start()
    os.close(held)
    waiting.join(PATIENCE)
    assert len(got) == 1
    with pytest.raises(StorageBusy):
        Turn(path).acquire(0)
    os.close(got[0])


def test_attempts_without_success_leave_one_thread_and_no_lock(path: Path) -> None:
    before = waiting_threads()
    held = Turn(path).acquire(0)
    turn = Turn(path)
    for _ in range(3):
        with pytest.raises(StorageBusy, match="does not answer") as caught:
            turn.acquire(0.01)
        assert caught.value.hint
    assert waiting_threads() == before + 1
    os.close(held)
    until = time.monotonic() + PATIENCE
    while waiting_threads() > before:
        assert time.monotonic() < until
        time.sleep(0.001)
    os.close(Turn(path).acquire(0))
    os.close(turn.acquire(0))


def test_a_later_attempt_gets_the_turn_that_an_earlier_one_waited_for(path: Path) -> None:
    held = Turn(path).acquire(0)
    turn = Turn(path)
    with pytest.raises(StorageBusy):
        turn.acquire(0)
    releasing = threading.Timer(0.01, os.close, (held,))
    releasing.start()
    os.close(turn.acquire(PATIENCE))
    releasing.join()
    os.close(Turn(path).acquire(PATIENCE))
