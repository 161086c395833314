"""Servers that the tests of one process share, until a test of another group begins."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar, cast


class Closeable(Protocol):
    """A server, with the parts that end with it."""

    def close(self) -> None:
        """End it and remove its data."""
        ...


P = ParamSpec("P")
S = TypeVar("S", bound=Closeable)

_servers: dict[tuple[object, ...], Closeable] = {}
"""The running servers in the order of their starts, by the function that started them and its arguments."""


def shared_server(start: Callable[P, S]) -> Callable[P, S]:
    """Decorate a function that starts a server: it returns the running one after the first call with the same arguments."""

    @wraps(start)
    def shared(*args: P.args, **kwargs: P.kwargs) -> S:
        key = (start, args, *kwargs.items())
        if key not in _servers:
            _servers[key] = start(*args, **kwargs)
        return cast(S, _servers[key])

    return shared


@atexit.register
def close_shared_servers() -> None:
    """End the running servers, the last one first."""
    while _servers:
        _servers.popitem()[1].close()
