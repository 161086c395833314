"""Detect built-in producers. They run in the runner, because none of their code is a user's."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.triggers.base import BaseEventTrigger, BaseTrigger, has_acks
from headrace.triggers.upstream import described_upstream, is_builtin
from headrace.triggers.watch import WatchTrigger


def is_builtin_stream(kind: type[BaseEventTrigger], kwargs: dict[str, Any]) -> bool:
    """Return whether only built-in code opens the stream of a trigger."""
    if kind is WatchTrigger:
        return not described_upstream(kwargs["upstream"]).has_user_code
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
    if upstream is None or upstream.has_user_code or not all(is_builtin(f"{type(one).__module__}.") for one in (producer, upstream)):
        return None, b""
    classpath, arguments = upstream.serialize()
    return classpath, msgspec.json.encode(arguments)
