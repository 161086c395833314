"""Upstreams that installed distributions declare. Each test installs real ones: folders with metadata on the import path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import make_upstream
from headrace.errors import ProjectError
from headrace.settings import read_settings
from headrace.triggers.installed_upstreams import installed_modules
from headrace.triggers.upstream import load_upstream
from headrace.wiring.project import read_project

NATS = """
from headrace import Memory

class Nats(Memory):
    def __init__(self, subject, *, lanes=None, name=None):
        super().__init__(subject if name is None else name, lanes)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install distributions: their name, entry points, and modules with their text."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def add(name: str, entries: str, **modules: str) -> None:
        info = site / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[headrace.upstreams]\n{entries}\n")
        for module, text in modules.items():
            (site / f"{module}.py").write_text(text)

    yield add
    for name in set(sys.modules) - before:
        if name.startswith("installed_"):
            del sys.modules[name]


def error_of(name: str, *arguments: object) -> ProjectError:
    with pytest.raises(ProjectError) as caught:
        make_upstream(name, *arguments)
    return caught.value


def test_an_installed_upstream_is_created_by_name(install: Install) -> None:
    install("headrace-nats", "nats = installed_nats:Nats", installed_nats=NATS)
    upstream = make_upstream("nats", "orders", lanes=2)
    assert upstream.stream_key() == "memory:orders"
    assert upstream.serialize() == ("installed_nats.Nats", {"name": "orders", "lanes": 2})


def test_an_unknown_name_is_an_error_that_lists_installed_upstreams(install: Install) -> None:
    install("headrace-nats", "nats = installed_nats:Nats\nstan = installed_nats:Stan", installed_nats=NATS)
    error = error_of("kafka")
    assert str(error) == "No installed distribution declares the upstream 'kafka'."
    assert error.hint == "Declared in the group headrace.upstreams: nats, stan. Install the distribution that has it."


@pytest.mark.parametrize(
    ("entry", "text", "reason"),
    [
        ("installed_bad:Nats", "import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("installed_bad:Nats", "raise SystemExit(3)", "SystemExit"),
        ("installed_bad:Other", NATS, "has no attribute 'Other'"),
        ("installed_bad:Nats", "Nats = 3", "is not a subclass of headrace.Upstream"),
        ("installed_bad:Nats", "class Nats: pass", "is not a subclass of headrace.Upstream"),
        ("not a module", "", "is not a module and a class"),
    ],
)
def test_an_upstream_that_does_not_load_is_named_and_affects_no_other_upstream(
    entry: str, text: str, reason: str, install: Install
) -> None:
    install("headrace-bad", f"bad = {entry}", installed_bad=text)
    install("headrace-nats", "nats = installed_nats:Nats", installed_nats=NATS)
    error = error_of("bad")
    assert str(error).startswith("The upstream 'bad' of headrace-bad 1.2 cannot be loaded: ")
    assert reason in str(error)
    assert error.hint or reason.startswith("is not a subclass")
    assert make_upstream("nats", "orders").stream_key() == "memory:orders"
    assert "installed_nats" in installed_modules()


def test_an_upstream_that_rejects_its_arguments_is_named(install: Install) -> None:
    install("headrace-nats", "nats = installed_nats:Nats", installed_nats=NATS)
    error = error_of("nats", "orders", "more")
    assert str(error).startswith("The upstream 'nats' of headrace-nats 1.2 cannot be made: TypeError: ")


def test_a_name_that_two_distributions_declare_is_rejected_with_both(install: Install) -> None:
    install("headrace-nats", "nats = installed_nats:Nats", installed_nats=NATS)
    install("other-nats", "nats = installed_nats:Nats")
    assert str(error_of("nats")) == "Several distributions declare the upstream 'nats': headrace-nats 1.2, other-nats 1.2."


def test_a_process_loads_installed_upstreams_that_its_project_does_not_name(install: Install, tmp_path: Path) -> None:
    install("headrace-nats", "nats = installed_nats:Nats", installed_nats=NATS, installed_else=NATS)
    (tmp_path / "project.py").write_text("from headrace import Project\nproject = Project('empty')\n")
    read_project(read_settings(project=tmp_path / "project.py"))
    assert "installed_nats" not in sys.modules
    assert load_upstream("installed_nats.Nats", {"subject": "orders"}).stream_key() == "memory:orders"
    with pytest.raises(ProjectError, match="is in a module that is not allowed"):
        load_upstream("installed_else.Nats", {"subject": "orders"})
    assert "installed_else" not in sys.modules
