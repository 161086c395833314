"""The files of Iceberg tables, synced to the disk before a commit names them. pyiceberg loads `DurableFileIO` by its name."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from headrace.durable_files import sync, sync_folder


class DurableFileIO(PyArrowFileIO):
    """Syncs each local file, and the folders above it up to that of the tables, when it is closed. Object stores need no sync."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        kind = _DurableFile if scheme == "file" else PyArrowFile
        return kind(location=location, path=path, fs=self.fs_by_scheme(scheme, netloc))


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        stream: Any = _DurableStream(super().create(overwrite), Path(self._path))
        durable: OutputStream = stream
        return durable


class _DurableStream:
    """A stream to a file that is synced when it is closed. A file that an error left incomplete is not synced."""

    def __init__(self, stream: OutputStream, path: Path) -> None:
        self._stream = stream
        self._path = path
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.closed = True
            self._stream.close()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._stream.close()
        sync(self._path)
        for folder in self._path.parents:  # those of partitions, data or metadata, the table, the tables
            sync_folder(folder)
            if (folder / "metadata").is_dir():
                sync_folder(folder.parent)
                return
