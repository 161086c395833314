"""The public face hands on what it promises, and nothing heavy comes with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headrace

HEAVY = {"fastapi", "sqlalchemy", "pyspark", "pyarrow", "pandas", "numpy", "uvicorn", "alembic", "jinja2"}


@pytest.mark.parametrize("name", headrace.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(headrace, name) is not None


def test_the_export_list_is_what_the_homes_say() -> None:
    assert sorted(headrace._HOMES) == sorted(headrace.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = headrace.nonsense


def test_the_whole_authoring_face_loads_nothing_heavy() -> None:
    script = """
import sys, headrace
for name in headrace.__all__:
    getattr(headrace, name)
print(*{name.partition('.')[0] for name in sys.modules})
"""
    loaded = set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & HEAVY


def test_importing_the_package_alone_loads_no_part_of_it() -> None:
    script = "import sys, headrace; print(*[name for name in sys.modules if name.startswith('headrace.')])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split() == []
