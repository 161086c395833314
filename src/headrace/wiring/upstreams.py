"""The process that shows the next messages of an upstream of a project, or what a seek would move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.core.values.text import describe_error
from headrace.errors import HeadraceError, MalformedEvent, ProjectError, StreamError, UsageError
from headrace.project import Project
from headrace.settings import Settings
from headrace.sources.peeks.peek import PeekRequest, peek_upstream
from headrace.sources.seeks.seek import LanePreview, preview_seek
from headrace.sources.seeks.target import SeekTarget
from headrace.triggers.base import BaseEventTrigger, has_acks, stream_name
from headrace.triggers.raw_event import Message, RawEvent
from headrace.triggers.upstream import Upstream
from headrace.triggers.watch import WatchTrigger
from headrace.wire.status.upstreams import PeekedMessage, PeekedMessages, SeekPreview, SeekPreviewLane
from headrace.wiring.project import read_project
from headrace.wiring.stored_connections import stored_connections

PEEK = "headrace upstreams peek"
SEEK = "headrace upstreams seek"
MAX_SECONDS = 40.0
"""Time limit of a look at a system. Each system has shorter limits of its own."""

R = TypeVar("R")


def peek_messages(settings: Settings, key: Callable[[], str], name: str, request: PeekRequest) -> PeekedMessages:
    """Return the next messages of the project's upstream `name`: the name of its stream, or of a trigger that reads it.

    `key` returns the deployment key, if a connection is stored in the API.

    Raises:
        UsageError: The project has no such upstream.
        ProjectError: The project file cannot be imported.
        HeadraceError: The upstream cannot be peeked, or its system does not answer.
    """
    stream, upstream = find_upstream(read_project(settings), name)
    if upstream is None:
        raise UsageError(f"The upstream {stream} cannot be peeked: it is not built in.", hint="Read its system with its own tools.")
    with stored_connections(settings, key, PEEK):
        peeked = asyncio.run(_limited(upstream, peek_upstream(upstream, request)))
    return PeekedMessages(stream=stream, messages=[_message(raw) for raw in peeked.messages], notes=list(peeked.notes))


def preview(settings: Settings, key: Callable[[], str], name: str, target: SeekTarget) -> SeekPreview:
    """Return what a seek of the project's upstream `name` would move. The arguments are those of `peek_messages`.

    Raises:
        UsageError: The project has no such upstream.
        ProjectError: The project file cannot be imported.
        HeadraceError: The upstream cannot seek, the target does not fit it, or its system does not answer.
    """
    stream, upstream = find_upstream(read_project(settings), name)
    if upstream is None:
        raise UsageError(f"The upstream {stream} cannot seek: it is not built in.", hint="Move its reader with the tools of its system.")
    with stored_connections(settings, key, SEEK):
        lanes = [_lane(one) for one in asyncio.run(_limited(upstream, preview_seek(upstream, target)))]
    skipped, read_again = sum(one.skipped for one in lanes), sum(one.read_again for one in lanes)
    return SeekPreview(stream=stream, lanes=lanes, skipped=skipped, read_again=read_again)


def _lane(one: LanePreview) -> SeekPreviewLane:
    skipped, read_again = max(0, one.position - one.now), max(0, one.now - one.position)
    if one.messages is not None:
        skipped, read_again = (one.messages, 0) if skipped else (0, one.messages)
    positions = {name: value for name, value in one._asdict().items() if name != "messages"}
    return SeekPreviewLane(**positions, skipped=skipped, read_again=read_again)


def find_upstream(project: Project, name: str) -> tuple[str, Upstream | None]:
    """Return the stream of this name or of the trigger of this name, and its upstream, or None for a producer of a user.

    The name of a shard stands for the whole upstream.

    Raises:
        UsageError: There is no such stream or trigger, or the trigger polls alone.
    """
    streams: dict[str, BaseEventTrigger] = {}
    for trigger_name, trigger in project.triggers.items():
        key = trigger.shared_stream_key()
        stream = None if key is None else stream_name(key)
        if stream is None:
            if trigger_name == name:
                raise UsageError(f"The trigger '{name}' has no upstream: it polls alone.")
            continue
        streams.setdefault(stream, trigger)
        parts = trigger.split() if isinstance(trigger, WatchTrigger) else ()
        if name in (trigger_name, stream, *(stream_name(part.shared_stream_key()) for part in parts)):
            return stream, _upstream(trigger)
    names = ", ".join(streams) or "none"
    raise UsageError(f"The project {project.name} has no upstream '{name}'.", hint=f"Name one of these, or a trigger: {names}.")


def _upstream(trigger: BaseEventTrigger) -> Upstream | None:
    if isinstance(trigger, WatchTrigger):
        return trigger.upstream
    if not has_acks(type(trigger)):
        return None
    try:
        return type(trigger).create_shared_stream_producer(trigger.serialize()[1]).upstream
    except HeadraceError:
        raise
    except Exception as error:
        raise ProjectError(f"The producer of the trigger cannot be created: {describe_error(error)}") from error


async def _limited(upstream: Upstream, request: Awaitable[R]) -> R:
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return await request
    except TimeoutError:
        raise StreamError(
            f"The upstream {upstream.stream_key()} has not answered within {MAX_SECONDS:g} s.", hint="Is its system running?"
        ) from None


def _message(raw: RawEvent) -> PeekedMessage:
    malformed: str | None = None
    try:
        _ = raw.value
    except MalformedEvent as error:
        malformed = str(error)
    message = PeekedMessage(lane=raw.lane, position=raw.position, raw=raw.data.decode(errors="replace"), malformed=malformed)
    if isinstance(raw, Message):
        return message.model_copy(update={"key": raw.key, "headers": raw.headers, "timestamp": raw.timestamp})
    return message
