from __future__ import annotations

import httpx
import pytest

from headrace.client.http.responses import options, raise_for_problem, translate_decode_errors
from headrace.errors import ApiError, ApiRefused, ApiUnavailable, Fenced
from headrace.wire.control.jobs import Lease
from headrace.wire.problem import PROBLEM_JSON, PROBLEM_PREFIX, Problem

REQUEST = httpx.Request("GET", "http://api/execution/events")


def answered(status: int, slug: str = "", **headers: str) -> httpx.Response:
    if not slug:
        return httpx.Response(status, text="<html>", headers=headers, request=REQUEST)
    problem = Problem(type=PROBLEM_PREFIX + slug, title="Title", status=status, detail="What is wrong.", hint="What to do.")
    sent = {"Content-Type": PROBLEM_JSON} | headers
    return httpx.Response(status, content=problem.model_dump_json(), headers=sent, request=REQUEST)


def test_a_successful_response_is_returned() -> None:
    response = answered(204)
    assert raise_for_problem(response) is response


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 507])
@pytest.mark.parametrize("slug", ["", "unavailable"])
def test_a_retryable_status_raises_api_unavailable(status: int, slug: str) -> None:
    with pytest.raises(ApiUnavailable) as unavailable:
        raise_for_problem(answered(status, slug))
    assert unavailable.value.status == status
    assert unavailable.value.retry_after is None


@pytest.mark.parametrize(("given", "seconds"), [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)])
def test_api_unavailable_has_the_seconds_of_retry_after(given: str, seconds: float | None) -> None:
    with pytest.raises(ApiUnavailable) as unavailable:
        raise_for_problem(answered(429, **{"Retry-After": given}))
    assert unavailable.value.retry_after == seconds


@pytest.mark.parametrize(
    ("status", "slug", "kind"), [(409, "fenced", Fenced), (403, "forbidden", ApiRefused), (422, "invalid", ApiRefused)]
)
def test_a_refused_request_raises_an_error_with_reason_and_hint(status: int, slug: str, kind: type[ApiError]) -> None:
    with pytest.raises(ApiRefused, match="What is wrong") as refused:
        raise_for_problem(answered(status, slug))
    assert type(refused.value) is kind
    assert (refused.value.status, refused.value.problem, refused.value.hint) == (status, slug, "What to do.")


def test_an_invalid_problem_document_is_reported_by_its_status() -> None:
    broken = httpx.Response(404, content=b"{", headers={"Content-Type": PROBLEM_JSON}, request=REQUEST)
    with pytest.raises(ApiRefused, match="http://api/execution/events answered 404 Not Found"):
        raise_for_problem(broken)


def test_a_response_of_a_foreign_server_is_reported_with_a_hint() -> None:
    with pytest.raises(ApiError, match="not as a Headrace api") as error, translate_decode_errors("http://api"):
        Lease.model_validate_json(b"<html>")
    assert "address" in (error.value.hint or "")


def test_requests_to_loopback_bypass_proxies() -> None:
    assert options("http://127.0.0.1:8642")["trust_env"] is False
    assert options("https://api.example.org")["trust_env"] is True


def test_certificates_are_verified_on_loopback_too() -> None:
    assert options("https://127.0.0.1:8642")["verify"] is True
