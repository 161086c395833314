"""The file of a queue: its folder, the turn of writers, and its size."""

from __future__ import annotations

import os
import threading
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from headrace.errors import StorageBusy
from headrace.sources.queue.file import QueueFile, make_queue_folder
from headrace.sources.queue.writer import QueueWriter
from support.sources.kit import PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.queue"


def test_the_entries_of_new_folders_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[tuple[int, int]] = set()
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.add((status.st_dev, status.st_ino))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    path = tmp_path / "a" / "b" / "orders.queue"
    make_queue_folder(path)
    expected = {(one.stat().st_dev, one.stat().st_ino) for one in (tmp_path, tmp_path / "a")}
    assert synced == expected
    assert path.parent.stat().st_mode & 0o777 == 0o700
    make_queue_folder(path)
    assert synced == expected


def test_a_writer_waits_for_its_turn_within_a_limit(path: Path) -> None:
    with QueueWriter(path, busy_seconds=0.05) as queue:
        queue.send(1)
        descriptor = os.open(path.with_name(path.name + "-turn"), os.O_RDWR)
        flock(descriptor, LOCK_EX)
        with pytest.raises(StorageBusy, match="does not answer") as caught:
            queue.send(2)
        assert caught.value.hint
        assert queue.has_more_than(0)
        assert not queue.has_more_than(1_000_000)
        os.close(descriptor)
        assert queue.send(3).position == 2


def test_a_writer_gets_its_turn_when_it_is_free(path: Path) -> None:
    with QueueWriter(path) as queue:
        queue.send(1)
        file = QueueFile(path)
        sender = threading.Thread(target=queue.send, args=(2,))
        with file.writing():
            sender.start()
        sender.join(PATIENCE)
        assert not sender.is_alive()
        file.close()


def test_the_size_is_that_of_the_unread_messages(path: Path) -> None:
    with QueueWriter(path) as queue:
        queue.send_many(["x" * 1_000] * 100)
        assert queue.has_more_than(100_000)
        assert not queue.has_more_than(120_000)
