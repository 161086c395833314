"""Events that task runs wait for: spliced into the run in the transaction that takes them, and kept nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from headrace.core import deferral
from headrace.core.deferral import Deferral
from headrace.store.deferred_rows import Held, read, save
from headrace.wire.events import EventItem, ItemStatus


class Deliveries:
    """What one transaction delivers. `waits` says which run each of the triggers was made for; those of a project are not in it."""

    def __init__(self, connection: Connection, waits: Mapping[int, str], now: int) -> None:
        self._connection = connection
        self._waits = waits
        self._now = now
        self._held: dict[str, Held] = read(connection, waits.values()) if waits else {}
        self._after: dict[str, Deferral] = {}

    def take(self, item: EventItem) -> ItemStatus | None:
        """Give the event to the run that waits for it: the first wins, and what comes later is a duplicate. None: no run is concerned."""
        if not self._waits:
            return None
        concerned = [trigger for trigger in item.firings if trigger in self._waits]
        if not concerned:
            return None
        fired = [self._fire(trigger, item) for trigger in concerned]
        return "stored" if any(fired) else "duplicate"

    def write(self) -> bool:
        """Write the runs back that go on or have ended; whether there are any."""
        for run_id, after in self._after.items():
            save(self._connection, self._held[run_id], after, self._now)
        return bool(self._after)

    def _fire(self, trigger: int, item: EventItem) -> bool:
        run_id = self._waits[trigger]
        held = self._held.get(run_id)
        if held is None or run_id in self._after or held.run.state != "deferred" or held.trigger_id != trigger:
            return False
        self._after[run_id] = deferral.fire(held.run, item.type, item.payload)
        return True
