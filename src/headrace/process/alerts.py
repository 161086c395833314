"""What this machine knows of its processes: which of them standalone starts again, and how often the api did not end in order."""

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
"""A process that has not ended for so long is no longer taken to be in a restart loop."""


def standalone_facts(children: Mapping[str, ChildProcess]) -> dict[str, Any]:
    """Return what standalone tells others of its children."""
    told = {
        name: {
            "ends": list(child.record.ends),
            "how": child.record.how,
            "reason": child.record.words.reason[:1000],
            "hint": child.record.words.hint[:500],
            "running": child.pid is not None,
        }
        for name, child in children.items()
    }
    return {"pid": os.getpid(), "children": told}


def standalone_alerts(home: Path, now: float) -> list[Alert]:
    """Return what the standalone that runs in `home` had to start again lately; nothing where none runs. `now`: seconds since the epoch."""
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
    """Tell in `home` where this api is while it serves; gives what returns the alerts about this machine's processes."""
    before = read_run_file(home / API)
    ends = list(before.facts.get("ends", ())) if before is not None else []
    if before is not None and not before.alive and not before.facts.get("stopped", True):
        ends.append(time.time())
    facts: dict[str, Any] = {"pid": os.getpid(), "url": url, "ends": [end for end in ends if time.time() - end < WINDOW_SECONDS]}

    def alerts() -> list[Alert]:
        now = time.time()
        found = standalone_alerts(home, now)
        mine = restart_alert("api", facts["ends"], now, "See its log.")
        known = {alert.about for alert in found}
        return found if mine is None or mine.about in known else [*found, mine]

    with RunFile(home / API) as file:
        file.write(facts | {"stopped": False})
        yield alerts
        file.write(facts | {"stopped": True})


def restart_alert(name: str, ends: Sequence[float], now: float, why: str = "") -> Alert | None:
    """Return what to say of a process that ended at these times unexpectedly, or None if nothing needs saying any more."""
    lately = [end for end in ends if now - end < WINDOW_SECONDS]
    if not lately:
        return None
    looping = len(lately) > 1 and now - lately[-1] < STABLE_SECONDS
    times = "once" if len(lately) == 1 else f"{len(lately)} times"
    words = f"The {name} was started again {times} in {WINDOW_SECONDS / 60:.0f} minutes."
    return Alert(
        severity="error" if looping else "warning",
        about=f"process:{name}",
        summary=f"{words} {why}".strip(),
        section="processes",
        since=datetime.fromtimestamp(lately[0], UTC),
    )
