"""`/metrics` has every metric that a guide names."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from headrace.api.admin.live_status import LiveStatus
from support.processes.store import opened

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
NAMED = re.compile(r"(?<![\w/-])headrace_[a-z_]+(?![\w/.-])")


def test_metrics_of_the_guides_exist(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        text = asyncio.run(LiveStatus(store).metrics()).decode()
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    for guide in GUIDES.glob("*.md"):
        if guide.name == "testing.md":  # its names are fixtures
            continue
        named = set(NAMED.findall(guide.read_text("utf-8")))
        assert named <= shown, guide.name
