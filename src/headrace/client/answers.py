"""What an answer of the api means: a result, something to try again, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from headrace.errors import ApiError, ApiRefused, ApiUnavailable, Fenced
from headrace.wire.model import API_VERSION, VERSION_HEADER
from headrace.wire.problem import PROBLEM_JSON, PROBLEM_PREFIX, Problem

TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 5.0
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
TRANSIENT = frozenset({408, 425, 429})


def options(url: str, *, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Return how to make an httpx client for the api at `url`; a proxy is never asked for this machine itself."""
    parts = urlsplit(url)
    return {
        "base_url": url,
        "headers": {VERSION_HEADER: API_VERSION},
        "timeout": httpx.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
        "trust_env": parts.hostname not in LOOPBACK,
        # Plain HTTP checks no certificate, and loading the authorities takes longer than most calls do.
        "verify": parts.scheme != "http",
    }


def bearer(token: str) -> dict[str, str]:
    """Return the header that carries a token or the deployment key."""
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def reached(url: str) -> Iterator[None]:
    """Raise whatever keeps a request from being answered as `ApiUnavailable`."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise ApiUnavailable(f"The api at {url} did not answer in time.", hint="Is it overloaded, or is the address wrong?") from error
    except httpx.TransportError as error:
        raise ApiUnavailable(f"The api at {url} cannot be reached: {error}.", hint="Is it running? Start it with: headrace api") from error


def checked(response: httpx.Response) -> httpx.Response:
    """Return a successful `response`.

    Raises:
        ApiUnavailable: It may be tried again (5xx, 429), after `retry_after` seconds where the api says so.
        Fenced: A newer owner holds what the request would change, or the job has ended.
        ApiRefused: The request itself is wrong.
    """
    if response.is_success:
        return response
    problem = _problem(response)
    slug = problem.type.removeprefix(PROBLEM_PREFIX)
    message = problem.detail or problem.title
    if slug == "fenced":
        raise Fenced(message, hint=problem.hint, status=response.status_code, problem=slug)
    if response.status_code in TRANSIENT or response.is_server_error:
        unavailable = ApiUnavailable(message, hint=problem.hint, status=response.status_code, problem=slug)
        unavailable.retry_after = _retry_after(response)
        raise unavailable
    raise ApiRefused(message, hint=problem.hint, status=response.status_code, problem=slug)


@contextmanager
def understood(url: str) -> Iterator[None]:
    """Raise an answer that is not of the protocol as `ApiError`."""
    try:
        yield
    except (ValidationError, ValueError) as error:
        raise ApiError(f"{url} answered, but not as a Headrace api does.", hint="Check the address of the api.") from error


def _problem(response: httpx.Response) -> Problem:
    if response.headers.get("content-type", "").startswith(PROBLEM_JSON):
        try:
            return Problem.model_validate_json(response.content)
        except ValidationError:
            pass  # an answer that only looks like a problem is told by its status below
    phrase = f"{response.request.url} answered {response.status_code} {response.reason_phrase}"
    return Problem(type="about:blank", title=phrase, status=response.status_code)


def _retry_after(response: httpx.Response) -> float | None:
    given = response.headers.get("retry-after", "")
    return float(given) if given.isdecimal() else None
