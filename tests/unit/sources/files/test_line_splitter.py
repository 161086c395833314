"""Lines of an object, however its bytes arrive, are the lines that `Directory` reads of a file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.directory.lines import LineReader
from headrace.sources.files.line_splitter import LONG_LINE_PREFIX_BYTES, MAX_LINE_BYTES, Line, LineSplitter

CONTENTS = st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b" ", b"\xef\xbb\xbf", b"{}", b"\xff"]), max_size=30).map(b"".join)


def lines_of(content: bytes, cuts: list[int], start: int = 0) -> list[Line]:
    splitter = LineSplitter(start)
    borders = sorted({start, *(cut for cut in cuts if start < cut < len(content)), len(content)})
    return [line for first, last in pairwise(borders) for line in splitter.feed(content[first:last])] + splitter.end()


@given(CONTENTS, st.lists(st.integers(0, 60)))
def test_the_parts_in_which_bytes_arrive_change_nothing(content: bytes, cuts: list[int]) -> None:
    lines = lines_of(content, cuts)
    assert lines == lines_of(content, [])
    for line in lines:
        assert content[line.start : line.end].strip() in (line.data.strip(), b"\xef\xbb\xbf" + line.data.strip())
        assert lines_of(content, cuts, line.end) == [one for one in lines if one.start >= line.end]


def test_they_are_the_lines_of_a_file(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"n":1}\r\n\n  \n' + b"x" * (MAX_LINE_BYTES + 1) + b"\n" + b"y" * MAX_LINE_BYTES + b"\nend"
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    reader, expected = LineReader(path), []
    while not (chunk := reader.read(final=True)).at_end:
        expected += chunk.lines
    expected += chunk.lines
    reader.close()
    lines = lines_of(content, list(range(0, len(content), 100_000)))
    assert lines == expected
    assert [(len(line.data), line.too_long) for line in lines] == [
        (7, False),
        (LONG_LINE_PREFIX_BYTES, True),
        (MAX_LINE_BYTES, False),
        (3, False),
    ]
