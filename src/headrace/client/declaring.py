"""The requests that declare a project."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from uuid import uuid4

from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject, StageTriggers

PAGE_BYTES = 900_000
PAGE_TRIGGERS = 2_000


def declaration_requests(declared: DeclareProject) -> Iterator[StageTriggers | DeclareProject]:
    """Yield the requests that declare a project, in the order in which to send them.

    A project whose triggers fit into one request is declared by that one alone. Otherwise pages with the triggers come first, each made
    when the caller takes it, and the last request refers to them.
    """
    cut = _cut(declared.triggers)
    first, second = next(cut), next(cut, None)
    if second is None:
        yield declared
        return
    declaration = uuid4().hex
    yield from (StageTriggers(declaration=declaration, triggers=page) for page in chain((first, second), cut))
    count = len({trigger.name for trigger in declared.triggers})
    yield declared.model_copy(update={"triggers": [], "staged": declaration, "count": count})


def _cut(triggers: list[DeclaredTrigger]) -> Iterator[list[DeclaredTrigger]]:
    page: list[DeclaredTrigger] = []
    size = 0
    for trigger in triggers:
        more = len(trigger.model_dump_json())
        if page and (len(page) == PAGE_TRIGGERS or size + more > PAGE_BYTES):
            yield page
            page, size = [], 0
        page.append(trigger)
        size += more
    yield page
