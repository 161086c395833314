"""Checks of the streams that a project declares: readers of folders, shards, copies of dead letters, and functions of the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.core.values.shards import split_shard_name
from headrace.errors import ProjectError
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.upstream import FOLDER_STREAM, Upstream
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.triggers import DeclaredTrigger


def check_folders(triggers: Sequence[DeclaredTrigger]) -> None:
    """Refuse two patterns on one folder: a folder has one reader, and each of its files is in one stream."""
    first: dict[str, tuple[str, str]] = {}
    for trigger in triggers:
        if trigger.stream is None or not trigger.stream.startswith(FOLDER_STREAM):
            continue
        folder, _, pattern = trigger.stream.removeprefix(FOLDER_STREAM).rpartition("/")
        other, known = first.setdefault(folder, (trigger.name, pattern))
        if pattern != known:
            raise ProjectError(
                f"The folder {folder} is read with two patterns: {known!r} by {other!r}, {pattern!r} by {trigger.name!r}.",
                hint="Give both the same pattern and choose with match=, or put the files into two folders.",
            )


def check_shards(watched: Iterable[BaseEventTrigger], triggers: Sequence[DeclaredTrigger]) -> None:
    """Refuse two numbers of shards of one upstream: two shards would read the same lanes."""
    parts: dict[str, tuple[str, int]] = {}
    for trigger in watched:
        if isinstance(trigger, WatchTrigger) and type(trigger.upstream).split is not Upstream.split:
            for part in trigger.upstream.split():
                parts[part.stream_key()] = part.whole_stream_key(), split_shard_name(part.stream_key())[1].total
    first: dict[str, tuple[str, int]] = {}
    for declared in triggers if parts else ():
        if declared.stream is None:
            continue
        stream, count = parts.get(declared.stream, (declared.stream, 1))
        other, known = first.setdefault(stream, (declared.name, count))
        if count != known:
            raise ProjectError(
                f"The stream {stream} is read in {known} shards by {other!r}, and in {count} by {declared.name!r}.",
                hint="Give all watches the same upstream. In Python, declare a trigger for each upstream that split() returns.",
            )


def check_dead_letter_targets(watched: Mapping[str, BaseEventTrigger]) -> None:
    """Refuse two targets for the dead letters of one stream: one reader copies them."""
    first: dict[str, tuple[str, str | None]] = {}
    for name, trigger in watched.items():
        if not isinstance(trigger, WatchTrigger) or type(trigger.upstream).dead_letter_target is Upstream.dead_letter_target:
            continue
        target = trigger.upstream.dead_letter_target
        other, known = first.setdefault(trigger.upstream.stream_key(), (name, target))
        if target != known:
            raise ProjectError(
                f"The dead letters of {trigger.upstream.stream_key()} are copied to {known or 'nowhere'} by {other!r}, "
                f"and to {target or 'nowhere'} by {name!r}.",
                hint="Give all watches the same upstream.",
            )


def check_user_code(watched: Iterable[BaseEventTrigger]) -> None:
    """Import the functions that the upstreams of watches name. Raises `UpstreamError` or `ProjectError` for one that cannot be imported."""
    for trigger in watched:
        if isinstance(trigger, WatchTrigger):
            trigger.upstream.check_user_code()
