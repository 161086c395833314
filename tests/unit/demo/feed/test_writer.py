from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import msgspec
import pytest
from watchfiles import watch

from headrace.demo.feed import writer
from headrace.demo.feed.manifest import Manifest, Parameters
from headrace.demo.feed.plan import FeedPlan
from headrace.demo.feed.writer import run_feed
from headrace.errors import ResourceError, UsageError
from headrace.sources.files.folder_lock import FolderLock
from support.pipelines.flights import few_plan


def feed_parameters() -> Parameters:
    return few_plan().manifest.parameters


@pytest.fixture(autouse=True)
def few_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(asked: Parameters) -> FeedPlan:
        return FeedPlan(msgspec.structs.replace(few_plan().manifest, parameters=asked), few_plan().files)

    monkeypatch.setattr(writer, "plan_feed", plan)


def written_files(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "feed").glob("*.jsonl")}


def planned_files() -> dict[str, bytes]:
    return {file.name: file.data for file in few_plan().files}


class StopAfter(Event):
    """Set once it has been waited for so many times: the feed stops before its next slice of time."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self._left = waits

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0


def test_all_files_are_written_whole_with_a_manifest(tmp_path: Path) -> None:
    manifest = run_feed(tmp_path, feed_parameters())
    assert written_files(tmp_path) == planned_files()
    assert Manifest.load(tmp_path) == manifest == few_plan().manifest
    assert not list((tmp_path / "feed").glob("*.part"))


def test_a_stopped_feed_continues_at_its_position(tmp_path: Path) -> None:
    run_feed(tmp_path, feed_parameters(), StopAfter(2))
    begun = written_files(tmp_path)
    assert 0 < len(begun) < len(planned_files())
    (tmp_path / "feed" / "january-99999-EWR.jsonl.part").write_bytes(b"torn")
    run_feed(tmp_path, feed_parameters())
    assert written_files(tmp_path) == planned_files()


def test_a_home_with_a_different_feed_is_rejected(tmp_path: Path) -> None:
    run_feed(tmp_path, feed_parameters(), StopAfter(0))
    with pytest.raises(UsageError, match="another feed"):
        run_feed(tmp_path, msgspec.structs.replace(feed_parameters(), seed=8))


def test_a_feed_of_a_different_version_is_rejected(tmp_path: Path) -> None:
    msgspec.structs.replace(few_plan().manifest, lines=1).save(tmp_path)
    with pytest.raises(UsageError, match="another version"):
        run_feed(tmp_path, feed_parameters())


def test_a_home_that_cannot_be_written_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(ResourceError, match="cannot be written") as caught:
        run_feed(tmp_path / "home", feed_parameters())
    assert caught.value.hint


def test_two_feeds_do_not_write_concurrently(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / writer.LOCK_NAME)
    assert lock.try_acquire()
    run_feed(tmp_path, feed_parameters(), StopAfter(3))
    assert written_files(tmp_path) == {}
    lock.release()
    run_feed(tmp_path, feed_parameters())
    assert written_files(tmp_path) == planned_files()


def test_the_process_prints_its_seed_and_stops_on_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "headrace.demo.feed.process", "--home", str(tmp_path), "--seed", "41", "--seconds", "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "41" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert "feed stopped" in process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert (tmp_path / "feed-manifest.json").exists()


def test_the_process_prints_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    command = [sys.executable, "-m", "headrace.demo.feed.process", "--home", str(tmp_path / "home"), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_killed_feed_continues_at_its_position(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace.demo.feed.process", "--home", str(tmp_path), "--seed", "7", "--seconds", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        wait_for(process, tmp_path / "feed", files=3)
        process.send_signal(signal.SIGKILL)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "feed").glob("*.jsonl")}
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60, check=False).returncode == 0
    manifest = Manifest.load(tmp_path)
    assert manifest is not None
    assert len(written) < len(written_files(tmp_path)) == manifest.files
    assert all(path.stat().st_mtime_ns == changed for path, changed in written.items())
    assert sum(data.count(b"\n") for data in written_files(tmp_path).values()) == manifest.lines


def wait_for(process: subprocess.Popen[bytes], folder: Path, *, files: int) -> None:
    """Return when there are as many files, told of each by the kernel."""
    folder.mkdir(exist_ok=True)
    for _ in watch(folder, debounce=10, step=1, rust_timeout=100, yield_on_timeout=True):
        if process.poll() is not None or len(list(folder.glob("*.jsonl"))) >= files:
            return
