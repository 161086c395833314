"""Read the log of a Delta table: its commits, their actions, and the rows that each commit stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.pipeline.table_storage.atomic_files import AtomicFiles

LOG: Final = "_delta_log"
"""The folder of a table that has its commits."""
Actions = Sequence[dict[str, Any]]


def commits(files: AtomicFiles, table: str, version: int) -> Iterator[tuple[int, Actions]]:
    """Yield the version and actions of each commit, newest first, as far as the table's log goes back."""
    for number in range(version, -1, -1):
        data = files.read(f"{table}/{LOG}/{number:020}.json")
        if data is None:
            return
        yield number, parse_actions(data)


def parse_actions(data: bytes) -> Actions:
    """Return the actions in the file of a commit."""
    return [json.loads(line) for line in data.splitlines()]


def each(actions: Actions, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the actions of one kind."""
    return (action[kind] for action in actions if kind in action)


def stored_rows(info: Mapping[str, Any]) -> int:
    """Return the number of rows that a commit added for its run. `info` is its `commitInfo`. A merge also writes other rows again."""
    metrics = info.get("operationMetrics", {})
    return int(metrics.get("num_target_rows_inserted", metrics.get("num_added_rows", 0)))
