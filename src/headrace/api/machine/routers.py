"""Every route of the machine API: those of the newest version, and those that only older versions have."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.machine import backlog, deferred, jobs, log, projects, retired, scopes, secrets, singles, streams, triggers

ROUTERS = (
    jobs.router,
    projects.router,
    triggers.router,
    backlog.router,
    streams.router,
    log.router,
    deferred.router,
    singles.router,
    scopes.router,
    secrets.router,
)
"""The routes of the newest version. A new file of routes is named here."""


def newest() -> APIRouter:
    """Return the routes of the newest version."""
    return _of(*ROUTERS)


def with_retired() -> APIRouter:
    """Return every route that any version has."""
    return _of(*ROUTERS, retired.router)


def _of(*routers: APIRouter) -> APIRouter:
    made = APIRouter()
    for router in routers:
        made.include_router(router)
    return made
