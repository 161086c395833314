"""The declared trigger: it selects raw events of an upstream and maps them to events, without Python code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Final, Unpack

from headrace.core.matching.envelope import MAX_TEXT, MAX_TYPE, Envelope, EventPaths
from headrace.core.matching.paths import JsonPath
from headrace.core.matching.patterns.parser import parse_pattern
from headrace.core.values.text import describe_value, is_storable
from headrace.errors import ProjectError
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.upstream import SharedStreamProducer, Upstream, describe_upstream, described_upstream

_MAX_SUMMARY_CHARS: Final = 100
CLASSPATH = f"{__name__}.WatchTrigger"


class WatchTrigger(BaseEventTrigger):
    """A declared watch: fires on every raw event that `match` matches (None: on all), without Python code.

    `paths` are `id`, `follows`, `subject`, `occurred`, `type` and `source`, as for `Project.watch`. `upstream` is an upstream, or the
    result of its `serialize`. Raises `ProjectError`.
    """

    def __init__(
        self,
        *,
        upstream: Upstream | Mapping[str, Any],
        match: Mapping[str, Any] | None = None,
        **paths: Unpack[EventPaths],
    ) -> None:
        super().__init__()
        self.upstream = upstream if isinstance(upstream, Upstream) else described_upstream(upstream)
        self.match = match
        self.pattern = None if match is None else parse_pattern(match)
        self._paths = {name: path for name, path in paths.items() if path is not None}
        self.envelope = Envelope(
            source=_path_or_text("source", paths.get("source"), lambda: self.upstream.source, MAX_TEXT),
            type=_path_or_text("type", paths.get("type"), lambda: self.upstream.event_type, MAX_TYPE),
            stream=_other_stream(self.upstream),
            **{name: _path(name, path) for name, path in self._paths.items() if name not in {"source", "type"}},
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the keyword arguments as plain JSON. Undeclared ones are left out."""
        declared: dict[str, Any] = {"upstream": describe_upstream(self.upstream)}
        if self.match is not None:
            declared["match"] = self.match
        return CLASSPATH, declared | self._paths

    def shared_stream_key(self) -> str:
        """Return the upstream's key. Raises `ProjectError` if it is not text."""
        return _upstreams_text("stream_key()", self.upstream.stream_key())

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return a producer of the upstream that `kwargs` describe."""
        return cls(**kwargs).upstream.producer()

    def with_upstream(self, upstream: Upstream) -> WatchTrigger:
        """Return the same watch on another upstream."""
        moved = copy(self)
        moved.upstream = upstream
        moved.envelope = replace(
            self.envelope,
            source=upstream.source if "source" not in self._paths else self.envelope.source,
            type=upstream.event_type if "type" not in self._paths else self.envelope.type,
            stream=_other_stream(upstream),
        )
        return moved

    def split(self) -> list[WatchTrigger]:
        """Return the watches on the shards of the upstream: this one alone if it has no shards."""
        parts = self.upstream.split()
        return [self.with_upstream(part) for part in parts] if len(parts) > 1 else [self]


def _other_stream(upstream: Upstream) -> str | None:
    """Return the stream from which ids of events derive, if it is not the one that is read: a shard has ids of the whole."""
    if type(upstream).whole_stream_key is Upstream.whole_stream_key:
        return None
    whole = upstream.whole_stream_key()
    return None if whole == upstream.stream_key() else whole


def _path(name: str, text: object) -> JsonPath:
    if not isinstance(text, str):
        raise ProjectError(f"{name}= must be a path such as '$.{name}', not {text!r}.")
    return JsonPath.parse(text)


def _upstreams_text(what: str, text: object) -> str:
    """Return a text of a user's upstream. Raises `ProjectError` if it is not a text."""
    if not isinstance(text, str) or not text:
        raise ProjectError(
            f"The upstream's {what} is {describe_value(text)[:_MAX_SUMMARY_CHARS]}.", hint="It must be a text that is not empty."
        )
    return text


def _path_or_text(name: str, text: object, default: Callable[[], str], max_chars: int) -> str | JsonPath:
    if text is None:
        return _checked_text(f"The upstream's {name}", _upstreams_text(name, default()), max_chars, f"Declare {name}= in the watch.")
    if not isinstance(text, str) or not text:
        raise ProjectError(f"{name}= must be a text or a path such as '$.{name}', not {text!r}.")
    if text.startswith(("$", "@.", "@[")):
        return JsonPath.parse(text)
    return _checked_text(f"{name}=", text, max_chars, "Shorten it.")


def _checked_text(what: str, text: str, max_chars: int, hint: str) -> str:
    """Return a text that is a field of each event. Raises `ProjectError` if no event can have it."""
    if len(text) > max_chars:
        raise ProjectError(f"{what} has {len(text):,} characters: more than {max_chars:,}.", hint=hint)
    if not is_storable(text):
        raise ProjectError(f"{what} has a NUL or half of a surrogate pair: {text[:_MAX_SUMMARY_CHARS]!r}.", hint="Remove it.")
    return text
