"""The app: the machine API, the people's API and the pages, over one store."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

import headrace.api.fleet
import headrace.api.letters
import headrace.api.login
import headrace.api.logs
import headrace.api.pages
import headrace.api.people
import headrace.api.scope_audit
import headrace.api.scopes
import headrace.api.secrets
import headrace.api.task_runs
import headrace.api.webhooks
from headrace.api import description, frequent, problems
from headrace.api.auth import Tokens
from headrace.api.dispatcher import Dispatcher
from headrace.api.gate import Exposure, Gate
from headrace.api.limits import BodyLimit
from headrace.api.live import Live
from headrace.api.log_finder import LogFinder
from headrace.api.machine.routers import ROUTERS
from headrace.api.rates import RateLimit, RatePolicy, accepted_by
from headrace.api.revocations import following
from headrace.api.run_dispatcher import RunDispatcher
from headrace.api.versions import SPOKEN, OlderVersion, VersionCheck
from headrace.logs.read_tokens import Passes
from headrace.store import Store
from headrace.wire.base import API_VERSION, MAX_BODY_BYTES
from headrace.wire.status.alerts import Alert


def create_app(
    store: Store,
    *,
    key: str,
    most_body: int = MAX_BODY_BYTES,
    rates: RatePolicy | None = None,
    logs: Path | None = None,
    exposure: Exposure | None = None,
    webhook_private: bool = False,
    local_alerts: Callable[[], list[Alert]] = list,
) -> FastAPI:
    """Return the ASGI app over an open `store`, which stays the caller's to close.

    `key` is the deployment key, `logs` the folder of the triggers' and runs' logs, where this machine has one; `exposure` says how the
    api can be reached: on loopback only, if it does not. Webhooks may be private addresses only with `webhook_private`. `local_alerts`
    returns what is known of the processes of this machine.
    """
    dispatcher = Dispatcher(store, private=webhook_private)
    runs = RunDispatcher(store)

    tokens = Tokens(key, store.instance, store.now)
    tokens.revoked = store.person_tokens.revoked()

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncGenerator[None]:
        async with dispatcher.running(), runs.running(), following(store, tokens):
            yield

    app = FastAPI(title="Headrace", version=API_VERSION, docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    app.state.dispatcher = dispatcher
    app.state.store = store
    app.state.live = live = Live(store, local_alerts=local_alerts)
    app.state.tokens = tokens
    problems.install(app)
    app.router.routes.extend(frequent.calls())
    app.router.routes.extend(OlderVersion(version) for version in SPOKEN if version != API_VERSION)
    description.install(app)
    for router in ROUTERS:
        app.include_router(router, include_in_schema=False)
    app.include_router(headrace.api.people.router_for(store, live))
    app.include_router(headrace.api.scope_audit.router)
    app.include_router(headrace.api.scopes.router)
    app.include_router(headrace.api.letters.router_for(store))
    app.include_router(headrace.api.fleet.router_for(store))
    app.include_router(headrace.api.task_runs.router_for(store))
    app.include_router(headrace.api.logs.router_for(LogFinder(store, logs, socket.gethostname()), Passes(key), live))
    app.include_router(headrace.api.secrets.router)
    app.include_router(headrace.api.webhooks.router)
    app.include_router(headrace.api.login.router)
    app.include_router(headrace.api.pages.router_for(store))
    app.add_middleware(BodyLimit, most=most_body)
    app.add_middleware(Gate, tokens=app.state.tokens, exposure=exposure or Exposure())
    app.add_middleware(VersionCheck)
    app.add_middleware(RateLimit, accepted=accepted_by(app.state.tokens), policy=rates)
    return app
