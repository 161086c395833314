"""The event log as a streaming source of Spark: `spark.readStream.format("headrace")`.

It gives offsets and no rows: the events the driver reads itself, by their seqs. So Spark's part of a batch is small, and what it does
best: it numbers the batches, writes down their bounds before they begin and that they ended, and runs one that was cut off once more with
the bounds that it had. The source runs on the driver alone; no executor needs what it imports, nor reaches the api.

An offset is `{"seq", "again", "wall", "clock"}`: the last event and the last redelivery read, the moment that was decided (µs), and the
scope's clock (µs). The clock goes forward with the wall clock, but by at most MAX_STEP a batch, so that neither downtime nor catching up
makes an event look lost; and because it is in the offset, a batch that runs again sees the same time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import LongType, StructField, StructType
from typing_extensions import override

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiUnavailable, PipelineError
from headrace.pipeline.log_reader import pauses
from headrace.wire.events import CLOCK_STEP

FORMAT: Final = "headrace"

MAX_STEP: Final = int(CLOCK_STEP * 1_000_000)
"""The most that the scope's clock goes forward in one batch (µs)."""

_POLL: Final = 0.5
"""Seconds for which the api is asked to wait for news; a query that is told to stop may take as long."""

Offset: TypeAlias = dict[str, int]
_NOTHING: Final = StructType([StructField("seq", LongType())])


class LogSource(DataSource):
    """Bounds of the whole log.

    Options: `api_url`, `token_file`, `scope`, `max_rows` (a batch), `tick` (µs after which an idle clock goes on), and where a new
    checkpoint begins: `begin` (a seq) and `again` (a redelivery).
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return a schema, as Spark wants one."""
        return _NOTHING

    @override
    def simpleStreamReader(self, schema: StructType) -> LogBounds:
        """Return what bounds the batches of the whole log."""
        del schema
        return LogBounds(dict(self.options))


class LogBounds(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Bounds the batches. An api that is away is waited for, never an error."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._max_rows = int(options["max_rows"])
        self._tick = int(options["tick"])
        self._target: tuple[int, int] | None = None
        self._client: PipelineClient | None = None

    @override
    def initialOffset(self) -> Offset:
        """Return the offset before the first event, where the scope's clock begins."""
        return {"seq": int(self._options.get("begin", "0")), "again": int(self._options.get("again", "0")), "wall": _now(), "clock": 0}

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the present head of the log, then end."""
        for pause in pauses():
            try:
                head = self._api().news()
            except ApiUnavailable:
                time.sleep(pause)
            else:
                self._target = (head.head, head.again)
                return

    @override
    def read(self, start: Offset) -> tuple[Iterator[tuple[int]], Offset]:
        """Return where the next batch ends: `start` when there is nothing to do, or when the api is away just now."""
        try:
            head, again = self._head(start)
            now = _now()
            end = min(head, start["seq"] + self._max_rows)
            if (end, again) == (start["seq"], start["again"]) and not self._tick_is_due(start, now):
                return iter(()), start
        except ApiUnavailable:
            time.sleep(_POLL)  # the driver's heartbeat says that the api is away
            return iter(()), start
        offset = {"seq": end, "again": again, "wall": now, "clock": start["clock"] + max(0, min(now - start["wall"], MAX_STEP))}
        return iter(()), offset

    @override
    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[int]]:
        """Return no rows."""
        return iter(())

    def stop(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _head(self, start: Offset) -> tuple[int, int]:
        """Return the last event and the last redelivery; once there are new ones, or after a while."""
        if self._target is not None:
            return max(self._target[0], start["seq"]), max(self._target[1], start["again"])
        wait = min(_POLL, self._tick / 1_000_000)
        head = self._api().news(after=start["seq"], again=start["again"], wait=wait)
        if head.head < start["seq"]:
            raise PipelineError(
                f"The event log ends at {head.head}, but this scope has read it up to {start['seq']}: the database was replaced.",
                hint="Bring the database back, or begin anew with: headrace pipeline --reset-order",
            )
        return head.head, max(head.again, start["again"])

    def _tick_is_due(self, start: Offset, now: int) -> bool:
        """Whether the clock must go on although nothing came: something may be waiting, or held, and long enough.

        A wall clock that was set back is taken as it is now: the scope's clock goes on from there.
        """
        if self._target is not None or 0 <= now - start["wall"] < self._tick:
            return False
        cursor = self._api().cursor(self._options["scope"])
        held = 0 if cursor.report is None else cursor.report.held
        return cursor.cursor < start["seq"] or cursor.waiting > 0 or held > 0

    def _api(self) -> PipelineClient:
        if self._client is None:
            self._client = PipelineClient(self._options["api_url"], token_file=Path(self._options["token_file"]))
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}


def _now() -> int:
    return time.time_ns() // 1000
