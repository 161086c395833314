"""What the supervisor sees of a runner that cannot speak: two numbers in memory that both processes share.

The law: the runner's loop writes, the supervisor only reads. `beats` rises while the loop goes on; `running` is the id of the trigger whose
code holds the loop now, 0 between them. A socket could not tell: the loop that would write to it is what is blocked.
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
"""What ends a process where asyncio does not catch it. A trigger that raises one of these fails, and nothing else does."""

SIZE: Final = 16
EVERY: Final = 0.2
"""Seconds between two beats."""


class TriggerExited(RuntimeError):
    """A trigger raised what is no `Exception`: `SystemExit` (as `sys.exit` and argparse do), `KeyboardInterrupt` and the like."""

    def __init__(self, cause: BaseException) -> None:
        code = getattr(cause, "code", None)
        shown = code if isinstance(code, int | str) else ""
        super().__init__(f"The trigger raised {type(cause).__name__}({shown}). It cannot end its process: raise an exception instead.")


class SharedHeartbeat:
    """The two numbers. Without a `file` they are this process's own."""

    def __init__(self, file: int = -1) -> None:
        self.numbers = memoryview(mmap.mmap(file, SIZE)).cast("Q")

    @property
    def beats(self) -> int:
        """How often the loop has turned, or code of a trigger's has given it back: of many that are busy, none blocks it."""
        return int(self.numbers[0])

    @property
    def running(self) -> int | None:
        """The id of the trigger whose code runs, or None if none does."""
        return int(self.numbers[1]) or None

    @contextmanager
    def at(self, trigger_id: int) -> Iterator[None]:
        """Say that a trigger's code runs, in synchronous code. A process that dies in it leaves its id.

        Raises:
            TriggerExited: The code raised what is no `Exception`, such as one of `EXITS`; no task would catch it here.
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
        """Beat from now on, for as long as the running loop turns, and know whatever a trigger starts as that trigger's."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self.task)
        self._beat(loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.numbers[0] += 1
        loop.call_later(EVERY, self._beat, loop)

    def task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
    ) -> asyncio.Task[T]:
        """A task factory: whatever a trigger starts is known as that trigger's."""
        running = current_trigger.get() if options.get("context") is None else options["context"].get(current_trigger)
        return asyncio.Task(coroutine if running is None else TrackedCoroutine(coroutine, self, running), loop=loop, **options)


def _end_step(numbers: memoryview) -> None:
    numbers[1] = 0
    numbers[0] += 1


class TrackedCoroutine(Coroutine[Any, Any, T]):
    """A coroutine of a trigger's: the pulse shows it, whenever it is at work."""

    __slots__ = ("_coroutine", "_numbers", "_trigger_id")

    def __init__(
        self, coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T], pulse: SharedHeartbeat, running: TriggerContext
    ) -> None:
        self._coroutine: Any = coroutine
        self._numbers = pulse.numbers
        self._trigger_id = running.trigger_id

    def send(self, value: Any) -> Any:
        """Go on."""
        self._numbers[1] = self._trigger_id
        try:
            return self._coroutine.send(value)
        except EXITS as error:
            raise TriggerExited(error) from error
        finally:
            _end_step(self._numbers)

    def throw(self, *error: Any) -> Any:
        """Go on with an exception."""
        self._numbers[1] = self._trigger_id
        try:
            return self._coroutine.throw(*error)
        except EXITS as exit_:
            raise TriggerExited(exit_) from exit_
        finally:
            _end_step(self._numbers)

    def close(self) -> None:
        """End."""
        self._coroutine.close()

    def __await__(self) -> Any:
        return self._coroutine.__await__()
