"""Detect built-in producers. They run in the runner, because none of their code is a user's."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.triggers.base import BaseEventTrigger, BaseTrigger, has_acks
from headrace.triggers.upstream import is_builtin
from headrace.triggers.watch import WatchTrigger


def is_builtin_stream(kind: type[BaseEventTrigger], kwargs: dict[str, Any]) -> bool:
    """Return whether only built-in code opens the stream of a trigger."""
    if kind is WatchTrigger:
        return is_builtin(kwargs["upstream"]["classpath"])
    return is_builtin(f"{kind.__module__}.")


def describe_builtin_upstream(kind: type[BaseTrigger], kwargs: dict[str, Any]) -> tuple[str | None, bytes]:
    """Create the producer of a trigger's stream. Return the class path and the arguments (JSON) of its upstream, or None
    if it is a user's.

    Raises any error of the user's code.
    """
    if not (issubclass(kind, BaseEventTrigger) and has_acks(kind)):
        return None, b""
    producer = kind.create_shared_stream_producer(kwargs)
    upstream = getattr(producer, "upstream", None)
    if upstream is None or not is_builtin(f"{type(producer).__module__}.") or not is_builtin(f"{type(upstream).__module__}."):
        return None, b""
    classpath, arguments = upstream.serialize()
    return classpath, msgspec.json.encode(arguments)
