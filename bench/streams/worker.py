"""Run one side in a separate process: read a case from each line of input, write a line of results: python -m bench.streams.worker SIDE"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TextIO

from bench.streams.case import Case
from bench.streams.drive import Side, drive


def side_of(name: str) -> Side:
    """Return the side with this name. The other side need not be installed."""
    if name == "airflow":
        from bench.streams.peer import Airflow

        return Airflow()
    from bench.streams.ours import Headrace

    return Headrace()


def serve(name: str, requests: TextIO, answers: TextIO) -> None:
    """Process requests until the input ends."""
    side = side_of(name)
    _write(answers, {"version": side.version, "python": sys.version.split()[0]})
    for line in requests:
        took = asyncio.run(drive(side, Case.off_wire(json.loads(line))))
        _write(answers, took.on_wire())


def _write(answers: TextIO, answer: dict[str, object]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def main() -> None:
    # Output of a library must not mix with the results.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(sys.argv[1], sys.stdin, answers)


if __name__ == "__main__":
    main()
