"""The lower bounds of what the api needs are versions with which it starts (peers D5)."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[4]


def test_cadwyn_takes_a_docstring_for_the_description_of_a_change() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (cadwyn,) = (found for found in map(Requirement, extras["server"]) if found.name == "cadwyn")
    assert not cadwyn.specifier.contains("7.99")  # before 8 it asks for a `description`: `headrace api` ends at import
    assert cadwyn.specifier.contains("8.0.0")
