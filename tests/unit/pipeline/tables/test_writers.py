from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import PipelineError, RunConflict
from headrace.pipeline.runs.identity import Writer
from headrace.pipeline.tables.writers import TableWriters

FIRST, OTHER = Writer("a/b *", "first"), Writer("a/b *", "other")


def test_a_scope_writes_a_table_from_one_log(tmp_path: Path) -> None:
    writers = TableWriters(tmp_path)
    assert not writers.check("legs", FIRST)
    writers.register("legs", FIRST)
    writers.register("legs", FIRST)
    assert TableWriters(tmp_path).check("legs", FIRST)
    for use in (writers.check, writers.register):
        with pytest.raises(RunConflict, match=r"'legs' has rows of the scope 'a/b \*' from the event log first"):
            use("legs", OTHER)
    assert not writers.check("other", OTHER)
    writers.register("legs", Writer("second", "other"))  # another project may share the table
    assert set(writers.of("legs")) == {FIRST, Writer("second", "other")}
    assert not list(tmp_path.rglob(".*"))


def test_exactly_one_of_many_concurrent_logs_is_recorded(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def register(number: int) -> str | None:
        start.wait(30)
        try:
            TableWriters(tmp_path).register("legs", Writer("s", f"{number}"))
        except RunConflict:
            return None
        return f"{number}"

    with ThreadPoolExecutor(8) as pool:
        made = [log for log in pool.map(register, range(8)) if log is not None]
    assert [writer.log for writer in TableWriters(tmp_path).of("legs")] == made


def test_an_unreadable_record_prevents_writing(tmp_path: Path) -> None:
    TableWriters(tmp_path).register("legs", FIRST)
    [path] = tmp_path.rglob("*.json")
    for text in ("", "[]", "{}", '{"scope": 1'):
        path.write_text(text)
        with pytest.raises(PipelineError, match="cannot be read"):
            TableWriters(tmp_path).check("legs", FIRST)


def test_the_hinted_command_adopts_the_table(tmp_path: Path) -> None:
    writers = TableWriters(tmp_path / "the tables")
    writers.register("legs", FIRST)
    with pytest.raises(RunConflict) as caught:
        writers.check("legs", OTHER)
    _, _, command = (caught.value.hint or "").partition("headrace ")
    ran = CliRunner().invoke(app, command.replace("\n", " "))
    assert ran.exit_code == 0, ran.output
    assert "no longer with first" in ran.output
    assert writers.check("legs", OTHER)
    with pytest.raises(RunConflict):
        writers.check("legs", FIRST)
    refused = CliRunner().invoke(app, ["tables", "adopt", "none", "--tables", str(tmp_path), "--scope", "s", "--log", "l"])
    assert isinstance(refused.exception, PipelineError)
