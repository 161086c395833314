"""Draining triggerers and resuming triggers, over HTTP and with the command line; two API servers lease the same triggers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.client.triggerer import TriggererClient
from headrace.errors import ApiRefused, UsageError
from headrace.store import Store
from headrace.wire.control.jobs import Blocked, CompleteJob, Heartbeat
from headrace.wire.control.triggers import CleanupTriggers, DeclaredTrigger, DeclareProject, LoadTriggers, TriggerFailure
from headrace.wire.status.triggerers import TriggerDetail, TriggererList
from support.processes.calls import clean_up_triggers, load_triggers, report_failure
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import Holder, declaration, holder, opened, registration
from support.sources.custody import keep, spill, waiting


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serving(tmp_path) as running:
        monkeypatch.setenv("HEADRACE_API_URL", running.url)
        monkeypatch.setenv("HEADRACE_KEY", KEY)
        monkeypatch.setenv("COLUMNS", "200")
        yield running


def headrace(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def output_of(result: Result) -> str:
    """Return what a command that went well said."""
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def parked(owner: Holder) -> None:
    failure = TriggerFailure(epoch=owner.epochs[1], type="ValueError", message="no [route]", traceback=["  File 'x.py', line 1"])
    while owner.store.triggers.failure(owner.job_id, 1, failure).decision != "parked":
        pass


async def test_units_are_handed_over_between_triggerers_over_http(api: Api) -> None:
    async with TriggererClient(api.url, key=KEY) as first, TriggererClient(api.url, key=KEY) as second:
        await first.register(registration(version="1.2.3"))
        await first.declare("flights", DeclareProject(triggers=[*_alone("one"), *_alone("two")], pipelines=[]))
        assert len((await load_triggers(first, 10)).leases) == 2
        await second.register(registration())
        assert (await load_triggers(second, 10)).leases == []
        revoked = (await load_triggers(first, 10)).revoked
        (given,) = revoked
        assert (await first.heartbeat(Heartbeat())).revoked == revoked == {given: 1}
        assert (await load_triggers(second, 10)).leases == []
        await clean_up_triggers(first, revoked)
        assert [lease.trigger_id for lease in (await load_triggers(second, 10)).leases] == [given]
        verdict = await report_failure(second, given, TriggerFailure(epoch=2, number=1, type="ValueError", message="no"))
        assert (verdict.decision, verdict.restarts) == ("restart", 1)
    shown = TriggererList.model_validate_json(api.ask("GET", "/api/v1/triggerers").content).triggerers
    assert [(one.id, one.held, one.capacity, one.version, one.queues) for one in shown] == [
        (2, 1, 10, None, ["default"]),
        (1, 1, 10, "1.2.3", ["default"]),
    ]


def _alone(name: str) -> list[DeclaredTrigger]:
    return declaration(name, stream=None).triggers


def test_changes_need_the_deployment_key(api: Api) -> None:
    owner = holder(api.store, "first")
    wanted = (f"/api/v1/triggerers/{owner.job_id}/desired-state", {"desired_state": "drain"})
    for path, body in (wanted, ("/api/v1/triggers/1/resume", None), ("/api/v1/triggers/1/backlog/drop", None)):
        assert api.ask("POST", path, token=None, json=body).status_code == 401
    assert api.store.jobs.heartbeat(owner.job_id, Heartbeat()).desired_state == "run"


def test_unknown_triggerers_and_triggers_are_not_found(api: Api) -> None:
    for number in (77, -1, 2**64):
        assert api.ask("POST", f"/api/v1/triggerers/{number}/desired-state", json={"desired_state": "drain"}).status_code == 404
        assert api.ask("GET", f"/api/v1/triggers/{number}").status_code == 404
        assert api.ask("POST", f"/api/v1/triggers/{number}/resume").status_code == 404


def test_triggerers_are_listed_drained_stopped_and_resumed(api: Api) -> None:
    assert "There are no triggerers" in output_of(headrace("triggerers"))
    job = str(holder(api.store, "first").job_id)
    wanted = {"drain": "drain", "stop": "stop", "resume": "run"}
    for word, expected in wanted.items():
        output_of(headrace("triggerers", word, job))
        assert api.store.jobs.heartbeat(int(job), Heartbeat()).desired_state == expected
    row = output_of(headrace("triggerers", "list")).splitlines()[-1].split()
    assert row[:5] == [job, "running", "run", "here", "1"]
    assert TriggererList.model_validate_json(output_of(headrace("triggerers", "list", "--json"))).triggerers[0].held == 1
    assert "running" in output_of(headrace("status"))
    assert isinstance(headrace("triggerers", "drain", "77").exception, ApiRefused)


def test_a_parked_trigger_is_shown_with_its_traceback_and_resumed(api: Api) -> None:
    parked(holder(api.store, "first", "second"))
    assert "parked" in output_of(headrace("triggers"))
    assert "no [route]" in output_of(headrace("status"))
    said = output_of(headrace("triggers", "show", "first"))
    assert "ValueError: no [route]" in said
    assert "File 'x.py', line 1" in said
    assert TriggerDetail.model_validate_json(output_of(headrace("triggers", "show", "first", "--json"))).restarts == 11
    output_of(headrace("triggers", "resume", "first"))
    assert "parked" not in output_of(headrace("triggers"))
    assert isinstance(headrace("triggers", "resume", "nothing").exception, UsageError)


def test_a_blocked_trigger_is_shown_on_the_command_line_and_in_metrics(api: Api) -> None:
    owner = holder(api.store, "first", "second")
    stack = ['File "slow.py", line 7 in handle']
    api.store.jobs.heartbeat(owner.job_id, Heartbeat(blocked=Blocked(trigger_id=1, trigger="first", seconds=12, stack=stack)))
    for words in (("status",), ("triggers",), ("triggers", "show", "first")):
        assert "blocks its process for 12 s" in output_of(headrace(*words))
    assert "slow.py" in output_of(headrace("triggers", "show", "first"))
    assert "blocks" not in output_of(headrace("triggers", "show", "second"))
    assert "headrace_triggerers_blocked 1.0" in api.ask("GET", "/metrics").text
    api.store.jobs.heartbeat(owner.job_id, Heartbeat())
    assert "blocks" not in output_of(headrace("status"))
    assert "headrace_triggerers_blocked 0.0" in api.ask("GET", "/metrics").text


def test_two_api_servers_lease_each_stream_to_one_job(tmp_path: Path) -> None:
    streams = 30
    declared = [DeclaredTrigger(name=f"t{n}", classpath="some.Trigger", kwargs={}, stream=f"s{n % streams}") for n in range(2 * streams)]
    with opened("postgresql", tmp_path) as one, opened("postgresql", tmp_path) as other:
        jobs = [(store, store.jobs.register(registration()).id) for store in (one, other, one, other)]
        one.projects.declare(jobs[0][1], "flights", DeclareProject(triggers=declared, pipelines=[]))

        def live(store: Store, job_id: int) -> set[int]:
            for _ in range(15):
                answer = store.triggers.load(job_id, LoadTriggers(capacity=100))
                if answer.revoked:
                    store.triggers.cleanup(job_id, CleanupTriggers(trigger_ids=list(answer.revoked)))
                store.jobs.heartbeat(job_id, Heartbeat())
            return {lease.trigger_id for lease in store.triggers.load(job_id, LoadTriggers(capacity=100)).leases}

        with ThreadPoolExecutor(len(jobs)) as pool:
            held = list(pool.map(lambda job: live(*job), jobs))
        held = [live(*job) for job in jobs] and [live(*job) for job in jobs]
    assert sorted(trigger for mine in held for trigger in mine) == list(range(1, 2 * streams + 1))
    shares = [{(trigger - 1) % streams for trigger in mine} for mine in held]
    assert sorted(len(share) for share in shares) == [7, 7, 8, 8]
    assert len(set.union(*shares)) == streams


@pytest.mark.timeout(60)
def test_all_running_triggerers_and_workers_are_counted(api: Api) -> None:
    for kind in ("worker", "triggerer"):
        for number in range(25):
            job = api.store.jobs.register(registration(kind))
            if kind == "triggerer" and number < 22:
                api.store.jobs.complete(job.id, CompleteJob(state="succeeded"))
    metrics = api.ask("GET", "/metrics").text
    assert 'headrace_jobs{kind="worker"} 25.0' in metrics
    assert 'headrace_jobs{kind="triggerer"} 3.0' in metrics
    listed = TriggererList.model_validate_json(api.ask("GET", "/api/v1/triggerers").content).triggerers
    assert [one.state for one in listed] == ["running"] * 3 + ["succeeded"] * 20


def test_the_error_for_a_wrong_key_names_the_setting(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KEY", "another key")
    refused = headrace("triggerers", "drain", "1").exception
    assert isinstance(refused, ApiRefused)
    assert "neither the deployment key" in str(refused)
    assert "HEADRACE_KEY" in (refused.hint or "")


def test_the_backlog_of_a_removed_trigger_is_dropped(api: Api) -> None:
    owner = holder(api.store, "first", "second")
    keep(owner, spill(1, 1, 2), spill(2, 1))
    owner.store.projects.declare(owner.job_id, "flights", declaration("second"))
    assert "headrace triggers backlog drop first drops them." in " ".join(headrace("status").output.split())
    assert "Delete 2 raw events from the backlog of first?" in headrace("triggers", "backlog", "drop", "first").output
    assert "2 raw events deleted." in output_of(headrace("triggers", "backlog", "drop", "first", "--yes"))
    assert "No backlog of a trigger named 'first'" in str(headrace("triggers", "backlog", "drop", "first", "--yes").exception)
    owner.load()
    assert len(waiting(owner, 2)) == 1
