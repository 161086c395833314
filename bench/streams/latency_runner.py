"""Run the runner of one latency measurement, as a process that a real supervisor starts. Write its figures as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import structlog
from bench.streams.paced import FOLDER, LANES, Blocking, Handled, Looping, LoopingInC, Paced, Stuck, Times

from headrace.client.http.proxied_session import ProxiedSession
from headrace.client.triggerer import TriggererClient
from headrace.project import Project
from headrace.triggerer.process_pools import turn
from headrace.triggerer.runner.runner import Limits
from headrace.wire.custody.events import BatchStored, EventBatch
from headrace.wiring.runner import run_runner, run_trigger_process

Form: TypeAlias = Literal[
    "declared",
    "handle",
    "handle, one at a time",
    "declared beside a stuck trigger",
    "declared beside a blocking trigger",
    "declared beside a loop in C",
    "declared beside a loop in Python",
    "declared on another stream beside a blocking trigger",
    "declared on another stream beside a loop in C",
    "declared on another stream beside a loop in Python",
    "handle on another stream beside a blocking trigger",
    "handle on another stream beside a loop in C",
    "handle on another stream beside a loop in Python",
]

Moments: TypeAlias = npt.NDArray[np.float64]

RATE: Final = 1_000

OTHER_RATE: Final = 100
"""Raw events per second of the other trigger's stream, if it has its own."""

OFFENDERS: Final = {"a stuck trigger": Stuck, "a blocking trigger": Blocking, "a loop in C": LoopingInC, "a loop in Python": Looping}
WARM_UP: Final = 1.0
"""Seconds at the start that are not counted: connections, first batches."""

SPILLED: Final = 2.5
"""Seconds from the start until the queue of a blocking trigger is spilled, which happens once."""

LATE: Final = 5.0
"""Seconds after the last raw event is due until all events must be stored."""


class TimedClient(TriggererClient):
    """A client that records when each event is durable."""

    times: Times

    async def store(self, batch: EventBatch) -> BatchStored:
        answer = await super().store(batch)
        now = perf_counter()
        for item in batch.events:
            # Only the first event of a raw event counts, not redeliveries or events of other triggers.
            if item.lane is not None and item.position is not None:
                self.times.note_stored(item.position * LANES + int(item.lane), now)
        return answer


FORMS: Final[dict[str, Form]] = {form: form for form in get_args(Form)}


def main(form: Form, run: str, seconds: float, out: Path) -> None:
    """Run one form for `seconds`."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    total = int(RATE * (seconds + WARM_UP))
    os.environ[FOLDER] = str(out.parent)
    tasks = set()

    def client(session: ProxiedSession) -> TriggererClient:
        created = TimedClient("", key="", session=session)
        created.times = Times(run, total)
        tasks.add(asyncio.create_task(_judge(created.times, form, seconds, out)))
        return created

    if form == "handle, one at a time":
        vars(turn)["WINDOW"] = 0
    command = (sys.executable, "-m", "bench.streams.latency_runner", "trigger-process")
    run_runner(lambda: _project(form, run, total), Limits(), client, command)


async def _judge(times: Times, form: Form, seconds: float, out: Path) -> None:
    """Write the figures when all is stored (and advanced), or after the time limit."""
    judged = times.stored if "beside" in form else times.advanced
    begun, others = process_time(), _children_seconds()
    try:
        async with asyncio.timeout(seconds + WARM_UP + LATE):
            while not judged.all():  # noqa: ASYNC110  another process fills it
                await asyncio.sleep(0.05)
    except TimeoutError:
        print(f"{form}: not finished within the time limit", file=sys.stderr)
    skipped = int(RATE * WARM_UP)
    figures = {
        "complete": bool(judged.all()),
        "stored_events": int(np.count_nonzero(times.stored)),
        "stored": _milliseconds(times.due, times.stored, skipped),
        "stored_after_spill": _milliseconds(times.due, times.stored, int(RATE * SPILLED)),
        "advanced": _milliseconds(times.due, times.advanced, skipped),
        "cpu_seconds": process_time() - begun,
        "trigger_process_cpu_seconds": _children_seconds() - others,
    }
    part = out.with_suffix(".part")
    part.write_text(json.dumps(figures))
    part.rename(out)


def _project(form: Form, run: str, total: int) -> Project:
    project = Project("bench")
    measured, _, offender = form.partition(" beside ")
    if measured.startswith("handle"):
        project.trigger("handled", Handled(run, RATE, total))
    else:
        project.watch("declared", Paced(run, RATE, total), id="$.id")
    if offender and measured.endswith("on another stream"):
        others = total * OTHER_RATE // RATE
        project.trigger("offender", OFFENDERS[offender](f"{run}-other", OTHER_RATE, others))
    elif offender:
        project.trigger("offender", OFFENDERS[offender](run, RATE, total))
    return project


def _children_seconds() -> float:
    """Return the processor time of this process's children, in seconds."""
    ticks = 0
    for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _milliseconds(due: Moments, at: Moments, skipped: int) -> dict[str, float] | None:
    seen = np.flatnonzero(at)
    seen = seen[seen >= skipped]
    waits = (1000 * (at[seen] - due[seen])).tolist()
    if len(waits) < 100:
        return None
    hundredths = quantiles(waits, n=100)
    return {"p50_ms": round(hundredths[49], 2), "p99_ms": round(hundredths[98], 2), "max_ms": round(max(waits), 2)}


if __name__ == "__main__" and sys.argv[1:] == ["trigger-process"]:
    run_trigger_process(lambda: None, lambda session: TriggererClient("", key="", session=session))
elif __name__ == "__main__":
    main(FORMS[sys.argv[1]], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
