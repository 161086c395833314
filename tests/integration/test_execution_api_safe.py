"""Every call that changes something: sent twice it changes no more than once; from who may not, it is refused and changes nothing.

One table of all of them: a new route that is not in it fails `test_no_call_is_forgotten`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from headrace.api.openapi import execution_api
from headrace.core.ledger.subscriber_sets import digest_text, subscriber_set_digest
from headrace.store.tables.base import metadata
from headrace.wire.control.jobs import JobKind
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import declaration, event, registration

Body = dict[str, Any]
FENCED, FORBIDDEN, UNAUTHORIZED = 409, 403, 401
AWAITED = {"trigger": {"classpath": "some.Trigger", "kwargs": {}}, "method": "again"}
SPILL = {"stream": "folder", "lane": "0", "position": 1, "raw": "{}"}
RUN = {"run_id": "r1", "pipeline": "late", "scope": "main", "batch": 1, "state": "running", "started": "2026-11-21T00:00:00Z"}


@dataclass(frozen=True)
class Call:
    """A call, and how those are answered who may not make it.

    `body` takes the epoch to name. `other`: a job of the same kind and project that does not own what is named; `foreign`: one of another
    project. None: it may well make this call. `item`: refused for each item of a batch, in an answer that succeeds.
    """

    route: str
    path: str
    body: Callable[[int], Body]
    kind: JobKind = "triggerer"
    other: int | None = FENCED
    foreign: int | None = FENCED
    ended: int | None = FENCED
    stale: bool = False
    item: bool = False


def plain(body: Body) -> Callable[[int], Body]:
    return lambda epoch: body


def batch(epoch: int) -> Body:
    return {"epochs": {1: epoch}, "events": [event("a").model_dump(mode="json")], "spills": [SPILL | {"triggers": [1]}]}


def batch_plan(epoch: int) -> Body:
    run = {"number": 0, "pipeline": "late", "events": 1, "first": 1, "last": 1, "slice": 0}
    return {"epoch": epoch, "cursor": {"cursor": 1, "batch": 1}, "runs": [run], "slices": ["AA=="], "state": {"scope": "AA=="}}


def plan_page(epoch: int) -> Body:
    return {"epoch": epoch, "batch": 2, "page": 0, "state": {"order/w": "AA=="}}


def split_run(epoch: int) -> Body:
    parts = [{"number": number, "pipeline": "late", "events": 1, "first": 1, "last": 1, "slice": 0} for number in (1, 2)]
    return {"epoch": epoch, "batch": 1, "number": 0, "parts": parts, "slices": ["AA=="]}


CALLS = [
    Call("POST /execution/jobs/{job_id}/heartbeat", "/execution/jobs/{job}/heartbeat", plain({}), other=FORBIDDEN, foreign=FORBIDDEN),
    Call(
        "POST /execution/jobs/{job_id}/complete",
        "/execution/jobs/{job}/complete",
        plain({"state": "succeeded"}),
        other=FORBIDDEN,
        foreign=FORBIDDEN,
        ended=204,
    ),
    Call(
        "PUT /execution/projects/{name}",
        "/execution/projects/flights",
        plain(declaration("first", "third").model_dump()),
        other=None,
        foreign=FORBIDDEN,
    ),
    Call(
        "POST /execution/declarations",
        "/execution/declarations",
        plain({"declaration": "declaration-1", "triggers": [one.model_dump() for one in declaration("first").triggers]}),
        other=None,
        foreign=None,
    ),
    Call("POST /execution/triggers/load", "/execution/triggers/load", plain({"capacity": 100}), other=None, foreign=None),
    Call("POST /execution/triggers/workloads", "/execution/triggers/workloads", plain({"trigger_ids": [1]}), other=200, foreign=200),
    Call(
        "POST /execution/triggers/cleanup",
        "/execution/triggers/cleanup",
        lambda epoch: {"trigger_ids": [1], "epochs": {1: epoch}},
        other=204,
        foreign=204,
        stale=True,
        item=True,
    ),
    Call(
        "POST /execution/triggers/{trigger_id}/failure",
        "/execution/triggers/1/failure",
        lambda epoch: {"epoch": epoch, "number": 1, "type": "ValueError", "message": "no"},
        stale=True,
    ),
    Call(
        "POST /execution/triggers/{trigger_id}/backlog/settle",
        "/execution/triggers/2/backlog/settle",
        lambda epoch: {"epoch": epoch, "settled": [{"number": 1, "answer": "fired"}]},
        stale=True,
    ),
    Call(
        "POST /execution/triggers/failures",
        "/execution/triggers/failures",
        lambda epoch: {"report": "report-1", "epochs": {1: epoch}, "type": "OSError", "message": "away"},
        other=200,
        foreign=200,
    ),
    Call(
        "POST /execution/streams/subscriber-sets",
        "/execution/streams/subscriber-sets",
        plain({"stream": "folder", "digest": digest_text(subscriber_set_digest([1])), "joined": [1]}),
    ),
    Call("POST /execution/triggers/events", "/execution/triggers/events", batch, other=200, foreign=200, stale=True, item=True),
    Call(
        "POST /execution/task-runs",
        "/execution/task-runs",
        plain({"run_id": "second", "task": "t"}),
        kind="worker",
        other=None,
        foreign=None,
    ),
    Call(
        "POST /execution/task-runs/claim",
        "/execution/task-runs/claim",
        plain({"capacity": 0, "tasks": ["t"]}),
        kind="worker",
        other=None,
        foreign=None,
    ),
    Call(
        "POST /execution/task-runs/{run_id}/defer",
        "/execution/task-runs/first/defer",
        lambda epoch: {"epoch": epoch, "waiting": AWAITED},
        kind="worker",
        stale=True,
    ),
    Call(
        "POST /execution/task-runs/{run_id}/finish",
        "/execution/task-runs/first/finish",
        lambda epoch: {"epoch": epoch, "state": "succeeded", "result": "1"},
        kind="worker",
        stale=True,
    ),
    Call("POST /execution/scopes/{scope}/lease", "/execution/scopes/main/lease", plain({}), kind="pipeline"),
    Call("POST /execution/scopes/{scope}/plans", "/execution/scopes/main/plans", batch_plan, kind="pipeline", stale=True),
    Call("POST /execution/scopes/{scope}/plans/pages", "/execution/scopes/main/plans/pages", plan_page, kind="pipeline", stale=True),
    Call("POST /execution/scopes/{scope}/splits", "/execution/scopes/main/splits", split_run, kind="pipeline", stale=True),
    Call("POST /execution/runs", "/execution/runs", plain({"runs": [RUN]}), kind="pipeline", other=None, foreign=None),
]
REGISTER = "POST /execution/jobs"


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
            self.send("POST", "/execution/triggers/events", "owner triggerer", {"epochs": {2: 1}, "spills": [SPILL | {"triggers": [2]}]}),
            self.send("POST", "/execution/task-runs", "owner worker", {"run_id": "first", "task": "t"}),
            self.send("POST", "/execution/task-runs/claim", "owner worker", {"capacity": 1, "tasks": ["t"]}),
            self.send("POST", "/execution/scopes/main/lease", "owner pipeline", {}),
        ]
        assert [response.status_code for response in done] == [200] * 6, [response.text for response in done]

    def send(self, method: str, path: str, who: str, body: Body) -> httpx.Response:
        return self.api.ask(method, path, token=self.tokens[who], json=body)

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        with self.api.store.reading() as connection:
            return {table.name: sorted(map(tuple, connection.execute(select(table))), key=repr) for table in metadata.sorted_tables}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with serving(tmp_path) as api:
        yield Scene(api)


def made(scene: Scene, call: Call, who: str = "owner", epoch: int = 1) -> httpx.Response:
    method = call.route.split()[0]
    path = call.path.format(job=scene.jobs[f"{'ended' if who == 'ended' else 'owner'} {call.kind}"])
    return scene.send(method, path, f"{who} {call.kind}", call.body(epoch))


def refusals(call: Call) -> Iterator[tuple[str, int, int]]:
    """Yield who may not make the call, with which epoch it tries, and the status that it gets."""
    yield from ((who, 1, status) for who in ("other", "foreign", "ended") if (status := getattr(call, who)) is not None)
    if call.stale:
        yield "owner", 0, (200 if call.route.endswith("/events") else 204) if call.item else FENCED


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.route)
def test_who_may_not_changes_nothing(scene: Scene, call: Call) -> None:
    for who, epoch, status in refusals(call):
        before = scene.everything()
        scene.api.clock.turn(0.1)
        response = made(scene, call, who, epoch)
        assert response.status_code == status, (who, epoch, response.text)
        assert scene.everything() == before, (who, epoch)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.route)
def test_a_replay_changes_no_more(scene: Scene, call: Call) -> None:
    first = made(scene, call)
    assert first.is_success, first.text
    after = scene.everything()
    again = made(scene, call)
    assert again.status_code == first.status_code, again.text
    assert scene.everything() == after


def test_a_registration_is_idempotent_and_takes_the_key(scene: Scene) -> None:
    asked = registration().model_dump()
    before = scene.everything()
    assert scene.send("POST", "/execution/jobs", "owner triggerer", asked).status_code == UNAUTHORIZED
    assert scene.everything() == before
    first = scene.api.ask("POST", "/execution/jobs", token=KEY, json=asked).json()
    after = scene.everything()
    assert scene.api.ask("POST", "/execution/jobs", token=KEY, json=asked).json()["job_id"] == first["job_id"]
    assert scene.everything() == after


READS = {
    "POST /execution/events/leaders",
    "POST /execution/events/pick",
    "POST /execution/scopes/{scope}/positions",
    "POST /execution/streams/books",
    "POST /execution/streams/marks",
}
"""They ask for more than a URL holds, and change nothing."""


def test_no_call_is_forgotten() -> None:
    described = execution_api()["paths"].items()
    mutating = {f"{method.upper()} {path}" for path, methods in described for method in methods if method != "get"}
    assert mutating - READS == {call.route for call in CALLS} | {REGISTER}
