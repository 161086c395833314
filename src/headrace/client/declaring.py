"""Declarations cut into pages that the api takes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headrace.wire.triggers import DeclaredTrigger, DeclareProject, StageTriggers

PAGE_BYTES = 900_000
PAGE_TRIGGERS = 1_000


def pages(declaration: str, declared: DeclareProject) -> Iterator[StageTriggers]:
    """Yield the triggers of a project in pages, each made when it is asked for; none where they all fit into one call."""
    cut = _cut(declared.triggers)
    first, second = next(cut), next(cut, None)
    if second is not None:
        yield from (StageTriggers(declaration=declaration, triggers=page) for page in chain((first, second), cut))


def staged(declaration: str, declared: DeclareProject) -> DeclareProject:
    """Return the declaration whose triggers were sent in pages."""
    return declared.model_copy(update={"triggers": [], "staged": declaration, "count": len({one.name for one in declared.triggers})})


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
