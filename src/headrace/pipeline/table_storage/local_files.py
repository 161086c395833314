"""Small files in a folder of a disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from headrace.durable_files import create, replace_file, sync, sync_folder
from headrace.errors import PipelineError


class LocalFiles:
    """The files of one folder; see `AtomicFiles`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PipelineError(
                f"The file {self.where(name)} cannot be read: {error}", hint="Restore it from a backup of the table."
            ) from error

    def create(self, name: str, data: bytes) -> bool:
        """Write a file if none has the name, through a draft. Return whether it was written."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.stem}.{uuid4().hex}")
        try:
            draft.write_bytes(data)
            sync(draft)
            created = create(path, draft)
        finally:
            draft.unlink(missing_ok=True)
        self._sync(path.parent)
        return created

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, in place of the one with the name."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
        self._sync(path.parent.parent)

    def delete(self, name: str) -> None:
        """Delete a file; do nothing if it does not exist."""
        path = self._root / name
        with suppress(FileNotFoundError):
            path.unlink()
            sync_folder(path.parent)

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files directly in a folder, in order, without hidden ones."""
        return sorted(path.name for path in (self._root / folder).glob("[!.]*") if path.is_file())

    def folders(self) -> Sequence[str]:
        """Return the names of the folders, in order."""
        return sorted(path.name for path in self._root.iterdir() if path.is_dir())

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of all files, by their name."""
        sizes = {}
        for path in self._root.rglob("*"):
            with suppress(FileNotFoundError):  # removed meanwhile
                if path.is_file():
                    sizes[path.relative_to(self._root).as_posix()] = path.stat().st_size
        return sizes

    def where(self, name: str) -> str:
        """Return the path of a file."""
        return str(self._root / name)

    def _sync(self, folder: Path) -> None:
        """Sync the lists of files of a folder and of the folders around it, up to the root."""
        while True:
            sync_folder(folder)
            if folder in (self._root, self._root.parent):
                return
            folder = folder.parent
