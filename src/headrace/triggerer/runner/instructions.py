"""What the supervisor told a runner and the runner has not begun with, bounded: a newer instruction takes in the older."""

from __future__ import annotations

import asyncio

from headrace.triggerer.ipc.messages import Drain, RunTriggers, Workload


class Instructions:
    """A queue of one place. It belongs to one event loop."""

    def __init__(self) -> None:
        self._held: RunTriggers | None = None
        self._drain: Drain | None = None
        self._workloads: list[bytes] = []
        self._there = asyncio.Event()

    def put(self, frame: Workload | RunTriggers | Drain) -> None:
        """Add one instruction; a page of workloads waits for the instruction that it belongs to."""
        match frame:
            case Workload(page):
                self._workloads.append(page)
                return
            case Drain():
                self._drain = frame
            case RunTriggers():
                frame.workloads.extend(self._workloads)
                self._workloads.clear()
                self._held = frame if self._held is None else merge(self._held, frame)
        self._there.set()

    async def get(self) -> RunTriggers | Drain:
        """Wait for the next instruction: `Drain` comes before leases, which do not count any more then."""
        await self._there.wait()
        if self._drain is not None:
            return self._drain
        held, self._held = self._held, None
        self._there.clear()
        if held is None:
            raise RuntimeError("Two tasks wait for instructions.")
        return held


def merge(older: RunTriggers, newer: RunTriggers) -> RunTriggers:
    """Return one instruction that does what both say, one after the other."""
    gone = set(newer.gone)
    epochs = {**{one: epoch for one, epoch in older.epochs.items() if one not in gone}, **newer.epochs}
    return RunTriggers(
        epochs=epochs,
        gone=[one for one in dict.fromkeys([*older.gone, *newer.gone]) if one not in epochs],
        workloads=[*older.workloads, *newer.workloads],
        # One that is held again is not to be said to have stopped: that would give up its new lease.
        cleanup=[one for one in dict.fromkeys([*older.cleanup, *newer.cleanup]) if one not in epochs],
        backlogs={**older.backlogs, **newer.backlogs},
        dropped=list(dict.fromkeys([*older.dropped, *newer.dropped])),
    )
