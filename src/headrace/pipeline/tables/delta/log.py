"""Read the log of a Delta table: its commits, their actions, and the rows that each commit stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Actions = Sequence[dict[str, Any]]


def commits(folder: Path, version: int) -> Iterator[tuple[int, Actions]]:
    """Yield the version and actions of each commit, newest first, as far as the table's log goes back."""
    for number in range(version, -1, -1):
        try:
            yield number, read_actions(folder / "_delta_log" / f"{number:020}.json")
        except FileNotFoundError:
            return


def read_actions(entry: Path) -> Actions:
    """Return the actions of a commit."""
    return [json.loads(line) for line in entry.read_text().splitlines()]


def remove_empty_creation(folder: Path) -> None:
    """Remove the log of a table whose creation has no bytes: a power cut lost it before it was synced, and so before any row was reported.

    A log with later commits that have bytes stays as it is.
    """
    log = folder / "_delta_log"
    try:
        is_empty = (log / f"{0:020}.json").stat().st_size == 0
    except FileNotFoundError:
        return
    if is_empty:
        entries = [path for path in log.glob("*.json") if path.stem.isdecimal()]
        if not any(path.stat().st_size for path in entries):
            for path in entries:
                path.unlink(missing_ok=True)


def each(actions: Actions, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the actions of one kind."""
    return (action[kind] for action in actions if kind in action)


def stored_rows(info: Mapping[str, Any]) -> int:
    """Return the number of rows that a commit added for its run. `info` is its `commitInfo`. A merge also writes other rows again."""
    metrics = info.get("operationMetrics", {})
    return int(metrics.get("num_target_rows_inserted", metrics.get("num_added_rows", 0)))
