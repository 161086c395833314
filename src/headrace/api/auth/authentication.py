"""Who calls: the deployment key registers jobs and does everything else that people do; a token does what its scope says, for a while.

A job's token dies with the job, and soon: the heartbeat brings the next one. A person's token lives as long as it was made for.
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
    """The job that a valid token names. Whether it still runs is for the store to say, in the transaction that matters."""

    job_id: int
    kind: JobKind
    expires: int

    def must_be(self, kind: JobKind) -> None:
        """Refuse a job of another kind."""
        if self.kind != kind:
            raise Refusal(403, "forbidden", f"Only a {kind} may do this, and job {self.job_id} is a {self.kind}.")

    def must_own(self, job_id: int) -> None:
        """Refuse to act for another job."""
        if self.job_id != job_id:
            raise Refusal(403, "forbidden", f"The token is that of job {self.job_id}, not of job {job_id}.")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token of this api says: whose it is, what it opens, and until when (seconds since the epoch); a person's has an id."""

    subject: str
    scope: Scope
    expires: int
    id: str | None


class Tokens:
    """Makes and checks tokens for one deployment key and one database (`instance`); `now` is in microseconds since the epoch."""

    def __init__(self, key: str, instance: int, now: Callable[[], int] = wall_clock) -> None:
        self._key = key.encode()
        self._secret = sha256(b"headrace job token:" + self._key).digest()
        self._instance = str(instance)
        self._now = now
        self._known = lru_cache(KEEP)(self._verified)
        self.revoked: frozenset[str] = frozenset()
        """The ids of people's tokens that were taken back."""

    def is_key(self, given: str) -> bool:
        """Whether `given` is the deployment key, told in constant time."""
        return compare_digest(given.encode(), self._key)

    def token(self, subject: int | str, scope: Scope, seconds: int = TOKEN_SECONDS) -> str:
        """Return a token for a job (by its id) or a person (by name)."""
        return self.until(subject, scope, self._seconds() + seconds)

    def until(self, subject: int | str, scope: Scope, expires: int, *, id: str | None = None) -> str:
        """Return a token that opens nothing from `expires` on, in seconds since the epoch; one with an `id` can be taken back."""
        claims = {"sub": str(subject), "scope": scope, "aud": self._instance, "exp": expires} | ({} if id is None else {"jti": id})
        return jwt.encode(claims, self._secret, ALGORITHM)

    def seconds_left(self, token: str) -> int:
        """Return for how long a valid token still opens anything."""
        return self.claims(token).expires - self._seconds()

    def refreshed(self, caller: Caller) -> str | None:
        """Return a job's next token once half the life of the one it has is over; until then, None."""
        old = caller.expires - self._seconds() < TOKEN_SECONDS // 2
        return self.token(caller.job_id, caller.kind) if old else None

    def caller(self, token: str) -> Caller:
        """Return the job that a token names, or raise the problem."""
        claims = self.claims(token)
        if claims.scope == "read" or claims.scope == "admin":
            raise Refusal(403, "forbidden", f"A token of scope '{claims.scope}' cannot call the execution API.")
        return Caller(int(claims.subject), claims.scope, claims.expires)

    def claims(self, token: str) -> Claims:
        """Return what a token says, or raise the 401 problem; its signature is looked at once, its end every time."""
        claims = self._known(token)
        if claims.expires <= self._seconds():
            hint = "A job registers again with the same registration id; a person makes another with: headrace token create"
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
    """Return the refusal of one who shows nothing that opens this."""
    hint = "Set HEADRACE_KEY to the API's deployment key: the file `key` in the API's home. Or use a token from: headrace token create"
    return Refusal(401, "unauthorized", detail, hint=hint, headers=CHALLENGE)


def bearer(headers: Headers) -> str | None:
    """Return the bearer token among the headers of a request."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    return credentials.strip() or None if scheme.lower() == "bearer" else None


def _bearer(request: Request) -> str:
    found = bearer(request.headers)
    if found is None:
        raise unauthorized("The request carries no bearer token.")
    return found


async def tokens(request: Request) -> Tokens:
    """Return the tokens of the app that serves the request."""
    made: Tokens = request.app.state.tokens
    return made


async def deployment(request: Request, known: Annotated[Tokens, Depends(tokens)]) -> None:
    """Accept only the deployment key."""
    if not known.is_key(_bearer(request)):
        raise unauthorized("The deployment key is not the one of this api.")


async def admin(request: Request, known: Annotated[Tokens, Depends(tokens)]) -> None:
    """Accept the deployment key or an admin's token. A cookie is refused: browsers send it with every request."""
    allow(known, _bearer(request), "admin")


def allow(known: Tokens, given: str, scope: PersonScope) -> None:
    """Refuse who shows neither the deployment key nor a person's token of this scope; an admin's opens whatever a reader's does."""
    if known.is_key(given):
        return
    has = known.claims(given).scope
    if has != "admin" and has != scope:
        raise Refusal(403, "forbidden", f"This needs a token of scope '{scope}', and this one has the scope '{has}'.")


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


AnyJob = Annotated[Caller, Depends(caller)]
Triggerer = Annotated[Caller, Depends(triggerer)]
Pipeline = Annotated[Caller, Depends(pipeline)]
TokensOf = Annotated[Tokens, Depends(tokens)]
"""These declare, in a route, whose token it needs."""
