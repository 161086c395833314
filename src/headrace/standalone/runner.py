"""The main function of a runner's process."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

import structlog
import uvloop

from headrace.client.relayed import RelayedSession
from headrace.client.secrets import async_source
from headrace.client.triggerer import TriggererClient
from headrace.engine.calls import Calls
from headrace.engine.frames import Declared, Unusable
from headrace.engine.link import Link
from headrace.engine.pulse import Pulse
from headrace.engine.runner import Limits
from headrace.engine.runner_process import ASK_FOR_STACK, FILES
from headrace.engine.station import Station
from headrace.errors import HeadraceError, UsageError
from headrace.project import Project
from headrace.triggers.secrets import SECRETS
from headrace.wire.jobs import JobRegistered
from headrace.wire.triggers import DeclareProject

_PR_SET_PDEATHSIG: Final = 1
_REPORT_EVERY: Final = 1.0  # seconds

log = structlog.get_logger(__name__)

MakeClient = Callable[[RelayedSession], TriggererClient]


def run_runner(load: Callable[[], Project], limits: Limits, make_client: MakeClient) -> None:
    """Import the project with `load` and run its triggers, as a supervisor has started this process to do.

    Raises:
        UsageError: No supervisor did.
    """
    try:
        control, page, stacks = (int(number) for number in os.environ.pop(FILES, "").split(","))
    except ValueError as error:
        raise UsageError("A runner is started by its triggerer.", hint="Start one with: headrace triggerer") from error
    _tie_to_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # a terminal's Ctrl-C is for the supervisor, which says what to do
    faulthandler.register(ASK_FOR_STACK, file=stacks, all_threads=False)
    # before there is a loop: what a user's file does when it is imported is its own affair
    found: DeclareProject | HeadraceError
    name = ""
    try:
        project = load()
        name, found = project.name, project.declaration()
    except HeadraceError as error:
        found = error
    uvloop.run(_run(socket.socket(fileno=control), Pulse(page), name, found, limits, make_client))
    log.debug("runner ends")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a user's thread that does not end must not hold what the supervisor waits for


async def _run(
    end: socket.socket, pulse: Pulse, name: str, found: DeclareProject | HeadraceError, limits: Limits, make_client: MakeClient
) -> None:
    link = await Link.over(end)
    if isinstance(found, HeadraceError):
        await link.send(Unusable(str(found), found.hint))
        await link.receive()
        return
    await link.send(Declared(name, found.model_dump_json().encode()))
    pulse.start()
    calls = Calls(link)
    client = make_client(RelayedSession(calls.call))
    client.adopt(JobRegistered(job_id=0, token="", heartbeat=0))  # the supervisor signs what is sent
    SECRETS.use(async_source(lambda path: client.pass_on("GET", path, None), asyncio.get_running_loop()))
    await Station(link, calls, client, limits, pulse).run(_REPORT_EVERY)


def _tie_to_parent() -> None:
    """Have this process killed when its supervisor ends, also while it is blocked; elsewhere than on Linux the closed socket must do."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent or parent == 1:
        os._exit(1)
