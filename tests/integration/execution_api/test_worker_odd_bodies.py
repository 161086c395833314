"""A run ends once, whatever the body of its task raises or returns, and the worker continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from headrace.project import Project
from headrace.tasks.deferral import TaskDeferred, TaskSkipped
from headrace.tasks.run import Run
from headrace.triggers.builtin.file import FileTrigger
from support.processes.execution_api import serving
from support.processes.worker import Working, worker_on


class Unprintable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class Outside(BaseException):
    """No `Exception`, as what some libraries cancel with."""


def throw(error: BaseException) -> NoReturn:
    raise error


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


BODIES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "KeyboardInterrupt": (lambda: throw(KeyboardInterrupt()), "failed", "KeyboardInterrupt"),
    "GeneratorExit": (lambda: throw(GeneratorExit()), "failed", "GeneratorExit"),
    "SystemExit": (lambda: throw(SystemExit(3)), "failed", "SystemExit"),
    "no Exception": (lambda: throw(Outside("away")), "failed", "Outside: away"),
    "unprintable": (lambda: throw(Unprintable()), "failed", "Unprintable"),
    "half a surrogate pair": (lambda: throw(ValueError("\ud800")), "failed", "ValueError"),
    "NUL": (lambda: throw(ValueError("a\0b")), "failed", "ValueError: a"),
    "a message of 10 MB": (lambda: throw(ValueError("x" * 10_000_000)), "failed", "ValueError: x"),
    "skipped for an object": (lambda: throw(TaskSkipped(object())), "failed", "cannot be written as JSON"),  # type: ignore[arg-type]
    "skipped for half a pair": (lambda: throw(TaskSkipped("\ud800")), "failed", "cannot be written as JSON"),
    "deferred with an object": (lambda: throw(TaskDeferred(FileTrigger("/there"), kwargs={"a": object()})), "failed", "JSON"),
    "deferred with half a pair": (lambda: throw(TaskDeferred(FileTrigger("/there"), kwargs={"a": "\ud800"})), "failed", "JSON"),
    "NaN": (lambda: [float("nan")], "failed", "a NaN or an Infinity"),
    "an object": (object, "failed", "cannot be written as JSON"),
    "half a pair": (lambda: "\ud800", "failed", "cannot be written as JSON"),
    "NUL in a text": (lambda: "a\0b", "succeeded", ""),
    "deep": (lambda: nested(5_000), "failed", "cannot be written as JSON"),
    "rather deep": (lambda: nested(250), "failed", "nested"),
    "large": (lambda: "x" * 100_000_000, "failed", "bytes"),
    "a huge integer": (lambda: 10**400, "succeeded", "1000"),
}

project = Project("flights")


@project.task()
def odd(run: Run, kind: str) -> Any:
    return BODIES[kind][0]()


@project.task()
def plain(run: Run) -> str:
    return "done"


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Working]:
    folder = tmp_path_factory.mktemp("worker")
    with serving(folder) as api, worker_on(api, folder, project) as working:
        yield working


@pytest.mark.parametrize("kind", BODIES)
def test_every_odd_body_ends_its_run_and_the_worker_executes_the_next(working: Working, kind: str) -> None:
    _, state, words = BODIES[kind]
    number = [*BODIES].index(kind)
    working.start("odd", f"odd-{number}", kind=kind)
    end = working.end(f"odd-{number}")
    assert end.state == state
    assert words in (end.error or end.result or "")
    working.start("plain", f"plain-{number}")
    assert working.end(f"plain-{number}").state == "succeeded"
