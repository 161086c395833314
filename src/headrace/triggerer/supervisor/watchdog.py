"""Detect that the runner's loop is blocked, and report the trigger and its stack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import StallDetector, WatchdogPolicy
from headrace.wire.control.jobs import Blocked

_CHECK_SECONDS = 0.1  # seconds between two checks


class LoopWatchdog:
    """Watches one process. `name` returns a trigger's name. `changed` is called when a block begins or ends.

    `silent` is called at each check, with the seconds that the loop has not turned.
    """

    def __init__(
        self,
        runner: RunnerProcess,
        policy: WatchdogPolicy,
        name: Callable[[int], str],
        changed: Callable[[], None],
        silent: Callable[[float], None] | None = None,
    ) -> None:
        self._silent = silent
        self._runner = runner
        self._policy = policy
        self._name = name
        self._changed = changed
        self.blocked: Blocked | None = None
        """The current block of the loop, or None."""
        self._log = structlog.get_logger(__name__)

    async def run(self) -> Blocked:
        """Watch until the loop was blocked for too long; return that block."""
        detector, loop = StallDetector(), asyncio.get_running_loop()
        before, wait_before = loop.time(), self._runner.processor_wait
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now, wait = loop.time(), self._runner.processor_wait
            # a process that waits for a processor on a busy machine is not blocked
            passed = max(0.0, now - before - max(0.0, wait - wait_before))
            # If the checks are more than three intervals apart, this process itself did not run.
            seconds = detector.check(self._runner.heartbeat.beats, passed, 3 * _CHECK_SECONDS)
            before, wait_before = now, wait
            if self._silent is not None:
                self._silent(seconds)
            await self._update(seconds)
            if seconds > self._policy.stuck and self.blocked is not None:
                return self.blocked

    async def _update(self, seconds: float) -> None:
        blocked = self.blocked
        if seconds > self._policy.blocked:
            if blocked is None:
                self._report_block(await self._describe_block(seconds))
            else:
                self.blocked = blocked.model_copy(update={"seconds": seconds})
        elif blocked is not None:
            self.blocked = None
            self._log.warning("loop unblocked", trigger=blocked.trigger, blocked_seconds=round(blocked.seconds, 1))
            self._changed()

    def _report_block(self, blocked: Blocked) -> None:
        self.blocked = blocked
        self._log.error(
            "loop blocked by users' code" if blocked.trigger else "loop blocked",
            trigger=blocked.trigger,
            stack="\n  ".join(["", *blocked.stack]),
            hint="Use await, or asyncio.to_thread for what cannot wait.",
        )
        self._changed()

    async def _describe_block(self, seconds: float) -> Blocked:
        trigger_id = self._runner.heartbeat.running
        stack = await self._runner.stack()
        return Blocked(
            trigger_id=trigger_id, trigger=None if trigger_id is None else self._name(trigger_id), seconds=seconds, stack=stack[:100]
        )
