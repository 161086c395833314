"""Jobs: the liveness record of one running process. POST /execution/jobs, …/heartbeat, …/complete."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from headrace.wire.base import WireModel
from headrace.wire.control.streams import StreamReport

JobKind = Literal["triggerer", "pipeline", "worker"]
Wanted = Literal["run", "drain", "stop"]

EVERY_PROJECT: Final = "*"
"""The project of a job that reads the log for no project in particular, such as a replay without a project file."""


class RegisterJob(WireModel):
    """Register a process. The same `registration_id` always answers with the same job.

    `replaces` is the registration id of the process's previous incarnation, when it is known to be dead: its job ends at once.
    `log_url` is where the logs that it writes are served while it lives, `version` that of the program that it runs.
    """

    registration_id: str = Field(min_length=8, max_length=64)
    kind: JobKind
    hostname: str
    pid: int
    project: str
    replaces: str | None = None
    log_url: str | None = Field(default=None, max_length=300, pattern=r"^http://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$")
    version: str | None = Field(default=None, max_length=64)


class JobRegistered(WireModel):
    """The answer: who you are, and how often to say that you live (seconds)."""

    job_id: int
    token: str = Field(repr=False)
    heartbeat: float


class Lease(WireModel):
    """A job's claim on one trigger; `epoch` fences every earlier owner."""

    trigger_id: int
    epoch: int


class Blocked(WireModel):
    """What has blocked the loop of a triggerer's runner, and for how long; no trigger: it is in none's code. `stack`: innermost first."""

    trigger_id: int | None
    trigger: str | None
    seconds: float
    stack: list[str] = []


class RunningBatch(WireModel):
    """The batch that a pipeline is at: how many events it read from the log, and for how long it runs."""

    scope: str
    batch: int
    events: int
    seconds: float


class Heartbeat(WireModel):
    """A sign of life, with what the job's streams have done since it started (absolute counts), and what blocks its triggers now.

    A pipeline tells the `batch` that it is at. `leases`: the answer is to have them; a job that loads differences needs none.
    """

    streams: list[StreamReport] = []
    blocked: Blocked | None = None
    batch: RunningBatch | None = None
    leases: bool = True


class HeartbeatAnswer(WireModel):
    """What the api wants of the job, the leases it still holds, and how much is kept in its triggers' backlogs.

    `wanted` is `run`; `drain`: let everything go, finish what is under way and complete the job; `stop`: do so without delay.
    `leases` and `revoked` are those of a whole `TriggersLoaded`, and empty where the heartbeat did not ask for leases. `token` is the job's
    next, in time.
    """

    wanted: Wanted
    leases: list[Lease]
    revoked: list[int] = []
    backlogs: dict[int, int] = {}
    token: str | None = Field(default=None, repr=False)


class CompleteJob(WireModel):
    """The end of a job. The first completion wins; a replay changes nothing."""

    state: Literal["succeeded", "failed"]
    reason: str | None = None
