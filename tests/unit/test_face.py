"""The public names exist, and importing them loads no heavy library."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import headrace

HEAVY = {"fastapi", "sqlalchemy", "pyspark", "pyarrow", "pandas", "numpy", "uvicorn", "alembic", "jinja2"}


@pytest.mark.parametrize("name", headrace.__all__)
def test_every_exported_name_exists(name: str) -> None:
    assert getattr(headrace, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = headrace.nonsense  # type: ignore[attr-defined]


def test_all_public_names_load_without_heavy_libraries() -> None:
    script = """
import sys, headrace
for name in headrace.__all__:
    getattr(headrace, name)
print(*{name.partition('.')[0] for name in sys.modules})
"""
    loaded = set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & HEAVY


def test_importing_the_package_loads_only_its_lazy_exports() -> None:
    script = "import sys, headrace; print(*[name for name in sys.modules if name.startswith('headrace.')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["headrace.lazy_exports"]


def test_public_names_can_be_imported_from_an_archive(tmp_path: Path) -> None:
    package = Path(headrace.__file__).parent
    archive = tmp_path / "headrace.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in package.rglob("*.py*"):
            if "__pycache__" not in path.parts:
                file.write(path, path.relative_to(package.parent))
    script = f"import sys; sys.path.insert(0, {str(archive)!r}); import headrace; print(headrace.Directory, headrace.__file__)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert str(archive) in ran.stdout, ran.stderr
