"""Rules for the whole test run: one seed, signals, and log rendering."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import structlog
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from structlog.dev import ConsoleRenderer, plain_traceback

from headrace.triggers.import_allowlist import IMPORT_ALLOWLIST
from headrace.triggers.project_paths import PROJECT_FOLDER
from support.processes.shared_servers import close_shared_servers

SEED = "HEADRACE_TEST_SEED"
"""The variable that holds the seed of all randomness in the tests: a number (default 1), or `random`."""

pytest_plugins = ["scripts.pytest_repetition"]

# Set once, before workers start: they inherit it, and all of them must collect tests of the same names.
if os.environ.setdefault(SEED, "1") == "random":
    os.environ[SEED] = str(random.SystemRandom().randrange(1, 10**9))
for name in ("CHAOS_SEED", "SCENARIO_SEED"):
    os.environ.setdefault(name, os.environ[SEED])

# A shell starts background commands with SIGINT ignored, and children inherit that: Ctrl-C could not be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The default rendering of a traceback prints all local variables, which takes longer than many a test.
_processors = structlog.get_config()["processors"]
structlog.configure(processors=[*_processors[:-1], ConsoleRenderer(colors=False, exception_formatter=plain_traceback)])

hypothesis.settings.register_profile("same-each-time", database=None, deadline=None, print_blob=True)
hypothesis.settings.load_profile("same-each-time")

# Hypothesis also draws constants of the local modules that are loaded, which depend on the tests that this process ran before.
# The seed of a failed run would not repeat the failure.
_no_constants = Constants()
providers._get_local_constants = lambda: _no_constants


MAX_ID_CHARS = 200


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Return an id without the value if that is long. The environment of each process has the id of the test, and its size has a limit."""
    return f"{argname}-of-{len(val)}" if isinstance(val, str | bytes) and len(val) > MAX_ID_CHARS else None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis and `random` the run's seed."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ[SEED]


END = "TESTS_END"
"""The variable that holds the time after which no test begins, in seconds since 1970. CI sets it, since it has a limit."""
TIME_ENDED = f"not begun before {END}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip the test, before its fixtures, if the time has ended."""
    if time.time() > float(os.environ.get(END, "inf")):
        pytest.skip(TIME_ENDED)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the servers of a group of tests before its worker begins another group: idle ones take time of the processors."""
    if hasattr(item.config, "workerinput") and nextitem is not None and _group(item) != _group(nextitem):
        close_shared_servers()


def _group(item: pytest.Item) -> str:
    """Return the name of the group that `--dist loadgroup` has added to the id of a test, or the id of a test without a group."""
    return item.nodeid.rpartition("@")[2]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of tests that have not begun, for each file."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if TIME_ENDED in str(report.longrepr)]
    if skipped:
        terminalreporter.section(f"{len(skipped)} tests did not begin in time")
        for file, count in sorted(Counter(report.nodeid.partition("::")[0] for report in skipped).items()):
            terminalreporter.write_line(f"{count:5} {file}")


SLOW_EVERYWHERE = ("contracts", "integration")
"""Folders of which a fixture marks tests as slow, in files that do not say so."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the files that have no tests of the requested marks: each worker would import all files, for 17 s and more."""
    if collection_path.suffix != ".py":
        return None
    requested = config.option.markexpr
    if requested.startswith("brokers"):
        names: tuple[str, ...] = ("brokers",)
    elif requested.startswith("not (smoke") and not {*SLOW_EVERYWHERE} & {*collection_path.parts}:
        names = ("slow", "acceptance")
    else:
        return None
    text = collection_path.read_text("utf-8")
    return None if any(name in text for name in names) else True


def pytest_report_header() -> str:
    """Return the line that says how to repeat this run."""
    return f"seed: {SEED}={os.environ[SEED]}"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Seed the global generator for each test, so that no test depends on those before it."""
    random.seed(int(os.environ[SEED]))


@pytest.fixture(autouse=True)
def _no_project() -> Iterator[None]:
    """Forget the project that a test has loaded: where relative paths start, and which modules triggers may come from."""
    yield
    PROJECT_FOLDER.set(None)
    IMPORT_ALLOWLIST.any()
