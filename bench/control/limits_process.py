"""Run the processes of `bench.control.limits_triggerer`: an API server and a runner that record the stalls of their event loops."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from time import monotonic, process_time
from typing import Any, Final

from headrace.client.http.proxied_session import ProxiedSession
from headrace.client.triggerer import TriggererClient
from headrace.core.ledger.outcome import AdvanceItem
from headrace.logs.setup import configure, process_handler
from headrace.project import Project
from headrace.triggerer.runner.runner import Limits
from headrace.triggers.upstream import SharedStreamProducer, Upstream
from headrace.wiring.runner import run_runner, run_trigger_process

WATCHES: Final = 100_000
LARGE: Final = 20_000
SMALL: Final = 1_000
"""Watches of each other stream."""

_SAMPLE_SECONDS: Final = 0.01  # a tenth of this makes the threads of the API server a third slower
_MIN_STALL_MS: Final = 30  # shorter stalls are not recorded


class Stalls:
    """Records each stall of a loop: its time, its wall time and its processor time in milliseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def watch(self) -> None:
        """Sample the loop until cancelled."""
        before = (monotonic(), process_time())
        with self._path.open("a", buffering=1) as file:
            while True:
                await asyncio.sleep(_SAMPLE_SECONDS)
                now = (monotonic(), process_time())
                clock, own = (round(1_000 * (after - earlier)) for after, earlier in zip(now, before, strict=True))
                if clock > _MIN_STALL_MS:
                    file.write(json.dumps([now[0], clock, own]) + "\n")
                before = now


class Blip(Upstream):
    """Yields nothing. The large stream fails once when the folder has a file `fail`.

    Each opened stream adds a line to the file `running`. The large stream also adds one to the file `opened`.
    """

    event_type = "bench.blip"

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name

    def stream_key(self) -> str:
        return f"blip:{self._name}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Blip", {"folder": self._folder, "name": self._name}

    def producer(self) -> SharedStreamProducer:
        return _Producer(Path(self._folder), self._name == "large")


class _Producer(SharedStreamProducer):
    def __init__(self, folder: Path, large: bool) -> None:
        self._folder, self._large = folder, large

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        _append_line(self._folder / "running")
        if not self._large:
            await asyncio.Event().wait()
        _append_line(self._folder / "opened")
        fail = self._folder / "fail"
        for _ in iter(fail.exists, True):
            await asyncio.sleep(0.01)
        fail.unlink()
        if self._large:
            raise ConnectionError("the broker was unavailable for a moment")
        yield None, None

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        raise AssertionError(f"{batch} does not belong to this stream")


def _append_line(path: Path) -> None:
    with path.open("a") as file:
        file.write("opened\n")


def runner(folder: Path, watches: int, large: int) -> None:
    """Run a project with `watches` watches, `large` of them on one stream."""
    _log_from(logging.ERROR)
    tasks = set()

    def project() -> Project:
        result = Project("bench")
        for number in range(watches):
            stream = "large" if number < large else str(number // SMALL)
            result.watch(f"watch-{number:06}", Blip(str(folder), stream), match={"number": [number]})
        return result

    def client(session: ProxiedSession) -> TriggererClient:
        tasks.add(asyncio.create_task(Stalls(folder / "runner.stalls").watch()))
        return TriggererClient("", key="", session=session)

    run_runner(project, Limits(), client, (sys.executable, "-m", "bench.control.limits_process", "trigger-process"))


def api(stalls: Path) -> None:
    """Serve the API."""
    from headrace.api.server import Server
    from headrace.settings import read_settings
    from headrace.wiring.api import serve_api

    startup, tasks = Server.startup, set()

    async def watched(self: Server, *args: Any, **kwargs: Any) -> None:
        tasks.add(asyncio.create_task(Stalls(stalls).watch()))
        await startup(self, *args, **kwargs)

    set_attribute = type.__setattr__
    set_attribute(Server, "startup", watched)
    _log_from(logging.WARNING)
    serve_api(read_settings(), migrate=False)


def _log_from(level: int) -> None:
    """Configure logging as in the product, because structlog's default format of a traceback takes 0.2 s."""
    configure(level, [process_handler(sys.stderr, as_json=True, colours=False)])


def main() -> None:
    """Run the process that the command line names."""
    match sys.argv[1:]:
        case ["runner", folder, watches, large]:
            runner(Path(folder), int(watches), int(large))
        case ["api", stalls]:
            api(Path(stalls))
        case _:
            run_trigger_process(lambda: None, lambda session: TriggererClient("", key="", session=session))


if __name__ == "__main__":
    main()
