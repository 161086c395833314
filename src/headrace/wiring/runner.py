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
from headrace.triggerer.gc_freeze import collect_at_end
from headrace.triggerer.ipc.api_calls import ApiCalls
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import Frame, Page, ProjectInvalid, ProjectLoaded, encode
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.ipc.trigger_messages import Ready
from headrace.triggerer.runner.main import RunnerMain
from headrace.triggerer.runner.runner import Limits
from headrace.triggerer.supervisor.runner_process import ASK_FOR_STACK, FILES, RunnerCommand, RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.user_process.trigger_executor import TriggerExecutor
from headrace.triggers.masking import mask
from headrace.triggers.secrets import SECRETS
from headrace.wire.control.jobs import JobRegistered
from headrace.wire.control.triggers import DeclareProject, StageTriggers
from headrace.wiring.project import read_project

_PR_SET_PDEATHSIG: Final = 1
_REPORT_EVERY: Final = 1.0  # seconds

log = structlog.get_logger(__name__)

MakeClient = Callable[[ProxiedSession], TriggererClient]


def start_runner(settings: Settings) -> None:
    """Run the streams and watches of a triggerer; the triggerer starts this."""
    patience = WatchdogPolicy(stuck=settings.stuck_timeout)
    limits = Limits(settings.ack_timeout, settings.advance_timeout, settings.retry_wait, patience)
    command = (sys.executable, "-m", "headrace", "trigger-process")
    run_runner(lambda: read_project(settings), limits, lambda session: TriggererClient(settings.url, key="", session=session), command)


def start_trigger_process(settings: Settings) -> None:
    """Run what users wrote of triggers; the runner starts this."""
    run_trigger_process(lambda: read_project(settings), lambda session: TriggererClient(settings.url, key="", session=session))


def run_runner(load: Callable[[], Project], limits: Limits, make_client: MakeClient, trigger_process: Sequence[str]) -> None:
    """Import the project with `load` and run its streams and watches, as a supervisor has started this process to do.

    `trigger_process` is the command that starts a trigger process.

    Raises:
        UsageError: No supervisor did.
    """
    inherited = _inherit()
    # before there is a loop: what a user's file does when it is imported is its own affair
    trouble: HeadraceError | None = None
    try:
        with collect_at_end():  # which takes a second for 100,000 triggers: the api works on them meanwhile
            project = load()
            _send(inherited.end, _frames(project.name, project.declaration()))
    except HeadraceError as error:
        trouble = error
    command = RunnerCommand(trigger_process, dict(os.environ))
    uvloop.run(_run(inherited, trouble, limits, make_client, command))
    _end("runner")


def run_trigger_process(load: Callable[[], object], make_client: MakeClient) -> None:
    """Import the project with `load` and run triggers, as a runner has started this process to do.

    Raises:
        UsageError: No runner did.
    """
    inherited = _inherit()
    error: HeadraceError | None = None
    try:
        load()
    except HeadraceError as trouble:
        error = trouble
    uvloop.run(_execute(inherited, error, make_client))
    _end("trigger process")


class _Inherited(NamedTuple):
    end: socket.socket
    pulse: SharedHeartbeat


def _inherit() -> _Inherited:
    """Take what the process that started this one has left for it."""
    try:
        control, page, stacks = (int(number) for number in os.environ.pop(FILES, "").split(","))
    except ValueError as error:
        raise UsageError("A runner is started by its triggerer.", hint="Start one with: headrace triggerer") from error
    _tie_to_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # a terminal's Ctrl-C is for the supervisor, which says what to do
    faulthandler.register(ASK_FOR_STACK, file=stacks, all_threads=False)
    return _Inherited(socket.socket(fileno=control), SharedHeartbeat(page))


def _end(what: str) -> None:
    log.debug("process ends", what=what)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a user's thread that does not end must not hold what others wait for


async def _run(
    inherited: _Inherited,
    trouble: HeadraceError | None,
    limits: Limits,
    make_client: MakeClient,
    command: RunnerCommand,
) -> None:
    link = await Channel.over(inherited.end)
    if trouble is not None:
        await link.send(_unusable(trouble))
        await link.receive()
        return
    inherited.pulse.start()
    calls = ApiCalls(link)
    client = _client(calls, make_client)
    await RunnerMain(link, calls, client, limits, inherited.pulse, lambda: RunnerProcess.start(command)).run(_REPORT_EVERY)


async def _execute(inherited: _Inherited, error: HeadraceError | None, make_client: MakeClient) -> None:
    link = await Channel.over(inherited.end)
    if error is not None:
        await link.send(_unusable(error))
        await link.receive()
        return
    inherited.pulse.start()
    calls = ApiCalls(link)
    _client(calls, make_client)
    await link.send(Ready())
    await TriggerExecutor(link, calls, inherited.pulse).run()


def _frames(name: str, declared: DeclareProject) -> Iterator[Frame]:
    """Yield the frames that declare a project to the supervisor. A large project comes in pages, so that its loop does not stall."""
    for request in declaration_requests(declared):
        body = request.model_dump_json().encode()
        yield Page(name, body) if isinstance(request, StageTriggers) else ProjectLoaded(name, body)


def _send(end: socket.socket, frames: Iterable[Frame]) -> None:
    """Send frames while there is no loop; the supervisor takes each as soon as the api has taken the one before."""
    with suppress(ConnectionError):  # the supervisor is gone: the loop is told so at once
        for frame in frames:
            end.sendall(encode(frame))


def _unusable(error: HeadraceError) -> ProjectInvalid:
    """Return why the project cannot be used, without the secrets that its import has read."""
    return ProjectInvalid(mask(str(error)), None if error.hint is None else mask(error.hint))


def _client(calls: ApiCalls, make_client: MakeClient) -> TriggererClient:
    """Return what makes this process's calls, also those for connections and variables."""
    client = make_client(ProxiedSession(calls.call))
    client.adopt(JobRegistered(job_id=0, token="", heartbeat=0))  # the supervisor signs what is sent
    SECRETS.set_backend(async_source(lambda path: client.forward("GET", path, None), asyncio.get_running_loop()))
    return client


def _tie_to_parent() -> None:
    """Have this process killed when its supervisor ends, also while it is blocked; elsewhere than on Linux the closed socket must do."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent or parent == 1:
        os._exit(1)
