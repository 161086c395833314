"""The scope's cursor: told to the api after Spark itself has committed a batch."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from typing_extensions import override

from headrace.pipeline.courier import Courier
from headrace.pipeline.holdings import Holdings


class CommitListener(StreamingQueryListener):
    """Sends a cursor for each committed batch; `last` is the last one."""

    def __init__(self, courier: Courier, held: dict[int, Holdings]) -> None:
        super().__init__()
        self._courier = courier
        self._held = held
        self.last: int | None = None

    @override
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to tell."""

    @override
    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Tell the cursor of a batch that ran; a trigger that found nothing to do has no holdings."""
        progress = event.progress
        held = self._held.pop(progress.batchId, None)
        if held is None or not progress.sources:
            return
        offset: dict[str, Any] = json.loads(progress.sources[0].endOffset)
        took = progress.durationMs.get("triggerExecution")
        told = held if took is None else held.after(took / 1000)  # with what Spark itself had to do for the batch
        self._courier.commit(told.cursor(offset["seq"], progress.batchId, offset["again"]))
        self.last = progress.batchId

    @override
    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to tell."""

    @override
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to tell."""
