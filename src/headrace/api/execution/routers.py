"""All routes of the execution API."""

from __future__ import annotations

from headrace.api.execution import backlog, jobs, log, pipelines, projects, secrets, streams, task_runs, triggers

ROUTERS = (
    log.router,
    streams.router,
    jobs.router,
    projects.router,
    triggers.router,
    backlog.router,
    task_runs.router,
    pipelines.router,
    secrets.router,
)
"""In the order in which they are tried: the most frequent calls first. List a new module of routes here."""
