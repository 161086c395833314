"""Repeat failed tests alone, and list the tests that pass then. CI requests it for tests of processes and brokers.

A busy machine can make a real server answer later than a test waits. Such a test must be mended, but it does not block a change: its name
and both results are in the output.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import Final

import pytest

REPEAT_END: Final = "TESTS_REPEAT_END"
"""The variable that requests it, and holds the time at which the repetition must have ended, in seconds since 1970."""
MAX_REPEATED: Final = 5
"""If more tests fail, the change is the cause, and nothing is repeated."""
_GROUP: Final = re.compile(r"@[\w.-]+$")
"""What pytest-xdist appends to the id of a test of a group."""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Repeat the failed tests, and end as they do."""
    end, config = os.environ.get(REPEAT_END), session.config
    if end is None or session.exitstatus != pytest.ExitCode.TESTS_FAILED or hasattr(config, "workerinput"):
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    reports = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    ids = sorted({_GROUP.sub("", report.nodeid) for report in reports})
    if not 0 < len(ids) <= MAX_REPEATED:
        return
    reporter.ensure_newline()
    reporter.section(f"{len(ids)} failed tests are repeated alone", purple=True)
    sys.stdout.flush()
    environment = {name: value for name, value in os.environ.items() if name != REPEAT_END} | {"TESTS_END": end}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *ids]
    passed = subprocess.run(command, check=False, env=environment, cwd=config.rootpath).returncode == 0
    if passed and time.time() < float(end):  # a test that begins later is skipped
        session.exitstatus = pytest.ExitCode.OK
        for id in ids:
            reporter.write_line(f"FAILED BESIDE OTHERS, PASSED ALONE {id}", yellow=True)
