"""The ordering stage: what waits is durable state of Spark, the decisions are those of `core.ordering`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues, ValueState
from typing_extensions import override

from headrace.core.ordering import CausalOrder, Released
from headrace.pipeline.blocks import pack, unpack
from headrace.pipeline.schemas import EVENTS, INDEX_SCHEMA, LOG_BLOCKS, ORDERED_BLOCKS, ORDERED_SCHEMA, TRIGGER_SEPARATOR
from headrace.wire.log import LOG_SCHEMA

_STATE: Final = "ordering binary, rows binary"
_MICROS: Final = 1_000_000


def order(log: DataFrame, lookback: float) -> DataFrame:
    """LOG_BLOCKS -> ORDERED_BLOCKS: the events of a log in causal order; `lookback` in seconds."""
    return (
        log.select(*LOG_BLOCKS.names)
        .groupBy("shard")
        .transformWithStateInPandas(OrderingProcessor(int(lookback * _MICROS)), ORDERED_BLOCKS, outputMode="Append", timeMode="None")
        .select(*ORDERED_BLOCKS.names)
    )


def events_of(ordered: DataFrame) -> DataFrame:
    """ORDERED_BLOCKS -> EVENTS: the released events as rows, in order of position, in one partition."""
    return ordered.select("block").where("block is not null").mapInArrow(_unpack_blocks, EVENTS)


def _unpack_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for block in batch.column("block"):
            yield from unpack(block.as_py()).to_batches()


class OrderingProcessor(StatefulProcessor):
    """One call of `handleInputRows` for each shard and batch. State: the pure core's snapshot, and the rows of what waits."""

    _state: ValueState

    def __init__(self, lookback: int) -> None:
        self._lookback = lookback

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Bind the state."""
        self._state = handle.getValueState("ordering", _STATE)

    @override
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]:
        """LOG_BLOCKS of one batch -> one row of ORDERED_BLOCKS."""
        del key, timerValues
        clock, arrived = _arrived(rows)
        order, waiting = self._load()
        before = (order.head, order.position, len(order))
        rows_at_hand = pa.concat_tables([waiting, arrived])
        released = order.offer(_offers(arrived), clock)
        expired = order.expire(clock)
        if before != (order.head, order.position, len(order)):
            kept = _rows_of(rows_at_hand, np.sort([entry.seq for entry in order.waiting()]))
            self._state.update((order.snapshot(), pack(kept) if len(kept) else b""))
        yield _answer(order, rows_at_hand, [released, expired], clock)

    def _load(self) -> tuple[CausalOrder, pa.Table]:
        """Return the ordering and the rows that wait, in order of seq."""
        state = self._state.get() if self._state.exists() else None
        if state is None:
            return CausalOrder(self._lookback), LOG_SCHEMA.empty_table()
        snapshot, rows = state
        return CausalOrder.restore(bytes(snapshot), self._lookback), unpack(bytes(rows)) if rows else LOG_SCHEMA.empty_table()


def _arrived(rows: Iterable[pd.DataFrame]) -> tuple[int, pa.Table]:
    """Return the batch's clock and its events in order of seq."""
    clock = 0
    blocks: list[tuple[int, bytes]] = []
    for frame in rows:
        clock = max(clock, int(frame["clock"].max()))
        blocks.extend((int(first), block) for first, block in zip(frame["first"], frame["block"], strict=True) if block is not None)
    blocks.sort(key=lambda pair: pair[0])
    return clock, pa.concat_tables([LOG_SCHEMA.empty_table(), *(unpack(bytes(block)) for _, block in blocks)])


def _offers(events: pa.Table) -> Iterator[tuple[int, bytes, bytes | None, int, int, str]]:
    occurred = events.column("occurred").cast(pa.int64())
    columns = [events.column(name) for name in ("seq", "key", "leader_key", "leader_seq")]
    return zip(*(column.to_pylist() for column in [*columns, occurred, events.column("id")]), strict=True)


def _rows_of(rows: pa.Table, seqs: Any) -> pa.Table:
    """Return the rows with these seqs, in the order of `seqs`; `rows` is in order of seq."""
    if not len(seqs):
        return rows.slice(0, 0)
    return rows.take(pa.array(np.searchsorted(rows.column("seq").to_numpy(), seqs)))


def _answer(order: CausalOrder, rows: pa.Table, parts: list[Released], clock: int) -> pd.DataFrame:
    seqs = [seq for part in parts for seq in part.seqs]
    block = index = None
    if seqs:
        events = _rows_of(rows, np.asarray(seqs, dtype=np.int64))
        ordered = pa.table(
            {
                **{name: events.column(name) for name in LOG_SCHEMA.names},
                "position": pa.array(np.arange(order.position - len(seqs) + 1, order.position + 1)),
                "mark": pa.array([mark for part in parts for mark in part.marks], pa.string()),
                "waited": pa.array(np.concatenate([part.waited for part in parts]) / _MICROS),
            }
        ).select(ORDERED_SCHEMA.names)
        block, index = pack(ordered.cast(ORDERED_SCHEMA)), pack(_index(events))
    oldest = next(order.waiting(), None)
    return pd.DataFrame(
        {
            "block": [block],
            "index": [index],
            "released": [len(seqs)],
            "position": [order.position],
            "waiting": [len(order)],
            "lost": [order.lost],
            "late": [order.late],
            "cycles": [order.cycles],
            "longest": [0.0 if oldest is None else (clock - oldest.since) / _MICROS],
        }
    )


def _index(events: pa.Table) -> pa.Table:
    triggers = pc.binary_join(events.column("triggers"), TRIGGER_SEPARATOR).dictionary_encode()
    return pa.table([events.column("seq"), triggers], schema=INDEX_SCHEMA)
