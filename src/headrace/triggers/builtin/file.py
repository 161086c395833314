"""A trigger that waits for a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.errors import ProjectError
from headrace.triggers.base import BaseTrigger
from headrace.triggers.builtin.folder_watcher import folders
from headrace.triggers.event import TriggerEvent
from headrace.triggers.project_paths import PROJECT_FOLDER
from headrace.wire.base import rfc3339


class FileTrigger(BaseTrigger):
    """Fires once the file exists: `{"path", "size", "modified"}`. Add the file by rename, so that it is complete.

    A relative path starts in the project's folder. The kernel reports the file. On a network file system, set `poll`: the seconds between
    two checks.
    """

    def __init__(self, path: str | Path, *, poll: float | None = None) -> None:
        super().__init__()
        if poll is not None and poll <= 0:
            raise ProjectError(f"A FileTrigger cannot look every {poll:g} seconds.", hint="Give poll= in seconds, more than 0.")
        self.path = PROJECT_FOLDER.absolute(Path(path))
        self.poll = poll

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the keyword arguments."""
        return f"{__name__}.FileTrigger", {"path": str(self.path), "poll": self.poll}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event when the file exists."""
        while (event := self._event_if_exists()) is None:
            if self.poll is not None:
                await asyncio.sleep(self.poll)
            else:
                await self._wait_for_change()
        yield event

    def _event_if_exists(self) -> TriggerEvent | None:
        try:
            status = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        modified = datetime.fromtimestamp(status.st_mtime, UTC)
        return TriggerEvent({"path": str(self.path), "size": status.st_size, "modified": rfc3339(modified)})

    async def _wait_for_change(self) -> None:
        """Wait until the file may exist. Wait for missing folders on its path one after the other."""
        folder = self.path.parent
        while not folder.is_dir():
            folder = folder.parent
        target = self._below(folder)
        with folders().watching(folder) as changed:
            while folder.is_dir() and not target.exists():
                await changed()

    def _below(self, folder: Path) -> Path:
        """Return the name to wait for in `folder`: the file, or the next folder on its path."""
        return folder / self.path.relative_to(folder).parts[0]
