"""The page of the execution API, from its table of calls and its OpenAPI document."""

from __future__ import annotations

from scripts.reference._calls import page

from headrace.api.middleware.version import DESCRIPTION_PATH
from headrace.api.openapi import execution_api
from headrace.wire.base import API_VERSION, VERSION_HEADER
from headrace.wire.calls.execution import EXECUTION_CALLS

PAGE = "execution-api.md"


def render() -> str:
    """Return the page."""
    introduction = [
        "The calls of triggerers, pipelines and workers. [Guarantees and limits](../design/execution-api.md) apply to all of them.",
        "",
        f"Every request has the header `{VERSION_HEADER}: {API_VERSION}` and `Authorization: Bearer <credential>`.",
        f"OpenAPI describes the same calls at `{DESCRIPTION_PATH}`.",
    ]
    return page("Execution API", introduction, EXECUTION_CALLS, execution_api())
