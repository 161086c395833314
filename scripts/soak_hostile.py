"""Run malformed raw events, file names, triggers and producers beside healthy triggers, which must get each event once and in time.

Print the command that repeats the run. After a failure, do not delete the files.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
import traceback
from pathlib import Path
from tempfile import mkdtemp

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests/support/projects"))

from support.hostile.soak import Shape, Soak


def main() -> int:
    """Run the soak test; return 0 if the healthy triggers were not affected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**9), help="seed of all random choices")
    parser.add_argument("--minutes", type=float, default=30.0, help="duration in minutes")
    parser.add_argument("--producers", type=int, default=40, help="number of concurrent malformed producers")
    parser.add_argument("--rate", type=float, default=3.0, help="malformed inputs per second")
    parser.add_argument("--folder", type=Path, default=None, help="working folder; default: a temporary folder")
    options = parser.parse_args()
    command = f"scripts/soak_hostile.py --seed {options.seed} --minutes {options.minutes:g}"
    command += f" --producers {options.producers} --rate {options.rate:g}"
    print(f"--- {command}", file=sys.stderr, flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f}  {text}", file=sys.stderr, flush=True)

    folder: Path = options.folder or Path(mkdtemp(prefix="headrace-soak-hostile-"))
    folder.mkdir(parents=True, exist_ok=True)
    shape = Shape(hostile=options.minutes * 60, producers=options.producers, each_second=options.rate)
    try:
        result = Soak(folder, shape, options.seed, say).run()
    except AssertionError:
        traceback.print_exc()
        print(f"FAILED, files in {folder}; to repeat: {command}", file=sys.stderr, flush=True)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
