"""Client libraries of upstreams. Each is in an extra of the package, so that a module imports its library when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headrace.errors import UpstreamError


def import_library(what: str, extra: str, module: str, *others: str) -> Any:
    """Import modules of a client library, and return the first.

    `what` is the subject of the error: "Kafka cannot be read: its client library". `extra` is the extra of Headrace that installs it.

    Raises:
        UpstreamError: The library is not installed.
    """
    try:
        library = import_module(module)
        for other in others:
            import_module(other)
    except ImportError as error:
        raise missing_library(f"{what} is not installed", extra, error) from error
    return library


def missing_library(what: str, extra: str, error: ImportError) -> UpstreamError:
    """Return the error for a part of a client library that is not installed. `what` names what failed."""
    return UpstreamError(f"{what}: {error}.", hint=f"Run: pip install 'headrace[{extra}]'")
