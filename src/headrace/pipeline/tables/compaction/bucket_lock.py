"""The lock of a table in a bucket: an object, which a killed compaction leaves behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.tables.compaction.table_lock import TableBusy


@contextmanager
def bucket_lock(tables: ObjectFolder, table: str) -> Iterator[None]:
    """Keep other compactions out of the table. The lock has no time limit: one that is paused for longer would commit beside its successor.

    Raises:
        TableBusy: Another one has begun.
    """
    lock = f".compaction/{table}.lock"
    holder = f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if not tables.create(lock, holder.encode()):
        holder = (tables.read(lock) or b"a process that has ended meanwhile").decode(errors="replace")
        raise TableBusy(
            f"Another compaction of the table {table!r} has begun: {holder}.",
            hint=f"Wait until it has ended. If it was killed, delete the object {tables.where(lock)}.",
        )
    try:
        yield
    finally:
        tables.delete(lock)
