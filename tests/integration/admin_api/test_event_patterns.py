"""Event patterns in the admin API, on each database: the list of events by payload, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as on

from headrace.core.matching.payloads import MAX_PATTERN_CHARS
from headrace.store.ordering import payloads
from headrace.store.queries import events as queries
from support.patterns.corpus import WHOLE
from support.processes.execution_api import Api, serving
from support.processes.store import DATABASES, event, holder

SECRET = "whsec_c2VjcmV0cyBvZiB0ZXN0cyBhcmUgbG9uZyBlbm91Z2g="
PAID = '{"status": ["paid"]}'


@pytest.fixture(autouse=True)
def _no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a page the time of a busy machine: it ends after MAX_TESTED_SECONDS, with the events that it has."""
    monkeypatch.setattr(payloads, "MAX_TESTED_SECONDS", 300.0)


@pytest.fixture(params=DATABASES)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param) as running:
        yield running


def page(api: Api, **query: Any) -> tuple[list[str], int | None, int | None]:
    """Return the ids of the events of a page, and the seqs at which the next page continues."""
    answer = api.ask("GET", "/api/v1/events", params=query).raise_for_status().json()
    return [one["id"] for one in answer["events"]], answer["before"], answer["after"]


def fill(api: Api, *texts: str, **other: Any) -> None:
    holder(api.store, "orders").append(*(event(f"{n}", payload=text, **other) for n, text in enumerate(texts, 1)))


def test_events_are_listed_by_their_payload(api: Api) -> None:
    fill(api, '{"status": "paid"}', '{"status": "new"}', "[]", '"paid"', '[{"status": "paid"}]', '{"status": ["new", "paid"]}')
    assert page(api, match=PAID) == (["6", "1"], None, None)
    assert page(api, match=PAID, limit=1) == (["6"], 6, None)
    assert page(api, match=PAID, before=6) == (["1"], None, None)
    assert page(api, match=PAID, after=1) == (["6"], None, 6)
    assert page(api, match='{"a": [{"exists": false}]}') == (["6", "2", "1"], None, None)
    assert page(api, match=PAID, type="other") == ([], None, None)
    assert page(api, match=PAID, type="leg", subject="none") == ([], None, None)


def test_the_list_follows_the_published_rules(api: Api) -> None:
    cases = [case for case in WHOLE if type(case[1]) is dict]
    fill(api, *(json.dumps(fields) for _, fields, _ in cases))
    for n, (pattern, _, expected) in enumerate(cases, 1):
        found, *_ = page(api, match=json.dumps(pattern), before=n + 1, limit=1)
        assert (found == [f"{n}"]) is expected, pattern


@pytest.mark.parametrize("limits", [{"MAX_TESTED_EVENTS": 2}, {"MAX_TESTED_BYTES": 1}, {"MAX_TESTED_SECONDS": -1.0}])
def test_a_page_tests_a_bounded_number_of_payloads(api: Api, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]) -> None:
    fill(api, '{"status": "paid"}', *['{"status": "new"}'] * 9)
    for name, value in limits.items():
        monkeypatch.setattr(queries if name in vars(queries) else payloads, name, value)
    if "MAX_TESTED_BYTES" in limits:
        monkeypatch.setattr(queries, "PayloadBudget", lambda: payloads.PayloadBudget(1))
    step = limits.get("MAX_TESTED_EVENTS", 1)
    found, before, _ = page(api, match=PAID)
    assert (found, before) == ([], 11 - step)
    pages = 1
    while before is not None:
        pages += 1
        found, before, _ = page(api, match=PAID, before=before)
    assert (found, pages) == (["1"], 10 // step)
    found, _, after = page(api, match='{"status": ["new"]}', after=0)
    assert (found, after) == ((["2"] if step == 2 else []), step)


def test_payloads_are_read_in_parts_of_limited_size(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_PART_BYTES", 65)
    monkeypatch.setattr(payloads, "PART_EVENTS", 3)
    fill(api, *(json.dumps({"status": "paid", "text": "é" * n}) for n in (0, 50, 0, 0, 0, 0, 90, 90, 0, 0)))
    parts: list[str] = []

    @on.listens_for(api.store._database.readers, "after_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT events.seq, events.payload"):
            parts.append(statement)

    assert page(api, match=PAID)[0] == [f"{n}" for n in range(10, 0, -1)]
    assert len(parts) == len(["10 9", "8", "7", "6 5", "4 3", "2", "1"])


@pytest.mark.parametrize(
    ("match", "detail", "hint"),
    [
        ('{"a": {"b": [{"prefx": "x"}]}}', "In match=, a.b has the operator 'prefx', which does not exist.", "Do you mean 'prefix'?"),
        ('{"a": "paid"}', "In match=, a must be a list of values", "Write a single value as a list: ['paid']."),
        ("{status: paid}", "match= is not JSON", "Write it like"),
        ("", "match= is not JSON", "Write it like"),
        ("[" * 500, "match= is nested too deep", "few levels"),
        (json.dumps({"a": ["x" * MAX_PATTERN_CHARS]}), "match= has 8,011 characters as JSON.", "at most 8,000"),
    ],
)
def test_an_invalid_pattern_is_refused_in_words(api: Api, match: str, detail: str, hint: str) -> None:
    answer = api.ask("GET", "/api/v1/events", params={"match": match})
    assert (answer.status_code, answer.json()["type"].rpartition("/")[2].rpartition(":")[2]) == (422, "invalid")
    assert detail in answer.json()["detail"]
    assert hint in answer.json()["hint"]


def test_invalid_patterns_in_bodies_are_refused_with_their_path_and_hint(api: Api) -> None:
    wrong = {"a": {"b": [{"prefx": "x"}]}}
    waiting = {"event": {"on": ["orders"], "match": wrong}}
    for answer in (
        api.ask("PUT", "/api/v1/webhooks/mine", json={"url": "https://billing.example", "secret": SECRET, "match": wrong}),
        api.ask("POST", "/api/v1/task-runs", json={"project": "flights", "run_id": "r", "task": "t", "waiting": waiting}),
    ):
        assert answer.status_code == 422
        assert "match: In match=, a.b has the operator 'prefx', which does not exist." in answer.json()["detail"]
        assert answer.json()["hint"] == "Do you mean 'prefix'?"
    assert api.ask("GET", "/api/v1/webhooks").json() == {"webhooks": []}
    assert api.ask("GET", "/api/v1/task-runs").json() == {"runs": []}


@pytest.mark.parametrize("match", [5, "paid", [], [1], {"a": 1}, {"$or": []}, {"a": ["x" * MAX_PATTERN_CHARS]}])
def test_what_is_no_pattern_is_refused(api: Api, match: Any) -> None:
    body = {"url": "https://billing.example", "secret": SECRET, "match": match}
    assert api.ask("PUT", "/api/v1/webhooks/mine", json=body).status_code == 422


def test_a_pattern_of_the_maximum_length_is_accepted(api: Api) -> None:
    fill(api, '{"status": "paid"}')
    text = json.dumps({"status": ["paid", *(f'"{n}' for n in range(930))]}, separators=(",", ":"))
    assert len(text) > MAX_PATTERN_CHARS * 0.9
    assert page(api, match=text.ljust(MAX_PATTERN_CHARS, "\t"))[0] == ["1"]
