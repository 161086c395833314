"""The stream of each trigger of a runner, and its role there. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import NamedTuple

from headrace.triggerer.runner.placement.loaded_trigger import LoadedTrigger, Role
from headrace.triggers.base import stream_name


class Placement(NamedTuple):
    """The key of a trigger's stream, and the trigger's role there."""

    key: Hashable
    role: Role


class Placements:
    """The placements of the triggers that take part in shared streams."""

    def __init__(self) -> None:
        self._placements: dict[int, Placement] = {}

    def key(self, trigger_id: int) -> Hashable | None:
        """Return the key of the trigger's stream, or None."""
        placement = self._placements.get(trigger_id)
        return None if placement is None else placement.key

    def keys(self, *, without: Collection[int] = ()) -> set[Hashable]:
        """Return the keys of the streams that have triggers except these."""
        return {placement.key for one, placement in self._placements.items() if one not in without}

    def keys_of(self, trigger_ids: Iterable[int]) -> set[Hashable]:
        """Return the keys of the streams of these triggers."""
        return {self._placements[one].key for one in trigger_ids if one in self._placements}

    def add(self, one: LoadedTrigger) -> None:
        """Record the placement of a trigger, if its stream has a key."""
        if one.key is not None:
            self._placements[one.workload.trigger_id] = Placement(one.key, one.role)

    def remove(self, trigger_id: int) -> Hashable | None:
        """Remove a trigger, and return the key of the stream that it had, or None."""
        placement = self._placements.pop(trigger_id, None)
        return None if placement is None else placement.key

    def moved(self, loaded: Iterable[LoadedTrigger]) -> list[int]:
        """Return which of these triggers must leave their stream before they start again.

        Their stream is another one now, or has acks for them in one of the two placements only. A trigger that changes
        between a watch and a registered trigger does not leave: it owes its answers also in between.
        """
        return [one.workload.trigger_id for one in loaded if self._is_moved(one)]

    def _is_moved(self, one: LoadedTrigger) -> bool:
        placement = self._placements.get(one.workload.trigger_id)
        if placement is None:
            return False
        return stream_name(placement.key) != one.stream or (placement.role == "reader") != (one.role == "reader")
