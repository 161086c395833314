from __future__ import annotations

import os
import random
import sys
import tracemalloc
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sources.directory import lines as directory_lines
from headrace.sources.directory.lines import CHUNK, LineReader, Mark, NotRegular, Rewritten
from headrace.sources.files.line_splitter import MAX_LINE_BYTES, Line
from headrace.sources.files.status import is_written


def lines_of(path: Path, offset: int = 0, *, final: bool = False) -> list[Line]:
    lines: list[Line] = []
    with closing(LineReader(path)) as reader:
        reader.resume(Mark(offset))
        while True:
            chunk = reader.read(final=final)
            lines += chunk.lines
            if chunk.at_end:
                return lines


def test_lines_have_their_bytes_and_their_offsets(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\n\n  \r\ntwo\r\nthree")
    assert lines_of(path) == [Line(b"one", 0, 4), Line(b"two", 9, 14)]
    assert lines_of(path, final=True)[-1] == Line(b"three", 14, 19)
    assert lines_of(path, 9) == [Line(b"two", 9, 14)]


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n")
    assert [line.data for line in lines_of(path)] == [b"{}", b"\xef\xbb\xbf{}"]


@pytest.mark.parametrize("length", [CHUNK - 1, CHUNK, CHUNK + 1, MAX_LINE_BYTES])
def test_a_long_line_is_read_in_full(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * length + b"\nend\n")
    assert lines_of(path) == [Line(b"x" * length, 0, length + 1), Line(b"end", length + 1, length + 5)]


@pytest.mark.parametrize("length", [MAX_LINE_BYTES + 1, 3 * MAX_LINE_BYTES + 7])
@pytest.mark.parametrize("ending", [b"\n", b""])
def test_a_line_that_is_too_long_is_cut_and_reading_continues_after_it(tmp_path: Path, length: int, ending: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before\n" + b"x" * length + ending)
    before, long = lines_of(path, final=True)
    assert before == Line(b"before", 0, 7)
    assert (long.start, long.end, long.too_long) == (7, 7 + length + len(ending), True)
    assert set(long.data) == {ord("x")}
    assert len(long.data) < MAX_LINE_BYTES
    with path.open("ab") as file:
        file.write(b"after\n")
    assert lines_of(path, long.end)[-1].data.endswith(b"after")


def test_reading_continues_where_a_file_grew(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntw")
    with closing(LineReader(path)) as reader:
        assert reader.read().lines == [Line(b"one", 0, 4)]
        with path.open("ab") as file:
            file.write(b"o\n")
        assert reader.read().lines == [Line(b"two", 4, 8)]


def test_files_that_end_in_a_long_unfinished_line_need_little_memory(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(20)]
    for path in paths:
        path.write_bytes(b"one\n" + b"x" * MAX_LINE_BYTES)
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(LineReader(path))) for path in paths]
        tracemalloc.start()
        try:
            for reader in readers:
                while not reader.read().at_end:
                    pass
            assert tracemalloc.get_traced_memory()[0] < len(paths) * 32 * 1024
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("length", [16 * 1024 + 1, CHUNK, 2 * CHUNK + 1, MAX_LINE_BYTES - 3])
def test_a_long_line_that_is_written_in_pieces_is_read_in_full(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\n" + b"x" * length)
    with closing(LineReader(path)) as reader:
        lines, ends = [], []
        for piece in (b"", b"y", b"", b"z\nend", b"\n"):
            with path.open("ab") as file:
                file.write(piece)
            at_end = False
            while not at_end:
                chunk = reader.read()
                lines += chunk.lines
                ends += [check.end for check in chunk.checks]
                at_end = chunk.at_end
    assert lines == [Line(b"one", 0, 4), Line(b"x" * length + b"yz", 4, length + 7), Line(b"end", length + 7, length + 11)]
    assert ends == sorted(set(ends))


def test_a_file_that_changed_before_an_unfinished_line_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\n" + b"x" * CHUNK)
    with closing(LineReader(path)) as reader:
        while not reader.read().at_end:
            pass
        path.write_bytes(b"two\n" + b"x" * CHUNK)
        with pytest.raises(Rewritten):
            reader.read()


@settings(max_examples=150, deadline=None)
@given(content=st.lists(st.sampled_from([b"a", b"bcd", b"\n", b"\r\n", b" "]), max_size=60).map(b"".join), chunk=st.integers(1, 7))
def test_lines_are_the_same_however_the_file_is_cut(tmp_path_factory: pytest.TempPathFactory, content: bytes, chunk: int) -> None:
    path = tmp_path_factory.getbasetemp() / "cut"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory_lines, "CHUNK", chunk)
        lines = lines_of(path, final=True)
    assert [line.data for line in lines] == [part.removesuffix(b"\r") for part in content.split(b"\n") if part.strip()]
    for line in lines:
        assert content[line.start : line.end].startswith(line.data)
        assert lines_of(path, line.start, final=True)[0].data == line.data


def test_an_entry_that_is_not_a_regular_file_is_rejected_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "pipe", tmp_path / "folder", Path("/dev/zero")):
        with pytest.raises(NotRegular):
            LineReader(path)


def rewritten(path: Path, content: bytes) -> None:
    """Write a file again as `copytruncate` and its like do: it stays the same file."""
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(content)


def test_a_truncated_file_that_grew_past_the_read_position_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    with closing(LineReader(path)) as reader:
        assert len(reader.read().lines) == 2
        for content in (b"three\nfour\nfive\n", b"one\ntwX\nthree\n", b"on\n", b""):
            rewritten(path, content)
            with pytest.raises(Rewritten):
                reader.read()
        rewritten(path, b"one\ntwo\nthree\n")
        assert [line.data for line in reader.read().lines] == [b"three"]


def test_a_file_is_recognised_after_reading_stopped_at_any_offset(tmp_path: Path) -> None:
    """Left anywhere, a file that only grew is read on; one with other contents is found out, seeds printed."""
    seed = random.randrange(1_000_000)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    path = tmp_path / "a"
    for _ in range(40):
        lines = [b"%d" % chance.randrange(10**12) * chance.randrange(1, 9) + b"\n" for _ in range(chance.randrange(1, 3_000))]
        path.write_bytes(b"".join(lines))
        with closing(LineReader(path)) as reader:
            chunk = reader.read()
            left = chance.choice(chunk.lines)
            checks = [one for one in chunk.checks if one.end <= left.end]
            mark = Mark(left.end, reader.head, checks[-1] if checks else None)
        with path.open("ab") as file:
            file.write(b"more\n")
        with closing(LineReader(path)) as reader:
            reader.resume(mark)
            after = reader.read().lines
        assert not after or after[0].start == left.end
        rewritten(path, b"".join(b"%d\n" % chance.randrange(10**12) for _ in range(len(lines) * 10)))
        with closing(LineReader(path)) as reader, pytest.raises(Rewritten):
            reader.resume(mark)


def test_a_last_line_counts_only_when_no_program_has_the_file_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.write(b"1\n2")
        file.flush()
        with path.open("rb") as probe:
            if not is_written(probe.fileno()):
                pytest.skip("this file system does not tell who writes")
        with closing(LineReader(path)) as reader:
            assert [line.data for line in reader.read(final=True).lines] == [b"1"]
            file.write(b"3")
            file.flush()
            assert reader.read(final=True).lines == []
            file.close()
            assert [line.data for line in reader.read(final=True).lines] == [b"23"]
