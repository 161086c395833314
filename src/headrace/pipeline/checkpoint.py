"""A scope's checkpoint: Spark's own record of its batches, what the ordering holds beside it, and which way of ordering it is of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from headrace.errors import PipelineError
from headrace.pipeline.bounds import Begin

DEFINITION: Final = {"ordering": "kernel", "version": 2}
"""What decides whether a checkpoint can be gone on with. Pipelines, lookback and batching may change at any time."""

_HINT: Final = "Begin anew with: headrace pipeline --reset-order --from now (or --from SEQ, the first event to handle)."


class Checkpoint(NamedTuple):
    """What stays as long as the checkpoint: the query's id, and where its first batch begins."""

    query_id: str
    begin: Begin


def open_checkpoint(folder: Path, begin: Callable[[], Begin], *, reset: bool) -> Checkpoint:
    """Make the checkpoint, asking `begin` where to begin, or go on with it. `reset` puts what there is aside.

    Raises:
        PipelineError: It is of another version of the ordering.
    """
    path = folder / "metadata"
    if reset and path.exists():
        folder.rename(_aside(folder))
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "definition", DEFINITION)
        _write(folder / "begin", begin()._asdict())
        _write(path, {"id": str(uuid4())})
    elif _read(folder / "definition") != DEFINITION:
        raise PipelineError(f"The checkpoint {folder} was made by another version, which orders in another way.", hint=_HINT)
    return Checkpoint(json.loads(path.read_text())["id"], _begin(json.loads((folder / "begin").read_text())))


def _begin(kept: int | dict[str, int]) -> Begin:
    """Return where a checkpoint begins; those of earlier versions name the event only."""
    return Begin(kept) if isinstance(kept, int) else Begin(**kept)


def _aside(folder: Path) -> Path:
    """Return a name that is free."""
    number = 1
    while (free := folder.with_name(f"{folder.name}.before-{number}")).exists():
        number += 1
    return free


def _read(path: Path) -> object:
    return json.loads(path.read_text()) if path.exists() else None


def _write(path: Path, value: object) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(json.dumps(value))
    draft.replace(path)
