"""`headrace status --check` reports the alerts of the page in its first lines and in its exit code (first-use 2)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import ApiUnavailable
from headrace.store import Store
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.control.triggers import TriggerFailure
from headrace.wire.custody.events import Cursor
from support.processes.admin_scene import KEY, STREAM, Scene, at_work, opened, serving
from support.processes.calls import report_failure
from support.processes.store import registration


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
async def scene(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    with serving(store) as url:
        monkeypatch.setenv("HEADRACE_API_URL", url)
        monkeypatch.setenv("HEADRACE_KEY", KEY)
        async with at_work(url) as made:
            yield made


async def headrace(*typed: str) -> Result:
    return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(app, list(typed)))


async def checked() -> tuple[int, dict[str, Any]]:
    result = await headrace("status", "--check", "--json")
    return result.exit_code, json.loads(result.stdout)


async def test_the_check_of_a_healthy_deployment_exits_with_0(scene: Scene) -> None:
    result = await headrace("status", "--check")
    assert (result.exit_code, result.stdout) == (0, "All is well.\n")
    assert (await headrace("status")).stdout.startswith("All is well.\n")
    assert await checked() == (0, {"state": "ok", "alerts": []})


async def test_a_parked_trigger_is_an_error_in_the_first_line(scene: Scene) -> None:
    trigger_id = scene.triggers["legs.delta"]
    for number in range(1, 20):
        failure = TriggerFailure(epoch=scene.epochs[trigger_id], number=number, type="OSError", message="no route")
        if (await report_failure(scene.triggerer, trigger_id, failure)).decision == "parked":
            break
    code, said = await checked()
    assert (code, said["state"], said["alerts"][0]["about"]) == (1, "error", "trigger:legs.delta")
    for typed in (("status",), ("status", "--check")):
        first = (await headrace(*typed)).stdout.splitlines()[0]
        assert first.startswith("error: Trigger legs.delta failed too often and is parked")
        assert "OSError: no route" in first


async def test_a_full_disk_is_an_error_in_the_first_line_until_writes_succeed(store: Store, scene: Scene) -> None:
    def limit_pages(most: int) -> None:
        store._database.write(lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count = {most}").scalar_one())

    limit_pages(10)
    big = [scene.leg(n, note="x" * 10_000) for n in range(100)]
    with pytest.raises(ApiUnavailable, match="The disk is full"):
        await scene.store(*big)
    code, said = await checked()
    assert (code, said["alerts"][0]["about"]) == (1, "storage")
    assert "The disk is full" in said["alerts"][0]["summary"]
    assert "Make room" in said["alerts"][0]["summary"]
    limit_pages(1_000_000)
    await scene.store(*big)
    store._database._writer.outages._failed -= 3600  # as if that were long ago
    assert await checked() == (0, {"state": "ok", "alerts": []})


async def test_a_scope_without_a_driver_is_an_error(scene: Scene) -> None:
    await scene.store(scene.leg(1))
    await scene.plan(Cursor(cursor=1, batch=1, ordered=1))
    assert await checked() == (0, {"state": "ok", "alerts": []})
    await scene.store(scene.leg(2))
    await anyio.to_thread.run_sync(lambda: scene.pipeline.complete(CompleteJob(state="succeeded")))
    code, said = await checked()
    assert (code, said["alerts"][0]["about"]) == (1, "scope:flights")
    assert "no pipeline process runs it, and 1 event waits in the log" in said["alerts"][0]["summary"]


async def test_a_failed_advance_of_a_lane_is_an_error(scene: Scene) -> None:
    await scene.beat(read=9, advanced=7, error="TimeoutError: 60 s")
    code, said = await checked()
    assert (code, said["alerts"][0]["about"]) == (1, f"stream:{STREAM}")


async def test_a_process_that_fails_repeatedly_is_an_error(store: Store, scene: Scene) -> None:
    for number in range(3):
        job = store.jobs.register(registration("pipeline", registration_id=f"pipeline-again-{number}", pid=number))
        store.jobs.complete(job.id, CompleteJob(state="failed", reason="PipelineError: the log was replaced\nmore"))
    code, said = await checked()
    (alert,) = said["alerts"]
    assert (code, alert["about"]) == (1, "process:pipeline")
    assert alert["summary"].endswith("3 times in 10 minutes, last with: PipelineError: the log was replaced")


async def test_warnings_do_not_fail_the_check(scene: Scene) -> None:
    await scene.store(letters=[scene.letter(1, "no JSON")])
    code, said = await checked()
    assert (code, said["state"], [alert["severity"] for alert in said["alerts"]]) == (0, "ok", ["warning"])


async def test_an_unreachable_api_server_exits_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_API_URL", "http://127.0.0.1:9")
    code, said = await checked()
    assert (code, said["state"], said["alerts"][0]["about"]) == (3, "unknown", "api")
    result = await headrace("status", "--check")
    assert result.exit_code == 3
    assert "cannot be reached" in result.stdout.splitlines()[0]
