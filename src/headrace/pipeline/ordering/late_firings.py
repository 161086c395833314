"""Late firings: triggers that fire on an event that the scope has already read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.kernel import Kernel
from headrace.pipeline.kernel.segments import Changes, Entries
from headrace.pipeline_declaration import Pipeline
from headrace.wire.pipelines.runs import Redelivery

_KEY: Final = "late"


class DueFirings(NamedTuple):
    """Late firings of a batch: triggers by seq for events that it releases, and redeliveries of events that were released earlier."""

    joined: dict[int, list[str]]
    passed: list[Redelivery]


class RedeliveredFirings:
    """The late firings of one scope. A firing on an event that waits, or is not read yet, waits for this event."""

    def __init__(self, entries: Entries) -> None:
        self._waiting = msgspec.msgpack.decode(entries[_KEY], type=list[tuple[int, str]]) if _KEY in entries else []
        self._changed = False

    def __len__(self) -> int:
        """Return the number of waiting firings."""
        return len(self._waiting)

    @property
    def seqs(self) -> list[int]:
        """The events of the waiting firings."""
        return [seq for seq, _ in self._waiting]

    def take(self, firings: Sequence[Redelivery], released: Rows, kernel: Kernel) -> DueFirings:
        """Add late firings; return the firings that are due now that the kernel has released these events."""
        due = DueFirings({}, [])
        if not firings and not self._waiting:
            return due
        ready = set(released.tolist())
        seqs = np.array([*self.seqs, *(each.seq for each in firings)], dtype=np.int64)
        waiting = set(seqs[(seqs > kernel.head) | kernel.waits(seqs)].tolist())
        before, self._waiting = self._waiting, []
        for seq, trigger in [*before, *((each.seq, each.trigger or "") for each in firings)]:
            if seq in ready:
                due.joined.setdefault(seq, []).append(trigger)
            elif seq in waiting:
                self._waiting.append((seq, trigger))
        due.passed.extend(each for each in firings if each.seq not in ready and each.seq not in waiting)
        self._changed = self._changed or before != self._waiting
        return due

    def changes(self) -> Changes:
        """Return the changes since the last call: values by key, or None to delete a key."""
        if not self._changed:
            return {}
        self._changed = False
        return {_KEY: msgspec.msgpack.encode(self._waiting) if self._waiting else None}


def new_to_pipelines(
    records: Sequence[Redelivery], pipelines: Sequence[Pipeline]
) -> tuple[Mapping[int, Sequence[str]], Mapping[str, Sequence[int]]]:
    """Return, by seq, triggers that give an event to a pipeline for the first time; and, by pipeline, these events."""
    triggers: dict[int, list[str]] = {}
    new: dict[str, list[int]] = {}
    for record in records:
        name = record.trigger or ""
        takers = [pipe.name for pipe in pipelines if pipe.takes(name) and not any(map(pipe.takes, record.before))]
        if takers:
            triggers.setdefault(record.seq, []).append(name)
        for taker in takers:
            new.setdefault(taker, []).append(record.seq)
    return triggers, new
