"""A seed repeats the generated values of a test, whichever tests ran before."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st


def draws() -> list[int | str]:
    drawn: list[int | str] = []

    @seed(1)
    @settings(max_examples=200)
    @given(st.integers() | st.text())
    def draw(value: int | str) -> None:
        drawn.append(value)

    draw()
    return drawn


def test_a_loaded_module_does_not_change_the_values_of_a_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = draws()
    path = tmp_path / "constants.py"
    numbers = [7_919 * number for number in range(1, 99)]
    path.write_text("".join(f"NUMBER_{number} = {number}\nTEXT_{number} = 'text {number}'\n" for number in numbers))
    spec = spec_from_file_location("constants_of_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "constants_of_a_test", module)
    spec.loader.exec_module(module)
    assert draws() == before
