"""A supervisor with a real runner and a real API server begins a new job after each loss of its job."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.client.triggerer import TriggererClient
from headrace.errors import ApiUnavailable, Fenced, ProjectError
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import Drained, Frame
from headrace.triggerer.supervisor.runner_process import RunnerCommand, RunnerProcess
from headrace.triggerer.supervisor.session import ShutdownRequest
from headrace.triggerer.supervisor.supervisor import Policy, Supervisor
from headrace.wire.base import MAX_BODY_BYTES
from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob
from headrace.wire.control.streams import StreamReport
from headrace.wire.control.triggers import DeclareProject, ProjectDeclared, StageTriggers
from support.processes.execution_api import KEY, serving

pytestmark = pytest.mark.timeout(60)


class Fencing(TriggererClient):
    """A client whose first job is lost before it has declared its project, and which says when the second has."""

    def __init__(self, url: str, orders: ShutdownRequest) -> None:
        super().__init__(url, key=KEY)
        self._orders = orders
        self.jobs: list[JobRegistered] = []

    async def register(self, job: RegisterJob) -> JobRegistered:
        self.jobs.append(await super().register(job))
        return self.jobs[-1]

    async def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
        if len(self.jobs) == 1:
            raise Fenced("This job is over.")
        answer = await super().declare(project, declared)
        self._orders.stop.set()
        return answer


def command(project: Path) -> RunnerCommand:
    return RunnerCommand((sys.executable, "-m", "headrace", "runner"), {**os.environ, "HEADRACE_PROJECT": str(project)})


def next_job(project: str) -> RegisterJob:
    return RegisterJob(registration_id=uuid4().hex, kind="triggerer", hostname="here", pid=os.getpid(), project=project)


async def test_the_supervisor_replaces_a_job_lost_during_its_start(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text('from headrace import Project\nproject = Project("small")\n')
    orders, runners = ShutdownRequest(), []

    async def start() -> RunnerProcess:
        runners.append(await RunnerProcess.start(command(tmp_path / "project.py")))
        return runners[-1]

    with serving(tmp_path) as api:
        async with Fencing(api.url, orders) as client:
            await Supervisor(client, start, next_job, Policy()).run(orders)
            assert len({job.job_id for job in client.jobs}) == 2
    assert await runners[0].wait_ended() == -9  # nothing of a job that is lost goes on


async def test_the_supervisor_raises_the_error_of_an_unusable_project(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text("raise ValueError('no good')\n")
    with serving(tmp_path) as api:
        async with TriggererClient(api.url, key=KEY) as client:
            supervisor = Supervisor(client, lambda: RunnerProcess.start(command(tmp_path / "project.py")), next_job, Policy())
            with pytest.raises(ProjectError, match="no good"):
                await supervisor.run(ShutdownRequest())


async def test_a_supervisor_stops_during_the_import_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text("import time\ntime.sleep(600)\n")
    orders = ShutdownRequest()
    with serving(tmp_path) as api:
        async with TriggererClient(api.url, key=KEY) as client:
            supervisor = Supervisor(client, lambda: RunnerProcess.start(command(tmp_path / "project.py")), next_job, Policy())
            running = asyncio.create_task(supervisor.run(orders))
            await asyncio.sleep(0)
            orders.on_signal()
            await running


async def test_a_runner_that_ends_after_an_unreceived_drain_report_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project.py").write_text('from headrace import Project\nproject = Project("small")\n')
    orders, ends, receive = ShutdownRequest(), [], Channel.receive

    async def deaf(self: Channel) -> Frame | None:
        frame = await receive(self)
        return await receive(self) if isinstance(frame, Drained) else frame

    class Ending(TriggererClient):
        async def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
            asyncio.get_running_loop().call_later(0.5, orders.on_signal)
            return await super().declare(project, declared)

        async def complete(self, end: CompleteJob) -> None:
            ends.append(end.state)
            await super().complete(end)

    monkeypatch.setattr(Channel, "receive", deaf)
    with serving(tmp_path) as api:
        async with Ending(api.url, key=KEY) as client:
            supervisor = Supervisor(client, lambda: RunnerProcess.start(command(tmp_path / "project.py")), next_job, Policy())
            await supervisor.run(orders)
    assert ends == ["succeeded"]


class Chatty(TriggererClient):
    """A client whose every report is too large for the api, and which says stop when two heartbeats were heard without one."""

    def __init__(self, url: str, orders: ShutdownRequest) -> None:
        super().__init__(url, key=KEY)
        self._orders = orders
        self.jobs: list[JobRegistered] = []
        self.refused = self.heard = 0
        self._fresh = True

    async def register(self, job: RegisterJob) -> JobRegistered:
        self.jobs.append((await super().register(job)).model_copy(update={"heartbeat": 0.05}))
        return self.jobs[-1]

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        if self._fresh:
            self._fresh = False
            self.refused += 1
            return await super().heartbeat(
                beat.model_copy(update={"streams": [StreamReport(stream="x" * MAX_BODY_BYTES, state="polling")]})
            )
        self._fresh = True
        answer = await super().heartbeat(beat)
        self.heard += 1
        if self.heard == 2:
            self._orders.stop.set()
        return answer


async def test_a_refused_report_does_not_end_the_job(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text('from headrace import Project\nproject = Project("small")\n')
    orders = ShutdownRequest()
    with serving(tmp_path) as api:
        client = Chatty(api.url, orders)
        await Supervisor(client, lambda: RunnerProcess.start(command(tmp_path / "project.py")), next_job, Policy()).run(orders)
        await client.aclose()
    assert len(client.jobs) == 1
    assert min(client.refused, client.heard) >= 2


class Reading(TriggererClient):
    """A client that notes what is sent of a declaration, whose first page does not arrive, and which then says stop."""

    def __init__(self, url: str, orders: ShutdownRequest) -> None:
        super().__init__(url, key=KEY)
        self._orders = orders
        self.pages: list[int] = []
        self.lost = 0
        self.left: list[int] = []

    async def stage(self, page: bytes) -> None:
        if not self.lost:
            self.lost += 1
            raise ApiUnavailable("The first page is lost.")
        self.pages.append(len(StageTriggers.model_validate_json(page).triggers))
        await super().stage(page)

    async def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
        self.left.append(len(declared.triggers))
        answer = await super().declare(project, declared)
        self._orders.stop.set()
        return answer


async def test_a_large_project_is_declared_in_pages(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(
        "from headrace import Project\n"
        "from headrace.sources.memory.upstream import Memory\n"
        'project = Project("large")\n'
        "for number in range(2_500):\n"
        '    project.watch(f"watch-{number}", Memory("m"), match={"number": [number]})\n'
    )
    orders = ShutdownRequest()
    with serving(tmp_path) as api:
        async with Reading(api.url, orders) as client:
            await Supervisor(client, lambda: RunnerProcess.start(command(tmp_path / "project.py")), next_job, Policy()).run(orders)
    assert (client.pages, client.lost, client.left) == ([2_000, 500], 1, [0])


DIES_AFTER_A_PAGE = """
import os, socket, sys
from headrace.triggerer.ipc.messages import Page, encode
from headrace.triggerer.supervisor.runner_process import FILES
from headrace.wire.control.triggers import StageTriggers
end = socket.socket(fileno=int(os.environ[FILES].split(",")[0]))
end.sendall(encode(Page("small", StageTriggers(declaration="declaration-1", triggers=[]).model_dump_json().encode())))
sys.exit(3)
"""


class Completing(TriggererClient):
    """A client that keeps how its jobs ended, and says when the second has begun."""

    def __init__(self, url: str, orders: ShutdownRequest) -> None:
        super().__init__(url, key=KEY)
        self._orders = orders
        self.ends: list[CompleteJob] = []

    async def complete(self, end: CompleteJob) -> None:
        await super().complete(end)
        self.ends.append(end)

    async def declare(self, project: str, declared: DeclareProject) -> ProjectDeclared:
        self._orders.stop.set()
        return await super().declare(project, declared)


async def test_the_supervisor_replaces_a_runner_that_dies_between_two_pages(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text('from headrace import Project\nproject = Project("small")\n')
    orders = ShutdownRequest()
    commands = [RunnerCommand((sys.executable, "-c", DIES_AFTER_A_PAGE), dict(os.environ)), command(tmp_path / "project.py")]
    with serving(tmp_path) as api:
        async with Completing(api.url, orders) as client:
            await Supervisor(client, lambda: RunnerProcess.start(commands.pop(0)), next_job, Policy()).run(orders)
            assert [end.state for end in client.ends] == ["failed", "succeeded"]
            assert "ended with 3 before it had declared" in (client.ends[0].reason or "")
