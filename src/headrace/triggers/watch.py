"""The declared trigger: which raw events of an upstream become events, and how, without any Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Final

from headrace.core.matching.envelope import Envelope
from headrace.core.matching.paths import JsonPath
from headrace.core.matching.patterns import leaves
from headrace.core.values.text import describe_value
from headrace.errors import ProjectError
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.upstream import SharedStreamProducer, Upstream, describe_upstream, described_upstream

_SHOWN_CHARS: Final = 100
CLASSPATH = f"{__name__}.WatchTrigger"


class WatchTrigger(BaseEventTrigger):
    """Fires on every raw event that `match` matches (None: on all).

    `id`, `follows`, `subject`, `occurred` are paths into the event (`$.a.b[0]`) or None; `type` and `source` are a path or the text itself,
    by default the upstream's. `upstream` is one, or what `serialize` made of one. Raises `ProjectError`.
    """

    def __init__(
        self,
        *,
        upstream: Upstream | Mapping[str, Any],
        match: Mapping[str, Any] | None = None,
        id: str | None = None,
        follows: str | None = None,
        subject: str | None = None,
        occurred: str | None = None,
        type: str | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__()
        self.upstream = upstream if isinstance(upstream, Upstream) else described_upstream(upstream)
        self.match = match
        if match is not None:
            leaves(match)
        self._paths = {"id": id, "follows": follows, "subject": subject, "occurred": occurred, "type": type, "source": source}
        self.envelope = Envelope(
            source=_path_or_text("source", source, lambda: self.upstream.source),
            type=_path_or_text("type", type, lambda: self.upstream.event_type),
            id=_path("id", id),
            follows=_path("follows", follows),
            subject=_path("subject", subject),
            occurred=_path("occurred", occurred),
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the keyword arguments as plain JSON; what is not declared is left out."""
        declared: dict[str, Any] = {"upstream": describe_upstream(self.upstream)}
        if self.match is not None:
            declared["match"] = self.match
        return CLASSPATH, declared | {name: path for name, path in self._paths.items() if path is not None}

    def shared_stream_key(self) -> str:
        """Return the upstream's key. Raises `ProjectError` where that is no text."""
        return _upstreams_text("stream_key()", self.upstream.stream_key())

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return a producer of the upstream that `kwargs` describe."""
        return cls(**kwargs).upstream.producer()

    def with_upstream(self, upstream: Upstream) -> WatchTrigger:
        """Return the same watch on another upstream."""
        moved = copy(self)
        moved.upstream = upstream
        source, type = self._paths["source"], self._paths["type"]
        moved.envelope = replace(
            self.envelope,
            source=upstream.source if source is None else self.envelope.source,
            type=upstream.event_type if type is None else self.envelope.type,
        )
        return moved


def _path(name: str, text: object) -> JsonPath | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise ProjectError(f"{name}= must be a path such as '$.{name}', not {text!r}.")
    return JsonPath.parse(text)


def _upstreams_text(what: str, text: object) -> str:
    """Return what a user's upstream says of itself. Raises `ProjectError` where it is no text."""
    if not isinstance(text, str) or not text:
        raise ProjectError(f"The upstream's {what} is {describe_value(text)[:_SHOWN_CHARS]}.", hint="It must be a text that is not empty.")
    return text


def _path_or_text(name: str, text: object, default: Callable[[], str]) -> str | JsonPath:
    if text is None:
        return _upstreams_text(name, default())
    if not isinstance(text, str) or not text:
        raise ProjectError(f"{name}= must be a text or a path such as '$.{name}', not {text!r}.")
    return JsonPath.parse(text) if text.startswith("$") else text
