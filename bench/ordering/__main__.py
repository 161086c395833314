"""Measures causal ordering here and in Prefect, in one run, and prints JSON: python -m bench.ordering [--only core sql]."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.ordering import core, pruning, sql

ROOT: Final = Path(__file__).resolve().parents[2]
PEER_PYTHON: Final = ROOT / ".venv-bench-prefect" / "bin" / "python"
PIPELINE: Final = ("latency", "slim", "payload", "reading")
PARTS: Final = ("core", "sql", "one", "kernel", "waiting", "pruning", "replay", *PIPELINE)


def main() -> None:
    asked = _arguments()
    answer: dict[str, Any] = {"load_before": round(os.getloadavg()[0], 2)}
    if "core" in asked.only:
        ours, peer = core.measure(), _peer("memory", 20_000)
        ratio = round(ours["memory home, claimed and settled, events/s"] / peer["events/s"], 1)
        answer["core"] = {"headrace": ours, "prefect, memory": peer, "ratio of the memory homes": ratio}
    if "sql" in asked.only:
        ours, peer = sql.measure(), _peer("db", 2_000)
        answer["sql"] = {"headrace, SQLite": ours, "prefect, SQLite": peer, "ratio": round(ours["events/s"] / peer["events/s"], 1)}
    if "one" in asked.only:
        from bench.ordering import one_by_one

        answer["one event at a time"] = one_by_one.measure(asked.homes, _peer)
    if "kernel" in asked.only:
        from bench.ordering import kernel

        answer["kernel"] = kernel.measure()
    if "waiting" in asked.only:
        from bench.ordering import waiting

        answer["waiting"] = waiting.measure()
    if "pruning" in asked.only:
        answer["pruning"] = pruning.measure()
    if "replay" in asked.only:
        from bench.ordering import replay

        answer["replay"] = replay.measure()
    if pipeline := [part for part in PIPELINE if part in asked.only]:
        from bench.ordering import streaming

        answer["pipeline"] = streaming.measure(streaming.arguments(["--only", *pipeline]))
    answer["load_after"] = round(os.getloadavg()[0], 2)
    print(json.dumps(answer, indent=2))


def _peer(home: str, events: int, *more: str, url: str | None = None) -> dict[str, Any]:
    if not PEER_PYTHON.exists():
        raise SystemExit("error: there is no environment for the peer\nhint: make bench-ordering")
    with TemporaryDirectory(prefix="bench-prefect-") as folder:
        given = {**os.environ, "PREFECT_HOME": folder, "PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1"}
        if url is not None:
            given["PREFECT_API_DATABASE_CONNECTION_URL"] = url.replace("postgresql://", "postgresql+asyncpg://")
        command = [str(PEER_PYTHON), "-m", "bench.ordering.peer", home, str(events), *more]
        told = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    if told.returncode:
        raise SystemExit(f"error: the peer ended with {told.returncode}\n{told.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.ordering", description="Causal ordering, ours and Prefect's, under one load.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    homes = ("memory", "sqlite", "postgresql")
    parser.add_argument("--homes", nargs="+", choices=homes, default=homes, help="of the part 'one'")
    return parser.parse_args()


if __name__ == "__main__":
    main()
