"""Every type of problem that the source names has a title."""

from __future__ import annotations

import re
from pathlib import Path

import headrace
from headrace.api.http.problems import TITLES

NAMED = re.compile(r'problem="([a-z-]+)"|(?:Refusal|problem)\(\s*\d+,\s*"([a-z-]+)"')


def test_every_type_has_a_title() -> None:
    sources = [path.read_text() for path in Path(headrace.__file__).parent.rglob("*.py")]
    named = {first or second for source in sources for first, second in NAMED.findall(source)}
    assert {"fenced", "too-often", "not-found"} <= named <= TITLES.keys()
