"""Dead letters of pipelines. GET /api/v1/pipeline-letters; POST …/redrive and …/discard."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel

PipelineLetterState = Literal["open", "redriven", "discarded"]
PipelineLetterAction = Literal["redrive", "discard"]


class PipelineLetter(WireModel):
    """The events of one run that failed for the last time. `seqs` are closed ranges; `run_id` is the last attempt's.

    `short` stands for the id wherever an id is asked for.
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
    state: PipelineLetterState
    received: Timestamp
    acted: Timestamp | None = None


class PipelineLetters(WireModel):
    """The newest of them."""

    letters: list[PipelineLetter]


class ActOnPipelineLetters(WireModel):
    """Which ones: by their ids, or all open ones of a pipeline."""

    ids: list[str] = Field(default=[], max_length=1000)
    pipeline: str | None = None
    limit: int = Field(default=1000, ge=1, le=1000)


class PipelineLettersActed(WireModel):
    """How many were changed, and which ids there are not."""

    count: int
    unknown: list[str] = []
