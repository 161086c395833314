"""The meaning of a response of the API: a result, a retryable error, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from headrace.errors import ApiError, ApiRefused, ApiUnavailable, Fenced
from headrace.wire.base import API_VERSION, VERSION_HEADER
from headrace.wire.problem import PROBLEM_JSON, PROBLEM_PREFIX, Problem

TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 5.0
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
TRANSIENT = frozenset({408, 425, 429})


class Response(NamedTuple):
    """A response of any HTTP library."""

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes


def trusts_environment(url: str) -> bool:
    """Return whether the environment's proxy may carry requests to the API at `url`; never for this machine itself."""
    return urlsplit(url).hostname not in LOOPBACK


def options(url: str, *, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Return the options of an httpx client for the API at `url`."""
    return {
        "base_url": url,
        "headers": {VERSION_HEADER: API_VERSION},
        "timeout": httpx.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
        "trust_env": trusts_environment(url),
        # Plain HTTP checks no certificate, and loading the authorities takes longer than a typical call.
        "verify": urlsplit(url).scheme != "http",
    }


def bearer(token: str) -> dict[str, str]:
    """Return the header that carries a token or the deployment key."""
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def translate_transport_errors(url: str) -> Iterator[None]:
    """Raise any transport error as `ApiUnavailable`."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise timed_out(url) from error
    except httpx.TransportError as error:
        raise unreachable(url, error) from error


def timed_out(url: str) -> ApiUnavailable:
    """Return the error for a response that did not arrive in time."""
    return ApiUnavailable(f"The api at {url} did not answer in time.", hint="Is it overloaded, or is the address wrong?")


def unreachable(url: str, error: Exception) -> ApiUnavailable:
    """Return the error for an unreachable API."""
    hint = "Is it running? Start it with: headrace standalone, or the api alone with: headrace api"
    return ApiUnavailable(f"The api at {url} cannot be reached: {error}.", hint=hint)


def raise_for_problem(response: httpx.Response) -> httpx.Response:
    """Return a successful `response`. Raises as `body_of` does."""
    if not response.is_success:
        body_of(Response(str(response.request.url), response.status_code, response.reason_phrase, response.headers, response.content))
    return response


def body_of(answer: Response) -> bytes:
    """Return the body of a successful response.

    Raises:
        ApiUnavailable: A retry may succeed (5xx, 429), after `retry_after` seconds if the API sets it.
        Fenced: A newer owner holds the resource, or the job has ended.
        ApiRefused: The request itself is invalid.
    """
    if 200 <= answer.status < 300:
        return answer.content
    problem = _problem(answer)
    slug = problem.type.removeprefix(PROBLEM_PREFIX)
    message = problem.detail or problem.title
    if slug == "fenced":
        raise Fenced(message, hint=problem.hint, status=answer.status, problem=slug)
    if answer.status in TRANSIENT or answer.status >= 500:
        unavailable = ApiUnavailable(message, hint=problem.hint, status=answer.status, problem=slug)
        unavailable.retry_after = _retry_after(answer.headers)
        raise unavailable
    raise ApiRefused(message, hint=problem.hint, status=answer.status, problem=slug)


@contextmanager
def translate_decode_errors(url: str) -> Iterator[None]:
    """Raise a response that violates the protocol as `ApiError`."""
    try:
        yield
    except (ValidationError, ValueError) as error:
        raise ApiError(f"{url} answered, but not as a Headrace api does.", hint="Check the address of the api.") from error


def _problem(answer: Response) -> Problem:
    if answer.headers.get("content-type", "").startswith(PROBLEM_JSON):
        try:
            return Problem.model_validate_json(answer.content)
        except ValidationError:
            pass  # a response that only resembles a problem: its status decides below
    title = f"{answer.url} answered {answer.status} {answer.reason}"
    return Problem(type="about:blank", title=title, status=answer.status, hint="Is that the address of a Headrace api?")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None
