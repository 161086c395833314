"""Fixtures for pytest. Load them in the root `conftest.py`: `pytest_plugins = ["headrace.testing.fixtures"]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from headrace.project import Project, load_project
from headrace.sources.memory.upstream import Memory
from headrace.testing.pytest_import import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.testing.deployment import RunningDeployment
    from headrace.testing.project_run import ProjectResult

RunProject: TypeAlias = "Callable[..., ProjectResult]"
StartDeployment: TypeAlias = "Callable[..., RunningDeployment]"


@pytest.fixture(scope="session")
def headrace_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Share one local Spark session, with few partitions, among all tests."""
    from headrace.testing.project_run import quick_session

    with quick_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def headrace_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a temporary home folder. Commands of Headrace that the test starts use it too."""
    home = tmp_path / "headrace-home"
    home.mkdir()
    monkeypatch.setenv("HEADRACE_HOME", str(home))
    return home


@pytest.fixture
def headrace_memory() -> Iterator[Memory]:
    """Return an empty upstream in memory, to which the test sends messages."""
    memory = Memory(f"test-{uuid4().hex}")
    yield memory
    memory.clear()


@pytest.fixture
def headrace_run_project(request: pytest.FixtureRequest) -> RunProject:
    """Return `run_project` with the shared Spark session, which is started for the first project that has pipelines."""
    from headrace.testing.project_run import run_project

    def run(project: Project | Path | str, *steps: Any, **options: Any) -> ProjectResult:
        if not isinstance(project, Project):
            project = load_project(Path(project))
        if project.pipelines and options.get("pipelines", True):
            options.setdefault("spark", request.getfixturevalue("headrace_spark"))
        return run_project(project, *steps, **options)

    return run


@pytest.fixture
def headrace_deployment(headrace_home: Path) -> Iterator[StartDeployment]:
    """Return a function that starts `headrace standalone` on a project file. It ends with the test.

    The first deployment of a test uses `headrace_home`, each further one a folder below it.
    """
    from headrace.testing.deployment import run_deployment

    with ExitStack() as exits:
        homes = iter([headrace_home])

        def start(project: Path | str, **settings: object) -> RunningDeployment:
            home = next(homes, headrace_home / uuid4().hex)
            return exits.enter_context(run_deployment(Path(project), home, settings))

        yield start
