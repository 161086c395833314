"""Lists for users and programs: tables on terminals of any width, lines in pipes, JSON on request."""

from __future__ import annotations

import io
import json
import re

import pytest
from pydantic import BaseModel

from headrace.cli import rendering
from headrace.cli.console import Screen
from headrace.cli.rendering import count, duration, long, number, problem, render, render_facts

COLUMNS = ["name", number("events"), long("stream"), problem("error")]
LONG = "directory:/a/very/long/path/that/no/terminal/has/room/for/on/one/line/with/many/more/folders/*.jsonl"
ROWS = [("legs.united", 12_345, LONG, "boom"), ("legs.delta", None, "queue:q", "")]
ESCAPE = "\x1b"


class Answer(BaseModel):
    """A response with one field."""

    names: list[str]


def printed(
    monkeypatch: pytest.MonkeyPatch, width: int, *, terminal: bool, as_json: bool = False, rows: list[tuple[object, ...]] | None = None
) -> str:
    file = io.StringIO()
    screen = Screen(file=file, width=width, force_terminal=terminal, highlight=False, soft_wrap=True)
    monkeypatch.setattr(rendering, "out", screen)
    render(Answer(names=["legs.united"]), COLUMNS, ROWS if rows is None else rows, json=as_json, empty="There is none.")  # type: ignore[arg-type]
    return file.getvalue()


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_pipe_gets_one_line_for_each_row_without_colours_or_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    heading, first, second = printed(monkeypatch, 40, terminal=False).splitlines()
    assert heading.split() == ["name", "events", "stream", "error"]
    assert first.split() == ["legs.united", "12,345", LONG, "boom"]
    assert second.split() == ["legs.delta", "-", "queue:q"]
    assert ESCAPE not in heading + first + second


@pytest.mark.parametrize("width", [72, 100, 200])
def test_a_terminal_gets_a_table_that_fits_and_is_complete(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = without_colours(printed(monkeypatch, width, terminal=True))
    assert max(map(len, text.splitlines())) <= width
    assert "─" in text
    joined = re.sub(r"\s", "", text)
    assert "12,345" in joined
    assert "folders/*.jsonl" in joined or width < 200


@pytest.mark.parametrize("width", [30, 40, 45])
def test_a_narrow_terminal_gets_a_block_for_each_row(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = without_colours(printed(monkeypatch, width, terminal=True))
    assert max(map(len, text.splitlines())) <= width
    first, second = re.split(r"\n\s*\n", text.strip())
    assert re.match(r"name\s+legs\.united\s*\nevents\s+12,345\s*\n", first)
    assert "error" not in second, "an empty cell takes no line"


@pytest.mark.parametrize("terminal", [True, False])
def test_json_output_is_the_response_in_pipes_and_on_terminals(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, 20, terminal=terminal, as_json=True)
    assert json.loads(text) == {"names": ["legs.united"]}
    assert ESCAPE not in text


def test_a_list_without_rows_prints_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, 80, terminal=False, rows=[]) == "There is none.\n"


def test_control_characters_and_markup_in_values_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, 200, terminal=True, rows=[("a\x1b[2Jb", 1, "[bold]x[/bold]", None)])
    assert "\\u001b[2Jb" in without_colours(text)
    assert "[bold]x[/bold]" in text


def test_facts_are_printed_as_names_and_values_before_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(rendering, "out", Screen(file=file, width=200, force_terminal=False, highlight=False, soft_wrap=True))
    render_facts(Answer(names=[]), {"state": "open", "batch": None, "attempts": 3}, json=False, text="the [whole] text")
    assert [line.split() for line in file.getvalue().splitlines()] == [
        ["name", "value"],
        ["state", "open"],
        ["batch", "-"],
        ["attempts", "3"],
        ["the", "[whole]", "text"],
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s"), (7_500, "2 h 5 min"), (90_000, "1 d 1 h"), (-3, "0 s")]
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_count_has_its_noun_in_singular_or_plural() -> None:
    assert [count(number, "message") for number in (0, 1, 2_000)] == ["0 messages", "1 message", "2,000 messages"]
