from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import PipelineError
from headrace.pipeline.bounds import BatchBounds, Begin, Bounds
from headrace.pipeline.checkpoint import open_checkpoint


def test_a_checkpoint_is_gone_on_with_until_it_is_put_aside(tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    first = open_checkpoint(folder, lambda: Begin(7, 3, 3), reset=False)
    assert open_checkpoint(folder, lambda: Begin(0), reset=False) == first
    assert first.begin == Begin(7, 3, 3)
    (folder / "begin").write_text("7")
    assert open_checkpoint(folder, lambda: Begin(0), reset=False).begin == Begin(7), "as earlier versions wrote it"
    second = open_checkpoint(folder, lambda: Begin(0), reset=True)
    third = open_checkpoint(folder, lambda: Begin(0), reset=True)
    assert len({first.query_id, second.query_id, third.query_id}) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"flights", "flights.before-1", "flights.before-2"}


def test_a_checkpoint_of_another_ordering_is_refused_with_a_way_on(tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    open_checkpoint(folder, lambda: Begin(0), reset=False)
    (folder / "definition").unlink()
    with pytest.raises(PipelineError, match="made by another version") as caught:
        open_checkpoint(folder, lambda: Begin(0), reset=False)
    assert "--reset-order" in (caught.value.hint or "")
    assert open_checkpoint(folder, lambda: Begin(0), reset=True)


def test_bounds_are_what_spark_wrote_down_before_the_batch(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for batch, offset in enumerate(['{"seq": 9, "again": 1, "clock": 5}', '{"seq": 12, "again": 1, "clock": 8}']):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":1}}\n{offset}')
    bounds = BatchBounds(tmp_path, Begin(7, 1, 1))
    assert bounds(0) == Bounds(7, 9, 1, 1, 5)
    assert bounds(1) == Bounds(9, 12, 1, 1, 8)
