"""The forecaster: takes jobs over HTTP and does each in a process of its own. It stands for a cluster, a warehouse, a model service.

PUT /jobs/NAME {"lanes": folder, "answer": file} submits one, once for each name; GET /jobs/NAME says {"state": "running" | "done" |
"failed", "answer": file}. While the file named by --hold is there, jobs do not end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Jobs:
    """The jobs by name. Thread-safe."""

    def __init__(self, hold: Path | None) -> None:
        self._hold = hold
        self._jobs: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self.started = 0

    def submit(self, name: str, job: dict[str, str]) -> None:
        with self._lock:
            if name in self._jobs:
                return
            self._jobs[name] = {"state": "running", "answer": job["answer"]}
            self.started += 1
        threading.Thread(target=self._work, args=(name, job), daemon=True).start()

    def get(self, name: str) -> dict[str, Any] | None:
        with self._lock:
            return dict(self._jobs[name]) if name in self._jobs else None

    def _work(self, name: str, job: dict[str, str]) -> None:
        command = [
            sys.executable,
            __file__,
            "--forecast",
            job["lanes"],
            job["answer"],
            *(["--hold", str(self._hold)] if self._hold else []),
        ]
        code = subprocess.run(command, check=False).returncode  # noqa: S603
        with self._lock:
            self._jobs[name]["state"] = "done" if code == 0 else "failed"


def forecast(lanes: Path, answer: Path, hold: Path | None) -> None:
    """Expect that every lane takes a tenth longer than it did."""
    while hold is not None and hold.exists():
        time.sleep(0.05)
    rows = [json.loads(line) for part in sorted(lanes.glob("part-*")) for line in part.read_text().splitlines()]
    expected = [{"origin": row["origin"], "dest": row["dest"], "expected": row["minutes"] * 1.1} for row in rows]
    draft = answer.with_suffix(".new")
    draft.write_text("".join(json.dumps(row) + "\n" for row in expected))
    draft.rename(answer)


def serve(port: int, jobs: Jobs) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            jobs.submit(self._name(), json.loads(body))
            self._answer(201, {})

        def do_GET(self) -> None:
            if self.path == "/":
                self._answer(200, {"started": jobs.started})
                return
            job = jobs.get(self._name())
            self._answer(404 if job is None else 200, job or {})

        def _name(self) -> str:
            return self.path.rpartition("/")[2]

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            del format, args  # it says nothing

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        print(server.server_address[1], flush=True)  # noqa: T201
        server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8700, help="0: any free one, which is printed")
    parser.add_argument("--hold", type=Path, help="jobs do not end while this file is there")
    parser.add_argument("--forecast", nargs=2, type=Path, metavar=("LANES", "ANSWER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.forecast:
        lanes, answer = given.forecast
        forecast(lanes, answer, given.hold)
    else:
        serve(given.port, Jobs(given.hold))


if __name__ == "__main__":
    main()
