"""Odd items in a batch: each has its own answer, the API server does not fail, and the other items are stored.

`HOSTILE_SEED` is another seed than the fixed one.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from headrace.triggerer.outbox.dead_letters import shortened
from headrace.wire.custody.events import DeadLetterItem
from support.processes.execution_api import Api, serving
from support.processes.store import DATABASES, declaration, event, registration

SEED = int(os.environ.get("HOSTILE_SEED", "9"))
BATCHES = 6
DEPTHS = (100, 199, 200, 201, 340, 499, 955, 960, 971, 5_000)
TEXTS = [
    "",
    "a",
    "a\0b",
    "\x7f\x1b[31m",
    "\ufffe\uffff",
    "e\u0301" * 300,
    "\u4e2d" * 1_000,
    "\U0001f600" * 1_000,
    "".join(chr(0x4E00 + n * 7 % 20_000) for n in range(1_000)),  # nothing that an index could compress
    "x" * 1_000,
    "x" * 5_000,
    "'; DROP TABLE events; --",
    "../../etc/passwd",
    "None",
]
NUMBERS = [None, 0, -1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30]
MOMENTS = [None, "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00", "2026-11-21T00:00:00Z", "0001-01-01T00:00:00Z"]
PAYLOADS = [
    "{}",
    "",
    "{",
    "NaN",
    "1e400",
    "1" * 5_000,
    '"\\u0000"',
    '"\\ud800"',
    '{"a\\u0000b": "a\\u0000b"}',
    "\0",
    *("[" * depth + "]" * depth for depth in DEPTHS),
    *('{"a":' * depth + "1" + "}" * depth for depth in DEPTHS),
]


class Hostile:
    """A triggerer's job, and items for it made with one seed."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api = api
        self._chance = random.Random(seed)
        self._token: str = api.ask("POST", "/execution/jobs", json=registration().model_dump()).json()["token"]
        self.ask("PUT", "/execution/projects/flights", declaration("first").model_dump())
        self.ask("POST", "/execution/triggers/load", {"capacity": 10})

    def ask(self, method: str, path: str, body: Any) -> Any:
        answer = self._api.ask(method, path, token=self._token, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert answer.status_code < 500, (answer.text, str(body)[:500])
        return answer

    def store(self, items: dict[str, list[Any]]) -> dict[str, list[str]] | None:
        """Store a batch; None: it was refused as a whole."""
        answer = self.ask("POST", "/execution/triggers/events", {"epochs": {1: 1}, **items})
        return answer.json() if answer.status_code == 200 else None

    def text(self, *, usual: str) -> str:
        return self._chance.choice(TEXTS) if self._chance.random() < 0.3 else f"{usual}{self._chance.randrange(10**9)}"

    def number(self) -> int | None:
        return self._chance.choice(NUMBERS) if self._chance.random() < 0.3 else self._chance.randrange(1_000)

    def event(self) -> dict[str, Any]:
        payload = self._chance.choice(PAYLOADS) if self._chance.random() < 0.5 else "{}"
        texts = {name: self.text(usual=name) for name in ("id", "source", "type", "subject", "follows", "stream", "lane", "trace")}
        return texts | {"payload": payload, "position": self.number(), "occurred": self._chance.choice(MOMENTS), "firings": [1]}

    def letter(self) -> dict[str, Any]:
        texts = {name: self.text(usual=name) for name in ("id", "reason", "stream", "lane", "raw")}
        lines = [self.text(usual="line") for _ in range(3)]
        attempts = self._chance.choice([1, 2**63, 10**30])
        return texts | {"kind": "failed", "position": self.number(), "triggers": [1], "attempts": attempts, "traceback": lines}

    def spill(self) -> dict[str, Any]:
        return {name: self.text(usual=name) for name in ("stream", "lane", "raw")} | {"position": self.number(), "triggers": [1]}

    def receipt(self) -> dict[str, Any]:
        answers = [{"trigger_id": 1, "fired": self._chance.choice([0, 1, 2**63])}]
        numbers = {"after": self.number(), "last": self.number() or 1, "read": self._chance.choice([1, 2**63])}
        return {name: self.text(usual=name) for name in ("stream", "lane")} | numbers | {"owed": [1], "answers": answers}


@pytest.fixture(params=DATABASES)
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hostile]:
    with serving(tmp_path, kind=request.param) as api:
        yield Hostile(api, SEED)


def test_every_odd_item_has_an_answer_and_other_items_are_stored(hostile: Hostile) -> None:
    kinds = {"events": hostile.event, "dead_letters": hostile.letter, "spills": hostile.spill, "receipts": hostile.receipt}
    for number in range(BATCHES):
        innocent = asdict(event(f"innocent {number}"))
        items = {kind: [make() for _ in range(4)] for kind, make in kinds.items()}
        whole = hostile.store({**items, "events": [innocent, *items["events"]]})
        if whole is not None:
            assert whole["events"][0] == "stored", f"seed {SEED}"
            assert {kind: len(statuses) for kind, statuses in whole.items()} == {kind: 4 + (kind == "events") for kind in kinds}
            continue
        assert hostile.store({"events": [innocent]}) == {"events": ["stored"], "dead_letters": [], "spills": [], "receipts": []}
        for kind, odd in items.items():
            for item in odd:
                alone = hostile.store({kind: [item]})
                assert alone is None or alone[kind][0] in {"stored", "duplicate", "invalid"}, f"seed {SEED}: {item}"


def test_the_shortened_form_of_every_dead_letter_is_stored(hostile: Hostile) -> None:
    for number in range(40):
        odd = {**hostile.letter(), "position": number} | {"id": "\0" if number % 2 else "\u4e2d" * 999 + str(number)}
        small = shortened(DeadLetterItem.model_construct(**odd))
        assert hostile.store({"dead_letters": [small.model_dump(mode="json")]}) is not None, f"seed {SEED}: {small}"
        again = hostile.store({"dead_letters": [small.model_dump(mode="json")]})
        assert again is not None
        assert again["dead_letters"] == ["duplicate"], f"seed {SEED}: {small}"


def test_an_odd_payload_does_not_fail_its_batch(hostile: Hostile) -> None:
    for number, payload in enumerate(PAYLOADS):
        before, odd, after = (asdict(event(f"{name} {number}")) for name in ("before", "odd", "after"))
        answer = hostile.store({"events": [before, odd | {"payload": payload}, after]})
        assert answer is not None, f"payload {number}"
        assert (answer["events"][0], answer["events"][2]) == ("stored", "stored"), f"payload {number}"
        assert answer["events"][1] in {"stored", "invalid"}, f"payload {number}"
