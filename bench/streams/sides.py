"""Run both sides as processes, and send them requests in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from bench.streams.case import Case, SideName
from bench.streams.drive import Took

ROOT: Final = Path(__file__).resolve().parents[2]
PEER_PYTHON: Final = ROOT / ".venv-bench" / "bin" / "python"


@dataclass
class Worker:
    """One side in a separate process. Use it as a context manager."""

    name: SideName
    about: dict[str, Any]
    process: subprocess.Popen[str]
    stack: ExitStack

    @classmethod
    def start(cls, name: SideName) -> Self:
        """Start the process; return when it has imported its side."""
        with ExitStack() as stack:
            home = stack.enter_context(TemporaryDirectory(prefix="bench-streams-"))
            python = str(PEER_PYTHON) if name == "airflow" else sys.executable
            process = subprocess.Popen(
                [python, "-m", "bench.streams.worker", name],
                cwd=ROOT,
                # The import of the peer creates its home folder with a configuration.
                env={**os.environ, "AIRFLOW_HOME": home},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.wait)
            worker = cls(name, {}, process, stack.pop_all())
            worker.about = worker._answer()
            return worker
        raise AssertionError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.stack.close()

    def run(self, case: Case) -> Took:
        """Run a load on the side; return its measurement."""
        if self.process.stdin is not None:
            self.process.stdin.write(json.dumps(case.on_wire()) + "\n")
            self.process.stdin.flush()
        return Took(**self._answer())

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline() if self.process.stdout is not None else ""
        if not line:
            raise SystemExit(f"The {self.name} side of the benchmark ended with exit code {self.process.wait()}. Its output is above.")
        answer: dict[str, Any] = json.loads(line)
        return answer
