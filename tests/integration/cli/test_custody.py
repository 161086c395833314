"""`headrace audit` and `headrace dead-letters` against a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import ApiRefused, UsageError
from headrace.store.dead_letters.short_ids import short_id
from headrace.wire.custody.dead_letters import DeadLetterActionResult, DeadLetterActions
from headrace.wire.custody.receipts import Audit
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.status.status import DeadLetterDetail, DeadLetterPage
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import Holder, holder, letter
from support.sources.custody import answered, keep, positions, receipt, record, spill

LETTERS = ("list", "show", "redrive", "discard", "history")


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serving(tmp_path) as running:
        monkeypatch.setenv("HEADRACE_API_URL", running.url)
        monkeypatch.setenv("HEADRACE_KEY", KEY)
        monkeypatch.setenv("COLUMNS", "200")
        yield running


@pytest.fixture
def owner(api: Api) -> Holder:
    return holder(api.store, "first", "second")


def headrace(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def output_of(result: Result) -> str:
    """Return what a command that went well said."""
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_an_audit_without_receipts_is_clean(api: Api) -> None:
    assert "There are no receipts." in output_of(headrace("audit"))


def test_a_clean_audit_exits_with_0_and_shows_every_trigger(owner: Holder) -> None:
    keep(owner, spill(3))
    record(owner, receipt(None, 3, 1_234, answered(1, fired=7, spilled=1), answered(2, dead_lettered=2)))
    said = output_of(headrace("audit"))
    assert "folder: 1,234 read from 1 lane" in said
    assert "Clean: every raw event is accounted for." in said
    assert [line.split() for line in said.splitlines() if line.lstrip().startswith(("first", "second"))] == [
        ["first", "1,234", "7", "1,226", "0", "0", "0", "1", "1", "0", "yes"],
        ["second", "1,234", "0", "1,232", "0", "2", "0", "0", "0", "0", "yes"],
    ]
    books = Audit.model_validate_json(output_of(headrace("audit", "--stream", "folder", "--json")))
    assert (books.clean, books.streams[0].read) == (True, 1_234)


def test_a_gap_in_the_receipts_exits_with_1(owner: Holder) -> None:
    record(owner, receipt(None, 3, 3), receipt(None, 1, 1, stream="other"))
    record(owner, receipt(5, 9, 4), receipt(10, 11, 1))
    result = headrace("audit")
    assert result.exit_code == 1
    assert result.stderr == "not clean: stream folder, lane a.jsonl: nothing is recorded after 3 up to 5.\n"
    assert "nothing is recorded after 9 up to 10" in result.stdout
    assert headrace("audit", "--json").exit_code == 1
    assert Audit.model_validate_json(headrace("audit", "--json").stdout).clean is False
    assert "Clean" in output_of(headrace("audit", "--stream", "other"))


def test_a_missing_raw_event_of_a_backlog_exits_with_1(api: Api, owner: Holder) -> None:
    keep(owner, spill(1), spill(2))
    record(owner, receipt(None, 2, 2, answered(1, spilled=2)))
    api.store._database.write(lambda connection: connection.exec_driver_sql("DELETE FROM backlog WHERE position = 1").rowcount)
    result = headrace("audit")
    assert result.exit_code == 1
    assert result.stderr == "not clean: stream folder, trigger first: its backlog should have 2 raw events and has 1.\n"


def test_an_audit_of_an_unknown_stream_is_a_usage_error(owner: Holder) -> None:
    result = headrace("audit", "--stream", "nowhere")
    assert isinstance(result.exception, UsageError)
    assert "nowhere" in str(result.exception)


def test_dead_letters_without_a_subcommand_lists_them(owner: Holder) -> None:
    assert "There are no dead letters" in output_of(headrace("dead-letters"))
    owner.append(dead_letters=[letter("x", lane="a.jsonl", position=77, reason="not JSON"), letter("y")])
    said = output_of(headrace("dead-letters"))
    assert said == output_of(headrace("dead-letters", "list"))
    assert "not JSON" in said
    assert "77" in said
    assert len(DeadLetterPage.model_validate_json(output_of(headrace("dead-letters", "--json"))).dead_letters) == 2
    assert len(json.loads(output_of(headrace("dead-letters", "list", "-n", "1", "--json")))["dead_letters"]) == 1
    assert "No dead letter is discarded." in output_of(headrace("dead-letters", "list", "--state", "discarded"))


@pytest.mark.parametrize(
    "words",
    [
        ("dead-letters", "--json", "list"),
        ("dead-letters", "-n", "100", "list"),
        ("triggers", "--json", "show", "first"),
        ("triggerers", "--api-url", "http://127.0.0.1:9", "drain", "1"),
    ],
)
def test_options_before_a_subcommand_are_refused(owner: Holder, words: tuple[str, ...]) -> None:
    result = headrace(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unexpected extra argument" in result.stderr


def test_a_dead_letter_is_shown_in_full(owner: Holder) -> None:
    owner.append(dead_letters=[letter("a/b [red]", raw='{"half": [', traceback=["Traceback", "  line 7"])])
    said = output_of(headrace("dead-letters", "show", "a/b [red]"))
    assert "a/b [red]" in said
    assert '{"half": [' in said
    assert "  line 7" in said
    assert DeadLetterDetail.model_validate_json(output_of(headrace("dead-letters", "show", "a/b [red]", "--json"))).raw == '{"half": ['
    assert isinstance(headrace("dead-letters", "show", "none").exception, ApiRefused)


def test_a_short_id_or_its_prefix_identifies_a_dead_letter(api: Api, owner: Holder) -> None:
    long = "directory:/home/ada/project/inbox/*.jsonl/more.jsonl/319/missing_field " + "x" * 300
    owner.append(dead_letters=[letter(long, position=1), letter("other", position=2)])
    listed = output_of(headrace("dead-letters", "list"))
    (short,) = (line.split()[0] for line in listed.splitlines() if line.startswith(short_id(long)))
    assert DeadLetterDetail.model_validate_json(output_of(headrace("dead-letters", "show", short[:6], "--json"))).id == long
    assert output_of(headrace("dead-letters", "redrive", short[:4])) == "1 redriven.\n"
    assert positions(owner) == [1]
    assert isinstance(headrace("dead-letters", "show", "ffffffffff").exception, ApiRefused)
    for words in (["redrive", ""], ["discard", " "], ["show", ""], ["pipelines", "redrive", ""], ["pipelines", "show", ""]):
        result = headrace("dead-letters", *words)
        assert isinstance(result.exception, UsageError), words
        assert "An id is empty" in str(result.exception)
    refused = api.http.post("/api/v1/dead-letters/redrive", json={"ids": [""]}, headers={"Authorization": f"Bearer {KEY}"})
    assert refused.status_code == 422


def test_an_ambiguous_prefix_of_ids_is_refused(owner: Holder) -> None:
    begun: dict[str, str] = {}
    pair = next((begun[short_id(id)[:4]], id) for id in map(str, range(10_000)) if begun.setdefault(short_id(id)[:4], id) != id)
    owner.append(dead_letters=[letter(id, position=n) for n, id in enumerate(pair)])
    result = headrace("dead-letters", "redrive", short_id(pair[0])[:4])
    assert isinstance(result.exception, ApiRefused)
    assert "2 dead letters begin with it" in str(result.exception)
    assert (result.exception.status, result.exception.problem) == (409, "ambiguous")
    assert all(short_id(id) in (result.exception.hint or "") for id in pair)
    assert output_of(headrace("dead-letters", "redrive", short_id(pair[0]))) == "1 redriven.\n"


def test_a_list_outside_a_terminal_is_not_truncated(owner: Holder) -> None:
    owner.append(dead_letters=[letter("x", reason="why " * 100 + "end")])
    assert any(line.split()[1] == "open" and " end " in line for line in output_of(headrace("dead-letters")).splitlines())


def test_redrives_and_discards_are_listed_in_the_history(api: Api, owner: Holder) -> None:
    owner.append(dead_letters=[letter("x", position=1), letter("y", 2), letter("z")])
    assert output_of(headrace("dead-letters", "redrive", "x")) == "1 redriven.\n"
    assert positions(owner) == [1]
    again = output_of(headrace("dead-letters", "redrive", "x"))
    assert "0 redriven." in again
    assert "it is redriven already" in again
    assert output_of(headrace("dead-letters", "discard", "--all", "-n", "1")) == "1 discarded, 1 more match: repeat the command.\n"
    done = DeadLetterActionResult.model_validate_json(output_of(headrace("dead-letters", "discard", "--trigger", "first", "--json")))
    assert done.count == 1
    said = output_of(headrace("dead-letters", "history"))
    assert [line.split()[-3] for line in said.splitlines() if "@" in line] == ["discard", "discard", "redrive", "redrive"]
    actions = DeadLetterActions.model_validate_json(output_of(headrace("dead-letters", "history", "--json"))).actions
    assert [(one.action, one.count) for one in actions] == [("discard", 1), ("discard", 1), ("redrive", 0), ("redrive", 1)]


@pytest.mark.parametrize("words", [(), ("x", "--all"), ("x", "--kind", "failed")])
@pytest.mark.parametrize("command", ["redrive", "discard"])
def test_a_missing_or_conflicting_selection_is_a_usage_error(owner: Holder, command: str, words: tuple[str, ...]) -> None:
    result = headrace("dead-letters", command, *words)
    assert isinstance(result.exception, UsageError)
    assert "--all" in (result.exception.hint or "")


def test_redriving_needs_the_deployment_key(owner: Holder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    owner.append(dead_letters=[letter("x")])
    monkeypatch.delenv("HEADRACE_KEY")
    result = headrace("dead-letters", "redrive", "--all", "--home", str(tmp_path / "empty"))
    assert isinstance(result.exception, UsageError)
    assert "HEADRACE_KEY" in (result.exception.hint or "")
    assert not (tmp_path / "empty").exists()
    monkeypatch.setenv("HEADRACE_KEY", "another key")
    assert isinstance(headrace("dead-letters", "redrive", "--all").exception, ApiRefused)
    monkeypatch.delenv("HEADRACE_KEY")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "key").write_text(KEY)
    assert output_of(headrace("dead-letters", "redrive", "--all", "--home", str(tmp_path / "home"))) == "1 redriven.\n"


def test_dead_letters_of_pipelines_are_listed_redriven_and_discarded(api: Api, owner: Holder) -> None:
    assert "no run has failed permanently" in output_of(headrace("dead-letters", "pipelines"))
    run = {
        "pipeline": "sums",
        "scope": "s",
        "batch": 3,
        "started": "2026-01-01T00:00:00Z",
        "events": 2,
        "seqs": [(1, 2)],
        "error": "no\nat all",
    }
    reports = [RunReport.model_validate({**run, "run_id": each, "state": "failed", "dead_letter": each}) for each in ("a", "b", "c")]
    api.store.runs.report(owner.job_id, reports)
    listed = output_of(headrace("dead-letters", "pipelines", "list"))
    assert [line.split()[1:6] for line in listed.splitlines() if "sums" in line] == [["open", "sums", "3", "2", "no"]] * 3
    shown = output_of(headrace("dead-letters", "pipelines", "show", short_id("b")[:5]))
    assert "no\nat all" in shown
    assert "1-2" in shown
    result = headrace("dead-letters", "pipelines", "discard", short_id("b"), "unknown")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, "1 discarded.")
    assert "with the id unknown." in result.stdout
    assert output_of(headrace("dead-letters", "pipelines", "redrive", "--pipeline", "sums")) == "2 redriven.\n"
    assert output_of(headrace("dead-letters", "pipelines", "redrive", "a")) == "0 redriven.\n"
    for words in ([], ["a", "--pipeline", "sums"]):
        with pytest.raises(UsageError, match="by their ids, or by --pipeline"):
            CliRunner().invoke(app, ["dead-letters", "pipelines", "discard", *words], catch_exceptions=False)
