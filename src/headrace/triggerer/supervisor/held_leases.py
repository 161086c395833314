"""What the api says that this job holds, kept up by the differences that it tells. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.wire.control.triggers import TriggersLoaded


class Due(NamedTuple):
    """Triggers that the runner is to run again, and those that it is to run no more."""

    start: list[int]
    stop: list[int]


class HeldLeases:
    """The law: what an answer changed is looked at until the runner was told of it, also where a call fails in between."""

    def __init__(self) -> None:
        self.revision = ""
        self.revoked: dict[int, None] = {}
        """The triggers to release."""
        self._leases: dict[int, int] = {}
        self._touched: set[int] = set()

    def update(self, loaded: TriggersLoaded) -> None:
        """Take the next answer."""
        self.revision = loaded.revision
        if loaded.whole:
            self._touched.update(self._leases)
            self._leases.clear()
            self.revoked.clear()
        told = [*(lease.trigger_id for lease in loaded.leases), *loaded.revoked, *loaded.gone]
        for one in told:
            self._leases.pop(one, None)
            self.revoked.pop(one, None)
        self._leases.update((lease.trigger_id, lease.epoch) for lease in loaded.leases)
        self.revoked.update(dict.fromkeys(loaded.revoked))
        self._touched.update(told)

    def due(self, running: Mapping[int, int]) -> Due:
        """Return what is to change where those triggers are running, under those epochs."""
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
        """Note that the runner was told all that was due, except triggers to look at again."""
        self._touched = set(again)

    def epochs(self, trigger_ids: Iterable[int]) -> dict[int, int]:
        """Return the epochs of leases that are held."""
        return {one: self._leases[one] for one in trigger_ids}

    def dropped(self) -> list[int]:
        """Return the triggers to release that are not held any more: they changed or were removed."""
        return [one for one in self.revoked if one not in self._leases]
