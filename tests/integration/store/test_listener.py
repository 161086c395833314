"""An API server with many open connections receives the commits of others (store A36: select() is limited to descriptors up to 1,023)."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from support.processes.store import event, holder, opened

DESCRIPTORS = 1_100


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Take all descriptors up to 1,100."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * DESCRIPTORS:
        pytest.skip(f"this user may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * DESCRIPTORS), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < DESCRIPTORS:
        taken.append(os.dup(taken[0]))
    yield
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_commits_of_other_api_servers_are_received_over_descriptors_above_1_023(tmp_path: Path) -> None:
    with opened("postgresql", tmp_path) as one, opened("postgresql", tmp_path) as other:
        heard = Event()
        other.observe(heard.set)
        owner = holder(one, "first")
        assert heard.wait(30), "be it only because it may have missed something before it listened"
        heard.clear()
        owner.append(event("a"))
        assert heard.wait(30)
