"""Tokens that must be refused: forged, expired, revoked, of another database, of another scope, of an ended job."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from hmac import compare_digest
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import jwt
import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.api.auth import authentication
from headrace.api.auth.authentication import TOKEN_SECONDS, Tokens
from headrace.client.pipeline import PipelineClient
from headrace.client.triggerer import TriggererClient
from headrace.errors import ApiRefused
from headrace.wire.calls import execution as calls
from headrace.wire.control.jobs import CompleteJob, Heartbeat, JobRegistered
from headrace.wire.problem import PROBLEM_PREFIX
from support.processes.calls import get_lane_offsets
from support.processes.deployment import until
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import DATABASES, registration


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture
def turned(tmp_path: Path) -> Iterator[Api]:
    """An api of its own, for a test that sets its clock; no job is taken for dead meanwhile."""
    with serving(tmp_path) as running:
        yield running


def problem(response: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    assert (response.status_code, response.json()["type"]) == (status, PROBLEM_PREFIX + slug), response.text
    body: dict[str, Any] = response.json()
    return body


def registered(api: Api, kind: Any = "triggerer") -> dict[str, Any]:
    answer: dict[str, Any] = api.ask("POST", "/execution/jobs", json=registration(kind).model_dump()).json()
    return answer


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def claims_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


def tokens_of(api: Api) -> Tokens:
    return Tokens(KEY, api.store.instance, api.clock)


def forgeries(token: str) -> dict[str, str]:
    """Tokens made of one that was good by somebody who does not know the key."""
    head, body, signature = token.split(".")
    claims = claims_of(token)
    return {
        "alg=none": f"{part({'alg': 'none', 'typ': 'JWT'})}.{body}.",
        "alg=NONE, old signature": f"{part({'alg': 'NONE', 'typ': 'JWT'})}.{body}.{signature}",
        "another job": f"{head}.{part(claims | {'sub': '2'})}.{signature}",
        "a larger scope": f"{head}.{part(claims | {'scope': 'admin'})}.{signature}",
        "a longer life": f"{head}.{part(claims | {'exp': claims['exp'] + 10**6})}.{signature}",
        "another key": jwt.encode(claims, "x" * 32, "HS256"),
        "the deployment key as the secret": jwt.encode(claims, KEY.ljust(32), "HS256"),
        "another algorithm": jwt.encode(claims, "x" * 64, "HS512"),
        "no end": jwt.encode({name: value for name, value in claims.items() if name != "exp"}, "x" * 32, "HS256"),
        "no signature": f"{head}.{body}",
        "nothing": "..",
    }


@pytest.mark.parametrize("how", forgeries(Tokens(KEY, 1).token(1, "triggerer")))
def test_a_forged_token_is_unauthorized(api: Api, how: str) -> None:
    forged = forgeries(registered(api)["token"])[how]
    problem(api.ask("POST", "/execution/jobs/1/heartbeat", token=forged, json={}), 401, "unauthorized")
    problem(api.ask("PUT", "/api/v1/variables/x", token=forged, json={"value": "1"}), 401, "unauthorized")


@pytest.mark.parametrize("missing", ["sub", "scope", "aud", "exp"])
def test_a_signed_token_without_a_required_claim_is_unauthorized(api: Api, missing: str) -> None:
    tokens = tokens_of(api)
    claims = claims_of(tokens.token(1, "triggerer"))
    del claims[missing]
    signed = jwt.encode(claims, tokens._secret, authentication.ALGORITHM)
    problem(api.ask("GET", "/execution/events/head", token=signed), 401, "unauthorized")


def test_a_token_of_another_database_is_unauthorized(api: Api) -> None:
    registered(api)
    other = Tokens(KEY, api.store.instance + 1, api.clock).token(1, "triggerer")
    problem(api.ask("POST", "/execution/jobs/1/heartbeat", token=other, json={}), 401, "unauthorized")


def test_an_expired_token_is_refused_after_earlier_use(turned: Api) -> None:
    job = registered(turned)
    path = f"/execution/jobs/{job['job_id']}/heartbeat"
    assert turned.ask("POST", path, token=job["token"], json={}).status_code == 200
    turned.clock.set(TOKEN_SECONDS - 1)
    assert turned.ask("POST", path, token=job["token"], json={}).status_code == 200
    turned.clock.set(1)
    body = problem(turned.ask("POST", path, token=job["token"], json={}), 401, "expired")
    assert "registration id" in body["hint"]


def test_heartbeats_return_a_new_token_after_half_its_lifetime(turned: Api) -> None:
    job = registered(turned)
    path = f"/execution/jobs/{job['job_id']}/heartbeat"
    token = job["token"]
    assert turned.ask("POST", path, token=token, json={}).json()["token"] is None
    for _ in range(100):
        turned.clock.set(20)
        token = turned.ask("POST", path, token=token, json={}).json()["token"] or token
    assert claims_of(token)["exp"] - claims_of(job["token"])["exp"] > TOKEN_SECONDS
    assert claims_of(token)["sub"] == str(job["job_id"])


def test_a_token_is_fenced_after_the_end_of_its_job(api: Api) -> None:
    job = registered(api)
    api.store.jobs.complete(job["job_id"], CompleteJob(state="succeeded"))
    for path in ("/execution/connections/warehouse", "/execution/variables/x", "/execution/events/head"):
        problem(api.ask("GET", path, token=job["token"]), 409, "fenced")


@pytest.mark.parametrize("scope", ["read", "admin"])
def test_a_user_token_is_refused_by_the_execution_api(api: Api, scope: Any) -> None:
    registered(api)
    token = tokens_of(api).token("1", scope)  # named as a job's id is
    problem(api.ask("POST", "/execution/jobs/1/heartbeat", token=token, json={}), 403, "forbidden")
    problem(api.ask("GET", "/execution/connections/warehouse", token=token), 403, "forbidden")
    problem(api.ask("POST", "/execution/jobs", token=token, json=registration().model_dump()), 401, "unauthorized")


@pytest.mark.parametrize("scope", ["read", "triggerer", "pipeline"])
def test_changes_need_an_admin_token_or_the_deployment_key(api: Api, scope: Any) -> None:
    token = tokens_of(api).token("1", scope)
    for method, path, body in (
        ("PUT", "/api/v1/variables/x", {"value": "1"}),
        ("DELETE", "/api/v1/variables/x", None),
        ("PUT", "/api/v1/connections/x", {"kind": "http"}),
        ("DELETE", "/api/v1/connections/x", None),
        ("POST", "/api/v1/secrets/rotate", {}),
        ("POST", "/api/v1/dead-letters/discard", {"select_all": True, "by": "me"}),
    ):
        problem(api.ask(method, path, token=token, json=body), 403, "forbidden")
        problem(api.ask(method, path, token=None, json=body), 401, "unauthorized")
    assert api.ask("PUT", "/api/v1/variables/x", token=tokens_of(api).token("ada", "admin"), json={"value": "1"}).status_code == 204


def test_only_the_deployment_key_creates_tokens(turned: Api) -> None:
    asked = {"scope": "admin"}
    admin = tokens_of(turned).token("ada", "admin")
    problem(turned.ask("POST", "/api/v1/tokens", token=admin, json=asked), 401, "unauthorized")
    problem(turned.ask("POST", "/api/v1/tokens", token=registered(turned)["token"], json=asked), 403, "forbidden")
    made = turned.ask("POST", "/api/v1/tokens", json={"scope": "read", "seconds": 60}).json()
    assert claims_of(made["token"])["scope"] == "read"
    turned.clock.set(61)
    problem(turned.ask("PUT", "/api/v1/variables/x", token=made["token"], json={"value": "1"}), 401, "expired")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", DATABASES)
def test_a_revoked_token_is_refused_by_every_api_server(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path, kind=kind) as one, serving(tmp_path, kind=kind) as other:

        def opens(api: Api, token: str) -> bool:
            answer = api.ask("PUT", "/api/v1/variables/x", token=token, json={"value": "1"})
            assert answer.status_code in (204, 401), answer.text
            return answer.status_code == 204

        made = [one.ask("POST", "/api/v1/tokens", json={"scope": "admin", "name": name}).json() for name in ("ada", "bob")]
        ada, bob = (answer["token"] for answer in made)
        assert all(opens(api, token) for api in (one, other) for token in (ada, bob))
        assert [row["name"] for row in one.ask("GET", "/api/v1/tokens").json()["tokens"]] in (["ada", "bob"], ["bob", "ada"])
        for who, status in ((ada, 401), (registered(one)["token"], 403), (None, 401)):
            for method, path in (("GET", "/api/v1/tokens"), ("DELETE", f"/api/v1/tokens/{made[1]['id']}")):
                assert one.ask(method, path, token=who).status_code in (401, status)
        problem(one.ask("DELETE", "/api/v1/tokens/nothing"), 404, "not-found")
        for _ in range(2):
            assert one.ask("DELETE", f"/api/v1/tokens/{made[0]['id']}").status_code == 204
        assert not opens(one, ada)
        problem(one.ask("PUT", "/api/v1/variables/x", token=ada, json={"value": "1"}), 401, "unauthorized")
        until(lambda: not opens(other, ada), "the other api has heard of it", 60)
        assert opens(one, bob)
        assert opens(other, bob)
        (shown,) = [row for row in other.ask("GET", "/api/v1/tokens").json()["tokens"] if row["revoked"]]
        assert (shown["id"], shown["name"], ada in str(shown)) == (made[0]["id"], "ada", False)
    with serving(tmp_path, kind=kind) as again:
        assert not opens(again, ada)
        assert opens(again, bob)


def test_a_failure_to_read_revoked_tokens_is_reported_and_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as one, serving(tmp_path) as other:
        read, failed = other.store.api_tokens.revoked, Event()

        def fail_once() -> frozenset[str]:
            if not failed.is_set():
                failed.set()
                raise PoolTimeout("QueuePool limit reached")
            return read()

        monkeypatch.setattr(other.store.api_tokens, "revoked", fail_once)
        made = one.ask("POST", "/api/v1/tokens", json={"scope": "read"}).json()
        assert failed.wait(60)
        until(
            lambda: [alert.about for alert in other.store.background.alerts()] == ["work:the list of revoked tokens"], "it is reported", 60
        )
        assert one.ask("DELETE", f"/api/v1/tokens/{made['id']}").status_code == 204
        until(lambda: other.ask("GET", "/api/v1/tokens", token=made["token"]).status_code == 401, "the other api knows of it", 60)
        until(lambda: other.store.background.alerts() == [], "it is well again", 60)


def test_creating_a_token_prunes_expired_tokens(turned: Api) -> None:
    old = turned.ask("POST", "/api/v1/tokens", json={"scope": "read", "seconds": 60}).json()
    assert turned.ask("DELETE", f"/api/v1/tokens/{old['id']}").status_code == 204
    assert turned.store.api_tokens.revoked() == {old["id"]}
    turned.clock.set(61)
    assert turned.store.api_tokens.listed() == []
    assert turned.store.api_tokens.revoked() == frozenset()
    turned.ask("POST", "/api/v1/tokens", json={"scope": "read"})
    problem(turned.ask("DELETE", f"/api/v1/tokens/{old['id']}"), 404, "not-found")


@pytest.mark.parametrize(
    "given", [{"scope": "triggerer"}, {"scope": "root"}, {"scope": "read", "seconds": 10**9}, {"scope": "read", "seconds": 0}]
)
def test_invalid_scopes_and_lifetimes_of_tokens_are_refused(api: Api, given: dict[str, Any]) -> None:
    problem(api.ask("POST", "/api/v1/tokens", json=given), 422, "invalid")


def test_the_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare_digest(one, other)

    monkeypatch.setattr("headrace.api.auth.authentication.compare_digest", spy)
    assert not Tokens(KEY, 1).is_key("wrong")
    assert Tokens(KEY, 1).is_key(KEY)
    assert compared == [(b"wrong", KEY.encode()), (KEY.encode(), KEY.encode())]


async def test_a_triggerer_with_an_expired_token_registers_again_as_the_same_job(turned: Api) -> None:
    async with TriggererClient(turned.url, key=KEY) as client:
        first = await client.register(registration())
        await client.heartbeat(Heartbeat())
        turned.clock.set(TOKEN_SECONDS + 1)
        await client.heartbeat(Heartbeat())
        assert (await get_lane_offsets(client, "folder", [])).offsets == []
        with turned.store.reading() as connection:
            assert connection.exec_driver_sql("SELECT id, state FROM jobs").all() == [(first.job_id, "running")]


def test_a_driver_stores_renewed_tokens_for_its_readers(turned: Api, tmp_path: Path) -> None:
    kept = tmp_path / "token"
    with PipelineClient(turned.url, key=KEY) as driver, PipelineClient(turned.url, token_file=kept) as reader:
        driver.on_token = kept.write_text
        driver.register(registration("pipeline"))
        assert reader.request(calls.GET_LOG_HEAD, None).head == 0
        first = driver.token
        turned.clock.set(TOKEN_SECONDS * 0.6)
        driver.heartbeat()
        assert driver.token != first
        turned.clock.set(TOKEN_SECONDS * 0.6)
        assert reader.request(calls.GET_LOG_HEAD, None).head == 0, "the reader's own token had expired"
        turned.clock.set(TOKEN_SECONDS + 1)
        assert driver.request(calls.GET_LOG_HEAD, None).head == 0, "the driver registered again"
        with PipelineClient(turned.url, token=first) as lost, pytest.raises(ApiRefused) as refused:
            lost.request(calls.GET_LOG_HEAD, None)
        assert refused.value.problem == "expired"


def test_reprs_do_not_contain_tokens_or_keys(api: Api) -> None:
    job = api.ask("POST", "/execution/jobs", json=registration().model_dump())
    model = JobRegistered.model_validate_json(job.content)
    assert model.token not in repr(model)
    assert KEY not in repr(tokens_of(api))
