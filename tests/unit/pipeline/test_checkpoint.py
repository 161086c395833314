from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import PipelineError
from headrace.pipeline.checkpoint import open_checkpoint


def test_a_checkpoint_is_gone_on_with_until_it_is_put_aside(tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    first = open_checkpoint(folder, reset=False)
    assert open_checkpoint(folder, reset=False) == first
    second = open_checkpoint(folder, reset=True)
    third = open_checkpoint(folder, reset=True)
    assert len({first, second, third}) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"flights", "flights.before-1", "flights.before-2"}


def test_a_checkpoint_of_another_ordering_is_refused_with_a_way_on(tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    open_checkpoint(folder, reset=False)
    (folder / "definition").unlink()
    with pytest.raises(PipelineError, match="made by another version") as caught:
        open_checkpoint(folder, reset=False)
    assert "--reset-order" in (caught.value.hint or "")
    assert open_checkpoint(folder, reset=True)
