"""The main functions of a runner and of a trigger process."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import structlog
import uvloop

from headrace.client.declaring import declaration_requests
from headrace.client.http.proxied_session import ProxiedSession
from headrace.client.secret_source import async_source
from headrace.client.triggerer import TriggererClient
from headrace.errors import HeadraceError, UsageError
from headrace.project import Project
from headrace.settings import Settings
from headrace.sources.dead_letters.sender import make_sender
from headrace.triggerer.gc_freeze import collect_at_end
from headrace.triggerer.ipc.api_calls import ApiCalls
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import Frame, Page, ProjectInvalid, ProjectLoaded, encode
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.ipc.trigger_messages import Ready
from headrace.triggerer.runner.main import RunnerMain
from headrace.triggerer.runner.runner import Limits
from headrace.triggerer.supervisor.runner_process import FILES, STACK_SIGNAL, RunnerCommand, RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.user_process.trigger_executor import TriggerExecutor
from headrace.triggers.masking import mask
from headrace.triggers.secrets import SECRETS
from headrace.wire.control.jobs import JobRegistered
from headrace.wire.control.triggers import DeclareProject, StageTriggers
from headrace.wiring.project import read_project

_PR_SET_PDEATHSIG: Final = 1
_REPORT_INTERVAL: Final = 1.0  # seconds

log = structlog.get_logger(__name__)

MakeClient = Callable[[ProxiedSession], TriggererClient]


def start_runner(settings: Settings) -> None:
    """Run the streams and watches of a triggerer. The triggerer starts this process."""
    watchdog = WatchdogPolicy(stuck=settings.stuck_timeout)
    limits = Limits(settings.ack_timeout, settings.advance_timeout, settings.retry_wait, watchdog)
    command = (sys.executable, "-m", "headrace", "trigger-process")
    run_runner(lambda: read_project(settings), limits, lambda session: TriggererClient(settings.url, key="", session=session), command)


def start_trigger_process(settings: Settings) -> None:
    """Run the users' code of triggers. The runner starts this process."""
    run_trigger_process(lambda: read_project(settings), lambda session: TriggererClient(settings.url, key="", session=session))


def run_runner(load: Callable[[], Project], limits: Limits, make_client: MakeClient, trigger_process: Sequence[str]) -> None:
    """Import the project with `load` and run its streams and watches. A supervisor must have started this process.

    `trigger_process` is the command that starts a trigger process.

    Raises:
        UsageError: No supervisor has started this process.
    """
    inherited = _inherit()
    # before the event loop starts, since the import of a user's file can take any time
    error: HeadraceError | None = None
    try:
        with collect_at_end():  # a second for 100,000 triggers, during which the API server stores them
            project = load()
            _send(inherited.end, _frames(project.name, project.declaration()))
    except HeadraceError as failure:
        error = failure
    command = RunnerCommand(trigger_process, dict(os.environ))
    uvloop.run(_run(inherited, error, limits, make_client, command))
    _end("runner")


def run_trigger_process(load: Callable[[], object], make_client: MakeClient) -> None:
    """Import the project with `load` and run triggers. A runner must have started this process.

    Raises:
        UsageError: No runner has started this process.
    """
    inherited = _inherit()
    error: HeadraceError | None = None
    try:
        load()
    except HeadraceError as failure:
        error = failure
    uvloop.run(_execute(inherited, error, make_client))
    _end("trigger process")


class _Inherited(NamedTuple):
    end: socket.socket
    heartbeat: SharedHeartbeat


def _inherit() -> _Inherited:
    """Return the socket and the shared memory that the parent process has prepared."""
    try:
        control, page, stacks, parent = (int(number) for number in os.environ.pop(FILES, "").split(","))
    except ValueError as error:
        raise UsageError("A runner is started by its triggerer.", hint="Start one with: headrace triggerer") from error
    _tie_to_parent(parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the supervisor handles Ctrl-C of the terminal
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=False)
    return _Inherited(socket.socket(fileno=control), SharedHeartbeat(page))


def _end(what: str) -> None:
    log.debug("process ends", what=what)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a user's thread that does not end must not delay the exit


async def _run(
    inherited: _Inherited,
    error: HeadraceError | None,
    limits: Limits,
    make_client: MakeClient,
    command: RunnerCommand,
) -> None:
    link = await Channel.open(inherited.end)
    if error is not None:
        await link.send(_unusable(error))
        await link.receive()
        return
    inherited.heartbeat.start()
    calls = ApiCalls(link)
    client = _client(calls, make_client)
    runner = RunnerMain(link, calls, client, limits, inherited.heartbeat, lambda: RunnerProcess.start(command), make_sender)
    await runner.run(_REPORT_INTERVAL)


async def _execute(inherited: _Inherited, error: HeadraceError | None, make_client: MakeClient) -> None:
    link = await Channel.open(inherited.end)
    if error is not None:
        await link.send(_unusable(error))
        await link.receive()
        return
    inherited.heartbeat.start()
    calls = ApiCalls(link)
    _client(calls, make_client)
    await link.send(Ready())
    await TriggerExecutor(link, calls, inherited.heartbeat).run()


def _frames(name: str, declared: DeclareProject) -> Iterator[Frame]:
    """Yield the frames that declare a project to the supervisor. A large project comes in pages, so that its loop does not stall."""
    for request in declaration_requests(declared):
        body = request.model_dump_json().encode()
        yield Page(name, body) if isinstance(request, StageTriggers) else ProjectLoaded(name, body)


def _send(end: socket.socket, frames: Iterable[Frame]) -> None:
    """Send frames before the event loop starts. The supervisor receives each after the API server has stored the one before."""
    with suppress(ConnectionError):  # the supervisor has ended: the event loop ends at once
        for frame in frames:
            end.sendall(encode(frame))


def _unusable(error: HeadraceError) -> ProjectInvalid:
    """Return why the project cannot be used, without the secrets that its import has read."""
    return ProjectInvalid(mask(str(error)), None if error.hint is None else mask(error.hint))


def _client(calls: ApiCalls, make_client: MakeClient) -> TriggererClient:
    """Return the client of this process, and use it for connections and variables."""
    client = make_client(ProxiedSession(calls.call))
    client.adopt(JobRegistered(job_id=0, token="", heartbeat=0))  # the supervisor adds the token
    SECRETS.set_backend(async_source(client, asyncio.get_running_loop()))
    return client


def _tie_to_parent(parent: int) -> None:
    """Have this process killed when its parent ends, also while it is blocked; elsewhere than on Linux the closed socket must do.

    Its parent says who it is: where that is process 1 of a container, an orphan has the same parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
