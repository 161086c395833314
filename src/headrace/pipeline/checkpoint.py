"""A scope's checkpoint: Spark's own record of its batches, what the ordering holds beside it, and which log it is of."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from headrace.client.pipeline import PipelineClient
from headrace.errors import PipelineError
from headrace.pipeline.bounds import Begin
from headrace.pipeline.durable_files import sync_folder
from headrace.pipeline.ordering_file import OrderingFiles
from headrace.wire.scope_leases import ScopeLease

DEFINITION: Final = {"ordering": "kernel", "version": 3}
"""What decides whether a checkpoint can be gone on with. Pipelines, lookback and batching may change at any time."""

_HINT: Final = "Begin anew with: headrace pipeline --reset-order --from now (or --from SEQ, the first event to handle)."


class Checkpoint(NamedTuple):
    """What stays as long as the checkpoint: the query's id, and where its first batch begins."""

    query_id: str
    begin: Begin


def open_checkpoint(folder: Path, lease: ScopeLease, begin: Callable[[], Begin], *, reset: bool) -> Checkpoint:
    """Make the checkpoint, asking `begin` where to begin, or go on with it. `reset` puts what there is aside.

    Raises:
        PipelineError: It is of another version of the ordering or of another log, or the scope went on without it.
    """
    path = folder / "metadata"
    if reset or not path.exists():
        if lease.cursor.cursor and not reset:
            raise PipelineError(
                f"The scope {lease.scope!r} has read the log up to event {lease.cursor.cursor}, and {folder} has no checkpoint of it.",
                hint=f"Start the pipeline with the --home that it had. {_HINT}",
            )
        first = begin()  # it may refuse, and then everything stays as it is
        if path.exists():
            folder.rename(_aside(folder))
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "definition", DEFINITION)
        _write(folder / "begin", first._asdict())
        _write(path, {"id": str(uuid4()), "log": lease.log})
    elif _read(folder / "definition") != DEFINITION:
        raise PipelineError(f"The checkpoint {folder} was made by another version, which orders in another way.", hint=_HINT)
    metadata = json.loads(path.read_text())
    if metadata["log"] != lease.log:
        raise PipelineError(
            f"The checkpoint {folder} is of the event log {metadata['log']}, and the api serves the event log {lease.log}.",
            hint=f"Bring the database back that it belongs to. {_HINT}",
        )
    return Checkpoint(metadata["id"], Begin(**json.loads((folder / "begin").read_text())))


def check_log(client: PipelineClient, files: OrderingFiles, lease: ScopeLease) -> None:
    """Compare what the scope has read with the log and with the API's cursor, where the checkpoint has ended a batch.

    Raises:
        PipelineError: The database was restored from a backup, or another driver went on from another checkpoint.
    """
    saved = files.newest()
    if saved is None:
        return
    if saved.read < lease.cursor.cursor:
        raise PipelineError(
            f"This checkpoint has read the log up to event {saved.read}, and the scope {lease.scope!r} up to {lease.cursor.cursor}: "
            "another process went on from another checkpoint.",
            hint=f"Start the pipeline with the --home that it had. {_HINT}",
        )
    log = client.head()
    if saved.last_id is None or saved.last_seq < log.first:
        return
    found = client.pick([(saved.last_seq, saved.last_seq)]) if saved.last_seq <= log.head else None
    if found is None or found.column("id").to_pylist() != [saved.last_id]:
        raise PipelineError(
            f"Event {saved.last_seq} of the log is not the one that the scope {lease.scope!r} has read there: the database was replaced "
            "or restored from a backup.",
            hint=f"Bring the database back that it belongs to. {_HINT}",
        )


def _aside(folder: Path) -> Path:
    """Return a name that is free."""
    number = 1
    while (free := folder.with_name(f"{folder.name}.before-{number}")).exists():
        number += 1
    return free


def _read(path: Path) -> object:
    return json.loads(path.read_text()) if path.exists() else None


def _write(path: Path, value: object) -> None:
    """Write a file durably; it is there wholly or not at all."""
    draft = path.with_name(f".{path.name}.new")
    with draft.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)
