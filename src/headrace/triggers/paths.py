"""Where relative paths in a project start: in the project file's folder, wherever the process was started."""

from __future__ import annotations

from pathlib import Path


class ProjectFolder:
    """The folder of the project that this process has loaded, if it has loaded one."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def set(self, folder: Path | None) -> None:
        """Let relative paths start in `folder`; None: where the process runs."""
        self._folder = folder

    def resolve(self, path: Path) -> Path:
        """Return `path`, absolute and without links, as all of the project's processes see it; unchanged where no project is loaded."""
        return path if self._folder is None else (self._folder / path).resolve()

    def absolute(self, path: Path) -> Path:
        """Return `path`, absolute, with its links."""
        return path.absolute() if self._folder is None else self._folder / path


PROJECT_FOLDER = ProjectFolder()
"""That of this process; whoever loads a project sets it."""
