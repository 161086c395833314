"""Which fields of a pattern fail on an event, each on its own: for counts of how often each does. Pure."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from headrace.core.matching.paths import METADATA, METADATA_FIELD
from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.fields import matches_fields
from headrace.core.matching.patterns.operators import Leaf, Path
from headrace.core.matching.patterns.parser import EventPattern

MAX_PATH_CHARS: Final = 100
"""Maximum length of a path in a report, in characters."""
LeafGroups: TypeAlias = dict[Path, list[Leaf]]


def leaf_groups(pattern: EventPattern) -> LeafGroups:
    """Return the different leaves of each path in all alternatives of a pattern. The order is always the same."""
    groups: LeafGroups = {}
    for fields in pattern.alternatives:
        for path, leaf in fields:
            leaves = groups.setdefault(path, [])
            if leaf not in leaves:
                leaves.append(leaf)
    return groups


def failed_paths(groups: LeafGroups, event: Any, arrays: Arrays) -> list[bool]:
    """Return for each path whether the event passes none of its leaves. Raises `MalformedEvent` if that takes too many steps."""
    return [not any(matches_fields([(path, leaf)], event, arrays) for leaf in leaves) for path, leaves in groups.items()]


def matches_pattern(pattern: EventPattern, event: Any, arrays: Arrays) -> bool:
    """Return whether the event matches one alternative of the pattern. Raises `MalformedEvent` if that takes too many steps."""
    return any(matches_fields(fields, event, arrays) for fields in pattern.alternatives)


def path_text(path: Path) -> str:
    """Return a path as users write it, cut to `MAX_PATH_CHARS`."""
    text = ".".join((METADATA, *path[1:]) if path[0] == METADATA_FIELD else path)
    return text if len(text) <= MAX_PATH_CHARS else f"{text[: MAX_PATH_CHARS - 1]}…"
