"""Measure the gap in stored events between the failure of the triggerer that holds a stream and its takeover by another.

A job is dead after a threshold in seconds without heartbeats. For each threshold, three faults: the holder's supervisor is killed; its
supervisor and runner are killed; both are suspended until the takeover and then continue. At the end, no event is lost or repeated.

The upstream is a `Queue`, whose reader has its own lease. The lease ends with the process. A suspended process holds it for 30 s.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Final

from bench.api_process import ROOT, commit, machine

sys.path.insert(0, str(ROOT / "tests"))

from support.processes.deployment import Deployment, Feed, Oracle, Process, Trigger, project_text, until

THRESHOLDS: Final = (5, 30)
FAULTS: Final = ("supervisor", "both", "stopped")
TRIGGERS: Final = [Trigger("a"), Trigger("all", declared=True)]
SEND_INTERVAL_SECONDS: Final = 0.02
MESSAGES_BEFORE_FAULT: Final = 100


def measure(folder: Path, thresholds: tuple[int, ...] = THRESHOLDS) -> dict[str, Any]:
    """Return the seconds until the next event is stored, and the accounts at the end, for each threshold and fault."""
    answer: dict[str, Any] = {}
    for threshold in thresholds:
        for fault in FAULTS:
            home = folder / f"{threshold}-{fault}"
            home.mkdir()
            answer[f"threshold {threshold} s, {fault}"] = _one(home, threshold, fault)
    return answer


def _one(folder: Path, threshold: int, fault: str) -> dict[str, Any]:
    with Deployment(folder, job_timeout=threshold) as deployment, Feed(folder / "q") as feed:
        project = deployment.project(project_text(feed.queue, TRIGGERS))
        oracle = Oracle(deployment, feed)
        triggerers = [deployment.triggerer(project), deployment.triggerer(project)]
        over = Event()
        sending = Thread(target=_send, args=(feed, over), daemon=True)
        sending.start()
        try:
            oracle.fired("all", MESSAGES_BEFORE_FAULT)
            until(lambda: len(_jobs(deployment)) == len(triggerers), "both triggerers are registered")
            ((old,),) = deployment.rows("SELECT DISTINCT job_id FROM triggers")
            holder = next(one for one in triggerers if one.pid == _jobs(deployment)[old])
            pids = [holder.pid, *_children(holder)]
            killed = time.time_ns() // 1000
            for pid in pids[:1] if fault == "supervisor" else pids:
                os.kill(pid, signal.SIGSTOP if fault == "stopped" else signal.SIGKILL)
            until(lambda: _next_stored(deployment, old) is not None, "the other triggerer takes over", threshold + 60)
            if fault == "stopped":
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
                until(lambda: _fenced(deployment, holder), "the previous holder is fenced")
        finally:
            over.set()
            sending.join()
        expected = dict.fromkeys(("a", "all"), range(feed.sent))
        oracle.settled(expected)
        oracle.judge(expected)
        stored = _next_stored(deployment, old)
        ((state,),) = deployment.rows("SELECT state FROM jobs WHERE id = ?", old)
    return {
        "seconds": None if stored is None else round((stored - killed) / 1e6, 2),
        "messages": feed.sent,
        "lost": 0,  # otherwise the oracle has raised
        "stored_twice": 0,
        "old_owner": state,
    }


def _send(feed: Feed, over: Event) -> None:
    while not over.wait(SEND_INTERVAL_SECONDS):
        feed.send(1)


def _jobs(deployment: Deployment) -> dict[int, int]:
    """Return the process id of each running job."""
    return dict(deployment.rows("SELECT id, pid FROM jobs WHERE state = 'running'"))


def _next_stored(deployment: Deployment, old: int) -> int | None:
    """Return the time at which the first event was stored under a lease of another job, in microseconds."""
    query = "SELECT min(received) FROM events WHERE received >= (SELECT max(started) FROM triggers WHERE job_id <> ?)"
    ((stored,),) = deployment.rows(query, old)
    return None if stored is None else int(stored)


def _children(process: Process) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def _fenced(deployment: Deployment, old: Process) -> bool:
    return "restarting with a new runner and a new job" in (deployment.folder / f"{old.name}.log").read_text()


def main() -> None:
    """Print the figures."""
    folder = ROOT / ".headrace"
    folder.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="bench-takeover-", dir=folder) as home:
        print(json.dumps({"machine": machine(), "commit": commit(), "takeover": measure(Path(home))}, indent=2))


if __name__ == "__main__":
    main()
