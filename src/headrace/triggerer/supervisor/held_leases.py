"""The leases of this job, updated from the differences that the API returns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.wire.control.triggers import TriggersLoaded


class Due(NamedTuple):
    """Triggers that the runner must start or restart, and triggers that it must stop."""

    start: list[int]
    stop: list[int]


class HeldLeases:
    """The leases of one job.

    Invariant: a changed trigger stays touched until the runner has its instruction, even if a call fails in between.
    """

    def __init__(self) -> None:
        self.revision = ""
        self.revoked: dict[int, int] = {}
        """The triggers to release, with their last epochs. The job may never have received a lease of them."""
        self._leases: dict[int, int] = {}
        self._touched: set[int] = set()

    def update(self, loaded: TriggersLoaded) -> None:
        """Apply the next answer of the API."""
        self.revision = loaded.revision
        if loaded.whole:
            self._touched.update(self._leases)
            self._leases.clear()
            self.revoked.clear()
        changed = [*(lease.trigger_id for lease in loaded.leases), *loaded.revoked, *loaded.removed]
        for one in changed:
            self._leases.pop(one, None)
            self.revoked.pop(one, None)
        self._leases.update((lease.trigger_id, lease.epoch) for lease in loaded.leases)
        self.revoked.update(loaded.revoked)
        self._touched.update(changed)

    def due(self, running: Mapping[int, int]) -> Due:
        """Return the changes for a runner that runs these triggers under these epochs."""
        start, stop = [], []
        for one in sorted(self._touched):
            epoch = None if one in self.revoked else self._leases.get(one)
            if epoch is None:
                if one in running:
                    stop.append(one)
            elif running.get(one) != epoch:
                start.append(one)
        return Due(start, stop)

    def done(self, again: Iterable[int] = ()) -> None:
        """Record that the runner has its instruction. Triggers in `again` stay touched."""
        self._touched = set(again)

    def epochs(self, trigger_ids: Iterable[int]) -> dict[int, int]:
        """Return the epochs of these leases."""
        return {one: self._leases[one] for one in trigger_ids}

    def dropped(self) -> list[int]:
        """Return the triggers to release that have no lease any more: they changed or were removed."""
        return [one for one in self.revoked if one not in self._leases]
