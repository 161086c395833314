"""Triggers: what a project declares, what a triggerer claims, and what it needs to run one."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from headrace.wire.jobs import Lease
from headrace.wire.model import Wire


class DeclaredTrigger(Wire):
    """One trigger of a project, as the api keeps it. `stream` is the text of its stream key; None: it polls alone."""

    name: str = Field(min_length=1, max_length=200)
    classpath: str
    kwargs: dict[str, Any]
    stream: str | None = None
    queue: str = "default"


class DeclaredPipeline(Wire):
    """One pipeline of a project: which triggers' events it takes (glob patterns), and the table it fills."""

    name: str = Field(min_length=1, max_length=200)
    on: list[str]
    table: str | None = None
    batch: str = "micro"


class DeclareProject(Wire):
    """PUT /execution/projects/{name}: the whole of what a project declares. Triggers no longer named are removed."""

    triggers: list[DeclaredTrigger]
    pipelines: list[DeclaredPipeline]


class ProjectDeclared(Wire):
    """The ids of the project's triggers, by name."""

    triggers: dict[str, int]


class LoadTriggers(Wire):
    """POST /execution/triggers/load: claim up to `capacity` triggers; all triggers of one stream come together."""

    capacity: int = Field(gt=0)
    queues: list[str] = ["default"]


class TriggersLoaded(Wire):
    """Every lease the job now holds (not only new ones), and the trigger ids that it must let go."""

    leases: list[Lease]
    revoked: list[int]


class FetchWorkloads(Wire):
    """POST /execution/triggers/workloads."""

    trigger_ids: list[int]


class RunTrigger(Wire):
    """A workload: all a triggerer needs to run one trigger."""

    trigger_id: int
    name: str
    classpath: str
    kwargs: dict[str, Any]
    stream: str | None
    queue: str
    epoch: int
    log_name: str
    backlog: int = 0


class Workloads(Wire):
    """The workloads of the triggers asked for that this job holds."""

    workloads: list[RunTrigger]


class TriggerFailure(Wire):
    """POST /execution/triggers/{id}/failure: why a trigger failed."""

    epoch: int
    kind: str
    message: str
    traceback: list[str] = []


class CleanupTriggers(Wire):
    """POST /execution/triggers/cleanup: drop triggers nothing waits on."""

    trigger_ids: list[int]
