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
    """Return what this process serves of its logs, and to whom."""
    return LogServerConfig(settings.logs.absolute(), settings.key, settings.url, socket.gethostname())


def registration(kind: JobKind, project: str, log_url: str) -> RegisterJob:
    """Return who this process is; the supervisor says which dead process it stands in for."""
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
    """Make a folder and those above it. Raises `ResourceError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"Cannot make the folder {folder}: {error.strerror}.", hint="Choose another with --home.") from error
