"""The receiver process: it accepts requests for the `Http` upstreams of a project."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from headrace.client.secret_source import async_source
from headrace.client.triggerer import TriggererClient
from headrace.errors import ProjectError, ResourceError
from headrace.process.signals import on_signal
from headrace.project import Project
from headrace.receiver.app import HOOKS, ReceiverApp
from headrace.receiver.endpoint import Endpoint
from headrace.receiver.job import ReceiverJob
from headrace.receiver.secrets import SecretRefresher
from headrace.receiver.server import ReceiverServer
from headrace.settings import Settings
from headrace.sources.http.upstream import Http
from headrace.triggers.secrets import SECRETS
from headrace.wiring.common import registration
from headrace.wiring.project import read_project

RESTART_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


async def run_receiver(settings: Settings) -> None:
    """Accept requests until SIGINT or SIGTERM, then finish those in progress."""
    project = read_project(settings)
    upstreams = declared_upstreams(project)
    endpoints = [Endpoint(upstream) for upstream in upstreams]
    with _listen(settings.receiver_host, settings.receiver_port) as listener:
        server = ReceiverServer(ReceiverApp(endpoints), on_signal)
        async with TriggererClient(settings.url, key=settings.key, timeout=settings.api_timeout) as api:
            SECRETS.set_backend(async_source(api, asyncio.get_running_loop()))
            job = ReceiverJob(api, registration("receiver", project.name, None), server.stop)
            tasks = [asyncio.create_task(_keep_running(work)) for work in (job.run, SecretRefresher(endpoints).run)]
            try:
                host, port = listener.getsockname()[:2]
                urls = [f"http://{host}:{port}{HOOKS}{endpoint.name}" for endpoint in endpoints]
                log.info("receiver started", endpoints=urls, unverified=[one.name for one in upstreams if one.verify == "none"])
                await server.serve(sockets=[listener])
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await asyncio.gather(*(endpoint.inbox.close() for endpoint in endpoints))
                await job.complete()
                SECRETS.set_backend(None)
    log.info("receiver stopped")


def declared_upstreams(project: Project) -> list[Http]:
    """Return the `Http` upstreams of the project's triggers. Raises `ProjectError` if there are none, or two differ that have one name."""
    upstreams: dict[str, Http] = {}
    for trigger in project.triggers.values():
        upstream = getattr(trigger, "upstream", None)
        if isinstance(upstream, Http):
            other = upstreams.setdefault(upstream.name, upstream)
            if other.serialize() != upstream.serialize():
                raise ProjectError(
                    f"Two Http upstreams have the name {upstream.name!r} and differ in their arguments.",
                    hint="Declare it once, and use it in all watches.",
                )
    if not upstreams:
        raise ProjectError(
            f"The project {project.name!r} has no Http upstream.",
            hint='Declare one: project.watch("orders", Http("orders", verify="github"))',
        )
    return list(upstreams.values())


async def _keep_running(work: Callable[[], Awaitable[None]]) -> None:
    """Run background work to its end. An unexpected error is logged, and the work starts again."""
    while True:
        try:
            return await work()
        except Exception:
            log.exception("background work failed")
            await asyncio.sleep(RESTART_SECONDS)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024)
    except OSError as error:
        raise ResourceError(
            f"The receiver cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}.",
            hint="Stop what listens there, or choose another with --port.",
        ) from error
