from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headrace.sources.files.folder_lock import FolderLock

FORKING = r"""
import os, sys, time
from headrace.sources.files.folder_lock import FolderLock

path, how = sys.argv[1:]
lock = FolderLock(__import__("pathlib").Path(path))
assert lock.try_acquire()
reads, writes = os.pipe()
child = os.fork()
if child == 0:
    lock.release()
    os.write(1, b"child\n")
    os.close(writes)
    os.read(reads, 1)  # until the parent of the parent lets it go
    os._exit(0)
if how == "killed":
    os.write(1, b"parent\n")
    os.close(reads)
    time.sleep(3600)
lock.release()
os.write(1, b"parent\n")
sys.stdin.read()
"""


def started(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert {process.stdout.readline(), process.stdout.readline()} == {b"child\n", b"parent\n"}
    return process


def test_a_released_lock_is_free_although_a_forked_child_runs(tmp_path: Path) -> None:
    with started(FORKING, str(tmp_path / "lock"), "released"):
        lock = FolderLock(tmp_path / "lock")
        assert lock.try_acquire()
        lock.release()


def test_a_forked_child_neither_releases_nor_retains_the_lock(tmp_path: Path) -> None:
    with started(FORKING.replace("os.read(reads, 1)", "sys.stdin.read()"), str(tmp_path / "lock"), "killed") as process:
        lock = FolderLock(tmp_path / "lock")
        assert not lock.try_acquire()
        process.kill()
        process.wait()
        assert lock.try_acquire()
        lock.release()
