"""Access control: host names, cross-origin requests, readers from outside without a token; and the security headers of answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from headrace.api.auth.authentication import COOKIE, Tokens
from headrace.api.middleware.access_control import NetworkExposure
from headrace.wire.problem import PROBLEM_PREFIX
from support.processes.browser import looking
from support.processes.execution_api import KEY, UNLIMITED, Api, serving
from support.processes.store import registration


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("inside"), rates=UNLIMITED) as running:
        yield running


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("outside"), exposure=NetworkExposure(outside=True), rates=UNLIMITED) as running:
        yield running


def slug(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, str(response.json()["type"]).removeprefix(PROBLEM_PREFIX)


def token(api: Api, scope: Any = "read") -> str:
    return Tokens(KEY, api.store.instance, api.clock).token("ada", scope)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::1", "2130706433"]
)
def test_a_rebound_host_name_is_refused(api: Api, host: str) -> None:
    for path in ("/", "/api/v1/status", "/execution/events/head", "/metrics", "/healthz"):
        assert slug(api.ask("GET", path, headers={"Host": host})) == (421, "wrong-host")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8642", "LOCALHOST", "[::1]:8642", "localhost."])
def test_host_names_of_loopback_are_accepted(api: Api, host: str) -> None:
    assert api.ask("GET", "/api/v1/status", token=None, headers={"Host": host}).status_code == 200


def test_an_exposed_server_accepts_any_host_name_unless_some_are_configured() -> None:
    assert NetworkExposure(outside=True).knows("anything.example:80")
    named = NetworkExposure(outside=True, hosts=frozenset({"headrace.example"}))
    assert named.knows("Headrace.example:443")
    assert not named.knows("evil.example")
    assert NetworkExposure(hosts=frozenset({"headrace.example"})).knows("headrace.example"), "as behind a proxy on this machine"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_cross_origin_changes_are_refused_even_with_the_key(api: Api, headers: dict[str, str]) -> None:
    for method, path in (("PUT", "/api/v1/variables/x"), ("POST", "/api/v1/dead-letters/discard"), ("POST", "/login")):
        assert slug(api.ask(method, path, json={"value": "1"}, headers=headers)) == (403, "cross-origin")
    assert api.ask("PUT", "/api/v1/variables/x", json={"value": "1"}, headers={"Origin": api.url}).status_code == 204


def test_every_answer_has_security_headers(api: Api) -> None:
    for path in ("/", "/api/v1/status", "/api/v1/nothing", "/login", "/metrics"):
        headers = api.ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_reading_on_loopback_needs_no_token(api: Api) -> None:
    for path in ("/", "/api/v1/status", "/api/v1/connections", "/metrics"):
        assert api.ask("GET", path, token=None).status_code == 200


def every_get(api: Api) -> list[str]:
    described = api.ask("GET", "/api/openapi.json").json()
    paths = [path for path, item in described["paths"].items() if "get" in item]
    assert len(paths) > 10
    return [path.replace("{", "").replace("}", "") for path in paths] + ["/", "/api/openapi.json", "/static/page.js"]


def test_reading_from_outside_needs_a_token(outside: Api) -> None:
    for path in every_get(outside):
        if path != "/healthz":
            assert slug(outside.ask("GET", path, token=None)) == (401, "unauthorized"), path
    job = outside.ask("POST", "/execution/jobs", json=registration().model_dump()).json()["token"]
    for bad, answer in ((job, (403, "forbidden")), ("nonsense", (401, "unauthorized")), (f"{token(outside)}x", (401, "unauthorized"))):
        assert slug(outside.ask("GET", "/api/v1/status", token=bad)) == answer


def test_a_read_token_from_outside_reads_but_cannot_change(outside: Api) -> None:
    for good in (token(outside), token(outside, "admin"), KEY):
        assert outside.ask("GET", "/api/v1/status", token=good).status_code == 200
    assert slug(outside.ask("PUT", "/api/v1/variables/x", token=token(outside), json={"value": "1"})) == (403, "forbidden")
    assert outside.ask("GET", "/healthz", token=None).status_code == 200


def test_every_execution_route_needs_credentials(outside: Api) -> None:
    described = outside.ask("GET", "/execution/openapi.json").json()
    asked = 0
    for path, item in described["paths"].items():
        for method in item.keys() & {"get", "put", "post", "delete"}:
            where = path.replace("{name}", "p").replace("{", "").replace("}", "").replace("_id", "").replace("trigger", "1", 0)
            where = "/".join("1" if part in ("job", "trigger", "run", "id") else part for part in where.split("/"))
            response = outside.ask(method.upper(), where, token=None, json={})
            assert slug(response)[0] == 401, (method, path, response.text)
            asked += 1
    assert asked > 12


def test_the_login_cookie_reads_but_cannot_change(outside: Api) -> None:
    sent = outside.http.get("/", headers={"Accept": "text/html"})
    assert (sent.status_code, sent.headers["location"]) == (303, "/login")
    for wrong in ("nonsense", "", KEY, token(outside)[:-2]):
        refused = outside.http.post("/login", data={"token": wrong})
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    entered = outside.http.post("/login", data={"token": token(outside, "admin")})
    cookie = entered.headers["set-cookie"]
    outside.http.cookies.clear()
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Max-Age=600", "Path=/"))
    shown = {"Cookie": f"{COOKIE}={token(outside, 'admin')}"}
    assert outside.http.get("/api/v1/status", headers=shown).status_code == 200
    assert outside.http.put("/api/v1/variables/x", headers=shown, json={"value": "1"}).status_code == 401
    for wrong in ("nonsense", KEY + "x", "a=b; headrace_token=", '"'):
        assert outside.http.get("/api/v1/status", headers={"Cookie": f"{COOKIE}={wrong}"}).status_code == 401


@pytest.mark.browser
async def test_a_browser_logs_in_on_the_login_page(outside: Api) -> None:
    async with looking() as look:
        await look.page.goto(outside.url)
        assert look.page.url.endswith("/login")
        await look.page.fill("#token", token(outside))
        await look.page.click("button")
        await look.page.wait_for_selector("body:not(.loading)")
        assert look.page.url == f"{outside.url}/"
        assert await look.page.text_content("#link") == "Live"
        assert look.complaints == []


def test_the_openapi_documents_describe_all_routes(api: Api) -> None:
    """A route that is in no description would escape the tests above."""
    from headrace.api.app import create_app

    routes = create_app(api.store, key=KEY).routes
    served = {route.path.replace(":path}", "}") for route in routes if isinstance(route, Route)}
    described = set(api.ask("GET", "/api/openapi.json").json()["paths"])
    assert described <= served
    others = {path for path in served - described if not path.startswith("/execution")}
    assert others <= {"/", "/static/{name}", "/login", "/api/openapi.json"}


def test_a_static_path_outside_the_folder_is_not_found(api: Api) -> None:
    for name in ("..%2f..%2fsettings.py", "%2e%2e/app.py", "....//app.py", "page.html%00", "/etc/passwd", "..\\app.py"):
        assert api.http.get(f"/static/{name}").status_code == 404


def test_answers_do_not_contain_local_folders(api: Api, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = str(Path(tmp_path_factory.getbasetemp()))
    for path in ("/api/v1/status", "/healthz", "/api/v1/nothing", "/execution/nothing", "/api/v1/events/99999999999999999999"):
        assert folder not in api.ask("GET", path).text
