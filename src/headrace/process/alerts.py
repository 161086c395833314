"""Alerts about the processes of this machine: restarts by standalone, and unexpected ends of the API server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from headrace.process.child import ChildProcess
from headrace.run_files import API, STANDALONE, RunFile, read_run_file
from headrace.wire.status.alerts import Alert

WINDOW_SECONDS: Final = 600.0
STABLE_SECONDS: Final = 120.0
"""A process that has run for this long is not in a restart loop."""


def standalone_facts(children: Mapping[str, ChildProcess]) -> dict[str, Any]:
    """Return what the run file of standalone contains about its children."""
    facts = {
        name: {
            "ends": list(child.record.ends),
            "how": child.record.how,
            "reason": child.record.output.reason[:1000],
            "hint": child.record.output.hint[:500],
            "running": child.pid is not None,
        }
        for name, child in children.items()
    }
    return {"pid": os.getpid(), "children": facts}


def standalone_alerts(home: Path, now: float) -> list[Alert]:
    """Return alerts about recent restarts by the standalone that runs in `home`. `now` is in seconds since the epoch."""
    record = read_run_file(home / STANDALONE)
    if record is None or not record.alive:
        return []
    alerts = []
    for name, child in record.facts.get("children", {}).items():
        why = " ".join(part for part in (child["reason"], child["hint"]) if part)
        alert = restart_alert(name, child["ends"], now, f"It {child['how']}: {why}" if why else f"It {child['how']}.")
        if alert is not None:
            alerts.append(alert)
    return alerts


@contextmanager
def published_api(home: Path, url: str) -> Iterator[Callable[[], list[Alert]]]:
    """Publish the URL of this API server in `home` while it serves. Yield the function that returns the alerts of this machine."""
    before = read_run_file(home / API)
    ends = list(before.facts.get("ends", ())) if before is not None else []
    if before is not None and not before.alive and not before.facts.get("stopped", True):
        ends.append(time.time())
    facts: dict[str, Any] = {"pid": os.getpid(), "url": url, "ends": [end for end in ends if time.time() - end < WINDOW_SECONDS]}

    def alerts() -> list[Alert]:
        now = time.time()
        restarts = standalone_alerts(home, now)
        own = restart_alert("api", facts["ends"], now, "See its log.")
        known = {alert.about for alert in restarts}
        return restarts if own is None or own.about in known else [*restarts, own]

    with RunFile(home / API) as file:
        file.write(facts | {"stopped": False})
        yield alerts
        file.write(facts | {"stopped": True})


def restart_alert(name: str, ends: Sequence[float], now: float, why: str = "") -> Alert | None:
    """Return the alert about a process that ended unexpectedly at these times, or None if none is recent."""
    recent = [end for end in ends if now - end < WINDOW_SECONDS]
    if not recent:
        return None
    looping = len(recent) > 1 and now - recent[-1] < STABLE_SECONDS
    times = "once" if len(recent) == 1 else f"{len(recent)} times"
    summary = f"The {name} was started again {times} in {WINDOW_SECONDS / 60:.0f} minutes."
    return Alert(
        severity="error" if looping else "warning",
        about=f"process:{name}",
        summary=f"{summary} {why}".strip(),
        section="processes",
        since=datetime.fromtimestamp(recent[0], UTC),
    )
