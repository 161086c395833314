"""Checks of the streams that a project declares: readers of folders, shards, equal declarations, names of readers, and users' functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.core.values.shards import split_shard_name
from headrace.errors import ProjectError
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.upstream import FOLDER_STREAM, Upstream, is_builtin
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


def check_declarations(watched: Mapping[str, BaseEventTrigger]) -> None:
    """Refuse two declarations of one built-in upstream: one reader serves all its watches, with the arguments of one of them."""
    first: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, upstream in _builtin_upstreams(watched):
        _, arguments = upstream.serialize()
        stream = upstream.stream_key()
        other, known = first.setdefault(stream, (name, arguments))
        for argument in known | arguments:
            one, two = (f"{argument}={values.get(argument)!r}" for values in (known, arguments))
            if one != two:
                raise ProjectError(
                    f"The stream {stream} is declared with {one} by {other!r}, and with {two} by {name!r}.",
                    hint="Give all watches the same upstream.",
                )


def check_reader_names(watched: Mapping[str, BaseEventTrigger]) -> None:
    """Refuse two upstreams with one reader name at the broker: each would take messages and progress of the other."""
    first: dict[str, tuple[str, str]] = {}
    for name, upstream in _builtin_upstreams(watched):
        stream = upstream.whole_stream_key()
        for reader in upstream.reader_names:
            other, known = first.setdefault(reader, (name, stream))
            if stream != known:
                raise ProjectError(
                    f"The {reader} would read for two upstreams: {known} of {other!r}, and {stream} of {name!r}.",
                    hint="Give all watches the same upstream, and choose with match=. Or give each upstream a reader of its own.",
                )


def _builtin_upstreams(watched: Mapping[str, BaseEventTrigger]) -> Iterator[tuple[str, Upstream]]:
    for name, trigger in watched.items():
        if isinstance(trigger, WatchTrigger) and is_builtin(trigger.upstream.serialize()[0]):
            yield name, trigger.upstream


def check_user_code(watched: Iterable[BaseEventTrigger]) -> None:
    """Import the functions that the upstreams of watches name. Raises `UpstreamError` or `ProjectError` for one that cannot be imported."""
    for trigger in watched:
        if isinstance(trigger, WatchTrigger):
            trigger.upstream.check_user_code()
