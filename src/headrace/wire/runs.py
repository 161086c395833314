"""Runs: one call of a pipeline. POST /execution/runs."""

from __future__ import annotations

from typing import Literal

from headrace.wire.model import Timestamp, Wire

RunState = Literal["running", "succeeded", "failed"]


class RunReport(Wire):
    """One run, now or at its end; the last report of a `run_id` counts. `seqs` are the events it took, as closed ranges."""

    run_id: str
    pipeline: str
    scope: str
    batch: int
    attempt: int = 1
    state: RunState
    started: Timestamp
    finished: Timestamp | None = None
    events: int = 0
    rows: int | None = None
    seqs: list[tuple[int, int]] = []
    error: str | None = None


class RunReports(Wire):
    """Several runs, stored in one commit."""

    runs: list[RunReport]
