"""The port of small files beside the tables, each of which is written as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class AtomicFiles(Protocol):
    """The files of one folder. Their names are relative to it, with slashes.

    A method returns when its change is durable, and raises `PipelineError` if it fails.
    """

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file if none has the name. Return whether it was written. Of several concurrent calls, one succeeds."""

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, in place of the one with the name. Readers see one of both as a whole."""

    def delete(self, name: str) -> None:
        """Delete a file; do nothing if it does not exist."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files directly in a folder, in order, without hidden ones."""

    def folders(self) -> Sequence[str]:
        """Return the names of the folders, in order."""

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of all files, by their name."""

    def where(self, name: str) -> str:
        """Return the path or URL of a file, for messages."""
