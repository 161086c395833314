"""The triggerer process: the supervisor of a runner. It imports no users' code."""

from __future__ import annotations

import gc
import sys
from uuid import uuid4

from headrace.client.triggerer import TriggererClient
from headrace.logs.server import serve_logs
from headrace.process.local_deployment import runner_environment
from headrace.process.signals import on_signal
from headrace.settings import Settings
from headrace.triggerer.supervisor.runner_process import RunnerCommand, RunnerProcess
from headrace.triggerer.supervisor.session import CapacityPolicy, ShutdownRequest
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.supervisor.supervisor import Policy, Supervisor
from headrace.wire.control.jobs import RegisterJob
from headrace.wiring.common import registration, served_logs


async def run_triggerer(settings: Settings) -> None:
    """Run the project's triggers until SIGINT or SIGTERM. The second signal does not wait for work in flight."""
    # This process imports no users' code. The process that does has no key.
    command = RunnerCommand((sys.executable, "-m", "headrace", "runner"), runner_environment(settings))
    capacity = CapacityPolicy(settings.max_triggers, tuple(settings.queue_names))
    policy = Policy(capacity=capacity, watchdog=WatchdogPolicy(stuck=settings.stuck_timeout))
    orders = ShutdownRequest()
    async with (
        serve_logs(served_logs(settings)) as log_url,
        TriggererClient(settings.url, key=settings.key, timeout=settings.api_timeout) as api,
    ):
        incarnations = _Incarnations(log_url)
        with on_signal(orders.on_signal):
            gc.freeze()  # as in the API server: a full collection would delay the heartbeat
            await Supervisor(api, lambda: RunnerProcess.start(command), incarnations.next, policy).run(orders)


class _Incarnations:
    """The jobs of one triggerer, one after the other. Each names its predecessor."""

    def __init__(self, log_url: str) -> None:
        self._log_url = log_url
        self._last: RegisterJob | None = None

    def next(self, project: str) -> RegisterJob:
        """Return the next job."""
        if self._last is None:
            job = registration("triggerer", project, self._log_url)
        else:
            job = self._last.model_copy(update={"registration_id": uuid4().hex, "replaces": self._last.registration_id})
        self._last = job
        return job
