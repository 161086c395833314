"""A power cut for files that this process writes: what was not synced is lost, as POSIX allows at worst.

A file has the content that it had when it was last synced. A folder has the names that it had when it was last synced.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_Node = tuple[int, int]
_EMPTY: Final = b""


class UnsyncedWrites:
    """Notes what `os.fsync` makes durable under a folder; `cut` loses the rest.

    Code that syncs by other means than `os.fsync` of this process is not seen. A file's inode is known by its number and by when it was
    last seen synced, so a number that is used again for a file that was never synced would show the content of the one before: the nodes
    are held open until the cut so that none is used again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[_Node, bytes] = {}
        self._names: dict[_Node, dict[str, _Node]] = {}
        self._held: list[int] = []
        self._fsync: Callable[[int], None] = os.fsync

    @contextmanager
    def noted(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Note each sync as long as the block lasts."""
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", self._note)
            try:
                yield
            finally:
                for descriptor in self._held:
                    os.close(descriptor)
                self._held.clear()

    def cut(self) -> list[str]:
        """Discard unsynced data; return the files and folders that are missing or shorter than before."""
        before = {path: path.stat().st_size if path.is_file() else 0 for path in self._folder.rglob("*")}
        root = _node(self._folder.stat())
        ruin = self._folder.with_name(f"{self._folder.name}.cut")
        self._restore(root, ruin)
        shutil.rmtree(self._folder)
        ruin.rename(self._folder)
        return sorted(
            str(path.relative_to(self._folder))
            for path, size in before.items()
            if not path.exists() or (size and path.stat().st_size != size)
        )

    def _note(self, descriptor: int) -> None:
        self._fsync(descriptor)
        status = os.fstat(descriptor)
        self._held.append(os.dup(descriptor))
        if stat.S_ISDIR(status.st_mode):
            names: dict[str, _Node] = {}
            for entry in os.scandir(descriptor):
                names[entry.name] = _node(entry.stat(follow_symlinks=False))
                if entry.is_dir():
                    self._held.append(os.open(entry.name, os.O_RDONLY, dir_fd=descriptor))
                    self._names.setdefault(names[entry.name], {})
            self._names[_node(status)] = names
        else:
            self._contents[_node(status)] = os.pread(descriptor, status.st_size, 0)

    def _restore(self, node: _Node, path: Path) -> None:
        if node not in self._names:
            path.write_bytes(self._contents.get(node, _EMPTY))
            return
        path.mkdir()
        for name, child in self._names[node].items():
            self._restore(child, path / name)


def _node(status: os.stat_result) -> _Node:
    return status.st_dev, status.st_ino
