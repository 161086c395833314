"""Which events of a batch go to which pipelines; decided on the driver from the batch's small index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame, functions

from headrace.pipeline.blocks import unpack
from headrace.pipeline.schemas import EVENTS, TRIGGER_SEPARATOR
from headrace.project import Pipeline


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the scope's ordering holds after a batch: totals since it began; `longest` is the longest wait of what waits (seconds)."""

    released: int
    position: int
    waiting: int
    lost: int
    late: int
    cycles: int
    longest: float


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of a batch that one pipeline takes: the triggers to select by (None: the whole batch), and the seqs as closed ranges."""

    pipeline: Pipeline
    triggers: tuple[str, ...] | None
    events: int
    seqs: list[tuple[int, int]]

    def of(self, events: DataFrame) -> DataFrame:
        """EVENTS -> EVENTS: the rows of the slice, in the order they had."""
        events = events.select(*EVENTS.names)
        if self.triggers is None:
            return events
        return events.where(functions.arrays_overlap("triggers", functions.array(*[functions.lit(name) for name in self.triggers])))


def route(index: bytes, pipelines: Iterable[Pipeline]) -> list[Slice]:
    """Return the non-empty slices of a batch, from its block of INDEX_SCHEMA rows."""
    table = unpack(index)
    seqs = table.column("seq").to_numpy()
    column = table.column("triggers").combine_chunks()
    codes = column.indices.to_numpy()
    groups = [group.split(TRIGGER_SEPARATOR) if group else [] for group in column.dictionary.to_pylist()]
    slices: list[Slice] = []
    for pipeline in pipelines:
        taken = {name for group in groups for name in group if pipeline.takes(name)}
        mask = np.array([not taken.isdisjoint(group) for group in groups], dtype=bool)[codes]
        count = int(mask.sum())
        if count:
            triggers = None if count == len(seqs) else tuple(sorted(taken))
            slices.append(Slice(pipeline, triggers, count, _ranges(np.sort(seqs[mask]))))
    return slices


def _ranges(seqs: np.ndarray) -> list[tuple[int, int]]:
    """Return ascending numbers as closed ranges."""
    breaks = np.flatnonzero(np.diff(seqs) != 1)
    firsts = seqs[np.concatenate([[0], breaks + 1])]
    lasts = seqs[np.concatenate([breaks, [len(seqs) - 1]])]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
