"""The API process."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import closing

import uvicorn

from headrace.api.app import create_app
from headrace.api.http.bounded_http import BoundedHttp
from headrace.api.middleware.access_control import NetworkExposure
from headrace.api.server import Server
from headrace.errors import ResourceError
from headrace.process.alerts import published_api
from headrace.settings import Settings
from headrace.store import Liveness, open_store
from headrace.store.db.single_instance import exclusive_api
from headrace.store.keyring import Keyring
from headrace.store.retention.pruner import Pruner
from headrace.store.task_runs.deadline_timer import DeadlineTimer
from headrace.wiring.common import make_folder


def serve_api(settings: Settings, *, migrate: bool, discard_secrets: bool = False) -> None:
    """Serve the API until SIGINT or SIGTERM. `discard_secrets` accepts the loss of secrets under lost keys."""
    make_folder(settings.home)
    keyring = Keyring(settings.with_fernet_keys().keys)
    liveness = Liveness(round(settings.job_timeout * 1_000_000))
    with (
        _listen(settings.host, settings.port) as listener,
        exclusive_api(settings.database),
        closing(
            open_store(settings.database, migrate=migrate, liveness=liveness, keyring=keyring, discard_secrets=discard_secrets)
        ) as store,
        DeadlineTimer(store.task_runs, store.background),
        Pruner(store, settings.retention_days),
        published_api(settings.home, _url_of(settings, listener)) as local_alerts,
    ):
        app = create_app(
            store,
            key=settings.key,
            logs=settings.logs.absolute(),
            exposure=NetworkExposure(settings.outside, frozenset(settings.hosts)),
            webhook_allow_private=settings.webhook_allow_private,
            local_alerts=local_alerts,
        )
        gc.freeze()  # a full collection of the loaded program would stop requests for a tenth of a second
        config = uvicorn.Config(app, http=BoundedHttp, log_config=None, access_log=False, timeout_graceful_shutdown=5, lifespan="on")
        Server(app, config).run(sockets=[listener])


def _url_of(settings: Settings, listener: socket.socket) -> str:
    """Return the URL for clients on this machine, with the port that was selected."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104  it is compared, not bound
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ResourceError(
            f"The api cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}.",
            hint="Stop what listens there, or choose another with --port.",
        ) from error
