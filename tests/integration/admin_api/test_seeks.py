"""Plan a seek over the admin API: who planned it is recorded, and invalid plans are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.api.auth.authentication import Tokens
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import declaration, registration

STREAM = "kafka:kafka/shop/orders"
PATH = "/api/v1/upstreams/seeks"


def plan(**other: Any) -> dict[str, Any]:
    lanes = [{"lane": "orders/0", "position": 5}]
    return {"plan": "0123456789abcdef", "target": "5", "by": "ada@laptop", "streams": [{"stream": STREAM, "lanes": lanes}]} | other


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def declared(api: Api) -> Api:
    """Return an API whose project reads the stream."""
    job = api.store.jobs.register(registration())
    api.store.projects.declare(job.id, "flights", declaration("first", stream=STREAM))
    return api


def test_the_name_of_the_token_is_recorded(declared: Api) -> None:
    token = Tokens(KEY, declared.store.instance, declared.clock).token("grace", "admin")
    (planned,) = declared.ask("POST", PATH, token=token, json=plan()).json()["seeks"]
    assert (planned["who"], planned["state"], planned["target"]) == ("grace (ada@laptop)", "planned", "5")
    by_key = declared.ask("POST", PATH, token=KEY, json=plan(plan="f" * 16)).json()["seeks"]
    listed = declared.ask("GET", PATH).json()["seeks"]
    assert [(one["who"], one["state"]) for one in listed] == [("ada@laptop", "planned"), ("grace (ada@laptop)", "replaced")]
    assert declared.ask("GET", f"{PATH}?plan={'f' * 16}").json()["seeks"] == by_key == listed[:1]


@pytest.mark.parametrize("scope", ["read", "triggerer"])
def test_only_an_admin_plans(declared: Api, scope: Any) -> None:
    token = Tokens(KEY, declared.store.instance, declared.clock).token("1", scope)
    assert declared.ask("POST", PATH, token=token, json=plan()).status_code == 403
    assert declared.ask("POST", PATH, token=None, json=plan()).status_code == 401
    assert declared.ask("GET", PATH).json()["seeks"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (plan(plan="short"), 422),
        (plan(streams=[]), 422),
        (plan(streams=[{"stream": STREAM, "lanes": []}]), 422),
        (plan(streams=[{"stream": STREAM, "lanes": [{"lane": "orders/0", "position": -1}]}]), 422),
        (plan(streams=[{"stream": STREAM, "lanes": [{"lane": "orders/0", "position": 2**63}]}]), 422),
        (plan(streams=[{"stream": STREAM, "lanes": [{"lane": "x" * 1_001, "position": 1}]}]), 422),
        (plan(streams=[{"stream": "sqs:orders", "lanes": [{"lane": "orders", "position": 1}]}]), 422),
        (plan(streams=[{"stream": "kafka:other", "lanes": [{"lane": "orders", "position": 1}]}]), 404),
    ],
)
def test_an_invalid_plan_is_named_and_plans_nothing(declared: Api, body: dict[str, Any], status: int) -> None:
    response = declared.ask("POST", PATH, token=KEY, json=body)
    assert (response.status_code, response.json()["status"]) == (status, status)
    assert declared.ask("GET", PATH).json()["seeks"] == []
