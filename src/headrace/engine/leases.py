"""What this triggerer may run just now, and under which epochs."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.wire.jobs import Lease


class Leases:
    """The triggers leased to this job; `replace` tells what to start and what to stop."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self.never_loaded = True

    def replace(self, leases: Iterable[Lease]) -> tuple[list[int], list[int]]:
        """Take the leases now held; return the trigger ids to start and those to stop. A new epoch is a stop and a start."""
        held = {lease.trigger_id: lease.epoch for lease in leases}
        stop = [one for one, epoch in self._epochs.items() if held.get(one) != epoch]
        start = [one for one, epoch in held.items() if self._epochs.get(one) != epoch]
        self._epochs = held
        self.never_loaded = False
        return start, stop

    def same_as(self, leases: Iterable[Lease]) -> bool:
        """Whether these are the leases already known."""
        return self._epochs == {lease.trigger_id: lease.epoch for lease in leases}

    def epochs(self, trigger_ids: Iterable[int]) -> dict[int, int]:
        """Return the epoch for each trigger; one that is no longer held gets 0, which every store refuses as stale."""
        return {one: self._epochs.get(one, 0) for one in trigger_ids}

    def epoch(self, trigger_id: int) -> int:
        """Return the epoch of one trigger."""
        return self._epochs.get(trigger_id, 0)
