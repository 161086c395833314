"""The declaration of an `Http` upstream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProjectError, UpstreamError
from headrace.project import Project
from headrace.sources.http.request_headers import stored_headers
from headrace.sources.http.upstream import Http
from headrace.triggers.upstream import load_upstream
from headrace.wiring.receiver import declared_upstreams


def test_an_upstream_is_serialized_as_plain_json(tmp_path: Path) -> None:
    upstream = Http("orders", verify="github", key="$.a", lanes=2, headers=["X-B", "x-a"], folder="in", max_bytes=2**30)
    kwargs = upstream.serialize()[1]
    assert kwargs == {
        "name": "orders",
        "verify": "github",
        "connection": "orders",
        "key": "$.a",
        "lanes": 2,
        "headers": ["x-a", "x-b"],
        "folder": "in",
        "max_bytes": 2**30,
    }
    moved = upstream.relative_to(tmp_path)
    assert moved.stream_key() == f"http:{tmp_path}/in/orders.queue"
    assert load_upstream(*moved.serialize()).stream_key() == moved.stream_key()
    assert Http("orders", verify="none", connection="unused").connection is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": ""},
        {"name": "a/b"},
        {"name": "../a"},
        {"name": 3},
        {"verify": "md5"},
        {"lanes": 0},
        {"headers": "x-a"},
        {"headers": ["authorization"]},
        {"headers": ["Cookie"]},
        {"headers": ["a b"]},
        {"headers": [3]},
        {"max_bytes": 1},
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any]) -> None:
    with pytest.raises(UpstreamError) as rejected:
        Http(**{"name": "orders", "verify": "none"} | arguments)
    assert rejected.value.hint


def test_credentials_are_never_stored() -> None:
    secret = (
        "authorization",
        "cookie",
        "proxy-authorization",
        "stripe-signature",
        "webhook-signature",
        "x-hub-signature-256",
        "x-slack-signature",
    )
    headers = dict.fromkeys((*secret, "traceparent", "x-api-key"), "v")
    assert stored_headers(headers, secret) == {"traceparent": "v"}


def test_the_upstreams_of_a_project_are_declared_once(tmp_path: Path) -> None:
    project = Project("shop")
    with pytest.raises(ProjectError, match="no Http upstream"):
        declared_upstreams(project)
    for number in range(2):
        project.watch(f"same{number}", Http("orders", verify="none", folder=tmp_path))
    project.watch("other", Http("other", verify="github", folder=tmp_path))
    assert [one.name for one in declared_upstreams(project)] == ["orders", "other"]
    project.watch("different", Http("orders", verify="github", folder=tmp_path))
    with pytest.raises(ProjectError, match="differ"):
        declared_upstreams(project)
