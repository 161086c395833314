"""Planned runs, and the plan of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, get_args

import numpy as np
import pyarrow as pa

from headrace.pipeline.runs.slices import Slice
from headrace.pipeline_declaration import Pipeline, TableFormat
from headrace.wire.pipelines.plans import OpenRun, PlannedRun

_USUAL_BYTES: Final = 1024
"""Size that counts as one event."""


@dataclass(slots=True, eq=False)
class Run:
    """One call of a pipeline, planned and without an outcome.

    `events` are those of the slice as ORDERED_SCHEMA, if they are in memory. `begun` is the last attempt that began,
    `ended` the last that ended.
    """

    batch: int
    number: int
    pipeline: str
    part: str
    table: str | None
    format: TableFormat
    dead_letter: str | None
    slice: Slice
    events: pa.Table | None = None
    begun: int = 0
    ended: int = 0

    @classmethod
    def opened(cls, run: OpenRun) -> Run:
        """Return a run that an earlier driver planned."""
        return cls(
            run.batch,
            run.number,
            run.pipeline,
            run.part,
            run.table,
            next((each for each in get_args(TableFormat) if each == run.format), "parquet"),
            run.dead_letter,
            Slice.unpack(run.data),
            begun=run.begun,
            ended=run.ended,
        )

    @property
    def name(self) -> str:
        """The run's name within its batch."""
        return f"{self.pipeline}/{self.part}" if self.part else self.pipeline


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Return open runs in order of execution: by batch, then by part, redriven ones last."""

    def sort_key(run: Run) -> tuple[int, bool, list[int]]:
        redriven = run.dead_letter is not None or run.part.startswith("again")
        return run.batch, redriven, [int(number) for number in run.part.removeprefix("again").split(".") if number]

    return sorted(runs, key=sort_key)


def size_of(events: pa.Table) -> int:
    """Return the size of these events in events of `_USUAL_BYTES`, at least their number."""
    return int(max(events.num_rows, events.nbytes // _USUAL_BYTES))


@dataclass(slots=True)
class RunPlan:
    """The runs of one batch that is being planned. Runs with the same slice object share its packed form."""

    batch: int
    runs: list[Run] = field(default_factory=list)
    slices: list[bytes] = field(default_factory=list)
    planned: list[PlannedRun] = field(default_factory=list)
    _parts: Counter[str] = field(default_factory=Counter)
    _known: dict[int, tuple[Slice, int]] = field(default_factory=dict)

    def add(
        self,
        pipeline: Pipeline | str,
        events: Slice,
        table: pa.Table | None = None,
        *,
        part: str | None = None,
        dead_letter: str | None = None,
    ) -> None:
        """Add a run of a pipeline: by its definition, or by the name of one that the project does not have."""
        name = pipeline if isinstance(pipeline, str) else pipeline.name
        if part is None:
            part = str(self._parts[name] or "")
            self._parts[name] += 1
        output = None if isinstance(pipeline, str) else pipeline.table
        format: TableFormat = "parquet" if isinstance(pipeline, str) else pipeline.format
        run = Run(self.batch, len(self.runs), name, part, output, format, dead_letter, events, table)
        self.runs.append(run)
        first, last = int(np.min(events.seqs)), int(np.max(events.seqs))
        self.planned.append(
            PlannedRun(
                number=run.number,
                pipeline=name,
                part=part,
                table=output,
                format=format if output else None,
                dead_letter=dead_letter,
                events=len(events),
                first=first,
                last=last,
                slice=self._slice(events),
            )
        )

    def _slice(self, events: Slice) -> int:
        known = self._known.get(id(events))
        if known is None:
            self.slices.append(events.pack())
            known = self._known[id(events)] = events, len(self.slices) - 1
        return known[1]
