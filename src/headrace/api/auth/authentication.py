"""Authentication: the deployment key registers jobs and permits every admin call. A token permits the calls of its
scope until it expires.

A job's token expires with the job or earlier: the heartbeat brings the next one. A user's token expires at its own
time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, Any, Literal

import jwt
from fastapi import Depends, Request
from starlette.datastructures import Headers

from headrace.api.http.problems import Refusal
from headrace.store.dialects.clock import wall_clock
from headrace.wire.control.jobs import JobKind
from headrace.wire.secrets import PersonScope

ALGORITHM = "HS256"
CHALLENGE = {"WWW-Authenticate": "Bearer"}
COOKIE = "headrace_token"
KEEP = 4_096
TOKEN_SECONDS = 600
CLAIMS = ["sub", "scope", "aud", "exp"]
SECOND = 1_000_000

Scope = Literal[JobKind, PersonScope]


@dataclass(frozen=True, slots=True)
class Caller:
    """The job that a valid token names. The store checks in its transaction whether the job still runs."""

    job_id: int
    kind: JobKind
    expires: int

    def must_be(self, kind: JobKind) -> None:
        """Refuse a job of another kind."""
        if self.kind != kind:
            raise Refusal(403, "forbidden", f"Only a {kind} may do this, and job {self.job_id} is a {self.kind}.")

    def must_own(self, job_id: int) -> None:
        """Refuse a request for another job."""
        if self.job_id != job_id:
            raise Refusal(403, "forbidden", f"The token is that of job {self.job_id}, not of job {job_id}.")


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token: subject, scope, and expiry (seconds since the epoch). A user's token has an id."""

    subject: str
    scope: Scope
    expires: int
    id: str | None


class Tokens:
    """Create and verify tokens for one deployment key and one database (`instance`). `now` is in microseconds since the epoch."""

    def __init__(self, key: str, instance: int, now: Callable[[], int] = wall_clock) -> None:
        self._key = key.encode()
        self._secret = sha256(b"headrace job token:" + self._key).digest()
        self._instance = str(instance)
        self._now = now
        self._known = lru_cache(KEEP)(self._verified)
        self.revoked: frozenset[str] = frozenset()
        """The ids of revoked users' tokens."""

    def is_key(self, token: str) -> bool:
        """Return whether `token` is the deployment key, in constant time."""
        return compare_digest(token.encode(), self._key)

    def token(self, subject: int | str, scope: Scope, seconds: int = TOKEN_SECONDS) -> str:
        """Return a token for a job (by its id) or a user (by name)."""
        return self.until(subject, scope, self._seconds() + seconds)

    def until(self, subject: int | str, scope: Scope, expires: int, *, id: str | None = None) -> str:
        """Return a token that expires at `expires`, in seconds since the epoch. A token with an `id` can be revoked."""
        claims = {"sub": str(subject), "scope": scope, "aud": self._instance, "exp": expires} | ({} if id is None else {"jti": id})
        return jwt.encode(claims, self._secret, ALGORITHM)

    def seconds_left(self, token: str) -> int:
        """Return the seconds until a valid token expires."""
        return self.claims(token).expires - self._seconds()

    def refreshed(self, caller: Caller) -> str | None:
        """Return a job's next token after half the life of its present one, or None before that."""
        old = caller.expires - self._seconds() < TOKEN_SECONDS // 2
        return self.token(caller.job_id, caller.kind) if old else None

    def caller(self, token: str) -> Caller:
        """Return the job that a token names, or raise the problem."""
        claims = self.claims(token)
        if claims.scope == "read" or claims.scope == "admin":
            raise Refusal(403, "forbidden", f"A token of scope '{claims.scope}' cannot call the execution API.")
        return Caller(int(claims.subject), claims.scope, claims.expires)

    def claims(self, token: str) -> Claims:
        """Return the claims of a token, or raise the 401 problem. The signature is checked once, the expiry every time."""
        claims = self._known(token)
        if claims.expires <= self._seconds():
            hint = "A job registers again with the same registration id; a person makes another with: headrace tokens create"
            raise Refusal(401, "expired", "The token has expired.", hint=hint, headers=CHALLENGE)
        if claims.id is not None and claims.id in self.revoked:
            raise unauthorized("The token was taken back.")
        return claims

    def _verified(self, token: str) -> Claims:
        try:
            claims: dict[str, Any] = jwt.decode(
                token, self._secret, [ALGORITHM], audience=self._instance, options={"require": CLAIMS, "verify_exp": False}
            )
        except jwt.InvalidTokenError as error:
            raise unauthorized("This is neither the deployment key of this api nor a token that it made.") from error
        return Claims(claims["sub"], claims["scope"], int(claims["exp"]), claims.get("jti"))

    def _seconds(self) -> int:
        return self._now() // SECOND


def unauthorized(detail: str) -> Refusal:
    """Return the problem for a request without valid credentials."""
    hint = "Set HEADRACE_KEY to the API's deployment key: the file `key` in the API's home. Or use a token from: headrace tokens create"
    return Refusal(401, "unauthorized", detail, hint=hint, headers=CHALLENGE)


def bearer(headers: Headers) -> str | None:
    """Return the bearer token among the headers of a request."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    return credentials.strip() or None if scheme.lower() == "bearer" else None


def _bearer(request: Request) -> str:
    token = bearer(request.headers)
    if token is None:
        raise unauthorized("The request carries no bearer token.")
    return token


async def tokens(request: Request) -> Tokens:
    """Return the tokens of the app that serves the request."""
    app_tokens: Tokens = request.app.state.tokens
    return app_tokens


async def deployment(request: Request, known: Annotated[Tokens, Depends(tokens)]) -> None:
    """Accept only the deployment key."""
    if not known.is_key(_bearer(request)):
        raise unauthorized("The deployment key is not the one of this api.")


async def admin(request: Request, known: Annotated[Tokens, Depends(tokens)]) -> None:
    """Accept the deployment key or an admin's token. A cookie is refused: browsers send it with every request."""
    allow(known, _bearer(request), "admin")


def allow(known: Tokens, token: str, scope: PersonScope) -> None:
    """Require the deployment key or a user's token of this scope. An admin's token also has a reader's permissions."""
    if known.is_key(token):
        return
    has = known.claims(token).scope
    if has != "admin" and has != scope:
        raise Refusal(403, "forbidden", f"This needs a token of scope '{scope}', and this one has the scope '{has}'.")


async def operator(request: Request, known: Annotated[Tokens, Depends(tokens)]) -> str | None:
    """Return the name of the user whose token the request carries, or None for the deployment key."""
    token = _bearer(request)
    return None if known.is_key(token) else known.claims(token).subject


async def caller(request: Request, known: Annotated[Tokens, Depends(tokens)]) -> Caller:
    """Return the job whose token the request carries."""
    return known.caller(_bearer(request))


async def triggerer(who: Annotated[Caller, Depends(caller)]) -> Caller:
    """Return the triggerer whose token the request carries."""
    who.must_be("triggerer")
    return who


async def pipeline(who: Annotated[Caller, Depends(caller)]) -> Caller:
    """Return the pipeline whose token the request carries."""
    who.must_be("pipeline")
    return who


async def worker(who: Annotated[Caller, Depends(caller)]) -> Caller:
    """Return the worker whose token the request carries."""
    who.must_be("worker")
    return who


Operator = Annotated[str | None, Depends(operator)]
AnyJob = Annotated[Caller, Depends(caller)]
Triggerer = Annotated[Caller, Depends(triggerer)]
Pipeline = Annotated[Caller, Depends(pipeline)]
Worker = Annotated[Caller, Depends(worker)]
TokensOf = Annotated[Tokens, Depends(tokens)]
"""These declare, in a route, whose token it needs."""
