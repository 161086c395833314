"""Measure the control plane and print JSON: python -m bench.control [--only PART ...] [--seconds N]"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

import uvloop
from bench.api_process import ROOT, commit, commit_ms, load, machine
from bench.control import claims, history, limits, limits_triggerer, stored, takeover

PARTS: Final = ("idle", "claims", "stored", "takeover", "history", "limits", "limits-triggerer")


def main() -> None:
    """Print the figures of the requested parts."""
    options = _arguments()
    begun = monotonic()
    answer: dict[str, Any] = {"machine": machine(), "commit": commit()}
    folder = ROOT / ".headrace"
    folder.mkdir(exist_ok=True)
    # On the disk of the checkout, since /tmp may be memory.
    with TemporaryDirectory(prefix="bench-control-", dir=folder) as home, _databases(options.databases) as databases:
        answer["commit_ms"] = commit_ms(Path(home))
        for part in options.only:
            answer[part] = _part(part, databases, Path(home), options.seconds)
    answer["machine"]["load_after"] = load()
    answer["seconds"] = round(monotonic() - begun, 1)
    print(json.dumps(answer, indent=2))


def _part(part: str, databases: dict[str, str], home: Path, seconds: float) -> dict[str, Any]:
    if part == "idle":
        return _idle()
    if part == "takeover":
        return _takeover(home / part)
    if part == "limits-triggerer":
        return _limits_triggerer(home / part)
    answer: dict[str, Any] = {}
    for database, url in databases.items():
        folder = home / f"{part}-{database}"
        folder.mkdir()
        if part == "stored":
            answer[database] = uvloop.run(stored.measure(database, url, folder, seconds))
        elif part == "history":
            answer[database] = history.measure(_claims_url(url) or f"sqlite:///{folder / 'history.db'}")
        elif part == "limits":
            answer[database] = limits.measure(f"{url}_limits" if url else f"sqlite:///{folder / 'limits.db'}")
        else:
            answer[database] = asyncio.run(claims.measure(_claims_url(url), folder))
        say(f"{part} on {database}: {json.dumps(answer[database])}")
    return answer


def _idle() -> dict[str, Any]:
    """Measure in a separate process, because the part measures memory."""
    result = subprocess.run([sys.executable, "-m", "bench.control.idle"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(result.stdout)
    say(f"idle: {json.dumps(answer)}")
    return answer


def _takeover(home: Path) -> dict[str, Any]:
    home.mkdir()
    answer = takeover.measure(home)
    say(f"takeover: {json.dumps(answer)}")
    return answer


def _limits_triggerer(home: Path) -> dict[str, Any]:
    home.mkdir()
    answer = uvloop.run(limits_triggerer.measure(home))
    say(f"limits-triggerer: {json.dumps(answer)}")
    return answer


@contextmanager
def _databases(names: list[str]) -> Iterator[dict[str, str]]:
    """Yield the URL of each database. SQLite has none: each part creates its own file."""
    urls = {"sqlite": ""} if "sqlite" in names else {}
    if "postgresql" not in names:
        yield urls
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from support.processes.postgres import Postgres

    server = Postgres(fsync=True)
    try:
        for database in ("bench", "bench_floor", "bench_claims", "bench_limits"):
            server.admin("CREATE DATABASE {}", database)
        yield urls | {"postgresql": server.url("bench")}
    finally:
        server.close()


def _claims_url(url: str) -> str:
    return f"{url}_claims" if url else ""


def say(text: str) -> None:
    """Print a progress message."""
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.control", description="Measure Headrace's API server under load.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="measure only these parts")
    parser.add_argument(
        "--databases", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"], help="databases to measure (both)"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of each load in seconds (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
