"""Runs `headrace` commands in processes of their own, each a fork of one that has imported the command line already."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from select import select
from typing import NamedTuple

COMMAND_SECONDS = 60.0


class CommandResult(NamedTuple):
    """The exit code and the output of a command."""

    returncode: int
    stdout: str
    stderr: str


def headrace(*arguments: str, cwd: Path, text: str | bytes = "", **environment: str) -> CommandResult:
    """Run `headrace` with these arguments and with `text` as its standard input. It has no other variables that begin with HEADRACE_."""
    return run_command(arguments, cwd, environment, text)


def run_command(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], text: str | bytes = "", seconds: float = COMMAND_SECONDS
) -> CommandResult:
    """Run `headrace` as above, for up to `seconds`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        files[0].write_bytes(text.encode() if isinstance(text, str) else text)
        request = {
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": clean | dict(environment),
            "files": [str(file) for file in files],
        }
        code = _server().run(json.dumps(request), seconds)
        return CommandResult(code, files[1].read_text(), files[2].read_text())


class _Server:
    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        atexit.register(self._process.kill)

    def run(self, request: str, seconds: float) -> int:
        """Send a request, and return the exit code of its command, which ends within `seconds`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{request}\n")
        stdin.flush()
        if not select([stdout], [], [], seconds)[0]:
            self._process.kill()
            _server.cache_clear()  # its next answer would be that of this command
            raise TimeoutError(f"The command did not end within {seconds:g} seconds: {request}")
        answer = stdout.readline()
        assert answer, "the server of command lines has ended"
        return int(answer)


@cache
def _server() -> _Server:
    return _Server()


def _serve() -> None:
    from headrace.cli.main import run

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            stdin, stdout, stderr = request["files"]
            for descriptor, (path, flags) in enumerate(
                [(stdin, os.O_RDONLY), (stdout, os.O_WRONLY | os.O_CREAT), (stderr, os.O_WRONLY | os.O_CREAT)]
            ):
                os.dup2(os.open(path, flags), descriptor)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it has read ahead of the request
            os.environ.clear()
            os.environ.update(request["environment"])
            os.chdir(request["cwd"])
            sys.argv = ["headrace", *request["arguments"]]
            run()
            return
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
