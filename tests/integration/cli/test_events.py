"""`headrace events list` and `headrace task-runs show` against a real API server, with event patterns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import HeadraceError, ProjectError, UsageError
from headrace.store.queries import events as queries
from headrace.wire.task_runs import AwaitedEvent, StartRun, WaitCondition
from support.processes.execution_api import KEY, Api
from support.processes.store import event, holder

PATTERN = '{"status": ["paid"], "total": [{"numeric": [">", 100]}]}'


@pytest.fixture(autouse=True)
def environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"API_URL": api.url, "KEY": KEY, "HOME": "/nonexistent"}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)


@pytest.fixture(scope="module", autouse=True)
def orders(api: Api) -> None:
    """Store 20 orders: of every second one the total is above 100, and every fifth one is paid."""
    orders = [{"status": "new" if n % 5 else "paid", "total": 50 + n % 2 * 100} for n in range(20)]
    holder(api.store, "orders").append(*(event(f"o{n}", payload=json.dumps(order)) for n, order in enumerate(orders)))


def headrace(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def ids(*words: str) -> list[str]:
    result = headrace("events", "list", "--json", *words)
    assert result.exit_code == 0, result.output
    return [one["id"] for one in json.loads(result.stdout)["events"]]


def test_events_are_listed_by_payload_from_any_part_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pattern.json"
    path.write_text(PATTERN)
    monkeypatch.setattr(queries, "MAX_TESTED_EVENTS", 3)
    assert ids("--match", PATTERN) == ids("--match", f"@{path}") == ["o15", "o5"]
    assert ids("--match", PATTERN, "-n", "1") == ["o15"]
    assert ids("--match", PATTERN, "--type", "none") == []
    assert "The log has no such event." in headrace("events", "list", "--match", '{"status": ["lost"]}').stdout
    assert "o15" in headrace("events", "list", "--match", PATTERN).stdout


@pytest.mark.parametrize(
    ("pattern", "kind", "message"),
    [
        ('{"a": [{"prefx": "x"}]}', ProjectError, "In --match, a has the operator 'prefx', which does not exist."),
        ("{a: 1}", UsageError, "The pattern of --match is not JSON"),
        ("@absent.json", UsageError, "The file absent.json cannot be read"),
        (json.dumps({"a": ["x" * 8_000]}), ProjectError, "--match has 8,010 characters as JSON."),
    ],
)
def test_an_invalid_pattern_is_refused_in_words(pattern: str, kind: type[HeadraceError], message: str) -> None:
    result = headrace("events", "list", "--match", pattern)
    assert isinstance(result.exception, kind)
    assert message in str(result.exception)
    assert result.exception.hint


def test_a_waiting_run_is_shown_with_its_pattern(api: Api) -> None:
    waiting = WaitCondition(event=AwaitedEvent(on=["orders"], type="order", match={"status": ["paid"]}))
    api.store.task_runs.start("flights", StartRun(run_id="waits", task="t", waiting=waiting))
    shown = " ".join(headrace("task-runs", "show", "waits").stdout.split())
    assert 'an event of orders, type order that matches {"status":["paid"]}' in shown
