from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import PipelineError
from headrace.pipeline.bounds import BatchBounds, Begin, Bounds
from headrace.pipeline.checkpoint import Checkpoint, open_checkpoint
from headrace.wire.events import Cursor
from headrace.wire.scope_leases import ScopeLease


def lease(**other: Any) -> ScopeLease:
    given: dict[str, Any] = {"scope": "flights", "epoch": 1, "log": "a" * 16, "cursor": Cursor(cursor=0, batch=0)}
    return ScopeLease(**(given | other))


def opened(folder: Path, *, begin: Begin = Begin(0), reset: bool = False, **of: Any) -> Checkpoint:  # noqa: B008  a constant
    return open_checkpoint(folder, lease(**of), lambda: begin, reset=reset)


def test_a_checkpoint_is_gone_on_with_until_it_is_put_aside(tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    first = opened(folder, begin=Begin(7, 3, 3))
    assert opened(folder) == first
    assert first.begin == Begin(7, 3, 3)
    second = opened(folder, reset=True)
    third = opened(folder, reset=True)
    assert len({first.query_id, second.query_id, third.query_id}) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"flights", "flights.before-1", "flights.before-2"}


def test_where_a_scope_cannot_begin_the_checkpoint_is_not_put_aside(tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    first = opened(folder, begin=Begin(7, 3, 3))

    def refuse() -> Begin:
        raise PipelineError("beyond the end")

    with pytest.raises(PipelineError, match="beyond the end"):
        open_checkpoint(folder, lease(), refuse, reset=True)
    assert opened(folder) == first
    with pytest.raises(PipelineError, match="beyond the end"):
        open_checkpoint(tmp_path / "other", lease(), refuse, reset=False)
    assert {path.name for path in tmp_path.iterdir()} == {"flights"}


def test_a_checkpoint_of_another_ordering_is_refused_with_a_way_on(tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    opened(folder)
    (folder / "definition").unlink()
    with pytest.raises(PipelineError, match="made by another version") as caught:
        opened(folder)
    assert "--reset-order" in (caught.value.hint or "")
    assert opened(folder, reset=True)


def test_a_checkpoint_of_another_log_is_refused_with_a_way_on(tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    opened(folder)
    with pytest.raises(PipelineError, match=f"is of the event log {'a' * 16}, and the api serves the event log {'b' * 16}") as caught:
        opened(folder, log="b" * 16)
    assert "--reset-order" in (caught.value.hint or "")
    assert opened(folder, log="b" * 16, reset=True)


def test_a_scope_that_has_read_is_not_begun_anew_because_its_checkpoint_is_gone(tmp_path: Path) -> None:
    folder, read = tmp_path / "flights", Cursor(cursor=11, batch=2)
    with pytest.raises(PipelineError, match=r"has read the log up to event 11, and .*flights has no checkpoint of it") as caught:
        opened(folder, cursor=read)
    assert "--reset-order" in (caught.value.hint or "")
    assert not folder.exists()
    assert opened(folder, cursor=read, reset=True)


def test_bounds_are_what_spark_wrote_down_before_the_batch(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for batch, offset in enumerate(['{"seq": 9, "again": 1, "clock": 5}', '{"seq": 12, "again": 1, "clock": 8}']):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":1}}\n{offset}')
    bounds = BatchBounds(tmp_path, Begin(7, 1, 1))
    assert bounds(0) == Bounds(7, 9, 1, 1, 5)
    assert bounds(1) == Bounds(9, 12, 1, 1, 8)
