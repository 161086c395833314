"""Sees when the runner's loop is blocked, and says by which trigger and where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import StallDetector, WatchdogPolicy
from headrace.wire.control.jobs import Blocked

_LOOK = 0.1  # seconds between two looks


class LoopWatchdog:
    """Watches one process. `name` gives a trigger's name; `changed` is called when a block begins or ends, `silent` at each look.

    `silent` is told for how many seconds the loop has not turned.
    """

    def __init__(
        self,
        runner: RunnerProcess,
        patience: WatchdogPolicy,
        name: Callable[[int], str],
        changed: Callable[[], None],
        silent: Callable[[float], None] | None = None,
    ) -> None:
        self._silent = silent
        self._runner = runner
        self._patience = patience
        self._name = name
        self._changed = changed
        self.blocked: Blocked | None = None
        """What blocks the loop now."""
        self._log = structlog.get_logger(__name__)

    async def run(self) -> Blocked:
        """Watch; return what has blocked the loop for too long."""
        silence, loop = StallDetector(), asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(_LOOK)
            now = loop.time()
            # More than three looks apart, it was this process that did not run.
            seconds = silence.seen(self._runner.pulse.beats, now - before, 3 * _LOOK)
            before = now
            if self._silent is not None:
                self._silent(seconds)
            await self._see(seconds)
            if seconds > self._patience.stuck and self.blocked is not None:
                return self.blocked

    async def _see(self, seconds: float) -> None:
        blocked = self.blocked
        if seconds > self._patience.blocked:
            if blocked is None:
                self._say(await self._look(seconds))
            else:
                self.blocked = blocked.model_copy(update={"seconds": seconds})
        elif blocked is not None:
            self.blocked = None
            self._log.warning("the loop goes on", trigger=blocked.trigger, blocked_seconds=round(blocked.seconds, 1))
            self._changed()

    def _say(self, blocked: Blocked) -> None:
        self.blocked = blocked
        self._log.error(
            "users' code blocks the loop of its process" if blocked.trigger else "a loop is blocked",
            trigger=blocked.trigger,
            stack="\n  ".join(["", *blocked.stack]),
            hint="Use await, or asyncio.to_thread for what cannot wait.",
        )
        self._changed()

    async def _look(self, seconds: float) -> Blocked:
        trigger_id = self._runner.pulse.running
        stack = await self._runner.stack()
        return Blocked(
            trigger_id=trigger_id, trigger=None if trigger_id is None else self._name(trigger_id), seconds=seconds, stack=stack[:100]
        )
