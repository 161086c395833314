"""The identity of a run's rows: log, scope, incarnation, pipeline and batch, and a digest of the events.

Each file of a Parquet table, commit of a Delta table and snapshot of an Iceberg table has it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from shlex import quote
from typing import Any, Final
from uuid import UUID, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import RunConflict

RUN_KEY: Final = "headrace.run"
"""The key of the identity, as JSON, in the metadata of a Parquet file, a Delta commit and an Iceberg snapshot."""

DIGEST_BYTES: Final = 16
_DIGEST_COLUMNS: Final = ("seq", "source", "id")


@dataclass(frozen=True, slots=True)
class Writer:
    """A scope that writes a table, and the log that it reads."""

    scope: str
    log: str


@dataclass(frozen=True, slots=True)
class RunKey:
    """One run of a pipeline within its scope, and the table for its rows. `part` distinguishes the runs of one batch."""

    table: str
    pipeline: str
    batch: int
    part: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a run: the digest of the run's events, its number, the id under which it is reported, and the version of the code."""

    digest: str
    number: int = 1
    run_id: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The stored rows of a run: the attempt that stored them, and their number."""

    attempt: int
    rows: int


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The identity of a run's rows, as stored in a table."""

    log: str
    scope: str
    incarnation: str
    pipeline: str
    batch: int
    part: str
    digest: str
    attempt: int
    run_id: str
    code: str = ""

    @classmethod
    def parsed(cls, metadata: str | None) -> RunIdentity | None:
        """Return the identity of a file or commit, or None if it has none."""
        try:
            return cls(**_parsed(metadata))
        except TypeError:
            return None

    def id_of(self, attempt: int) -> str:
        """Return the id under which an attempt at this run is reported."""
        name = f"{self.pipeline}/{self.part}" if self.part else self.pipeline
        return run_id(self.incarnation, name, self.batch, attempt)


@dataclass(frozen=True, slots=True)
class Origin:
    """The log and the scope whose runs a sink stores. A reset scope has another `incarnation`, and begins with batch 0."""

    log: str
    scope: str
    incarnation: str

    @property
    def writer(self) -> Writer:
        """The writer that a table records for this origin."""
        return Writer(self.scope, self.log)

    def key(self, *parts: str | int) -> str:
        """Return a name of fixed length for these parts of this origin. It is safe in any file system."""
        text = json.dumps([self.log, self.scope, self.incarnation, *parts])
        return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()

    def metadata(self, key: RunKey, attempt: Attempt) -> str:
        """Return the identity of the rows that this attempt stores, as JSON."""
        tried = {"digest": attempt.digest, "attempt": attempt.number, "run_id": attempt.run_id, "code": attempt.code}
        return json.dumps(self._run(key) | tried)

    def is_of(self, key: RunKey, metadata: str | None) -> bool:
        """Return whether the metadata of a file or commit is that of this run."""
        stored = _parsed(metadata)
        return {name: stored.get(name) for name in self._run(key)} == self._run(key)

    def check(self, key: RunKey, digest: str, metadata: str | None, where: str) -> int:
        """Compare the identity found at `where` with the run; return the number of the attempt that stored it.

        Raises:
            RunConflict: The rows are of other events, or of another run.
        """
        stored = _parsed(metadata)
        if not self.is_of(key, metadata):
            raise RunConflict(
                f"{where} has the place of batch {key.batch} of the pipeline {key.pipeline!r}, and does not say that it is this run.",
                hint="Another program wrote it. Move it out of the table, and start the pipeline again.",
            )
        if stored.get("digest") != digest:
            raise RunConflict(
                f"The table {key.table!r} has rows of other events for batch {key.batch} of the pipeline {key.pipeline!r}: "
                f"{where} was made from events with the digest {stored.get('digest')}, the batch has {digest}.",
                hint="The database is older than the table. Restore a newer one, or reset the scope with: "
                f"headrace scopes reset {quote(self.scope)} --from SEQ (the first event that the table does not have).",
            )
        return int(stored["attempt"])

    def _run(self, key: RunKey) -> dict[str, Any]:
        run: dict[str, Any] = {"log": self.log, "scope": self.scope, "incarnation": self.incarnation}
        return run | {"pipeline": key.pipeline, "batch": key.batch, "part": key.part}


def run_id(incarnation: str, name: str, batch: int, attempt: int) -> str:
    """Return the id of an attempt at a run of a scope; `name` is that of the run within its batch. The same attempt has the same id."""
    return str(uuid5(UUID(incarnation), f"{name}/{batch}/{attempt}"))


def digest_of(events: pa.Table) -> str:
    """Return a digest of the events (columns seq, source, id) in their order. Chunk boundaries do not affect it."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for name in _DIGEST_COLUMNS:
        column = events.column(name)
        if not pa.types.is_string(column.type):
            digest.update(column.to_numpy())
            continue
        digest.update(pc.binary_length(column).to_numpy())
        for chunk in column.chunks:
            digest.update(_text(chunk))
    return digest.hexdigest()


def _text(chunk: pa.StringArray) -> memoryview:
    """Return the bytes of a chunk without nulls, one value after the other."""
    if not len(chunk):
        return memoryview(b"")
    _, offsets, values = chunk.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(chunk) + 1, 4 * chunk.offset)
    return memoryview(values or b"")[bounds[0] : bounds[-1]]


def _parsed(metadata: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(metadata) if metadata else None
    except ValueError:
        fields = None
    return fields if isinstance(fields, dict) else {}
