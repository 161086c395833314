from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import ProjectError, UsageError

PATTERN = '{"carrier": ["UA", {"prefix": "D"}], "delay": [{"numeric": [">", 60]}]}'


def match(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["match", *arguments], input=stdin)


def test_an_event_matches_or_the_first_field_that_fails_is_named() -> None:
    result = match(PATTERN, '{"carrier": "DL", "delay": 61.5}')
    assert (result.exit_code, result.stdout) == (0, "yes\n")
    result = match(PATTERN, '{"carrier": "DL", "delay": 60}')
    assert (result.exit_code, result.stdout) == (1, 'no: delay is 60; the pattern needs {"numeric":[">",60]}.\n')
    result = match('{"$or": [{"a": [1]}, {"b": [1]}]}', "{}")
    assert result.stdout == "no: a is absent; the pattern needs 1. (1 other alternative of the pattern fails too)\n"


def test_lines_of_a_file_or_of_standard_input_are_counted(tmp_path: Path) -> None:
    pattern, events = tmp_path / "pattern.json", tmp_path / "events.jsonl"
    pattern.write_text(PATTERN)
    events.write_text('{"carrier": "UA", "delay": 90}\n\n{"carrier": "UA"}\n')
    expected = 'line 1: yes\nline 3: no: delay is absent; the pattern needs {"numeric":[">",60]}.\n1 of 2 events match.\n'
    result = match(f"@{pattern}", f"@{events}")
    assert (result.exit_code, result.stdout) == (1, expected)
    assert match(f"@{pattern}", "-", stdin=events.read_text()).stdout == expected
    assert match(f"@{pattern}", "-", stdin="").stdout == "0 of 0 events match.\n"


@pytest.mark.parametrize(
    ("pattern", "event", "kind", "message"),
    [
        ('{"a": [{"prefx": "x"}]}', "{}", ProjectError, "In the pattern, a has the operator 'prefx', which does not exist."),
        ("{a: 1}", "{}", UsageError, "The pattern is not JSON"),
        ('{"a": [1]}', "{", UsageError, "The event is not JSON"),
        ('{"a": [1]}', "[" * 500, UsageError, "The event is nested too deep."),
        ('{"a": [1]}', "@absent.json", UsageError, "The file absent.json cannot be read: No such file"),
    ],
)
def test_wrong_arguments_are_refused_in_words(pattern: str, event: str, kind: type[Exception], message: str) -> None:
    result = match(pattern, event)
    assert isinstance(result.exception, kind)
    assert message in str(result.exception)
    assert getattr(result.exception, "hint", None)


def test_a_line_that_is_not_json_is_named() -> None:
    result = match('{"a": [1]}', "-", stdin='{"a": 1}\nx\n')
    assert result.stdout == "line 1: yes\n"
    assert "The event in line 2 is not JSON" in str(result.exception)
