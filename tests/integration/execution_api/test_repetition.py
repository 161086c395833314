"""Every call that changes data: a repetition changes nothing more, and an unauthorized caller changes nothing.

The calls come from `headrace.wire.calls.execution`; this file has an example of each. A call without an example fails
`test_every_call_that_changes_data_has_an_example`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, select

from headrace.core.ledger.subscriber_sets import digest_text, subscriber_set_digest
from headrace.store.tables.base import metadata
from headrace.store.tables.custody import stream_seeks
from headrace.wire.calls import execution as calls
from headrace.wire.calls.call import Call
from headrace.wire.control.jobs import JobKind
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import declaration, event, registration

Body = dict[str, Any]
FENCED, FORBIDDEN, UNAUTHORIZED = 409, 403, 401
AWAITED = {"trigger": {"classpath": "some.Trigger", "kwargs": {}}, "method": "again"}
SPILL = {"stream": "folder", "lane": "0", "position": 1, "raw": "{}"}
LETTER = {"id": "x", "kind": "rejected", "reason": "no", "stream": "folder", "raw": "{}", "triggers": [2]}
GIVEN_UP = {"epochs": {2: 1}, "spills": [SPILL | {"triggers": [2]}], "dead_letters": [LETTER]}
RUN = {"run_id": "r1", "pipeline": "late", "scope": "main", "batch": 1, "state": "running", "started": "2026-11-21T00:00:00Z"}


@dataclass(frozen=True)
class Example:
    """A request, and the status that callers get who may not send it.

    `body` takes the epoch to name. `other`: a job of the same kind and project that does not own the named thing; `foreign`: a job of
    another project. None: it may make this call. `item`: rejected for each item of a batch, in a response that succeeds.
    """

    call: Call[Any, Any]
    body: Callable[[int], Body]
    parameters: dict[str, int | str] = field(default_factory=dict)
    kind: JobKind = "triggerer"
    other: int | None = FENCED
    foreign: int | None = FENCED
    ended: int | None = FENCED
    stale: bool = False
    item: bool = False


def plain(body: Body) -> Callable[[int], Body]:
    return lambda epoch: body


def batch(epoch: int) -> Body:
    return {"epochs": {1: epoch}, "events": [asdict(event("a"))], "spills": [SPILL | {"triggers": [1]}]}


def batch_plan(epoch: int) -> Body:
    run = {"number": 0, "pipeline": "late", "events": 1, "first": 1, "last": 1, "slice": 0}
    return {"epoch": epoch, "cursor": {"cursor": 1, "batch": 1}, "runs": [run], "slices": ["AA=="], "state": {"scope": "AA=="}}


def plan_page(epoch: int) -> Body:
    return {"epoch": epoch, "batch": 2, "page": 0, "state": {"order/w": "AA=="}}


def split_run(epoch: int) -> Body:
    parts = [{"number": number, "pipeline": "late", "events": 1, "first": 1, "last": 1, "slice": 0} for number in (1, 2)]
    return {"epoch": epoch, "batch": 1, "number": 0, "parts": parts, "slices": ["AA=="]}


EXAMPLES = [
    Example(calls.HEARTBEAT, plain({}), other=FORBIDDEN, foreign=FORBIDDEN),
    Example(
        calls.COMPLETE_JOB,
        plain({"state": "succeeded"}),
        other=FORBIDDEN,
        foreign=FORBIDDEN,
        ended=204,
    ),
    Example(
        calls.DECLARE_PROJECT,
        plain(declaration("first", "third").model_dump()),
        {"name": "flights"},
        other=None,
        foreign=FORBIDDEN,
    ),
    Example(
        calls.STAGE_TRIGGERS,
        plain({"declaration": "declaration-1", "triggers": [one.model_dump() for one in declaration("first").triggers]}),
        other=None,
        foreign=None,
    ),
    Example(calls.LOAD_TRIGGERS, plain({"capacity": 100}), other=None, foreign=None),
    Example(calls.GET_WORKLOADS, plain({"trigger_ids": [1]}), other=200, foreign=200),
    Example(
        calls.CLEAN_UP_TRIGGERS,
        lambda epoch: {"trigger_ids": [1], "epochs": {1: epoch}},
        other=204,
        foreign=204,
        stale=True,
        item=True,
    ),
    Example(
        calls.REPORT_FAILURE,
        lambda epoch: {"epoch": epoch, "number": 1, "type": "ValueError", "message": "no"},
        {"trigger_id": 1},
        stale=True,
    ),
    Example(
        calls.SETTLE_BACKLOG,
        lambda epoch: {"epoch": epoch, "settled": [{"number": 1, "answer": "fired"}]},
        {"trigger_id": 2},
        stale=True,
    ),
    Example(
        calls.REPORT_STREAM_FAILURE,
        lambda epoch: {"report": "report-1", "epochs": {1: epoch}, "type": "OSError", "message": "away"},
        other=200,
        foreign=200,
    ),
    Example(
        calls.DEFINE_SUBSCRIBER_SET,
        plain({"stream": "folder", "digest": digest_text(subscriber_set_digest([1])), "joined": [1]}),
    ),
    Example(calls.RECORD_COPIES, plain({"reader": "folder", "stream": "folder", "after": 0, "through": 1, "copied": 1})),
    Example(
        calls.BEGIN_SEEK,
        plain({"stream": "folder", "seek": 1, "lanes": [{"lane": "1", "previous": 3, "position": 7}]}),
    ),
    Example(calls.FINISH_SEEK, plain({"stream": "folder", "seek": 1, "lanes": ["0"]})),
    Example(calls.STORE_EVENTS, batch, other=200, foreign=200, stale=True, item=True),
    Example(
        calls.START_TASK_RUN,
        plain({"run_id": "second", "task": "t"}),
        kind="worker",
        other=None,
        foreign=None,
    ),
    Example(
        calls.CLAIM_TASK_RUNS,
        plain({"capacity": 0, "tasks": ["t"]}),
        kind="worker",
        other=None,
        foreign=None,
    ),
    Example(
        calls.DEFER_TASK_RUN,
        lambda epoch: {"epoch": epoch, "waiting": AWAITED},
        {"run_id": "first"},
        kind="worker",
        stale=True,
    ),
    Example(
        calls.FINISH_TASK_RUN,
        lambda epoch: {"epoch": epoch, "state": "succeeded", "result": "1"},
        {"run_id": "first"},
        kind="worker",
        stale=True,
    ),
    Example(calls.ACQUIRE_SCOPE, plain({}), {"scope": "main"}, kind="pipeline"),
    Example(calls.STORE_PLAN, batch_plan, {"scope": "main"}, kind="pipeline", stale=True),
    Example(calls.STORE_PLAN_PAGE, plan_page, {"scope": "main"}, kind="pipeline", stale=True),
    Example(calls.SPLIT_RUN, split_run, {"scope": "main"}, kind="pipeline", stale=True),
    Example(calls.REPORT_RUNS, plain({"runs": [RUN]}), kind="pipeline", other=None, foreign=None),
]


@dataclass
class Scene:
    """Jobs of each kind; the first triggerer holds two triggers, of which the second has a backlog, the first worker a run, and the first
    pipeline a scope."""

    api: Api
    tokens: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind in ("triggerer", "pipeline", "worker"):
            for who, project in (("owner", "flights"), ("other", "flights"), ("foreign", "trains"), ("ended", "flights")):
                self._register(f"{who} {kind}", kind, project)
            self.send("POST", f"/execution/jobs/{self.jobs[f'ended {kind}']}/complete", f"ended {kind}", {"state": "failed"})
        self._fill()

    def _register(self, who: str, kind: Any, project: str) -> None:
        answer = self.api.ask("POST", "/execution/jobs", json=registration(kind, project=project).model_dump()).json()
        self.tokens[who], self.jobs[who] = answer["token"], answer["job_id"]

    def _fill(self) -> None:
        done = [
            self.send("PUT", "/execution/projects/flights", "owner triggerer", declaration("first", "second").model_dump()),
            self.send("POST", "/execution/triggers/load", "owner triggerer", {"capacity": 100}),
            self.send("POST", "/execution/triggers/events", "owner triggerer", GIVEN_UP),
            self.send("POST", "/execution/task-runs", "owner worker", {"run_id": "first", "task": "t"}),
            self.send("POST", "/execution/task-runs/claim", "owner worker", {"capacity": 1, "tasks": ["t"]}),
            self.send("POST", "/execution/scopes/main/lease", "owner pipeline", {}),
        ]
        assert [response.status_code for response in done] == [200] * 6, [response.text for response in done]
        lanes = '[{"lane":"0","position":5,"previous":9,"begun":1},{"lane":"1","position":7}]'
        seek = {"plan": "0" * 16, "stream": "folder", "state": "planned", "target": "5", "who": "me", "planned": 1, "expires": 2**62}
        self.api.store.write(lambda connection: connection.execute(insert(stream_seeks).values(**seek, lanes=lanes)))

    def send(self, method: str, path: str, who: str, body: Body) -> httpx.Response:
        return self.api.ask(method, path, token=self.tokens[who], json=body)

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        with self.api.store.reading() as connection:
            return {table.name: sorted(map(tuple, connection.execute(select(table))), key=repr) for table in metadata.sorted_tables}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with serving(tmp_path) as api:
        yield Scene(api)


def sent(scene: Scene, example: Example, who: str = "owner", epoch: int = 1) -> httpx.Response:
    job = scene.jobs[f"{'ended' if who == 'ended' else 'owner'} {example.kind}"]
    path = example.call.url({"job_id": job} | example.parameters)
    return scene.send(example.call.method, path, f"{who} {example.kind}", example.body(epoch))


def refusals(example: Example) -> Iterator[tuple[str, int, int]]:
    """Yield who may not make the call, with which epoch it tries, and the status that it gets."""
    yield from ((who, 1, status) for who in ("other", "foreign", "ended") if (status := getattr(example, who)) is not None)
    if example.stale:
        yield "owner", 0, (200 if example.call is calls.STORE_EVENTS else 204) if example.item else FENCED


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.call.name)
@pytest.mark.slow
def test_an_unauthorized_call_changes_nothing(scene: Scene, example: Example) -> None:
    for who, epoch, status in refusals(example):
        before = scene.everything()
        scene.api.clock.turn(0.1)
        response = sent(scene, example, who, epoch)
        assert response.status_code == status, (who, epoch, response.text)
        assert scene.everything() == before, (who, epoch)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.call.name)
@pytest.mark.slow
def test_a_repeated_call_changes_nothing_more(scene: Scene, example: Example) -> None:
    first = sent(scene, example)
    assert first.is_success, first.text
    after = scene.everything()
    again = sent(scene, example)
    assert again.status_code == first.status_code, again.text
    assert scene.everything() == after


def test_a_registration_is_idempotent_and_needs_the_deployment_key(scene: Scene) -> None:
    asked = registration().model_dump()
    before = scene.everything()
    assert scene.send("POST", "/execution/jobs", "owner triggerer", asked).status_code == UNAUTHORIZED
    assert scene.everything() == before
    first = scene.api.ask("POST", "/execution/jobs", token=KEY, json=asked).json()
    after = scene.everything()
    assert scene.api.ask("POST", "/execution/jobs", token=KEY, json=asked).json()["job_id"] == first["job_id"]
    assert scene.everything() == after


def test_every_call_that_changes_data_has_an_example() -> None:
    changing = {call for call in calls.EXECUTION_CALLS if call.changes and call.repeatable}
    assert changing <= {example.call for example in EXAMPLES} | {calls.REGISTER_JOB}


def test_calls_that_change_data_do_not_use_get() -> None:
    assert not [call.name for call in calls.EXECUTION_CALLS if call.changes and call.method == "GET"]
    assert all(call.repeatable for call in calls.EXECUTION_CALLS), "clients repeat each call while the API is away"


READ_BODIES: dict[Call[Any, Any], Body] = {
    calls.GET_WORKLOADS: {"trigger_ids": [1]},
    calls.COUNT_RECEIPTS: {"stream": "folder"},
    calls.GET_LANE_OFFSETS: {"stream": "folder", "lanes": ["0"]},
    calls.FIND_UNCOPIED: {"reader": "folder"},
    calls.GET_EVENTS_BY_SEQ: {"seqs": [[1, 1]]},
    calls.FIND_LEADERS: {"keys": ["AA=="]},
    calls.GET_POSITIONS: {"seqs": [1]},
}
READ_QUERIES: dict[Call[Any, Any], dict[str, str]] = {
    calls.GET_REDELIVERIES: {"after": "0", "to": "0"},
    calls.GET_SCOPE_DEAD_LETTERS: {"pipeline": "late"},
}
READ_PARAMETERS: dict[str, int | str] = {"trigger_id": 2, "scope": "main", "run_id": "first", "id": "one", "key": "one"}


@pytest.mark.parametrize("call", [call for call in calls.EXECUTION_CALLS if not call.changes], ids=lambda call: call.name)
def test_a_read_call_changes_nothing(scene: Scene, call: Call[Any, Any]) -> None:
    kind = call.caller if call.caller in ("triggerer", "pipeline", "worker") else "pipeline"
    before = scene.everything()
    query = READ_QUERIES.get(call, {})
    response = scene.api.ask(
        call.method, call.url(READ_PARAMETERS), token=scene.tokens[f"owner {kind}"], json=READ_BODIES.get(call), params=query
    )
    assert response.is_success or call.path.rpartition("{")[2] in ("id}", "key}"), response.text
    assert scene.everything() == before
