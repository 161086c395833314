"""The scope's cursor: told to the api after Spark itself has committed a batch."""

from __future__ import annotations

import json
import threading
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
from headrace.pipeline.routing import Holdings
from headrace.wire.events import Cursor


class CommitListener(StreamingQueryListener):
    """Sends a cursor for each committed batch; `committed` tells a waiting thread that one was."""

    def __init__(self, courier: Courier, held: dict[int, Holdings]) -> None:
        super().__init__()
        self._courier = courier
        self._held = held
        self.committed = threading.Event()

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
        self._courier.commit(
            Cursor(
                cursor=offset["seq"],
                batch=progress.batchId,
                ordered=held.position,
                waiting=held.waiting,
                lost=held.lost,
                late=held.late,
                cycles=held.cycles,
            )
        )
        self.committed.set()

    @override
    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to tell."""

    @override
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to tell."""
