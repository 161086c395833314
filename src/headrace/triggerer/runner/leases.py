"""What this triggerer may run now, and under which epochs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


class Leases:
    """The triggers leased to this job."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def changes(self, epochs: Mapping[int, int], gone: Iterable[int] = ()) -> tuple[list[int], list[int]]:
        """Return which triggers are to start, and which to stop, when these leases are held too. A new epoch is a stop and a start."""
        start = [one for one, epoch in epochs.items() if self._epochs.get(one) != epoch]
        stop = [one for one in (*start, *gone) if one in self._epochs]
        return start, stop

    def update(self, epochs: Mapping[int, int], gone: Iterable[int] = ()) -> None:
        """Take leases that are new, and drop those that are gone."""
        for one in gone:
            self._epochs.pop(one, None)
        self._epochs.update(epochs)
        self._last.update(epochs)

    def forget(self, keep: Collection[int]) -> None:
        """Forget the last epochs of triggers that are neither held nor in `keep`."""
        if len(self._last) > len(self._epochs):
            self._last = {one: epoch for one, epoch in self._last.items() if one in self._epochs or one in keep}

    def gone(self) -> list[int]:
        """Return the triggers that are no longer held and not forgotten."""
        if len(self._last) == len(self._epochs):
            return []  # all that is held is in both
        return [one for one in self._last if one not in self._epochs]

    def epochs(self, trigger_ids: Iterable[int]) -> dict[int, int]:
        """Return the epoch for each trigger, for one that is no longer held its last: the api knows whether it still counts.

        One that never was held gets 0, which every store refuses as stale.
        """
        return {one: self._last.get(one, 0) for one in trigger_ids}

    def epoch(self, trigger_id: int) -> int:
        """Return the epoch of one trigger, as `epochs` does."""
        return self._last.get(trigger_id, 0)
