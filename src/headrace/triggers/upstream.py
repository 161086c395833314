"""The description of an upstream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self

from headrace.errors import ProjectError
from headrace.triggers.modules import MODULES
from headrace.triggers.producer import SharedStreamProducer

FOLDER_STREAM: Final = "directory:"
"""What the keys of streams of files in a folder begin with: then comes the folder, then a pattern for names."""


class Upstream(ABC):
    """Where messages come from, as a user declares it: made, written down and sent without connecting."""

    @abstractmethod
    def stream_key(self) -> str:
        """Return the text that names the upstream: all watches with equal keys share one poll."""

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the keyword arguments (plain JSON) that make an equal upstream elsewhere."""

    @abstractmethod
    def producer(self) -> SharedStreamProducer:
        """Return a new producer, which connects in `open_stream`."""

    @property
    @abstractmethod
    def event_type(self) -> str:
        """The `type` of an event whose watch does not say otherwise."""

    @property
    def source(self) -> str:
        """The `source` of an event whose watch does not say otherwise."""
        return f"headrace:{self.stream_key()}"

    def relative_to(self, base: Path) -> Self:
        """Return the upstream as seen from the folder `base`, which relative paths in it start from."""
        del base
        return self


def load_upstream(classpath: str, kwargs: dict[str, Any]) -> Upstream:
    """Return the upstream that `Upstream.serialize` wrote down. Raises `ProjectError` where there is no such class."""
    MODULES.check(classpath, "The upstream")
    module, _, name = classpath.rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProjectError(
            f"The upstream {classpath!r} cannot be imported: {error}", hint="Is the package that has it installed here?"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Upstream)):
        raise ProjectError(f"{classpath!r} is not an upstream.")
    try:
        return kind(**kwargs)
    except TypeError as error:
        raise ProjectError(f"The upstream {classpath!r} cannot be made: {error}", hint="Is it the version that wrote this down?") from error
