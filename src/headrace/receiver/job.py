"""The job of the receiver: with it, the receiver reads connections from the API, and the status shows that it runs.

Requests are accepted without the API. So no failure of the API ends the receiver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import uuid4

import structlog

from headrace.client.triggerer import TriggererClient
from headrace.errors import ApiError, ApiRefused
from headrace.retry import retry_until_available
from headrace.wire.control.jobs import CompleteJob, Heartbeat, RegisterJob

REJECTED_SECONDS: Final = 30.0
"""Time between two attempts to register after the API has refused one."""
COMPLETE_SECONDS: Final = 3.0

log = structlog.get_logger(__name__)


class ReceiverJob:
    """Registers the job, and sends its heartbeats. `stop` is called when the API requests the end of the process."""

    def __init__(self, api: TriggererClient, job: RegisterJob, stop: Callable[[], None]) -> None:
        self._api = api
        self._job = job
        self._stop = stop
        self._registered = False

    async def run(self) -> None:
        """Maintain the job until cancelled, or until the API requests the end."""
        while True:
            try:
                registered = await retry_until_available(lambda: self._api.register(self._job), "register")
                self._registered = True
                log.info("job registered", job=registered.job_id)
                await self._beat(registered.heartbeat)
                return
            except ApiRefused as error:
                if not self._registered:
                    log.error("job refused by the api", error=str(error), hint=error.hint)
                    await asyncio.sleep(REJECTED_SECONDS)
                    continue
                log.warning("job ended, registering a new one", reason=str(error))
                self._registered = False
                self._job = self._job.model_copy(update={"registration_id": uuid4().hex, "replaces": self._job.registration_id})

    async def complete(self) -> None:
        """End the job. If the API does not answer, the job expires."""
        if not self._registered:
            return
        try:
            async with asyncio.timeout(COMPLETE_SECONDS):
                await self._api.complete(CompleteJob(state="succeeded"))
        except (ApiError, TimeoutError) as error:
            log.warning("job end not recorded; the job will expire", error=str(error))

    async def _beat(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                answer = await self._api.heartbeat(Heartbeat(leases=False))
            except ApiRefused:
                raise
            except ApiError as error:
                log.warning("api unavailable, trying again", error=str(error))
                continue
            if answer.desired_state != "run":
                log.info("stop requested by the API", desired_state=answer.desired_state)
                self._stop()
                return
