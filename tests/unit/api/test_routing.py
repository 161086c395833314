"""The routes equal the table of calls; a route that differs from the table is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter

from headrace.api.auth.authentication import AnyJob, Triggerer
from headrace.api.routing import check_complete, route
from headrace.wire.base import WireModel
from headrace.wire.calls.call import NOTHING, Call


class Body(WireModel):
    """A request."""

    number: int


GET = Call("GET", "/execution/x/{name:path}/y", NOTHING, Body, "any job")
POST = Call("POST", "/execution/x", Body, NOTHING, "triggerer", "The same number changes nothing.")
ADMIN = Call("DELETE", "/api/v1/x/{name}", NOTHING, NOTHING, "admin", "A missing x is an error.")


def get(name: str, caller: AnyJob) -> Body: ...  # type: ignore[empty-body]


def post(body: Body, caller: Triggerer) -> None: ...


def post_as_any_job(body: Body, caller: AnyJob) -> None: ...


def post_nothing(caller: Triggerer) -> None: ...


def remove(name: str) -> None: ...


def served(*served: tuple[Call[Any, Any], Callable[..., Any]]) -> APIRouter:
    router = APIRouter()
    for call, serve in served:
        route(router, call)(serve)
    return router


def test_each_call_has_one_route() -> None:
    router = served((GET, get), (POST, post), (ADMIN, remove))
    check_complete([router], [GET, POST, ADMIN])
    calls: list[Call[Any, Any]] = [GET, POST, ADMIN]
    for routers, table in (([served((GET, get))], calls), ([router], calls[:2]), ([router, router], calls)):
        with pytest.raises(TypeError, match="differ from the table"):
            check_complete(routers, table)


@pytest.mark.parametrize("serve", [post_as_any_job, post_nothing, remove])
def test_a_route_with_a_different_body_or_caller_is_an_error(serve: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="POST /execution/x"):
        served((POST, serve))


def test_a_path_quotes_its_parameters() -> None:
    assert GET.url({"name": "a/b c"}) == "/execution/x/a%2Fb%20c/y"
    assert GET.name == "GET /execution/x/{name}/y"
    with pytest.raises(KeyError):
        GET.url({})


def test_a_call_decodes_its_response() -> None:
    assert GET.decode(b'{"number": 1}') == Body(number=1)
    assert POST.decode(b"") is None
    assert Call("GET", "/metrics", NOTHING, bytes, "reader").decode(b"a 1") == b"a 1"
