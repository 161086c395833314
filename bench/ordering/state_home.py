"""The kernel's other home, for comparison alone: state in Spark. The product keeps the kernel on the driver (decision 15).

One shard of `transformWithStateInPandas`, fed by a source that reads the log where it runs. It gets what the product has: the real kernel
and its state's bytes, events as Arrow blocks rather than as pandas rows, payloads parsed by Arrow, the real sink.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
from bench.api_process import KEY, Api
from bench.ordering.log import registration
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues, ValueState
from pyspark.sql.types import StructField, StructType
from typing_extensions import override

from headrace.client.pipeline import PipelineClient
from headrace.pipeline.heart import Heart
from headrace.pipeline.kernel import Kernel
from headrace.pipeline.payload_columns import structs
from headrace.pipeline.run_identity import Attempt, Origin, Place
from headrace.pipeline.schemas import EVENTS, PIPELINE_COLUMNS
from headrace.pipeline.sink import ParquetSink
from headrace.project import Pipeline

BLOCKS: Final = "shard int, clock long, block binary"
_LOOKBACK: Final = 900_000_000
_Offset = dict[str, int]


def pack(table: pa.Table) -> bytes:
    """Return the table as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(block: bytes) -> pa.Table:
    """Return the table that `pack` packed."""
    return pa.ipc.open_stream(pa.py_buffer(block)).read_all()


class StateSource(DataSource):
    """The log as rows of BLOCKS. Options: `api_url`, `token_file`, `max_rows`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace-state"

    def schema(self) -> str:
        """Return BLOCKS."""
        return BLOCKS

    @override
    def streamReader(self, schema: StructType) -> StateReader:
        del schema
        return StateReader(dict(self.options))


class Span(InputPartition):
    """The events with after < seq <= to."""

    def __init__(self, after: int, to: int) -> None:
        super().__init__((after, to))
        self.after, self.to = after, to


class StateReader(DataSourceStreamReader):
    """Bounds batches in one process, and reads them in another."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    @override
    def initialOffset(self) -> _Offset:
        return {"seq": 0}

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(int(self._options["max_rows"]))

    @override
    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        with self._client() as client:
            head = client.news(after=start["seq"], wait=0.5).head
        return {"seq": min(head, start["seq"] + int(self._options["max_rows"]))}

    @override
    def partitions(self, start: _Offset, end: _Offset) -> list[Span]:
        return [Span(start["seq"], end["seq"])]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        with self._client() as client:
            for page in client.pages(after=partition.after, to=partition.to):
                columns = [pa.array([0], pa.int32()), pa.array([0]), pa.array([pack(page)], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["shard", "clock", "block"])

    def _client(self) -> PipelineClient:
        return PipelineClient(self._options["api_url"], token_file=Path(self._options["token_file"]))


class KernelInSpark(StatefulProcessor):
    """State: the kernel's, and the rows of what waits. `lookback` in µs."""

    _state: ValueState

    def __init__(self, lookback: int) -> None:
        self._lookback = lookback

    @override
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("ordering", "kernel binary, rows binary")

    @override
    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues) -> Iterator[pd.DataFrame]:
        """BLOCKS of one batch -> the released events as one row of BLOCKS."""
        del key, timerValues
        frames = list(rows)
        at_hand = arrived = pa.concat_tables([unpack(bytes(block)) for frame in frames for block in frame["block"]])
        kernel = Kernel(self._lookback)
        if self._state.exists():
            state, kept = self._state.get() or (b"", b"")
            kernel = Kernel.of_snapshot(bytes(state), self._lookback)
            at_hand = pa.concat_tables([unpack(bytes(kept)), arrived])
        now = max(int(frame["clock"].max()) for frame in frames)
        step = kernel.step(arrived, now)
        known = at_hand.column("seq").to_numpy()
        waiting = at_hand.filter(pa.array(np.isin(known, kernel.waiting.seq)))
        self._state.update((kernel.snapshot(), pack(waiting)))
        count = len(step.seqs)
        released = at_hand.take(pa.array(np.searchsorted(known, step.seqs)))
        released = released.append_column("position", pa.array(np.arange(kernel.position - count + 1, kernel.position + 1)))
        yield pd.DataFrame({"shard": [0], "clock": [now], "block": [pack(released.append_column("mark", step.mark_column()))]})


@contextmanager
def state_pipeline(api: Api, home: Path, spark: SparkSession, max_rows: int, pipeline: Pipeline) -> Iterator[StreamingQuery]:
    """Run a pipeline, which declares its payload, behind a kernel that is in Spark."""
    stop = threading.Event()
    with PipelineClient(api.url, key=KEY) as client:
        job = client.register(registration("pipeline"))
        token = home / "token"
        token.write_text(client.token)
        client.on_token = token.write_text
        spark.dataSource.register(StateSource)
        source = spark.readStream.format("headrace-state").options(api_url=api.url, token_file=str(token), max_rows=str(max_rows))
        ordered = (
            source.load()
            .groupBy("shard")
            .transformWithStateInPandas(KernelInSpark(_LOOKBACK), BLOCKS, outputMode="Append", timeMode="None")
        )
        writer = ordered.writeStream.foreachBatch(_handler(pipeline, ParquetSink(home / "tables", Origin(uuid4().hex, "state", ""))))
        with Heart(client, job.heartbeat, stop):
            query = writer.option("checkpointLocation", (home / "state").as_uri()).start()
            try:
                yield query
            finally:
                query.stop()


def _handler(pipeline: Pipeline, sink: ParquetSink) -> Any:
    payload = StructType.fromDDL(pipeline.payload or "")
    assert isinstance(payload, StructType)
    assert pipeline.table is not None
    place = pipeline.table
    fields = [StructField("payload", payload) if name == "payload" else EVENTS[name] for name in PIPELINE_COLUMNS]
    events = StructType(fields)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch.column("block"):
                table = unpack(block.as_py())
                at = table.schema.get_field_index("payload")
                parsed = table.set_column(at, "payload", structs(table.column("payload"), payload, exact=False))
                yield from parsed.select(PIPELINE_COLUMNS).cast(to_arrow_schema(events, timezone="UTC")).to_batches()

    def handle(blocks: DataFrame, batch: int) -> None:
        sink.store(Place(place, pipeline.name, batch), Attempt(""), pipeline.function(blocks.select("block").mapInArrow(rows, events)), 0)

    return handle
