"""Jobs: the liveness record of one running process. POST /execution/jobs, …/heartbeat, …/complete."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from headrace.wire.base import WireModel
from headrace.wire.control.streams import StreamReport, WatchSample

JobKind = Literal["triggerer", "pipeline", "worker", "receiver"]
DesiredState = Literal["run", "drain", "stop"]

MAX_WATCH_SAMPLES: Final = 50
"""Maximum number of watches in one heartbeat whose samples are reported."""
EVERY_PROJECT: Final = "*"
"""The project of a job that reads the log for all projects, such as a replay without a project file."""


class RegisterJob(WireModel):
    """Register a process. The same `registration_id` always gets the same job.

    `replaces` is the registration id of the previous incarnation, if that is known to be dead: its job ends at once. `log_url` is where the
    process serves its logs while it lives. `version` is the version of the program.
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
    """The id and the token of the job, and the interval of its heartbeats (seconds)."""

    job_id: int
    token: str = Field(repr=False)
    heartbeat: float


class Lease(WireModel):
    """A job's lease on one trigger. `epoch` fences all earlier holders."""

    trigger_id: int
    epoch: int


class Blocked(WireModel):
    """The code that blocks the loop of a triggerer's runner, and for how long.

    `trigger_id` is missing if the code belongs to no trigger. `stack` starts with the innermost frame.
    """

    trigger_id: int | None
    trigger: str | None
    seconds: float
    stack: list[str] = []


class RunningBatch(WireModel):
    """The batch that a pipeline processes: the number of events that it read from the log, and its running time."""

    scope: str
    batch: int
    events: int
    seconds: float


class Heartbeat(WireModel):
    """A heartbeat with the job's stream statistics since its start (absolute counts), and the code that blocks its triggers now.

    `watches` are samples of watches since the last heartbeat. A pipeline reports its running `batch`. `leases` requests the leases in the
    response. A job that loads differences does not need them.
    """

    streams: list[StreamReport] = []
    blocked: Blocked | None = None
    batch: RunningBatch | None = None
    leases: bool = True
    watches: list[WatchSample] = Field(default=[], max_length=MAX_WATCH_SAMPLES)


class HeartbeatAnswer(WireModel):
    """The desired state of the job, its current leases, and the sizes of its triggers' backlogs.

    `desired_state` is `run`, `drain` (release all triggers, finish work in progress and complete the job) or `stop` (the same without
    delay). `leases` and `revoked` are those of a whole `TriggersLoaded`. They are empty if the heartbeat did not request leases. `token`
    replaces the job's token before that expires.
    """

    desired_state: DesiredState
    leases: list[Lease]
    revoked: dict[int, int] = {}
    backlogs: dict[int, int] = {}
    token: str | None = Field(default=None, repr=False)


class CompleteJob(WireModel):
    """The end of a job. The first completion counts. Later ones change nothing."""

    state: Literal["succeeded", "failed"]
    reason: str | None = None
