"""A user's module that configures logging removes neither the masking of secrets nor the logs of triggers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, logging, os, pathlib, sys, traceback
import structlog
from headrace.triggerer.context import TriggerContext, current_trigger
from headrace.triggerer.trigger_log import trigger_target
from headrace.cli.log_setup import set_up_logging
from headrace.settings import Settings
from headrace.triggers.masking import mask

def log_all(folder, configuring):
    out = os.open(folder + "/out.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    set_up_logging(Settings(home=folder), targets=[trigger_target])
    mask.add(["s3cret-horse"])
    known = logging.getLogger("known.before")
    unbound = structlog.get_logger("unbound.before")
    structlog.get_logger("bound.before").info("bound")
    exec(configuring, globals() | {"known": known, "folder": folder})
    current_trigger.set(TriggerContext(7, "legs", "trigger-7-job-3.log"))
    unbound.info("one", password="s3cret-horse")
    structlog.get_logger().info("two", password="s3cret-horse")
    known.info("three with %s", "s3cret-horse")
    logging.getLogger("made.after").warning("four with %s", "s3cret-horse")
    try:
        raise RuntimeError("five: s3cret-horse")
    except RuntimeError:
        logging.getLogger("made.after").exception("five")
    sys.stdout.flush()

for folder, configuring in json.loads(sys.stdin.read()).items():
    if (child := os.fork()) == 0:  # one import for all: the script has one thread
        try:
            log_all(folder, configuring)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(pathlib.Path(folder, "out.txt").read_text())
"""

WAYS = {
    "nothing": "",
    "structlog": "structlog.configure(processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.PrintLoggerFactory())",
    "structlog, to a file": (
        "structlog.configure(processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.WriteLoggerFactory(sys.stderr))"
    ),
    "structlog's defaults": "structlog.reset_defaults()",
    "structlog over logging": "structlog.stdlib.recreate_defaults()",
    "basicConfig": "logging.basicConfig(level='ERROR', stream=sys.stdout, force=True)",
    "dictConfig": "import logging.config; logging.config.dictConfig({'version': 1})",
    "dictConfig with a root": (
        "from logging.config import dictConfig; dictConfig({'version': 1, 'handlers': {'c': {'class': 'logging.StreamHandler'}},"
        " 'root': {'level': 'CRITICAL', 'handlers': ['c']}})"
    ),
    "dictConfig that fails": (
        "import logging.config\ntry: logging.config.dictConfig({'version': 1, 'handlers': {'c': {'class': 'no.such.Handler'}}})\n"
        "except ValueError: pass"
    ),
    "handlers are removed": "logging.getLogger().handlers.clear(); logging.shutdown()",
    "a handler of one's own": "logging.getLogger().addHandler(logging.FileHandler(folder + '/own.txt'))",
    "loggers that do not propagate": "known.propagate = False; known.addHandler(logging.StreamHandler(sys.stdout))",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the home of a process that configured logging in each way."""
    made = {way: tmp_path_factory.mktemp("home") for way in WAYS}
    given = json.dumps({str(made[way]): configuring for way, configuring in WAYS.items()})
    ran = subprocess.run([sys.executable, "-c", SCRIPT], input=given, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return made


@pytest.mark.parametrize("way", WAYS)
def test_logging_survives_the_configuration_of_a_users_module(way: str, folders: dict[str, Path]) -> None:
    home = folders[way]
    out = (home / "out.txt").read_text()
    assert "s3cret-horse" not in "".join(path.read_text() for path in home.rglob("*") if path.is_file())
    lines = [json.loads(line) for line in (home / "logs/triggers/7/trigger-7-job-3.log").read_text().splitlines()]
    assert [line["event"].split()[0] for line in lines] == ["one", "two", "three", "four", "five"]
    assert "RuntimeError: five: ***" in lines[-1]["exception"]
    assert '"event":"one"' in out.replace('": "', '":"')  # the process's log has it too
