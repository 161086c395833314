"""The page of the admin API, from its table of calls and its OpenAPI document."""

from __future__ import annotations

from scripts.reference._calls import page

from headrace.api.app import ADMIN_ROUTES
from headrace.api.openapi import ADMIN_DESCRIPTION_PATH, admin_api
from headrace.wire.calls.admin import ADMIN_CALLS

PAGE = "admin-api.md"


def render() -> str:
    """Return the page."""
    introduction = [
        "The calls of operators, of the status page and of the command line.",
        "",
        "A request sends its credential as `Authorization: Bearer <credential>`.",
        f"OpenAPI describes the same calls at `{ADMIN_DESCRIPTION_PATH}`.",
    ]
    return page("Admin API", introduction, ADMIN_CALLS, admin_api(ADMIN_ROUTES))
