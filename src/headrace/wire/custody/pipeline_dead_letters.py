"""Dead letters of pipelines. GET /api/v1/pipeline-dead-letters; POST …/redrive and …/discard."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel

PipelineDeadLetterState = Literal["open", "redriven", "discarded"]
PipelineDeadLetterAction = Literal["redrive", "discard"]


class PipelineDeadLetter(WireModel):
    """The events of a run whose last attempt failed. `seqs` are closed ranges. `run_id` is that of the last attempt.

    Calls accept `short` in place of the id.
    """

    id: str
    short: str = ""
    project: str
    scope: str
    pipeline: str
    run_id: str
    batch: int
    events: int
    seqs: list[tuple[int, int]]
    error: str
    attempts: int
    state: PipelineDeadLetterState
    received: Timestamp
    acted: Timestamp | None = None


class PipelineDeadLetterList(WireModel):
    """The newest dead letters."""

    dead_letters: list[PipelineDeadLetter]


class PipelineDeadLetterSelection(WireModel):
    """The selected dead letters: these ids, or all open ones of a pipeline."""

    ids: list[str] = Field(default=[], max_length=1000)
    pipeline: str | None = None
    limit: int = Field(default=1000, ge=1, le=1000)


class PipelineDeadLetterActionResult(WireModel):
    """The number of changed dead letters, and the unknown ids."""

    count: int
    unknown: list[str] = []
