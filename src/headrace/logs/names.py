"""Where a log lies below the log folder. A name is made here of ids, never of a path, so that no request can lead out of the folder."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple

_TRIGGER: Final = re.compile(r"trigger-([0-9]{1,19})-job-([0-9]{1,19})\.log", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class LogName(NamedTuple):
    """One log: its folder below the log folder, and its file. `trigger_id` and `job_id` are those of a trigger's log."""

    folder: str
    file: str
    trigger_id: int | None = None
    job_id: int | None = None


def trigger_folder(trigger_id: int) -> str:
    """Return the folder that has the logs of one trigger, one for each job that ran it."""
    return f"triggers/{trigger_id:d}"


def trigger_log(trigger_id: int, job_id: int) -> LogName:
    """Return the log of a trigger in one job."""
    return LogName(trigger_folder(trigger_id), f"trigger-{trigger_id:d}-job-{job_id:d}.log", trigger_id, job_id)


def parse_trigger_log(file: str) -> LogName | None:
    """Return the log that a file name stands for, or None if it is not that of a trigger's log."""
    found = _TRIGGER.fullmatch(file)
    return trigger_log(int(found[1]), int(found[2])) if found else None


def run_log_name(run_id: str) -> LogName:
    """Return the log of a run. An id that is not a UUID goes into the name as its digest."""
    digest = sha256(run_id.encode(errors="surrogatepass")).hexdigest()
    stem = run_id if _UUID.fullmatch(run_id) else digest[:32]
    return LogName(f"runs/{digest[:2]}", f"run-{stem}.log")
