"""Deliver events to task runs that wait for them, in the transaction that receives them.

They are stored nowhere else.
A transaction resumes at most BATCH_STEPS runs, and fewer if their texts are large. A larger batch is
delivered in several transactions. The last of them stores the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass

from sqlalchemy import Connection, select

from headrace.core import task_run
from headrace.store.db.slices import Slice, size_of
from headrace.store.dialects.statements import in_list, rows_among
from headrace.store.tables.task_runs import task_runs
from headrace.store.task_runs.rows import read, save
from headrace.store.task_runs.sweep import BATCH_STEPS
from headrace.wire.custody.events import EventItem, ItemStatus

_R = task_runs.c
_deferred = select(_R.trigger_id, size_of(_R.next_kwargs)).where(_R.state == "deferred", in_list(_R.run_id, "run_ids"))


@dataclass(frozen=True, slots=True)
class Delivery:
    """The events of one batch that a transaction delivered.

    `first` maps each trigger of a task run to the item that fires it first. `fired` has the triggers whose runs
    resume, in this transaction or an earlier one. `finished` means that no run is left to a later transaction.
    """

    first: Mapping[int, EventItem]
    fired: Set[int]
    finished: bool

    def status(self, item: EventItem) -> ItemStatus | None:
        """Return the status of an item, or None if the item concerns no run.

        The first item for a run counts, and later ones are duplicates.
        """
        concerned = [trigger for trigger in item.firings if trigger in self.first]
        if not concerned:
            return None
        return "stored" if any(trigger in self.fired and self.first[trigger] is item for trigger in concerned) else "duplicate"


_NOTHING = Delivery({}, frozenset(), finished=True)


class RunDeliveries:
    """The runs that one transaction resumes.

    `waits` maps the triggers of task runs to their runs. It has no triggers of projects.
    """

    def __init__(self, connection: Connection, waits: Mapping[int, str], now: int) -> None:
        self._connection = connection
        self._waits = waits
        self._now = now
        self._taken = Slice(BATCH_STEPS)

    def __bool__(self) -> bool:
        """Return whether any run resumes."""
        return bool(self._taken.rows)

    def deliver(self, items: Iterable[EventItem], before: Set[int]) -> Delivery:
        """Deliver the items of one batch to the runs that wait for them.

        The triggers `before` fired in earlier transactions.
        """
        if not self._waits:
            return _NOTHING
        first: dict[int, EventItem] = {}
        for item in items:
            for trigger in item.firings:
                if trigger in self._waits:
                    first.setdefault(trigger, item)
        chosen, finished = self._choose(first)
        runs = read(self._connection, [self._waits[trigger] for trigger in chosen])
        for held in runs.values():
            # Read again under the lock, because another API server may have been quicker.
            if held.run.state == "deferred" and held.trigger_id is not None and held.trigger_id in chosen:
                item = first[held.trigger_id]
                save(self._connection, held, task_run.fire(held.run, item.type, item.payload), self._now)
        return Delivery(first, before | set(chosen), finished)

    def _choose(self, first: Mapping[int, EventItem]) -> tuple[Collection[int], bool]:
        """Return the triggers whose runs this transaction resumes, and whether they are all."""
        rows = rows_among(self._connection, _deferred, "run_ids", {self._waits[trigger] for trigger in first})
        sizes = {row.trigger_id: row.bytes for row in rows}
        chosen: list[int] = []
        for trigger, item in first.items():
            if trigger in sizes:
                if not self._taken.take(trigger, sizes[trigger] + len(item.payload.encode())):
                    return chosen, False
                chosen.append(trigger)
        return chosen, True
