"""A history: the events to order, from any input."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from headrace.replay.inputs.parquet import ParquetParts


@dataclass(frozen=True, slots=True)
class History:
    """The events to order: their own columns and SLIM, read by Spark or by the tasks. `bytes` is the total size, `id` the
    column path of ids.

    `keyed`: there is an ORDERING_KEY, which leaders and followers share.
    """

    events: DataFrame | ParquetParts
    bytes: int
    id: str
    keyed: bool = False
