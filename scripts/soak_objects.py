"""Read many objects of a bucket of versitygw with a triggerer that is killed again and again. Each object must be stored exactly once.

The objects are written into the folder of the server, with the metadata that the server itself writes. After the last object, objects
with early, late and middle keys are added, one is replaced, and a last triggerer lists all of them again: nothing else may be stored.

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

from support.sources.many_objects import Shape, soak


def main() -> int:
    """Run the soak test; return 0 if each object was stored exactly once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000, help="number of objects (%(default)s)")
    parser.add_argument("--kills", type=int, default=4, help="number of kills of the triggerer (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**9), help="seed of all random choices")
    parser.add_argument("--folder", type=Path, default=None, help="working folder; default: a temporary folder")
    options = parser.parse_args()
    command = f"scripts/soak_objects.py --objects {options.objects} --kills {options.kills} --seed {options.seed}"
    print(f"--- {command}", file=sys.stderr, flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f}  {text}", file=sys.stderr, flush=True)

    folder: Path = options.folder or Path(mkdtemp(prefix="headrace-soak-objects-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        result = soak(folder, Shape(options.objects, options.kills), options.seed, say)
    except (AssertionError, OSError):
        traceback.print_exc()
        print(f"FAILED, files in {folder}; to repeat: {command}", file=sys.stderr, flush=True)
        return 1
    shutil.rmtree(folder)
    print(json.dumps(result, indent=2))
    print(f"soak-objects: {options.objects:,} objects stored exactly once after {options.kills} kills", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
