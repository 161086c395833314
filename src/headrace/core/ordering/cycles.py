"""Cycles of events that follow each other: detected when they are closed, and released in slices, in order of (occurred, id)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from typing import TypeAlias

from headrace.core.ordering.snapshot import SnapshotEvent

SortKey: TypeAlias = tuple[int, str, int]
"""The order of events that are released together: (occurred, id, seq)."""


@dataclass(slots=True)
class Cycle:
    """The unreleased members of a cycle. `number` is the order in which cycles were detected."""

    number: int
    _members: list[tuple[int, str, int, bytes]]  # a heap, since sorting many members takes too long at a time

    @classmethod
    def of(cls, number: int, members: Iterable[SnapshotEvent]) -> Cycle:
        """Return the cycle of these members."""
        heap = [(*sort_key(member), member.key) for member in members]
        heapify(heap)
        return cls(number, heap)

    def __bool__(self) -> bool:
        """Whether there are unreleased members."""
        return bool(self._members)

    @property
    def seqs(self) -> list[int]:
        """The seqs of the members, in any order."""
        return [seq for _, _, seq, _ in self._members]

    def pop(self, waiting: Mapping[bytes, SnapshotEvent]) -> SnapshotEvent | None:
        """Remove and return the next member, or return None if there is none or it no longer waits."""
        if not self._members:
            return None
        _, _, seq, key = heappop(self._members)
        entry = waiting.get(key)
        return entry if entry is not None and entry.seq == seq else None


def sort_key(entry: SnapshotEvent) -> SortKey:
    """Return the sort key of an event among events that are released together."""
    return (entry.occurred, entry.id, entry.seq)


def rebuilt(waiting: Iterable[SnapshotEvent], cycles: Mapping[bytes, tuple[int, Sequence[int]]]) -> tuple[dict[bytes, Cycle], set[bytes]]:
    """Return stored cycles (number, seqs) with their waiting members, and the keys of these members."""
    if not cycles:
        return {}, set()
    by_seq = {entry.seq: entry for entry in waiting}
    events = {key: [by_seq[seq] for seq in seqs if seq in by_seq] for key, (_, seqs) in cycles.items()}
    members = {member.key for several in events.values() for member in several}
    return {key: Cycle.of(number, events[key]) for key, (number, _) in cycles.items()}, members


def detached(
    closing: SnapshotEvent, waiting: Mapping[bytes, SnapshotEvent], followers: dict[bytes, list[bytes]], shortcut: dict[bytes, bytes]
) -> list[SnapshotEvent]:
    """Return the members of the cycle that `closing` closes, and remove them from `followers` and `shortcut`."""
    members = [closing]
    while members[-1].leader != closing.key:
        members.append(waiting[members[-1].leader])
    for member in members:
        shortcut.pop(member.key, None)
    for member in members[1:]:
        siblings = followers[member.leader]
        if len(siblings) > 1:
            siblings.remove(member.key)
        else:
            del followers[member.leader]
    return members
