"""A file system of its own for a folder, whose power can be cut: what was written to it and not synced is then lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, Self

_MEGABYTES: Final = 4096
_OPTIONS: Final = "loop,data=writeback,noauto_da_alloc,commit=300"
"""As little as ext4 promises: it writes nothing early of its own accord, and no rename brings the content of its file along."""


def missing() -> str | None:
    """Return what this machine lacks for a `Volume`, None if nothing."""
    if os.geteuid() != 0:
        return "only root may mount a file system"
    if not Path("/dev/loop-control").exists():
        return "there is no loop device"
    return next((f"there is no {tool}" for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None), None)


class Volume:
    """An ext4 file system in a file beside `folder`, mounted there for as long as the block lasts.

    A cut copies the file while the kernel still has unsynced writes for it, and mounts the copy. Processes that use the folder must
    have ended before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._images = [folder.with_name(f"{folder.name}.{number}.img") for number in range(2)]

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        with self._images[0].open("wb") as image:
            image.truncate(_MEGABYTES * 1024 * 1024)
        _run("mkfs.ext4", "-q", "-F", self._images[0])
        self._mount()
        shutil.rmtree(self.folder / "lost+found")
        _run("sync", "-f", self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        _run("umount", self.folder)

    def cut(self) -> list[Path]:
        """Discard unsynced data; return the files that are missing or shorter than before."""
        before = {path: path.stat().st_size for path in self.folder.rglob("*") if path.is_file()}
        _run("cp", "--sparse=always", self._images[0], self._images[1])
        _run("umount", self.folder)
        self._images.reverse()
        self._mount()
        return sorted(path for path, size in before.items() if not path.exists() or path.stat().st_size < size)

    def _mount(self) -> None:
        _run("mount", "-o", _OPTIONS, self._images[0], self.folder)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, timeout=120)
