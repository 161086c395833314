"""Subject filters of NATS, and the names of consumers and lanes that are made of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import combinations
from typing import Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import one_or_several

ALL_SUBJECTS: Final = ">"
MAX_SUBJECT_CHARS: Final = 255
MAX_READABLE_CHARS: Final = 40
MAX_LANES: Final = 100
DIGEST_DIGITS: Final = 6
FLOOR_SUFFIX: Final = "-floor"
_TOKEN: Final = re.compile(r"[^\s.*>\x00-\x1f\x7f]+|\*")
_WILDCARDS: Final = {"*", ALL_SUBJECTS}
_SIGNS: Final = re.compile(r"[^A-Za-z0-9_-]+")


def check_subjects(subjects: object) -> tuple[str, ...]:
    """Return the subject filters of an argument, sorted. Raises `UpstreamError` if one is invalid or two of them overlap."""
    filters = one_or_several("subjects", subjects)
    for one in filters:
        _check(one)
    distinct = tuple(sorted(set(filters)))
    if not distinct or len(distinct) > MAX_LANES:
        raise UpstreamError(f"Invalid subjects: {len(filters)} are given.", hint=f"Give 1 to {MAX_LANES} subjects. Each is a lane.")
    for one, other in combinations(distinct, 2):
        if overlap(one, other):
            raise UpstreamError(
                f"Invalid subjects: {one!r} and {other!r} overlap.", hint="A message must belong to one lane. Remove or narrow one of them."
            )
    return distinct


def check_dead_letter_subject(subject: object, read: Iterable[str]) -> str:
    """Return a subject for copies of dead letters. Raises `UpstreamError` if it is not one subject, or if the upstream reads it.

    A filter that begins with a wildcard says nothing about the subjects of its stream, so it is not compared.
    """
    if not isinstance(subject, str) or _WILDCARDS & {*subject.split(".")}:
        raise UpstreamError(f"Invalid dead_letter_subject {subject!r}: it is not one subject.", hint="Write it like dead.orders.")
    _check(subject)
    for filter in read:
        if filter.partition(".")[0] not in _WILDCARDS and overlap(filter, subject):
            raise UpstreamError(
                f"The dead-letter subject {subject!r} is one of the subjects that are read: {filter!r}.",
                hint="Name another subject, or narrow the filter.",
            )
    return subject


def overlap(one: str, other: str) -> bool:
    """Return whether a subject can match both filters."""
    first, second = one.split("."), other.split(".")
    for left, right in zip(first, second, strict=False):
        if ALL_SUBJECTS in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return len(first) == len(second)


def covers(filter: str, subjects: Iterable[str]) -> bool:
    """Return whether a filter matches all subjects that match one of `subjects`."""
    return filter == ALL_SUBJECTS or all(_covers(filter.split("."), one.split(".")) for one in subjects)


def consumer_name(durable: str, filter: str) -> str:
    """Return the name of the consumer of a lane: the durable name, a readable form of the filter, and its checksum."""
    readable = _SIGNS.sub("_", filter.replace("*", "any").replace(ALL_SUBJECTS, "all"))[:MAX_READABLE_CHARS]
    return f"{durable}-{readable}-{sha256(filter.encode()).hexdigest()[:DIGEST_DIGITS]}"


def lane_name(filter: str, created: str) -> str:
    """Return the lane of a filter. Its end differs for a stream that was deleted and created again."""
    return f"{filter}@{sha256(created.encode()).hexdigest()[:DIGEST_DIGITS]}"


def _covers(filter: Sequence[str], subject: Sequence[str]) -> bool:
    for number, token in enumerate(filter):
        if token == ALL_SUBJECTS:
            return len(subject) > number
        if number >= len(subject) or subject[number] == ALL_SUBJECTS or token not in ("*", subject[number]):
            return False
    return len(filter) == len(subject)


def _check(filter: object) -> None:
    if not isinstance(filter, str) or not filter or len(filter) > MAX_SUBJECT_CHARS:
        raise UpstreamError(f"Invalid subject {filter!r}.", hint=f"Give a text of up to {MAX_SUBJECT_CHARS} characters.")
    *head, last = filter.split(".")
    if not all(_TOKEN.fullmatch(token) for token in head) or not (last == ALL_SUBJECTS or _TOKEN.fullmatch(last)):
        raise UpstreamError(
            f"Invalid subject {filter!r}.", hint="Write it like orders.eu, orders.*.paid or orders.>. Wildcards are whole tokens."
        )
    if (head and head[0] == "$JS") or filter.startswith("$JS.API"):
        raise UpstreamError(f"Invalid subject {filter!r}: it belongs to JetStream.", hint="Name subjects of messages.")
