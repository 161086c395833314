"""Queue of the supervisor's instructions to a runner. It is bounded: a newer instruction merges with the waiting one."""

from __future__ import annotations

import asyncio

from headrace.triggerer.ipc.messages import Drain, RunTriggers, Workload


class Instructions:
    """A queue with one slot. It belongs to one event loop."""

    def __init__(self) -> None:
        self._leases: RunTriggers | None = None
        self._drain: Drain | None = None
        self._workloads: list[bytes] = []
        self._available = asyncio.Event()

    def put(self, frame: Workload | RunTriggers | Drain) -> None:
        """Add one instruction. A page of workloads waits for the instruction that it belongs to."""
        match frame:
            case Workload(page):
                self._workloads.append(page)
                return
            case Drain():
                self._drain = frame
            case RunTriggers():
                frame.workloads.extend(self._workloads)
                self._workloads.clear()
                self._leases = frame if self._leases is None else merge(self._leases, frame)
        self._available.set()

    async def get(self) -> RunTriggers | Drain:
        """Wait for the next instruction. `Drain` comes before leases, which no longer matter then."""
        await self._available.wait()
        if self._drain is not None:
            return self._drain
        instruction, self._leases = self._leases, None
        self._available.clear()
        if instruction is None:
            raise RuntimeError("Two tasks wait for instructions.")
        return instruction


def merge(older: RunTriggers, newer: RunTriggers) -> RunTriggers:
    """Return one instruction with the effect of both, one after the other."""
    released = set(newer.released)
    epochs = {**{one: epoch for one, epoch in older.epochs.items() if one not in released}, **newer.epochs}
    return RunTriggers(
        epochs=epochs,
        released=[one for one in dict.fromkeys([*older.released, *newer.released]) if one not in epochs],
        workloads=[*older.workloads, *newer.workloads],
        # A trigger that is leased again must not be confirmed as stopped: that would release its new lease.
        cleanup={one: epoch for one, epoch in (older.cleanup | newer.cleanup).items() if one not in epochs},
        backlogs={**older.backlogs, **newer.backlogs},
        dropped=list(dict.fromkeys([*older.dropped, *newer.dropped])),
    )
