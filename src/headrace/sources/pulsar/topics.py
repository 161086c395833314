"""Names of topics. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_text, one_or_several

MAX_TOPICS: Final = 1_000
MAX_NAME_CHARS: Final = 200
PERSISTENT: Final = "persistent://"
DEFAULT_NAMESPACE: Final = "public/default"
HINT: Final = 'Name it like this: "persistent://tenant/namespace/topic".'
_PART: Final = re.compile(r"[-=:.\w]+", re.ASCII)


def check_topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    """Return the full names of the topics, sorted and without repetition. Raises `UpstreamError`."""
    names = one_or_several("topics", topics)
    if not names:
        raise UpstreamError("No topics are given.", hint=HINT)
    if len(names) > MAX_TOPICS:
        raise UpstreamError(f"{len(names)} topics are given: at most {MAX_TOPICS}.", hint="Divide them among several upstreams.")
    return tuple(sorted({full_name("topic", name) for name in names}))


def full_name(argument: str, name: object) -> str:
    """Return the full name of a topic, which may be given without its namespace, as clients of Pulsar do. Raises `UpstreamError`."""
    text = check_text(argument, name)
    if text.startswith("non-persistent://"):
        raise UpstreamError(f"Invalid {argument} {text!r}: a non-persistent topic keeps no messages.", hint="Name a persistent topic.")
    path = text.removeprefix(PERSISTENT)
    if "/" not in path:
        path = f"{DEFAULT_NAMESPACE}/{path}"
    parts = path.split("/")
    if len(parts) != 3 or not all(map(_PART.fullmatch, parts[:2])) or not parts[2].isprintable() or not parts[2] or "," in parts[2]:
        raise UpstreamError(f"Invalid {argument} {text!r}.", hint=HINT)
    if len(path) > MAX_NAME_CHARS:
        raise UpstreamError(f"Invalid {argument} {text[:20]!r}…: it has more than {MAX_NAME_CHARS} characters.")
    return PERSISTENT + path


def partition_names(topic: str, partitions: int) -> list[str]:
    """Return the topics of the partitions, or the topic itself if it has none."""
    return [f"{topic}-partition-{number}" for number in range(partitions)] or [topic]


def admin_path(topic: str) -> str:
    """Return the path of a topic in the admin API."""
    return "persistent/" + quote(topic.removeprefix(PERSISTENT), safe="/")
