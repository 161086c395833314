"""Every route of the machine API: those of the newest version, and those that only older versions have."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.execution import backlog, jobs, log, pipelines, projects, retired, secrets, singles, streams, task_runs, triggers

ROUTERS = (
    log.router,
    streams.router,
    jobs.router,
    projects.router,
    triggers.router,
    backlog.router,
    task_runs.router,
    singles.router,
    pipelines.router,
    secrets.router,
)
"""The routes of the newest version, those that are called most first: they are tried in this order. A new file of routes is named here."""


def with_retired() -> APIRouter:
    """Return every route that any version has."""
    made = APIRouter()
    for router in (*ROUTERS, retired.router):
        made.include_router(router)
    return made
