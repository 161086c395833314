"""Topic filters: which are valid, and which topics they match. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final
from unicodedata import category

from headrace.errors import UpstreamError
from headrace.sources.arguments import one_or_several

MAX_FILTER_BYTES: Final = 65_535
MAX_FILTERS: Final = 100
_SHARED: Final = re.compile(r"\$share/[^/+#]+/(.+)", re.DOTALL)


def check_filters(filters: str | Sequence[str]) -> tuple[str, ...]:
    """Return one or several topic filters, sorted and each once. Raises `UpstreamError` for one that is not valid."""
    names = one_or_several("topic filters", filters)
    if not 1 <= len(names) <= MAX_FILTERS:
        raise UpstreamError(f"Invalid number of topic filters: {len(names)}.", hint=f"Give 1 to {MAX_FILTERS}.")
    for name in names:
        if not _is_valid(name):
            raise UpstreamError(
                f"Invalid topic filter {name!r}.",
                hint="Give a text such as sensors/+/temperature or sensors/#: '+' is a whole level, '#' the last level.",
            )
    return tuple(sorted(set(names)))


def check_dead_letter_topic(name: object, filters: Sequence[str]) -> str:
    """Return the topic. Raises `UpstreamError` for one that is not valid, or that is read: each dead letter would be read as a message."""
    if not isinstance(name, str) or not _is_valid(name) or set(name) & set("+#") or name.startswith("$"):
        raise UpstreamError(f"Invalid dead_letter_topic {name!r}.", hint="Give a topic without wildcards, such as sensors-dead.")
    if topic_matcher(filters)(name):
        raise UpstreamError(f"The dead-letter topic {name!r} is one of the topics that are read.", hint="Name another topic.")
    return name


def topic_matcher(filters: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that returns whether one of the filters matches a topic."""
    pattern = re.compile("|".join(_pattern(_unshared(one)) for one in filters), re.DOTALL)
    return lambda topic: pattern.fullmatch(topic) is not None


def _unshared(name: str) -> str:
    """Return the filter of a shared subscription, `$share/GROUP/FILTER`, or the filter itself."""
    shared = _SHARED.fullmatch(name)
    return name if shared is None else shared[1]


def _is_valid(name: object) -> bool:
    if not isinstance(name, str) or not name or any(category(char) in ("Cc", "Cs") for char in name):
        return False
    if len(name.encode()) > MAX_FILTER_BYTES:
        return False
    if name.startswith("$share") and not _SHARED.fullmatch(name):
        return False
    *levels, last = _unshared(name).split("/")
    return all(level == "+" or not set(level) & set("+#") for level in levels) and (last in ("+", "#") or not set(last) & set("+#"))


def _pattern(name: str) -> str:
    """Return the regular expression of a filter. A leading wildcard matches no topic of the server, which begins with `$`."""
    levels = name.split("/")
    text = "/".join("[^/]*" if level == "+" else re.escape(level) for level in levels if level != "#")
    if levels[-1] == "#":
        text += "(?:/.*)?" if len(levels) > 1 else ".*"
    return f"(?!\\$){text}" if levels[0] in ("+", "#") else text
