"""What an answer of the api means: a result, something to try again, or a refusal."""

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
    """What came back, whichever library carried it."""

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes


def trusts_environment(url: str) -> bool:
    """Whether a proxy may be asked for the api at `url`; never for this machine itself."""
    return urlsplit(url).hostname not in LOOPBACK


def options(url: str, *, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Return how to make an httpx client for the api at `url`."""
    return {
        "base_url": url,
        "headers": {VERSION_HEADER: API_VERSION},
        "timeout": httpx.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
        "trust_env": trusts_environment(url),
        # Plain HTTP checks no certificate, and loading the authorities takes longer than most calls do.
        "verify": urlsplit(url).scheme != "http",
    }


def bearer(token: str) -> dict[str, str]:
    """Return the header that carries a token or the deployment key."""
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def translate_transport_errors(url: str) -> Iterator[None]:
    """Raise whatever keeps a request from being answered as `ApiUnavailable`."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise timed_out(url) from error
    except httpx.TransportError as error:
        raise unreachable(url, error) from error


def timed_out(url: str) -> ApiUnavailable:
    """Return what tells that no answer came in time."""
    return ApiUnavailable(f"The api at {url} did not answer in time.", hint="Is it overloaded, or is the address wrong?")


def unreachable(url: str, error: Exception) -> ApiUnavailable:
    """Return what tells that the api was not reached."""
    hint = "Is it running? Start it with: headrace standalone, or the api alone with: headrace api"
    return ApiUnavailable(f"The api at {url} cannot be reached: {error}.", hint=hint)


def raise_for_problem(response: httpx.Response) -> httpx.Response:
    """Return a successful `response`; see `body_of` for what is raised."""
    if not response.is_success:
        body_of(Response(str(response.request.url), response.status_code, response.reason_phrase, response.headers, response.content))
    return response


def body_of(answer: Response) -> bytes:
    """Return the body of a successful answer.

    Raises:
        ApiUnavailable: It may be tried again (5xx, 429), after `retry_after` seconds where the api says so.
        Fenced: A newer owner holds what the request would change, or the job has ended.
        ApiRefused: The request itself is wrong.
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
    """Raise an answer that is not of the protocol as `ApiError`."""
    try:
        yield
    except (ValidationError, ValueError) as error:
        raise ApiError(f"{url} answered, but not as a Headrace api does.", hint="Check the address of the api.") from error


def _problem(answer: Response) -> Problem:
    if answer.headers.get("content-type", "").startswith(PROBLEM_JSON):
        try:
            return Problem.model_validate_json(answer.content)
        except ValidationError:
            pass  # an answer that only looks like a problem is told by its status below
    title = f"{answer.url} answered {answer.status} {answer.reason}"
    return Problem(type="about:blank", title=title, status=answer.status, hint="Is that the address of a Headrace api?")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    given = headers.get("retry-after", "")
    return float(given) if given.isdecimal() else None
