"""Two numbers in memory that supervisor and runner share; they show the state of a runner whose loop is blocked.

Invariant: the runner's loop writes, the supervisor only reads. `beats` rises while the loop turns. `running` is the id
of the trigger whose code holds the loop now, 0 if there is none. A socket could not show this, because the blocked loop
is the one that would write to it.
"""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from headrace.triggerer.context import TriggerContext, current_trigger

T = TypeVar("T")

EXITS: Final = (SystemExit, KeyboardInterrupt)
"""Exceptions that end a process because asyncio does not catch them. A trigger that raises one fails, and the process continues."""

SIZE: Final = 16
BEAT_SECONDS: Final = 0.2
"""Interval between two beats."""


class TriggerExited(RuntimeError):
    """A trigger raised a `BaseException` such as `SystemExit` (`sys.exit`, argparse) or `KeyboardInterrupt`."""

    def __init__(self, cause: BaseException) -> None:
        code = getattr(cause, "code", None)
        text = code if isinstance(code, int | str) else ""
        super().__init__(f"The trigger raised {type(cause).__name__}({text}). It cannot end its process: raise an exception instead.")


class SharedHeartbeat:
    """The two numbers. Without a `file`, they are private to this process."""

    def __init__(self, file: int = -1) -> None:
        self.numbers = memoryview(mmap.mmap(file, SIZE)).cast("Q")

    @property
    def beats(self) -> int:
        """Count of loop turns and of trigger steps that ended. Many busy triggers together do not look like a blocked loop."""
        return int(self.numbers[0])

    @property
    def running(self) -> int | None:
        """The id of the trigger whose code runs, or None."""
        return int(self.numbers[1]) or None

    @contextmanager
    def at(self, trigger_id: int) -> Iterator[None]:
        """Mark a trigger's synchronous code as running. If the process dies in this block, the id stays visible.

        Raises:
            TriggerExited: The code raised a `BaseException`, such as one of `EXITS`, which no task would catch here.
        """
        self.numbers[1] = trigger_id
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            raise TriggerExited(error) from error
        finally:
            _end_step(self.numbers)

    def start(self) -> None:
        """Beat while the running loop turns, and attribute every task that a trigger starts to this trigger."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self.task)
        self._beat(loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.numbers[0] += 1
        loop.call_later(BEAT_SECONDS, self._beat, loop)

    def task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
    ) -> asyncio.Task[T]:
        """Create a task (a task factory). A task that a trigger starts is attributed to this trigger."""
        running = current_trigger.get() if options.get("context") is None else options["context"].get(current_trigger)
        return asyncio.Task(coroutine if running is None else TrackedCoroutine(coroutine, self, running), loop=loop, **options)


def _end_step(numbers: memoryview) -> None:
    numbers[1] = 0
    numbers[0] += 1


class TrackedCoroutine(Coroutine[Any, Any, T]):
    """A coroutine of a trigger. The heartbeat shows the trigger while the coroutine runs."""

    __slots__ = ("_coroutine", "_numbers", "_trigger_id")

    def __init__(
        self, coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T], heartbeat: SharedHeartbeat, running: TriggerContext
    ) -> None:
        self._coroutine: Any = coroutine
        self._numbers = heartbeat.numbers
        self._trigger_id = running.trigger_id

    def send(self, value: Any) -> Any:
        """Resume the coroutine."""
        self._numbers[1] = self._trigger_id
        try:
            return self._coroutine.send(value)
        except EXITS as error:
            raise TriggerExited(error) from error
        finally:
            _end_step(self._numbers)

    def throw(self, *error: Any) -> Any:
        """Raise an exception in the coroutine."""
        self._numbers[1] = self._trigger_id
        try:
            return self._coroutine.throw(*error)
        except EXITS as exit_:
            raise TriggerExited(exit_) from exit_
        finally:
            _end_step(self._numbers)

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Any:
        return self._coroutine.__await__()
