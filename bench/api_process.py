"""Start the real API server in a separate process, and describe the machine."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import httpx
import psutil

ROOT: Final = Path(__file__).resolve().parents[1]
KEY: Final = "the-benchmarks-key-of-32-characters-"


class Api(NamedTuple):
    """A running API server."""

    url: str
    pid: int


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def clean_environment(**settings: str) -> dict[str, str]:
    """Return the environment with only these settings of Headrace, so that a benchmark never uses the database of its user."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return environment | {f"HEADRACE_{name.upper()}": value for name, value in settings.items()}


@asynccontextmanager
async def api_process(home: Path, **settings: str) -> AsyncIterator[Api]:
    """Run `headrace api` in the folder `home`; yield it when it responds."""
    port = free_port()
    variables = {"home": str(home), "host": "127.0.0.1", "port": str(port), "key": KEY, "log_level": "warning", **settings}
    async with process("-m", "headrace", "api", cwd=home, env=clean_environment(**variables)) as running:
        url = f"http://127.0.0.1:{port}"
        await wait_for_response(f"{url}/healthz", running)
        yield Api(url, running.pid)


@asynccontextmanager
async def process(
    *arguments: str, cwd: Path, env: dict[str, str], python: str | Path = sys.executable
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run Python with these arguments; terminate the process at the end."""
    running = await asyncio.create_subprocess_exec(python, *arguments, cwd=cwd, env=env, stdout=sys.stderr)
    try:
        yield running
    finally:
        if running.returncode is None:
            with suppress(ProcessLookupError):  # it was killed, and this is not known yet
                running.terminate()
        await running.wait()


async def wait_for_response(url: str, running: asyncio.subprocess.Process) -> None:
    """Poll `url` until it responds with success. Exit if the process ends before."""
    async with asyncio.timeout(60), httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
        while running.returncode is None:
            try:
                if (await client.get(url)).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)
    raise SystemExit("A process of the benchmark does not start. Its output is above.")


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process, in seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def all_processor_seconds() -> float:
    """Return the processor time of this process and its running children, in seconds."""
    me = psutil.Process()
    total = 0.0
    for each in [me, *me.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # a Python worker of Spark has ended; its parent includes its time
            total += processor_seconds(each.pid)
    return total


def machine() -> dict[str, Any]:
    """Return the properties of the machine that affect the figures."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": load(),
    }


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> str | None:
    """Return the measured commit, or None outside a git repository."""
    result = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip() or None


def commit_ms(folder: Path) -> float:
    """Return the median time to make a write of 4 KiB durable in a folder, in milliseconds."""
    took = []
    with (folder / "probe").open("wb") as file:
        for _ in range(50):
            begun = perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fdatasync(file.fileno())
            took.append(1000 * (perf_counter() - begun))
    return round(sorted(took)[25], 3)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
