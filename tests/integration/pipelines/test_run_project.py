"""`run_project` on triggers: without Spark's JVM, processes or sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    SKIP,
    BaseEventTrigger,
    Directory,
    Memory,
    Project,
    RawEvent,
    Reject,
    TriggerEvent,
    reject_shared_stream_event,
)
from headrace.errors import UsageError
from headrace.testing import ProjectResult, run_project

FEED = Memory("feed")


class Reads(BaseEventTrigger):
    """A trigger on the upstream of the watches, or on a stream of its own that yields what a test gives."""

    def __init__(self, stream: str = "", answer: Any = None) -> None:
        super().__init__()
        self.stream, self.answer = stream, answer

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.Reads", {"stream": self.stream}

    def shared_stream_key(self) -> str:
        return self.stream or FEED.stream_key()

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
        return FEED.producer() if not kwargs["stream"] else None

    async def handle(self, raw: Any) -> Any:
        return self.answer(raw)


def ids(result: ProjectResult) -> list[str]:
    return [event["id"] for event in result.events]


def run(project: Project, *steps: Any, **options: Any) -> ProjectResult:
    return run_project(project, *steps, pipelines=False, **options)


def test_watches_extract_their_envelope_from_values_texts_and_bytes() -> None:
    project = Project("orders")
    project.watch("new", FEED, match={"state": ["new"]}, id="$.n", type="order", subject="$.who")
    project.watch("all", FEED, id="$.n", type="order", subject="$.who")
    result = run(project, [{"n": "a", "who": "Ada", "state": "new"}, '{"n": "b", "who": "Bo"}', b'{"n": "c", "who": "Cy"}'])
    assert [(event["id"], event["subject"], event["triggers"]) for event in result.events] == [
        ("a", "Ada", ["new", "all"]),
        ("b", "Bo", ["all"]),
        ("c", "Cy", ["all"]),
    ]
    assert result.events[0]["payload"] == {"n": "a", "who": "Ada", "state": "new"}
    assert (result.events[0]["type"], result.events[0]["source"]) == ("order", "headrace:memory:feed")
    assert (result.dead_letters, result.tables) == ([], {})


def test_unusable_raw_events_become_dead_letters() -> None:
    project = Project("orders")
    project.watch("all", FEED, id="$.n")
    result = run(project, [b"not json", {"m": 1}, {"n": 3}])
    assert ids(result) == ["3"]
    assert [(letter.kind, letter.triggers, letter.raw) for letter in result.dead_letters] == [
        ("malformed", ("all",), "not json"),
        ("missing_field", ("all",), '{"m":1}'),
    ]
    assert result.rejected == []


def test_a_python_trigger_fires_skips_rejects_and_fails() -> None:
    seen = []

    def answer(raw: RawEvent) -> Any:
        seen.append(raw.value["n"])
        match raw.value["n"]:
            case 1:
                return SKIP
            case 2:
                return Reject("no twos")
            case 3:
                raise RuntimeError("three")
            case n:
                return [TriggerEvent({"n": n}, id=f"{n}a"), TriggerEvent({"n": n}, id=f"{n}b")]

    project = Project("orders")
    project.trigger("python", Reads(answer=answer))
    project.watch("all", FEED, id="$.n")
    result = run(project, [{"n": n} for n in range(1, 5)])
    assert sorted(ids(result)) == ["1", "2", "3", "4", "4a", "4b"]
    assert seen == [1, 2, 3, 3, 3, 3, 3, 4]
    kinds = {letter.kind: letter for letter in result.dead_letters}
    assert sorted(kinds) == ["failed", "rejected"]
    assert (kinds["rejected"].raw, kinds["rejected"].reason, kinds["rejected"].triggers) == ('{"n":2}', "no twos", ("python",))
    assert "RuntimeError: three" in kinds["failed"].reason
    assert result.rejected == [kinds["rejected"]]


def test_a_custom_stream_passes_values_unchanged() -> None:
    given: list[Any] = [{"n": 1}, ("pair", 2), object()]
    seen: list[Any] = []
    project = Project("orders")

    def answer(raw: Any) -> Any:
        seen.append(raw)
        return SKIP

    project.trigger("own", Reads("own", answer))
    assert run(project, given).events == []
    assert seen[0] == {"n": 1}
    assert seen[1:] == given[1:]


def test_a_filter_reads_the_stream_and_keeps_its_state_between_steps() -> None:
    class Sums(Reads):
        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            total = 0
            async for raw in stream:
                if raw.value["n"] < 0:
                    reject_shared_stream_event("negative")
                    continue
                total += raw.value["n"]
                yield TriggerEvent({"total": total}, id=str(total))

    project = Project("orders")
    project.trigger("sums", Sums())
    result = run(project, [{"n": 1}, {"n": -1}, {"n": 2}], [{"n": 3}])
    assert ids(result) == ["1", "3", "6"]
    assert [letter.reason for letter in result.rejected] == ["negative"]


def test_events_are_in_causal_order_with_lost_and_late_marks() -> None:
    project = Project("legs")
    project.watch("legs", FEED, id="$.id", follows="$.follows")
    leg = {"id": "b", "follows": "a"}
    ordered = run(project, [leg, {"id": "a"}])
    assert (ids(ordered), ordered.lost, ordered.late) == (["a", "b"], [], [])
    lost = run(project, [leg])
    assert (ids(lost), [event["id"] for event in lost.lost]) == (["b"], ["b"])
    late = run(project, [leg], [{"id": "a"}], lookback=60.0, between=61.0)
    assert (ids(late), [event["id"] for event in late.lost], [event["id"] for event in late.late]) == (["b", "a"], ["b"], ["a"])


def test_streams_are_named_by_a_trigger_or_their_key(tmp_path: Path) -> None:
    project = Project("orders")
    project.watch("files", Directory(tmp_path / "feed"), id="$.n")
    project.watch("memory", FEED, id="$.n")
    result = run(project, {"files": [{"n": 1}], FEED.stream_key(): [{"n": 2}]})
    assert [(event["id"], event["triggers"]) for event in result.events] == [("1", ["files"]), ("2", ["memory"])]
    with pytest.raises(UsageError, match="reads 2 streams"):
        run(project, [{"n": 1}])
    with pytest.raises(UsageError, match="reads no stream 'other'"):
        run(project, {"other": []})


def test_a_trigger_that_polls_alone_runs_for_the_requested_number_of_events() -> None:
    class Ticks(BaseEventTrigger):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "tests.Ticks", {}

        async def run(self) -> AsyncIterator[TriggerEvent]:
            for n in count():
                yield TriggerEvent({"n": n}, id=str(n))

    project = Project("ticks")
    project.trigger("tick", Ticks())
    assert run(project).events == []
    assert ids(run(project, polls={"tick": 3})) == ["0", "1", "2"]
    with pytest.raises(UsageError, match="no trigger 'other' that polls alone"):
        run(project, polls={"other": 1})


def test_a_trigger_that_does_not_answer_ends_the_run_at_the_deadline() -> None:
    class Stuck(Reads):
        async def handle(self, raw: Any) -> Any:
            await asyncio.Event().wait()

    project = Project("orders")
    project.trigger("stuck", Stuck())
    with pytest.raises(TimeoutError, match=r"within 0\.2 s: 1 of memory:feed"):
        run(project, [{"n": 1}], timeout=0.2)


def test_a_filter_that_suppresses_its_cancellation_is_named_in_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(Reads):
        async def handle(self, raw: Any) -> Any:
            for _ in range(2):
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
            return SKIP

    monkeypatch.setattr("headrace.testing.trigger_run.STOP_SECONDS", 0.1)
    project = Project("orders")
    project.trigger("deaf", Deaf())
    with pytest.raises(TimeoutError, match=r"did not end within 0\.1 s: deaf"):
        run(project, [{"n": 1}], timeout=0.2)


def test_an_error_of_a_cleanup_is_raised() -> None:
    class Unclean(Reads):
        async def cleanup(self) -> None:
            raise RuntimeError("not clean")

    project = Project("orders")
    project.trigger("unclean", Unclean())
    with pytest.raises(RuntimeError, match="not clean"):
        run(project, [])


async def test_run_project_works_inside_a_running_event_loop() -> None:
    project = Project("orders")
    project.watch("all", FEED, id="$.n")
    assert ids(run(project, [{"n": 1}])) == ["1"]


def test_run_project_accepts_a_project_file(tmp_path: Path) -> None:
    text = "from headrace import Directory, Project\nproject = Project('shop')\nproject.watch('orders', Directory('inbox'), id='$.n')\n"
    (tmp_path / "project.py").write_text(text)
    result = run_project(tmp_path / "project.py", [{"n": 1}], pipelines=False)
    assert [event["source"] for event in result.events] == [f"headrace:directory:{tmp_path}/inbox/*.jsonl"]
    assert not (tmp_path / "inbox").exists()
