"""A run file counts as alive only while the process that wrote it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from headrace.run_files import SIZE_BYTES, RunFile, read_run_file

HOLD = """
import pathlib, sys
from headrace.run_files import RunFile
with RunFile(pathlib.Path(sys.argv[1])) as file:
    file.write({"pid": 1})
    print("written", flush=True)
    sys.stdin.read()
"""


def test_a_run_file_is_alive_until_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "api.json"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"written\n"
        record = read_run_file(path)
        assert record is not None
        assert (record.facts, record.alive) == ({"pid": 1}, True)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    record = read_run_file(path)
    assert record is not None
    assert (record.facts, record.alive) == ({"pid": 1}, False)


def test_a_run_file_has_a_fixed_size_so_updates_fit_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "standalone.json"
    with RunFile(path) as file:
        file.write({"a": 1})
        before = path.stat()
        file.write({"reason": "x" * 10_000})
        after = path.stat()
        assert (before.st_size, before.st_blocks) == (after.st_size, after.st_blocks) == (SIZE_BYTES, before.st_blocks)
        file.write({"b": 2})
        record = read_run_file(path)
        assert record is not None
        assert record.facts == {"b": 2}


def test_the_first_process_of_a_home_owns_the_run_file(tmp_path: Path) -> None:
    path = tmp_path / "api.json"
    with RunFile(path) as first, RunFile(path) as second:
        first.write({"who": "first"})
        second.write({"who": "second"})
        record = read_run_file(path)
        assert record is not None
        assert (record.facts["who"], record.alive) == ("first", True)


def test_an_invalid_run_file_is_read_as_none(tmp_path: Path) -> None:
    assert read_run_file(tmp_path / "none.json") is None
    for content in (b"", b"[]", b"{", b"\xff" * 100, b"5"):
        (tmp_path / "odd.json").write_bytes(content)
        assert read_run_file(tmp_path / "odd.json") is None
    with RunFile(tmp_path / "no" / "folder.json") as file:
        file.write({"a": 1})  # it does without
