"""The triggerer process: the supervisor of a runner. It imports nothing of the user's."""

from __future__ import annotations

import gc
import sys
from uuid import uuid4

from headrace.client.triggerer import TriggererClient
from headrace.logs.server import serving
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
    """Run the project's triggers until SIGINT or SIGTERM; the second signal does not wait for what is under way."""
    # This process imports nothing of the user's, and the one that does has no key.
    command = RunnerCommand((sys.executable, "-m", "headrace", "runner"), runner_environment(settings))
    share = CapacityPolicy(settings.capacity, tuple(name.strip() for name in settings.queues.split(",") if name.strip()))
    policy = Policy(share=share, patience=WatchdogPolicy(stuck=settings.stuck_timeout))
    orders = ShutdownRequest()
    async with (
        serving(served_logs(settings)) as log_url,
        TriggererClient(settings.url, key=settings.key, timeout=settings.api_timeout) as api,
    ):
        incarnations = _Incarnations(log_url)
        with on_signal(orders.told):
            gc.freeze()  # as the api does: its loop keeps the job alive
            await Supervisor(api, lambda: RunnerProcess.start(command), incarnations.next, policy).run(orders)


class _Incarnations:
    """The jobs of one triggerer, one after the other; each says which it stands in for."""

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
