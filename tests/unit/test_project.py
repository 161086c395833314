from __future__ import annotations

import re
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from headrace.errors import ProjectError
from headrace.project import Project, load_project
from headrace.tasks.deferral import TaskDeferred
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.builtin.file import FileTrigger
from support.sources.streams import Feed, MemoryUpstream, reads

GOOD = """
from headrace.project import Project
from support.sources.streams import MemoryUpstream
from pathlib import Path

class Here(MemoryUpstream):
    def serialize(self):
        return f"{__name__}.Here", {"name": self.name}
    def relative_to(self, base):
        return Here(str(Path(base) / self.name))

project = Project("flights")
legs = Here("feed")
project.watch("legs.united", legs, match={"carrier": ["UA"]}, id="$.leg_id", follows="$.previous")
project.watch("legs.all", legs)

@project.pipeline(on="legs.*", table="delays", payload="leg_id STRING")
def delays(legs):
    return legs
"""


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])


def project() -> Project:
    made = Project("flights")
    made.watch("legs.united", MemoryUpstream("legs"), match={"carrier": ["UA"]})
    return made


def write(folder: Path, text: str, name: str = "project.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_trigger_declares_its_queue_priority_and_restarts() -> None:
    made = Project("flights")
    made.watch("legs", MemoryUpstream("legs"), queue="gpu", priority=3, max_restarts=0)
    (declared,) = made.declaration().triggers
    assert (declared.queue, declared.priority, declared.max_restarts) == ("gpu", 3, 0)
    made.watch("late", MemoryUpstream("legs"), queue="")
    with pytest.raises(ProjectError, match="'late' cannot be written down"):
        made.declaration()


def test_a_file_declares_a_project(tmp_path: Path) -> None:
    loaded = load_project(write(tmp_path, GOOD))
    declared = loaded.declaration()
    assert [trigger.name for trigger in declared.triggers] == ["legs.united", "legs.all"]
    united = declared.triggers[0]
    assert united.classpath == "headrace.triggers.watch.WatchTrigger"
    assert united.stream == str(tmp_path / "feed")
    assert united.kwargs["upstream"]["kwargs"] == {"name": str(tmp_path / "feed")}
    assert declared.pipelines[0].model_dump() == {
        "name": "delays",
        "on": ["legs.*"],
        "table": "delays",
        "batch": "micro",
        "on_failure": "release",
    }
    pipeline = loaded.pipelines["delays"]
    assert pipeline.function("rows") == "rows"
    assert pipeline.payload == "leg_id STRING"
    assert pipeline.takes("legs.united")
    assert not pipeline.takes("other")


def test_classes_of_a_project_file_can_be_imported_by_class_path(tmp_path: Path) -> None:
    loaded = load_project(write(tmp_path, GOOD, "my project.py"))
    trigger = loaded.triggers["legs.all"]
    _, kwargs = trigger.serialize()
    assert type(trigger)(**kwargs).shared_stream_key() == str(tmp_path / "feed")


def test_a_project_file_can_import_neighbouring_modules(tmp_path: Path) -> None:
    write(tmp_path, "from headrace.project import Project\nmade = Project('x')\n", "headrace_test_neighbour.py")
    assert load_project(write(tmp_path, "from headrace_test_neighbour import made as project\n")).name == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "no project"),
        ("from headrace.project import Project\na = Project('a')\nb = Project('b')", "2 projects"),
        ("\nx = (", r"project\.py:2.*SyntaxError"),
        ("\n\nraise RuntimeError('why')", r"project\.py:3 does not import: RuntimeError: why"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("import sys\nsys.exit(3)", "SystemExit"),
        ("from headrace.project import Project\nProject('a b')", r"project\.py:2: A project cannot have the name"),
        ("from headrace.project import Project\np = Project('a')\np.pipeline(on='legs')(print)", "no trigger has such a name"),
    ],
)
def test_an_unusable_project_file_is_rejected_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProjectError, match=message) as caught:
        load_project(write(tmp_path, text))
    assert caught.value.hint


def test_a_missing_file_or_a_file_that_is_not_python_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="no project file"):
        load_project(tmp_path / "missing.py")
    with pytest.raises(ProjectError, match="no project file"):
        load_project(tmp_path)
    with pytest.raises(ProjectError, match="not a Python file"):
        load_project(write(tmp_path, "x", "project.txt"))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "*", "x" * 201, None, 3])
def test_invalid_names_are_rejected(name: Any) -> None:
    for declare in (
        lambda: Project(name),
        lambda: project().watch(name, MemoryUpstream("legs")),
        lambda: project().pipeline(on="legs.*", name=name if name is not None else "")(print),
    ):
        with pytest.raises(ProjectError, match="cannot have the name"):
            declare()


def test_duplicate_names_are_rejected() -> None:
    made = project()
    with pytest.raises(ProjectError, match="Two triggers"):
        made.watch("legs.united", MemoryUpstream("legs"))
    made.pipeline(on="legs.united")(len)
    with pytest.raises(ProjectError, match="Two pipelines"):
        made.pipeline(on="legs.united", name="len")(print)
    made.pipeline(on="legs.united", table="legs")(print)
    with pytest.raises(ProjectError, match="two formats"):
        made.pipeline(on="legs.united", table="legs", format="delta")(max)
    made.pipeline(on="legs.united", table="days", format="delta", partition_by="day")(min)
    with pytest.raises(ProjectError, match="different partition_by= or evolve="):
        made.pipeline(on="legs.united", table="days", format="delta", partition_by="month")(max)
    made.pipeline(on="legs.united", table="days", format="delta", partition_by=["day"])(max)
    made.pipeline(on="legs.united", table="ice_days", format="iceberg", partition_by="day")(sum)


@pytest.mark.parametrize(
    "wrong",
    [
        {"on": []},
        {"on": ""},
        {"on": 3},
        {"on": [3]},
        {"on": "legs.*", "table": "a/b"},
        {"on": "legs.*", "table": 3},
        {"on": "legs.*", "batch": "often"},
        {"on": "legs.*", "attempts": 0},
        {"on": "legs.*", "format": "csv"},
        {"on": "legs.*", "on_failure": "keep"},
        {"on": "legs.*", "on_failure": None},
        {"on": "legs.*", "table": "legs", "format": "delta", "partition_by": 3},
        {"on": "legs.*", "table": "legs", "format": "delta", "partition_by": ["day", "day"]},
        {"on": "legs.*", "table": "legs", "format": "delta", "partition_by": ["day", ""]},
        {"on": "legs.*", "table": "legs", "partition_by": "day"},
        {"on": "legs.*", "table": "legs", "evolve": "yes"},
        {"on": "legs.*", "table": "legs", "key": "k", "columns": "k long", "evolve": True},
        {"on": "legs.*", "table": "legs", "key": "k", "columns": "k long", "partition_by": "k"},
    ],
)
def test_an_invalid_pipeline_is_rejected_with_a_hint(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProjectError, match="The pipeline 'print' has") as caught:
        project().pipeline(**wrong)(print)
    assert caught.value.hint


def test_an_invalid_watch_is_rejected_with_its_name() -> None:
    feed: Any = "feed"
    with pytest.raises(ProjectError, match=r"The watch 'legs': .* is not a path") as caught:
        project().watch("legs", MemoryUpstream("legs"), id="leg_id")
    assert caught.value.hint
    with pytest.raises(ProjectError, match="for an upstream"):
        project().watch("legs", feed)


def test_a_project_declares_a_trigger_of_a_user_class() -> None:
    made = project()
    trigger = reads(Feed())()
    made.trigger("mine", trigger)
    declared = made.declaration().triggers[1]
    assert (declared.name, declared.classpath, declared.stream) == ("mine", "support.sources.streams.Reads", "memory")
    other: Any = object()
    with pytest.raises(ProjectError, match="BaseEventTrigger"):
        made.trigger("other", other)


def test_a_trigger_that_cannot_be_serialized_is_named() -> None:
    class Unwritable(BaseEventTrigger):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "x", {"connection": object()}

    made = project()
    made.trigger("mine", Unwritable())
    with pytest.raises(ProjectError, match="'mine' cannot be written down"):
        made.declaration()


class Kwargs(BaseEventTrigger):
    """A trigger that is written down with these keyword arguments."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.Kwargs", {"value": self.value}


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        [{"a": float("nan")}],
        {1: 2},
        {"a": (1, 2)},
        {1, 2},
        Decimal("1.5"),
        datetime(2026, 1, 1),
        b"\xff",
        b"text",
        10**30,
        "a\0b",
        {"\ud800": 1},
        object(),
    ],
)
def test_a_keyword_argument_that_json_changes_is_rejected(value: Any) -> None:
    made = project()
    made.trigger("mine", Kwargs(value))
    with pytest.raises(ProjectError, match=r"'mine' cannot be written down: ValueError: of its keyword arguments, value"):
        made.declaration()
    with pytest.raises(ProjectError, match="the arguments cannot be written as JSON: value"):
        made.task("compute")(print).request("run", {"value": value})
    with pytest.raises(ProjectError, match="kwargs= cannot be written as JSON: value"):
        TaskDeferred(FileTrigger("/there"), "goes_on", {"value": value}).waiting()


def test_a_keyword_argument_that_contains_itself_is_rejected() -> None:
    circle: list[Any] = []
    circle.append(circle)
    made = project()
    made.trigger("mine", Kwargs(circle))
    with pytest.raises(ProjectError, match="nested deeper than 200 levels"):
        made.declaration()


@pytest.mark.parametrize("value", [None, True, 1, -(2**63), 1.5, "text \u4e2d", [], {"a": [{"b": None}]}])
def test_plain_keyword_arguments_are_declared_unchanged(value: Any) -> None:
    made = project()
    made.trigger("mine", Kwargs(value))
    assert made.declaration().triggers[-1].kwargs == {"value": value}


def test_a_trigger_without_a_shared_stream_declares_none() -> None:
    class Alone(BaseEventTrigger):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "some.Alone", {}

    made = Project("alone")
    made.trigger("mine", Alone())
    assert made.declaration().triggers[0].stream is None


FOLDERS = """
from headrace import BaseEventTrigger, Directory, FileTrigger, Project, Queue, SKIP

UPSTREAM = {upstream}

class Mine(BaseEventTrigger):
    def serialize(self):
        return f"{{__name__}}.Mine", {{}}

    def shared_stream_key(self):
        return UPSTREAM.stream_key()

    @classmethod
    def create_shared_stream_producer(cls, kwargs):
        return UPSTREAM.producer()

    async def handle(self, raw):
        return SKIP

project = Project("p")
project.watch("declared", {watched})
project.trigger("mine", Mine())
waits = FileTrigger("answer.json")
"""


@pytest.mark.parametrize("upstream", ['Directory("inbox")', 'Directory("./x/../inbox")', 'Queue("orders.queue")'])
def test_a_relative_path_is_resolved_equally_in_watches_and_triggers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upstream: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("home")
    (tmp_path / "home" / "relative_project.py").write_text(FOLDERS.format(upstream=upstream, watched=upstream))
    monkeypatch.chdir(tmp_path / "elsewhere")
    streams = set()
    for folder in ("home", "link", "elsewhere/../home"):
        declaration = load_project(tmp_path / folder / "relative_project.py").declaration()
        streams |= {trigger.stream for trigger in declaration.triggers}
    (stream,) = streams
    assert stream is not None
    assert str(tmp_path / "home") in stream


def test_a_file_trigger_waits_in_the_folder_of_the_project(tmp_path: Path) -> None:
    path = tmp_path / "waiting_project.py"
    path.write_text(FOLDERS.format(upstream='Directory("inbox")', watched='Directory("inbox")'))
    load_project(path)
    assert sys.modules["headrace_project_waiting_project"].waits.path == tmp_path / "answer.json"


@pytest.mark.parametrize("watched", ['Directory("inbox", "*.json")', 'Directory("./inbox/", "a*.jsonl")'])
def test_two_patterns_on_one_folder_are_rejected(tmp_path: Path, watched: str) -> None:
    path = tmp_path / "two_patterns.py"
    path.write_text(FOLDERS.format(upstream='Directory("inbox")', watched=watched))
    with pytest.raises(ProjectError, match=r"inbox is read with two patterns: .* by 'declared', .* by 'mine'") as caught:
        load_project(path)
    assert caught.value.hint


def test_two_folders_can_have_different_patterns(tmp_path: Path) -> None:
    path = tmp_path / "two_folders.py"
    path.write_text(FOLDERS.format(upstream='Directory("inbox")', watched='Directory("outbox", "*.json")'))
    assert len({trigger.stream for trigger in load_project(path).declaration().triggers}) == 2


def test_a_task_needs_no_parentheses() -> None:
    project = Project("p")

    @project.task
    def submit(run: Any) -> int:
        return 1

    @submit.method
    def collect(run: Any, event: Any) -> int:
        return 2

    assert list(project.tasks) == ["submit"]
    assert submit.body("collect") is collect


def test_a_pipeline_without_parentheses_is_rejected_with_an_example() -> None:
    project = Project("p")
    with pytest.raises(ProjectError, match="needs to know its triggers") as refused:
        project.pipeline(lambda events: events)  # type: ignore[arg-type]
    assert '@project.pipeline(on="orders.*"' in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("payload", "words"), [("strng foo, bar", "there is no type 'foo'"), ("n lng", "Do you mean 'long'"), (5, "payload=5")]
)
def test_an_invalid_schema_is_rejected_when_the_project_loads(payload: Any, words: str) -> None:
    with pytest.raises(ProjectError) as refused:
        Project("p").pipeline(on="*", payload=payload, name="sums")(lambda events: events)
    assert words in str(refused.value)


def test_many_watches_of_one_folder_resolve_its_path_only_a_few_times(tmp_path: Path) -> None:
    """To resolve a path is a system call for each of its parts: 100,000 watches took twenty seconds of it."""
    (tmp_path / "feed").mkdir()
    (tmp_path / "link").symlink_to("feed")
    (tmp_path / "project.py").write_text(
        "from headrace import Project\n"
        "from headrace.sources.directory.upstream import Directory\n"
        "from headrace.sources.queue.upstream import Queue\n"
        'project = Project("many")\n'
        "for number in range(300):\n"
        '    project.watch(f"files-{number}", Directory("link"), match={"number": [number]})\n'
        '    project.watch(f"messages-{number}", Queue("link/queue"), match={"number": [number]})\n'
    )
    resolved = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal resolved
        resolved += event == "call" and frame.f_code.co_name == "realpath"

    sys.setprofile(count)
    try:
        declared = load_project(tmp_path / "project.py").declaration()
    finally:
        sys.setprofile(None)
    streams = {trigger.stream for trigger in declared.triggers}
    assert streams == {f"directory:{tmp_path}/feed/*.jsonl", f"queue:{tmp_path}/feed/queue"}
    assert resolved < 30


def test_a_growing_project_declares_its_new_triggers_and_pipelines() -> None:
    project = Project("grows")
    project.watch("first", MemoryUpstream("m"))
    assert [trigger.name for trigger in project.declaration().triggers] == ["first"]
    project.watch("second", MemoryUpstream("m"))
    project.pipeline(on="second", name="all")(lambda events: events)
    declared = project.declaration()
    assert [trigger.name for trigger in declared.triggers] == ["first", "second"]
    assert [pipeline.on for pipeline in declared.pipelines] == [["second"]]


KEYED: dict[str, Any] = {"on": "a", "table": "spent", "key": "customer", "columns": "customer string, spent double"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"columns": None}, "has no columns=."),
        ({"key": None}, "has no key=."),
        ({"table": None}, "has no table=."),
        ({"table": None, "key": None}, "has no table= and key=."),
        ({"key": []}, "has key=[]"),
        ({"key": ["customer", "customer"]}, "has key=['customer', 'customer']"),
        ({"key": 5}, "has key=5"),
        ({"key": {"customer": ""}}, "has key={'customer': ''}"),
        ({"key": "buyer"}, "has the key 'buyer', which columns= does not declare"),
        ({"columns": "customer strin"}, "has columns='customer strin': there is no type 'strin'. Do you mean 'string'?"),
        ({"columns": "struct<customer: string>"}, "it is not a list of columns"),
        ({"columns": "customer double"}, "has the key 'customer' of the type double, whose values are not compared exactly"),
        ({"columns": "customer array<int>"}, "has the key 'customer' of the type array"),
        ({"columns": ["customer"]}, "has columns=['customer']"),
        ({"format": "parquet"}, "has a key and the format 'parquet'"),
    ],
)
def test_an_invalid_keyed_table_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ProjectError, match=re.escape(message)) as caught:
        Project("shop").pipeline(**(KEYED | changed))(print)
    assert caught.value.hint


def test_a_keyed_table_has_one_pipeline() -> None:
    project = Project("shop")
    project.pipeline(**KEYED, name="one")(print)
    assert project.pipelines["one"].format == "delta"
    with pytest.raises(ProjectError, match="The pipelines 'one' and 'two' write the keyed table 'spent'"):
        project.pipeline(on="a", table="spent", format="delta", name="two")(print)
