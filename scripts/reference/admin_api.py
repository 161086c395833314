"""The page of the admin API, from its table of calls and its OpenAPI document."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.reference._calls import page

from headrace.api.app import create_app
from headrace.api.openapi import ADMIN_DESCRIPTION_PATH, admin_api
from headrace.store import open_store
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
    with TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'reference.db'}")
        try:
            document = admin_api(create_app(store, key="reference"))
        finally:
            store.close()
    return page("Admin API", introduction, ADMIN_CALLS, document)
