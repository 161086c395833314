"""Parts of the processes that register a job: their registration, their logs, their folder."""

from __future__ import annotations

import os
import socket
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from headrace.errors import ResourceError
from headrace.logs.server import LogServerConfig
from headrace.process.child import REGISTRATION, REPLACES
from headrace.settings import Settings
from headrace.wire.control.jobs import JobKind, RegisterJob


def served_logs(settings: Settings) -> LogServerConfig:
    """Return the configuration with which this process serves its logs."""
    return LogServerConfig(settings.logs.absolute(), settings.key, settings.url, socket.gethostname())


def registration(kind: JobKind, project: str, log_url: str | None) -> RegisterJob:
    """Return the registration of this process. Its supervisor names the ended process that it replaces."""
    return RegisterJob(
        registration_id=os.environ.get(REGISTRATION) or uuid4().hex,
        replaces=os.environ.get(REPLACES),
        kind=kind,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        project=project,
        log_url=log_url,
        version=version("headrace"),
    )


def make_folder(folder: Path) -> None:
    """Create a folder and its parents. Raises `ResourceError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"Cannot make the folder {folder}: {error.strerror}.", hint="Choose another with --home.") from error
