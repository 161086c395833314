"""The app: the execution API, the admin API and the pages, over one store."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI

import headrace.api.admin.dead_letters
import headrace.api.admin.logs
import headrace.api.admin.scope_audit
import headrace.api.admin.scopes
import headrace.api.admin.secrets
import headrace.api.admin.status
import headrace.api.admin.task_runs
import headrace.api.admin.triggerers
import headrace.api.admin.webhooks
import headrace.api.auth.login
import headrace.api.ui
from headrace.api import openapi
from headrace.api.admin.live_status import LiveStatus
from headrace.api.admin.log_locator import LogLocator
from headrace.api.auth.authentication import Tokens
from headrace.api.auth.revocation import poll_revoked_tokens
from headrace.api.background.event_wait_dispatcher import EventWaitDispatcher
from headrace.api.background.webhook_dispatcher import WebhookDispatcher
from headrace.api.execution.fast_path import IngestRoute
from headrace.api.execution.routers import ROUTERS
from headrace.api.http import problems
from headrace.api.middleware.access_control import AccessControl, NetworkExposure
from headrace.api.middleware.body_limit import BodyLimit
from headrace.api.middleware.rate_limit import RateLimit, RatePolicy, accepted_by
from headrace.api.middleware.version import VersionCheck
from headrace.api.routing import check_complete
from headrace.logs.read_tokens import ReadTokens
from headrace.store import Store
from headrace.store.control.balancing import UnassignedTriggers
from headrace.wire.base import API_VERSION, MAX_BODY_BYTES
from headrace.wire.calls.admin import ADMIN_CALLS
from headrace.wire.calls.execution import EXECUTION_CALLS
from headrace.wire.status.alerts import Alert

ADMIN_ROUTERS: Final = (
    headrace.api.admin.status.router,
    headrace.api.admin.scope_audit.router,
    headrace.api.admin.scopes.router,
    headrace.api.admin.dead_letters.router,
    headrace.api.admin.triggerers.router,
    headrace.api.admin.task_runs.router,
    headrace.api.admin.logs.router,
    headrace.api.admin.secrets.router,
    headrace.api.admin.webhooks.router,
)
ADMIN_ROUTES: Final = [route for router in ADMIN_ROUTERS for route in router.routes]


def create_app(
    store: Store,
    *,
    key: str,
    max_body_bytes: int = MAX_BODY_BYTES,
    rates: RatePolicy | None = None,
    logs: Path | None = None,
    exposure: NetworkExposure | None = None,
    webhook_allow_private: bool = False,
    local_alerts: Callable[[], list[Alert]] = list,
) -> FastAPI:
    """Return the ASGI app over an open `store`. The caller closes the store.

    `key` is the deployment key. `logs` is the folder of the triggers' and runs' logs, or None if this machine has
    none. `exposure` says how the API can be reached, by default on loopback only. Webhooks may have private
    addresses only with `webhook_allow_private`. `local_alerts` returns the alerts about this machine's processes.
    """
    dispatcher = WebhookDispatcher(store, private=webhook_allow_private)
    runs = EventWaitDispatcher(store)

    tokens = Tokens(key, store.instance, store.now)
    tokens.revoked = store.api_tokens.revoked()

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncGenerator[None]:
        async with dispatcher.running(), runs.running(), poll_revoked_tokens(store, tokens):
            yield

    app = FastAPI(title="Headrace", version=API_VERSION, docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    app.state.dispatcher = dispatcher
    app.state.store = store
    app.state.live = live = LiveStatus(store, local_alerts=local_alerts)
    app.state.unassigned = UnassignedTriggers()
    app.state.logs = headrace.api.admin.logs.Logs(LogLocator(store, logs, socket.gethostname()), ReadTokens(key), live)
    app.state.tokens = tokens
    problems.install(app)
    app.router.routes.append(IngestRoute())
    check_complete(ROUTERS, EXECUTION_CALLS)
    check_complete(ADMIN_ROUTERS, ADMIN_CALLS)
    described = openapi.router(ADMIN_ROUTES)
    # FastAPI builds each route of an included router again: for each app, at its first request.
    for router in (described, *ROUTERS, *ADMIN_ROUTERS, headrace.api.auth.login.router, headrace.api.ui.router):
        app.router.routes.extend(router.routes)
    app.add_middleware(BodyLimit, max_bytes=max_body_bytes)
    app.add_middleware(AccessControl, tokens=app.state.tokens, exposure=exposure or NetworkExposure())
    app.add_middleware(VersionCheck)
    app.add_middleware(RateLimit, accepted=accepted_by(app.state.tokens), policy=rates)
    return app
