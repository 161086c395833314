"""`headrace` processes as forks of one that has imported their modules.

The imports are most of a start: 2 of 2.5 seconds of processor time of an api. What differs from `python -m headrace` is the start of the
interpreter. Processes with a variable that the interpreter reads are not forked.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ANSWER_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02
MAX_DESCRIPTORS: Final = 256
INTERPRETER_VARIABLES: Final = frozenset({"LD_PRELOAD", "PYTHONPATH", "PYTHONFAULTHANDLER"})
"""Variables that have an effect only at the start of an interpreter."""
PRELOADED: Final = ("headrace.wiring.api", "headrace.wiring.triggerer", "headrace.wiring.worker")


class ForkedProcess:
    """A process with the methods of `subprocess.Popen` that tests need."""

    def __init__(self, server: _Server, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask({"poll": self.pid})
            if self.returncode is not None:
                os.close(self._descriptor)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code. Raises `subprocess.TimeoutExpired`."""
        limit = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if limit is None else limit - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(["headrace"], timeout or 0.0)
            if select.select([self._descriptor], [], [], left)[0]:
                time.sleep(POLL_SECONDS)  # until its parent can collect it
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(arguments: Sequence[str], *, stdin: int, output: Path, environment: Mapping[str, str], folder: Path) -> ForkedProcess:
    """Start `headrace` in a session of its own. Its output is appended to a file. `stdin` is the same for all processes."""
    server = _server(stdin)
    request = {"arguments": list(arguments), "output": str(output), "environment": dict(environment), "folder": str(folder)}
    return ForkedProcess(server, int(server.ask({"start": request})))


class _Server:
    """The process that forks."""

    def __init__(self, stdin: int) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(ANSWER_SECONDS)
        self._answers = self._socket.makefile("r")
        self._lock = threading.Lock()
        command = [sys.executable, __file__, str(theirs.fileno()), str(stdin)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        with theirs:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=[theirs.fileno(), stdin])
        atexit.register(process.kill)

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Send a request, and return its answer."""
        with self._lock:
            self._socket.sendall(f"{json.dumps(request)}\n".encode())
            answer = self._answers.readline()
        assert answer, "the server of processes has ended"
        return json.loads(answer)


@cache
def _server(stdin: int) -> _Server:
    return _Server(stdin)


def _serve(connection: socket.socket, stdin: int) -> None:
    """Answer requests until the other side closes the connection. A child returns from here after its command."""
    from headrace.cli.main import run

    for module in PRELOADED:
        import_module(module)
    gc.freeze()
    for line in connection.makefile("r"):
        request = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif answer := os.fork():
            pass
        else:
            _become(request["start"], stdin)
            run()
            return
        connection.sendall(f"{json.dumps(answer)}\n".encode())


def _become(request: Mapping[str, Any], stdin: int) -> None:
    """Take the streams, the session, the environment and the folder of a process."""
    os.setsid()
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor, source in enumerate((stdin, output, output)):
        os.dup2(source, descriptor)
    os.closerange(3, MAX_DESCRIPTORS)
    sys.stdin, sys.stdout, sys.stderr = (
        open(descriptor, mode, buffering=1, closefd=False)  # noqa: SIM115
        for descriptor, mode in enumerate(("r", "w", "w"))
    )
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["headrace", *request["arguments"]]
    sys.path[0] = request["folder"]  # as with `python -m`


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
