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


class Moves(NamedTuple):
    """Triggers that must leave their place before they start again.

    `away`: they read another stream, or none. `changed`: they read the same stream in another role.
    """

    away: list[int]
    changed: list[int]


class Placements:
    """The places of the triggers that take part in shared streams.

    A changed trigger holds its stream from the moment at which it leaves until it is placed again: no raw event is read
    that it does not owe.
    """

    def __init__(self) -> None:
        self._placements: dict[int, Placement] = {}
        self._holds: dict[int, Hashable] = {}

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
        """Record the place of a trigger, if its stream has a key."""
        if one.key is not None:
            self._placements[one.workload.trigger_id] = Placement(one.key, one.role)

    def remove(self, trigger_id: int) -> Hashable | None:
        """Remove a trigger, and return the key of the stream that it had, or None."""
        placement = self._placements.pop(trigger_id, None)
        return None if placement is None else placement.key

    def moves(self, loaded: Iterable[LoadedTrigger]) -> Moves:
        """Return which of these triggers have another place now."""
        moves = Moves([], [])
        for one in loaded:
            placement = self._placements.get(one.workload.trigger_id)
            if placement is None:
                continue
            if stream_name(placement.key) != one.stream:
                moves.away.append(one.workload.trigger_id)
            elif placement.role != one.role:
                moves.changed.append(one.workload.trigger_id)
        return moves

    def hold(self, trigger_id: int) -> Hashable | None:
        """Record that a changed trigger holds its stream. Return the key of the stream, or None if it has none."""
        key = self.key(trigger_id)
        if key is not None:
            self._holds[trigger_id] = key
        return key

    def drop_holds(self, trigger_ids: Iterable[int]) -> set[Hashable]:
        """Drop the holds of these triggers. Return the keys of their streams."""
        return {self._holds.pop(one) for one in trigger_ids if one in self._holds}

    def held(self) -> set[Hashable]:
        """Return the keys of the streams that changed triggers hold."""
        return set(self._holds.values())
