"""Log files: limits of number, size and open files, stable offsets, and escaped names and lines."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.logs.format import MAX_LINE_BYTES, decode, encode, printable, render
from headrace.logs.names import parse_trigger_log, run_log_name, trigger_log
from headrace.logs.reader import jobs_with_logs, offset_of_last, read_page
from headrace.logs.segments import segments
from headrace.logs.writer import LogFiles, LogLimits

NAME = trigger_log(7, 3)


def refuse(error: OSError) -> None:
    raise error


def all_of(root: Path, after: int = 0) -> tuple[int, bytes]:
    """Return where what can be read begins, and all of it, page by page."""
    page = read_page(root, NAME, after)
    assert page is not None
    start, data = page.start, b""
    while page is not None and page.data:
        data += page.data
        page = read_page(root, NAME, page.end)
    return start, data


def lines(count: int, first: int = 0) -> list[bytes]:
    return [f"line {n}\n".encode() for n in range(first, first + count)]


def test_written_lines_are_read_for_any_file_size(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, refuse, LogLimits(file_bytes=100, files=1000))
    for line in lines(200):
        files.append(NAME, line)
    assert len(segments(tmp_path, NAME)) > 10
    assert all_of(tmp_path) == (0, b"".join(lines(200)))
    assert (tmp_path / "triggers/7/trigger-7-job-3.log").exists()


def test_two_processes_write_to_one_log_without_loss_or_overlap(tmp_path: Path) -> None:
    writers = [LogFiles(tmp_path, refuse, LogLimits(file_bytes=100, files=1000)) for _ in range(2)]
    for number, line in enumerate(lines(200)):
        writers[number // 3 % 2].append(NAME, line)
    assert all_of(tmp_path) == (0, b"".join(lines(200)))


def test_a_process_whose_file_was_removed_continues_with_the_last_file(tmp_path: Path) -> None:
    idle, busy = (LogFiles(tmp_path, refuse, LogLimits(file_bytes=100, files=3)) for _ in range(2))
    idle.append(NAME, b"first\n")
    for line in lines(100):
        busy.append(NAME, line)
    idle.append(NAME, b"last\n")
    assert all_of(tmp_path)[1].endswith(b"line 99\nlast\n")


def test_offsets_stay_valid_when_the_oldest_lines_are_deleted(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, refuse, LogLimits(file_bytes=100, files=3))
    whole = b""
    for line in lines(200):
        files.append(NAME, line)
        whole += line
    start, data = all_of(tmp_path)
    assert start > 0
    assert data == whole[start:]
    assert len(segments(tmp_path, NAME)) == 3


def test_a_new_process_appends_after_ending_a_broken_line(tmp_path: Path) -> None:
    LogFiles(tmp_path, refuse).append(NAME, b"whole\n")
    with (tmp_path / NAME.folder / NAME.file).open("ab") as file:
        file.write(b"bro")
    assert all_of(tmp_path)[1] == b"whole\n"
    LogFiles(tmp_path, refuse).append(NAME, b"next\n")
    assert all_of(tmp_path)[1] == b"whole\nbro\nnext\n"


@given(st.integers(0, 60), st.integers(0, 60))
def test_offset_of_last_returns_the_start_of_the_last_lines(tmp_path_factory: pytest.TempPathFactory, there: int, wanted: int) -> None:
    root = tmp_path_factory.mktemp("logs")
    files = LogFiles(root, refuse, LogLimits(file_bytes=64, files=1000))
    for line in lines(there):
        files.append(NAME, line)
    files.close()
    after = offset_of_last(root, NAME, wanted)
    assert there == 0 or all_of(root, after)[1] == b"".join(lines(min(there, wanted), max(0, there - wanted)))


def test_a_folder_has_a_limited_number_of_logs(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, refuse, LogLimits(folder_files=10))
    for job in range(1, 31):
        files.append(trigger_log(7, job), b"x\n")
    known = jobs_with_logs(tmp_path, 7)
    assert len(known) == 10
    assert known[-1] == 30


def test_threads_do_not_tear_lines(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, refuse, LogLimits(file_bytes=2_000, files=1000, open_files=1))
    names = [NAME, trigger_log(8, 3)]

    def write(number: int) -> None:
        for n in range(300):
            files.append(names[n % 2], f"{number}:{n}\n".encode())

    threads = [Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(all_of(tmp_path)[1].splitlines()) == sorted(f"{number}:{n}".encode() for number in range(4) for n in range(0, 300, 2))


def test_a_full_disk_is_reported_once_and_raises_no_error(tmp_path: Path) -> None:
    (tmp_path / "triggers").write_text("in the way")
    told: list[OSError] = []
    files = LogFiles(tmp_path, told.append)
    files.append(NAME, b"lost\n")
    files.append(NAME, b"lost too\n")
    assert len(told) == 1
    (tmp_path / "triggers").unlink()
    files.append(NAME, b"kept\n")
    assert all_of(tmp_path)[1] == b"kept\n"


def test_a_thousand_triggers_need_few_open_files(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from headrace.logs.writer import LogFiles
from headrace.logs.names import trigger_log
def refuse(error): raise error
files = LogFiles(Path({str(tmp_path)!r}), refuse)
for turn in range(2):
    for trigger in range(1, 1001):
        files.append(trigger_log(trigger, 1), b"line\\n")
"""
    limit = (256, 256)
    subprocess.run([sys.executable, "-c", program], check=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))
    assert sum(path.stat().st_size for path in tmp_path.glob("triggers/*/*.log")) == 2 * 1000 * 5


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "/etc/passwd", "a/b", "..", "", "run\0id", "x" * 5000, "\ud800", "😀"])
def test_a_run_id_never_names_a_file_outside_the_folder(tmp_path: Path, run_id: str) -> None:
    name = run_log_name(run_id)
    path = (tmp_path / name.folder / name.file).resolve()
    assert path.is_relative_to(tmp_path / "runs")
    assert len(path.name) < 60
    LogFiles(tmp_path, refuse).append(name, b"x\n")
    assert read_page(tmp_path, name) is not None


def test_run_logs_are_named_by_uuid_or_digest() -> None:
    assert run_log_name("01234567-89ab-cdef-0123-456789abcdef").file == "run-01234567-89ab-cdef-0123-456789abcdef.log"
    assert run_log_name("a") != run_log_name("A")


@pytest.mark.parametrize(
    "file", ["trigger-1-job-2.log/..", "../trigger-1-job-2.log", "trigger--1-job-2.log", "trigger-\u0661-job-2.log", "x", ""]
)
def test_other_file_names_are_not_trigger_logs(file: str) -> None:
    assert parse_trigger_log(file) is None


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    (tmp_path / NAME.folder).mkdir(parents=True)
    (tmp_path / NAME.folder / NAME.file).symlink_to(secret)
    assert read_page(tmp_path, NAME) is None
    LogFiles(tmp_path, lambda _: None).append(NAME, b"more\n")
    assert secret.read_text() == "secret\n"


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())), st.text())
def test_an_encoded_line_is_one_line_of_printable_json(fields: dict[str, object], event: str) -> None:
    line = encode(fields | {"event": event})
    assert all(one.isprintable() or one == " " or ord(one) >= 0xE000 or not one.isascii() for one in line)
    assert len(line.splitlines()) == 1
    assert decode(line) == json.loads(json.dumps(fields | {"event": event}))


@given(st.text())
def test_rendered_lines_have_no_control_characters(text: str) -> None:
    for line in (text, encode({"event": text, "level": text, text: text, "timestamp": text, "logger": text})):
        assert all(part.isprintable() for part in render(line).split("\n"))
    assert printable(text).isprintable()


def test_control_characters_and_forged_lines_are_escaped() -> None:
    evil = 'x\x1b[2J\r\n{"timestamp":"2026-01-01T00:00:00Z","level":"info","event":"forged"}\u202e\x9b31m'
    line = encode({"event": evil, "level": "info"})
    assert "\x1b" not in line
    assert "\n" not in line
    shown = render(line)
    assert "\\x1b[2J\\r\\n" in shown
    assert "\n" not in shown


def test_overlong_or_invalid_values_are_encoded_as_one_line() -> None:
    circle: list[object] = []
    circle.append(circle)

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    line = encode({"event": "e" * 10 * MAX_LINE_BYTES, "x": "é" * MAX_LINE_BYTES, "many": list(range(MAX_LINE_BYTES))})
    assert len(line.encode()) <= MAX_LINE_BYTES
    assert decode(line) is not None
    assert decode(encode({"event": "x", "circle": circle, "broken": Broken()})) is not None
