"""The triggers that this triggerer may run, with their epochs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


class Leases:
    """The triggers leased to this job."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def changes(self, epochs: Mapping[int, int], released: Iterable[int] = ()) -> tuple[list[int], list[int]]:
        """Return the triggers to start and to stop under these leases. A new epoch is a stop and a start."""
        start = [one for one, epoch in epochs.items() if self._epochs.get(one) != epoch]
        stop = [one for one in (*start, *released) if one in self._epochs]
        return start, stop

    def update(self, epochs: Mapping[int, int], released: Iterable[int] = ()) -> None:
        """Add new leases and remove released ones."""
        for one in released:
            self._epochs.pop(one, None)
        self._epochs.update(epochs)
        self._last.update(epochs)

    def drop_released(self, keep: Collection[int]) -> None:
        """Drop the last epochs of released triggers, except those in `keep`."""
        if len(self._last) > len(self._epochs):
            self._last = {one: epoch for one, epoch in self._last.items() if one in self._epochs or one in keep}

    def released(self) -> list[int]:
        """Return the released triggers whose last epochs are retained."""
        if len(self._last) == len(self._epochs):
            return []  # all leased triggers are in both
        return [one for one in self._last if one not in self._epochs]

    def epochs(self, trigger_ids: Iterable[int]) -> dict[int, int]:
        """Return the epoch of each trigger, or its last epoch if it is released: the API decides whether that is still valid.

        A trigger that was never leased gets 0, which every store refuses as stale.
        """
        return {one: self._last.get(one, 0) for one in trigger_ids}

    def stopped(self, released: Iterable[int], cleanup: Mapping[int, int]) -> dict[int, int]:
        """Return the epochs up to which the triggers in `released` and in `cleanup`, which the API requests, have stopped.

        A lease in `cleanup` may have been revoked before it started here.
        """
        stopped = self.epochs(released)
        return stopped | {one: max(epoch, stopped.get(one, 0)) for one, epoch in cleanup.items()}

    def epoch(self, trigger_id: int) -> int:
        """Return the epoch of one trigger, with the rules of `epochs`."""
        return self._last.get(trigger_id, 0)
