"""kill -9 of the triggerer at random moments, and an API server that fails one call in ten: every event is stored once.

The seed is in the name of the test: `SCENARIO_SEED` runs one that failed again. `SCENARIO_KILLS`
and `SCENARIO_EVENTS` make it longer; see `make soak-streams`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, Feed, Oracle, Trigger, Trouble, project_text

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(6 * 3600)]

SEED = int(os.environ["SCENARIO_SEED"])
KILLS = int(os.environ.get("SCENARIO_KILLS", "5"))
EVENTS = int(os.environ.get("SCENARIO_EVENTS", "3000"))
SHARE = 0.1

TRIGGERS = [
    Trigger("a"),
    Trigger("picky", how={"reject": [100, 7], "only": [2, 1]}),
    Trigger("slow", how={"pause": [50, 0.05]}),
    Trigger("poisoned", how={"poison": [10**9, 123]}),
    Trigger("all", declared=True),
    Trigger("even", declared=True, match={"half": ["even"]}),
]


@pytest.mark.parametrize("seed", [SEED])
def test_the_triggerer_is_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with Deployment(tmp_path, ack_timeout=20) as deployment, Feed(tmp_path / "q") as feed:
        project = deployment.project(project_text(feed.queue, TRIGGERS))
        oracle = Oracle(deployment, feed)
        running = deployment.triggerer(project)
        for _ in range(KILLS):
            # From the first import to the thick of it: how long a start takes is not known, so neither is where it hits.
            _send_for(feed, chance, chance.choice([0.3, 2.0, 4.0]) + chance.random() * 2)
            running.kill()
            running = deployment.triggerer(project, replaces=running)
        feed.send(max(200, 300 - feed.sent))
        _verdict(oracle, feed)


@pytest.mark.parametrize("seed", [SEED])
def test_events_are_stored_once_with_an_unreliable_api_server(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with Deployment(tmp_path, ack_timeout=60, api_timeout=1) as deployment, Feed(tmp_path / "q") as feed:
        project = deployment.project(project_text(feed.queue, TRIGGERS))
        oracle = Oracle(deployment, feed)
        trouble = Trouble(deployment.url, seed, SHARE, patience=1.0)
        with trouble.serving() as url:
            triggerer = deployment.triggerer(project, url=url)
            while feed.sent < EVENTS:
                feed.send(min(chance.randrange(1, 30), EVENTS - feed.sent))
                time.sleep(0.03)
            _verdict(oracle, feed)
            assert triggerer.stop() == 0
        assert trouble.failed[""] < trouble.calls


def _send_for(feed: Feed, chance: random.Random, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        feed.send(chance.randrange(1, 40))
        time.sleep(chance.random() * 0.05)


def _verdict(oracle: Oracle, feed: Feed) -> None:
    numbers = range(feed.sent)
    refused = [n for n in numbers if n % 100 == 7]
    expected: dict[str, Sequence[int]] = {
        "a": numbers,
        "picky": [n for n in numbers if n % 2 == 1 and n % 100 != 7],
        "slow": numbers,
        "poisoned": [n for n in numbers if n != 123],
        "all": numbers,
        "even": range(0, feed.sent, 2),
    }
    letters = [("picky", "rejected", n) for n in refused] + [("poisoned", "failed", 123)]
    oracle.settled(expected, letters=len(letters), patience=90 + feed.sent / 100)
    oracle.judge(expected, letters=letters)
    oracle.balanced({name: len(wanted) for name, wanted in expected.items()}, feed.sent)
