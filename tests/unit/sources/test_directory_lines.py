from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sources import directory_lines
from headrace.sources.directory_lines import CHUNK, LONGEST_LINE, Line, LineReader


def lines_of(path: Path, offset: int = 0, *, final: bool = False) -> list[Line]:
    lines: list[Line] = []
    with LineReader(path, offset) as reader:
        while True:
            chunk = reader.read(final=final)
            lines += chunk.lines
            if chunk.at_end:
                return lines


def test_lines_have_their_bytes_and_their_place(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\n\n  \r\ntwo\r\nthree")
    assert lines_of(path) == [Line(b"one", 0, 4), Line(b"two", 9, 14)]
    assert lines_of(path, final=True)[-1] == Line(b"three", 14, 19)
    assert lines_of(path, 9) == [Line(b"two", 9, 14)]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n")
    assert [line.data for line in lines_of(path)] == [b"{}", b"\xef\xbb\xbf{}"]


@pytest.mark.parametrize("length", [CHUNK - 1, CHUNK, CHUNK + 1, LONGEST_LINE])
def test_a_long_line_is_whole(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * length + b"\nend\n")
    assert lines_of(path) == [Line(b"x" * length, 0, length + 1), Line(b"end", length + 1, length + 5)]


@pytest.mark.parametrize("length", [LONGEST_LINE + 1, 3 * LONGEST_LINE + 7])
@pytest.mark.parametrize("ending", [b"\n", b""])
def test_of_a_line_that_is_too_long_the_beginning_is_kept_and_reading_goes_on_behind_it(tmp_path: Path, length: int, ending: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before\n" + b"x" * length + ending)
    before, long = lines_of(path, final=True)
    assert before == Line(b"before", 0, 7)
    assert (long.start, long.end, long.too_long) == (7, 7 + length + len(ending), True)
    assert set(long.data) == {ord("x")}
    assert len(long.data) < LONGEST_LINE
    with path.open("ab") as file:
        file.write(b"after\n")
    assert lines_of(path, long.end)[-1].data.endswith(b"after")


def test_reading_goes_on_where_a_file_grew(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntw")
    with LineReader(path, 0) as reader:
        assert reader.read().lines == [Line(b"one", 0, 4)]
        with path.open("ab") as file:
            file.write(b"o\n")
        assert reader.read().lines == [Line(b"two", 4, 8)]


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


def test_a_reader_that_is_left_while_a_thread_opens_the_file_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n")
    reader = LineReader(path, 0)
    with reader:
        pass
    assert reader.read().lines == [Line(b"1", 0, 2)]
    assert reader._file is not None
    assert reader._file.closed


def test_a_reader_that_is_left_while_a_thread_reads_is_closed_by_that_thread(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n")
    with LineReader(path, 0) as reader:
        reading = reader._opened()
        file = reading.__enter__()
    assert not file.closed
    reading.__exit__(None, None, None)
    assert file.closed
