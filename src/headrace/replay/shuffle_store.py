"""The work folder of one replay, in which its tasks exchange data by name.

All executors must see it under the same path. An entry appears under its name by one rename, so that a task can run
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.replay.partition import stable_order

Array = npt.NDArray[Any]
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class ShuffleStore:
    """Arrays and sequences of rows, by name."""

    folder: Path

    def put(self, name: str, array: Array) -> None:
        """Store an array."""
        with self._appearing(f"{name}.npy") as draft, draft.open("wb") as file:
            np.save(file, np.ascontiguousarray(array))

    def get(self, name: str) -> Array:
        """Return an array. Only accessed parts are read."""
        array: Array = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return array

    def put_sorted(self, name: str, buckets: Array, count: int, **columns: Array) -> None:
        """Store columns sorted by bucket (0 … count - 1), so that each bucket can be read alone."""
        order = stable_order(buckets)
        self.put(f"{name}.ends", np.cumsum(np.bincount(buckets, minlength=count)))
        for column, values in columns.items():
            self.put(f"{name}.{column}", values[order])

    def get_bucket(self, name: str, bucket: int, *columns: str) -> list[Array]:
        """Return the columns of one bucket."""
        ends = self.get(f"{name}.ends")
        start, end = int(ends[bucket - 1]) if bucket else 0, int(ends[bucket])
        return [np.asarray(self.get(f"{name}.{column}")[start:end]) for column in columns]

    @contextmanager
    def writing(self, name: str, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchStreamWriter]:
        """Yield a writer of rows."""
        with self._appearing(f"{name}.arrow") as draft, pa.ipc.new_stream(str(draft), schema, options=_LZ4) as writer:
            yield writer

    def rows(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield rows in the order in which they were written, none if the name does not exist."""
        path = self.folder / f"{name}.arrow"
        if path.exists():
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
                yield from reader

    def drop(self, names: Iterable[str]) -> None:
        """Delete rows that are not read again."""
        for name in names:
            (self.folder / f"{name}.arrow").unlink(missing_ok=True)

    @contextmanager
    def _appearing(self, name: str) -> Iterator[Path]:
        draft = self.folder / f".{name}.{uuid4().hex}"
        try:
            yield draft
            draft.replace(self.folder / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
