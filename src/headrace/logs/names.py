"""Names of logs below the log folder. They are built from ids, never from paths, so that no request leads out of the folder."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple

_TRIGGER: Final = re.compile(r"trigger-([0-9]{1,19})-job-([0-9]{1,19})\.log", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class LogName(NamedTuple):
    """One log: its folder below the log folder, and its file name. A trigger's log also has its `trigger_id` and `job_id`."""

    folder: str
    file: str
    trigger_id: int | None = None
    job_id: int | None = None


def trigger_folder(trigger_id: int) -> str:
    """Return the folder of one trigger's logs, one log for each job."""
    return f"triggers/{trigger_id:d}"


def trigger_log(trigger_id: int, job_id: int) -> LogName:
    """Return the log of a trigger in one job."""
    return LogName(trigger_folder(trigger_id), f"trigger-{trigger_id:d}-job-{job_id:d}.log", trigger_id, job_id)


def parse_trigger_log(file: str) -> LogName | None:
    """Return the trigger log with this file name, or None if the name is not a trigger log's."""
    match = _TRIGGER.fullmatch(file)
    return trigger_log(int(match[1]), int(match[2])) if match else None


def run_log_name(run_id: str) -> LogName:
    """Return the log of a run. If the id is not a UUID, its digest is used."""
    digest = sha256(run_id.encode(errors="surrogatepass")).hexdigest()
    stem = run_id if _UUID.fullmatch(run_id) else digest[:32]
    return LogName(f"runs/{digest[:2]}", f"run-{stem}.log")
