"""A history: the events to order, wherever they are read from."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from headrace.replay.inputs.parquet import ParquetParts


@dataclass(frozen=True, slots=True)
class History:
    """The events to order: their own columns and SLIM, read by Spark or by the tasks. `bytes` is the size of it all, `id` where ids are.

    `keyed`: there is an ORDERING_KEY too, which leader and follower share.
    """

    events: DataFrame | ParquetParts
    bytes: int
    id: str
    keyed: bool = False
