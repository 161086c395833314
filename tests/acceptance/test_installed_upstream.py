"""A triggerer polls an upstream of an installed distribution while another installed upstream cannot be loaded."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

GUIDE = (Path(__file__).parents[2] / "docs/guides/testing.md").read_text()
UPSTREAM = re.findall(r'```python title="outbox_upstream.py"\n(.*?)```', GUIDE, re.DOTALL)[0]

PROJECT = """
from headrace import Project, make_upstream

project = Project("orders")
project.watch("orders", make_upstream("outbox", {path!r}), id="$.n")
"""


def install(site: Path, name: str, entry: str, **modules: str) -> None:
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[headrace.upstreams]\n{entry}\n")
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)


def test_a_broken_installed_upstream_does_not_affect_other_upstreams(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    install(site, "headrace-outbox", "outbox = outbox_upstream:OutboxTable", outbox_upstream=UPSTREAM)
    install(site, "headrace-broken", "broken = broken_upstream:Broken", broken_upstream="import no_such_module")
    path = tmp_path / "outbox.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, topic TEXT, data BLOB)")
        connection.executemany("INSERT INTO outbox (topic, data) VALUES (?, ?)", [("a", b'{"n": %d}' % n) for n in range(20)])
        connection.commit()
    with Deployment(tmp_path) as deployment:
        deployment._environment["PYTHONPATH"] = str(site)
        deployment.triggerer(deployment.project(PROJECT.format(path=str(path))))
        until(lambda: _committed(path) == [("a", 20)], "the events are stored and the table is advanced")
        found = deployment.cli("events", "--json")
    assert found.stdout.count('"type": "outbox.row"') == 20, found


def _committed(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path)) as connection:
        known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'committed'").fetchone()
        return connection.execute("SELECT topic, id FROM committed").fetchall() if known else []
