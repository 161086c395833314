"""Kill a pipeline before, during and after the commit of its sink, on a shuffled, duplicated and lossy feed. The tables must be exact.

With `--rivals 3`, three drivers compete for the scope. They are paused, killed or disconnected from the API, or have wrong clocks.
With `--bucket s3` or `az`, all tables are Delta tables in a bucket, on a server of this script (after `make setup-brokers`).
With `--catalog`, the Iceberg tables are in a REST catalog, with their files in a bucket of S3 (after `make setup-brokers`).
With `--power-cuts`, the tables are in a separate file system, which loses all unsynced data at each kill (only as root).

Print the command that repeats a failed run. After a failure, do not delete the files.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests/support/projects"))

from support.pipelines.bucket_tables import SERVERS, bucket_tables
from support.pipelines.kills import PHASES, Shape, soak
from support.pipelines.power_cut_volume import Volume, missing
from support.pipelines.rivals import fight
from support.processes.iceberg_rest import rest_catalog_over_s3


def main() -> int:
    """Run the soak test; return 0 if the tables are exact and the kills covered each phase often enough."""
    options = _arguments()
    command = f"scripts/soak_pipeline.py --seed {options.seed} --events {options.events} --kills {options.kills}"
    command += f" --rivals {options.rivals}" if options.rivals else ""
    command += " --power-cuts" if options.power_cuts else ""
    command += f" --bucket {options.bucket}" if options.bucket else ""
    command += " --catalog" if options.catalog else ""
    if options.power_cuts and (lacking := missing()):
        print(f"error: --power-cuts is not possible: {lacking}.", file=sys.stderr)
        return 2
    print(f"--- {command}", file=sys.stderr, flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f}  {text}", file=sys.stderr, flush=True)

    folder: Path = options.folder or Path(mkdtemp(prefix="headrace-soak-pipeline-"))
    folder.mkdir(parents=True, exist_ok=True)
    shape = Shape(options.events, options.kills, ahead=max(1_000, min(50_000, options.events // 40)), lookback=options.lookback)
    try:
        with (
            Volume(folder / "tables") if options.power_cuts else nullcontext() as volume,
            bucket_tables(options.bucket) if options.bucket else nullcontext() as bucket,
            rest_catalog_over_s3() if options.catalog else nullcontext(),
        ):
            if options.rivals:
                return _judge_rivals(options, fight(folder, shape, options.rivals, options.seed, say, bucket), folder)
            result = soak(folder, shape, options.seed, say, 60 * options.minutes, volume, bucket)
    except (AssertionError, OSError):
        traceback.print_exc()
        print(f"FAILED, files in {folder}; to repeat: {command}", file=sys.stderr, flush=True)
        return 1
    if result is None:
        print(f"not finished; continue with: {command} --folder {folder}", file=sys.stderr, flush=True)
        return 75
    shutil.rmtree(folder)
    if options.json:
        print(json.dumps(result, indent=2))
    phases = result["phases"]
    rare = [phase for phase in PHASES if phases[phase] < options.kills // 4]
    if result["kills"] < options.kills or rare:
        print(f"soak-pipeline: the tables are exact, but too few kills hit: {phases}", file=sys.stderr, flush=True)
        return 1
    print(
        f"soak-pipeline: {options.events:,} events exact after {result['kills']} kills, {phases}, {result['marks']}",
        file=sys.stderr,
        flush=True,
    )
    return 0


def _judge_rivals(options: argparse.Namespace, result: dict[str, Any], folder: Path) -> int:
    """Return 0 if all faults happened."""
    shutil.rmtree(folder)
    if options.json:
        print(json.dumps(result, indent=2))
    happened = sum(result["faults"].values())
    print(
        f"soak-pipeline: {options.events:,} events exact after {happened} faults of {options.rivals} rivals: {result}",
        file=sys.stderr,
        flush=True,
    )
    return 0 if happened == options.kills else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="number of different events (%(default)s)")
    parser.add_argument("--kills", type=int, default=20, help="number of kills of the pipeline (%(default)s)")
    parser.add_argument(
        "--rivals",
        type=int,
        default=0,
        help="number of drivers that compete for the scope; --kills is then the number of faults (0: one driver)",
    )
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--bucket", choices=tuple(SERVERS), help="keep the tables in a bucket; such a run cannot be continued")
    tables.add_argument("--catalog", action="store_true", help="use a REST catalog over S3 for Iceberg; such a run cannot be continued")
    tables.add_argument("--power-cuts", action="store_true", help="cut the power of the tables at each kill (only as root)")
    parser.add_argument("--lookback", type=float, default=30.0, help="seconds that a follower waits for its leader (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**9), help="seed of all random choices")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this time, to continue later (exit code 75)")
    parser.add_argument("--folder", type=Path, help="folder of the database and the tables; continues a stopped run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
