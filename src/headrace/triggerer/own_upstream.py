"""Which producers are Headrace's own: they run in the runner, as none of a user's code does."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.triggers.base import BaseEventTrigger, BaseTrigger, has_acks
from headrace.triggers.upstream import is_own
from headrace.triggers.watch import WatchTrigger


def is_own_stream(kind: type[BaseEventTrigger], kwargs: dict[str, Any]) -> bool:
    """Return whether only code of Headrace's own opens the stream of a trigger."""
    if kind is WatchTrigger:
        return is_own(kwargs["upstream"]["classpath"])
    return is_own(f"{kind.__module__}.")


def own_upstream(kind: type[BaseTrigger], kwargs: dict[str, Any]) -> tuple[str | None, bytes]:
    """Make the producer of a trigger's stream; return the class path and the arguments (JSON) of the upstream where that is Headrace's own.

    Raises what the user's code raises.
    """
    if not (issubclass(kind, BaseEventTrigger) and has_acks(kind)):
        return None, b""
    producer = kind.create_shared_stream_producer(kwargs)
    upstream = getattr(producer, "upstream", None)
    if upstream is None or not is_own(f"{type(producer).__module__}.") or not is_own(f"{type(upstream).__module__}."):
        return None, b""
    classpath, arguments = upstream.serialize()
    return classpath, msgspec.json.encode(arguments)
