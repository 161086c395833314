"""The runs of one pipeline that a table has, in a property of the table that is set in the commit of each run.

The property has the newest runs alone, so its size does not grow with the table. It has all runs of the two newest batches, because
a pipeline with a run for each event has many of them, and each one looks for itself here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

MAX_RUNS: Final = 64
"""The newest runs in the property, apart from those of the two newest batches."""


class StoredEntry(NamedTuple):
    """A stored run: its batch, part and events, the attempt that stored it, and its rows."""

    batch: int
    part: str
    digest: str
    attempt: int
    rows: int


@dataclass(frozen=True, slots=True)
class PipelineRuns:
    """The newest runs of a pipeline. From the batch `since` on, they are all that the table has."""

    entries: tuple[StoredEntry, ...] = ()
    since: int = 0
    last: int = -1

    @classmethod
    def of(cls, properties: Mapping[str, str], name: str) -> PipelineRuns:
        """Return the runs that the table's property `name` has."""
        if name not in properties:
            return cls()
        value = json.loads(properties[name])
        return cls(tuple(StoredEntry(*entry) for entry in value["runs"]), value["since"], value["last"])

    def with_run(self, run: StoredEntry) -> PipelineRuns:
        """Return the runs with one more. Beyond MAX_RUNS, all runs of the lowest batches are left out."""
        entries = sorted((*self.entries, run))
        since = self.since
        if len(entries) > MAX_RUNS:
            newest = sorted({entry.batch for entry in entries})[-2:]
            since = max(since, min(entries[-MAX_RUNS - 1].batch + 1, newest[0]))
            entries = [entry for entry in entries if entry.batch >= since]
        return PipelineRuns(tuple(entries), since, max(self.last, run.batch))

    def find(self, batch: int, part: str) -> StoredEntry | None:
        """Return a run, or None if it is not one of the newest."""
        return next((entry for entry in self.entries if (entry.batch, entry.part) == (batch, part)), None)

    def has_all_of(self, batch: int) -> bool:
        """Return whether these are all runs of the batch that the table has."""
        return batch >= self.since

    def to_property(self) -> str:
        """Return the value of the property."""
        return json.dumps({"since": self.since, "last": self.last, "runs": self.entries}, separators=(",", ":"))
