"""Cycles of events that follow one another: found when they are closed, and released a slice at a time, in order of (occurred, id)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from typing import TypeAlias

from headrace.core.ordering.snapshot import SnapshotEvent

Place: TypeAlias = tuple[int, str, int]
"""The order among events that are ready together: (occurred, id, seq)."""


@dataclass(slots=True)
class Cycle:
    """Members of a cycle that are not released yet; `number` says in which order cycles were found."""

    number: int
    _members: list[tuple[int, str, int, bytes]]  # a heap: many members are not sorted at once

    @classmethod
    def of(cls, number: int, members: Iterable[SnapshotEvent]) -> Cycle:
        """Return the cycle of these members."""
        heap = [(*place(member), member.key) for member in members]
        heapify(heap)
        return cls(number, heap)

    def __bool__(self) -> bool:
        """Whether members are left."""
        return bool(self._members)

    @property
    def seqs(self) -> list[int]:
        """The members, in any order."""
        return [seq for _, _, seq, _ in self._members]

    def pop(self, waiting: Mapping[bytes, SnapshotEvent]) -> SnapshotEvent | None:
        """Remove the next member and return it, or None if there is none or it no longer waits."""
        if not self._members:
            return None
        _, _, seq, key = heappop(self._members)
        entry = waiting.get(key)
        return entry if entry is not None and entry.seq == seq else None


def place(entry: SnapshotEvent) -> Place:
    """Return the place of an event among those that are ready together."""
    return (entry.occurred, entry.id, entry.seq)


def rebuilt(waiting: Iterable[SnapshotEvent], cycles: Mapping[bytes, tuple[int, Sequence[int]]]) -> tuple[dict[bytes, Cycle], set[bytes]]:
    """Return cycles that were written down as (number, seqs), with those members that still wait, and the keys of these."""
    if not cycles:
        return {}, set()
    by_seq = {entry.seq: entry for entry in waiting}
    found = {key: [by_seq[seq] for seq in seqs if seq in by_seq] for key, (_, seqs) in cycles.items()}
    members = {member.key for several in found.values() for member in several}
    return {key: Cycle.of(number, found[key]) for key, (number, _) in cycles.items()}, members


def detached(
    closing: SnapshotEvent, waiting: Mapping[bytes, SnapshotEvent], followers: dict[bytes, list[bytes]], shortcut: dict[bytes, bytes]
) -> list[SnapshotEvent]:
    """Return the members of the cycle that `closing` closes; `followers` and `shortcut` have none of them any more."""
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
