"""Measure the causal ordering of Headrace and of Prefect in one run, and print JSON: python -m bench.ordering [--only core sql]."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.ordering import core, pruning, sql

ROOT: Final = Path(__file__).resolve().parents[2]
PEER_PYTHON: Final = ROOT / ".venv-bench-prefect" / "bin" / "python"
PIPELINE: Final = ("latency", "slim", "payload", "reading")
PARTS: Final = ("core", "sql", "one", "kernel", "waiting", "pruning", "replay", "keyed", "small-files", *PIPELINE)


def main() -> None:
    options = _arguments()
    answer: dict[str, Any] = {"load_before": round(os.getloadavg()[0], 2)}
    if "core" in options.only:
        ours, peer = core.measure(), _peer("memory", 20_000)
        ratio = round(ours["memory store, claimed and settled, events/s"] / peer["events/s"], 1)
        answer["core"] = {"headrace": ours, "prefect, memory": peer, "ratio of the memory stores": ratio}
    if "sql" in options.only:
        ours, peer = sql.measure(), _peer("db", 2_000)
        answer["sql"] = {"headrace, SQLite": ours, "prefect, SQLite": peer, "ratio": round(ours["events/s"] / peer["events/s"], 1)}
    if "one" in options.only:
        from bench.ordering import one_by_one

        answer["one event at a time"] = one_by_one.measure(options.stores, _peer)
    if "kernel" in options.only:
        from bench.ordering import kernel

        answer["kernel"] = kernel.measure()
    if "waiting" in options.only:
        from bench.ordering import waiting

        answer["waiting"] = waiting.measure()
    if "pruning" in options.only:
        answer["pruning"] = pruning.measure()
    if "replay" in options.only:
        from bench.ordering import replay

        answer["replay"] = replay.measure()
    answer |= _tables(options.only)
    if pipeline := [part for part in PIPELINE if part in options.only]:
        from bench.ordering import streaming

        answer["pipeline"] = streaming.measure(streaming.arguments(["--only", *pipeline]))
    answer["load_after"] = round(os.getloadavg()[0], 2)
    print(json.dumps(answer, indent=2))


def _tables(parts: Collection[str]) -> dict[str, Any]:
    """Return the measurements of the tables."""
    answer = {}
    if "keyed" in parts:
        from bench.ordering import keyed

        answer["keyed tables"] = keyed.measure()
    if "small-files" in parts:
        from bench.ordering import small_files

        answer["small files"] = small_files.measure()
    return answer


def _peer(store: str, events: int, *more: str, url: str | None = None) -> dict[str, Any]:
    if not PEER_PYTHON.exists():
        raise SystemExit("error: The environment of the peer is missing.\nhint: Create it: make bench-ordering")
    with TemporaryDirectory(prefix="bench-prefect-") as folder:
        environment = {**os.environ, "PREFECT_HOME": folder, "PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1"}
        if url is not None:
            environment["PREFECT_API_DATABASE_CONNECTION_URL"] = url.replace("postgresql://", "postgresql+asyncpg://")
        command = [str(PEER_PYTHON), "-m", "bench.ordering.peer", store, str(events), *more]
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"error: The peer ended with exit code {result.returncode}\n{result.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.ordering", description="Compare the causal ordering of Headrace and Prefect under the same load."
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="measure only these parts")
    stores = ("memory", "sqlite", "postgresql")
    parser.add_argument("--stores", nargs="+", choices=stores, default=stores, help="measure only these stores in the part 'one'")
    return parser.parse_args()


if __name__ == "__main__":
    main()
