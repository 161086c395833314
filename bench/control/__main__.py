"""Measures the control plane and prints JSON: python -m bench.control [--only PART ...] [--seconds N]"""

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
    """Print what was asked for."""
    asked = _arguments()
    begun = monotonic()
    answer: dict[str, Any] = {"machine": machine(), "commit": commit()}
    folder = ROOT / ".headrace"
    folder.mkdir(exist_ok=True)
    # On the disk of the checkout, since /tmp may be memory.
    with TemporaryDirectory(prefix="bench-control-", dir=folder) as home, _databases(asked.databases) as databases:
        answer["commit_ms"] = commit_ms(Path(home))
        for part in asked.only:
            answer[part] = _part(part, databases, Path(home), asked.seconds)
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
            answer[database] = history.measure(_another(url) or f"sqlite:///{folder / 'history.db'}")
        elif part == "limits":
            answer[database] = limits.measure(f"{url}_limits" if url else f"sqlite:///{folder / 'limits.db'}")
        else:
            answer[database] = asyncio.run(claims.measure(_another(url), folder))
        say(f"{part} on {database}: {json.dumps(answer[database])}")
    return answer


def _idle() -> dict[str, Any]:
    """Run in a process of its own: what is measured is its memory."""
    told = subprocess.run([sys.executable, "-m", "bench.control.idle"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(told.stdout)
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
def _databases(wanted: list[str]) -> Iterator[dict[str, str]]:
    """Give the URL of each database; a SQLite file (no URL) is made anew by each part."""
    urls = {"sqlite": ""} if "sqlite" in wanted else {}
    if "postgresql" not in wanted:
        yield urls
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from support.processes.postgres import Postgres

    server = Postgres(fsync=True)
    try:
        for name in ("bench", "bench_floor", "bench_claims", "bench_limits"):
            server.admin("CREATE DATABASE {}", name)
        yield urls | {"postgresql": server.url("bench")}
    finally:
        server.close()


def _another(url: str) -> str:
    return f"{url}_claims" if url else ""


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.control", description="Headrace's api under load.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    parser.add_argument("--databases", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"])
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each load is put on (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
