"""Who calls: the deployment key registers a job; everything else needs that job's token, which dies with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, Any

import jwt
from fastapi import Depends, Request

from headrace.api.problems import Refusal
from headrace.wire.jobs import JobKind

ALGORITHM = "HS256"
CHALLENGE = {"WWW-Authenticate": "Bearer"}
KEEP = 1_024


@dataclass(frozen=True, slots=True)
class Caller:
    """The job that a valid token names. Whether it still runs is for the store to say, in the transaction that matters."""

    job_id: int
    kind: JobKind

    def must_be(self, kind: JobKind) -> None:
        """Refuse a job of another kind."""
        if self.kind != kind:
            raise Refusal(403, "forbidden", f"Only a {kind} may do this, and job {self.job_id} is a {self.kind}.")

    def must_own(self, job_id: int) -> None:
        """Refuse to act for another job."""
        if self.job_id != job_id:
            raise Refusal(403, "forbidden", f"The token is that of job {self.job_id}, not of job {job_id}.")


class Tokens:
    """Makes and checks job tokens for one deployment key and one database (`instance`)."""

    def __init__(self, key: str, instance: int) -> None:
        self._key = key.encode()
        self._secret = sha256(b"headrace job token:" + self._key).digest()
        self._instance = str(instance)
        self.caller = lru_cache(KEEP)(self._caller)

    def is_key(self, given: str) -> bool:
        """Whether `given` is the deployment key, told in constant time."""
        return compare_digest(given.encode(), self._key)

    def token(self, job_id: int, kind: JobKind) -> str:
        """Return the token of a job; the same for every replay of its registration."""
        return jwt.encode({"sub": str(job_id), "kind": kind, "aud": self._instance}, self._secret, ALGORITHM)

    def _caller(self, token: str) -> Caller:
        """Return whom a token names, or raise the 401 problem."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token, self._secret, [ALGORITHM], audience=self._instance, options={"require": ["sub", "kind", "aud"]}
            )
        except jwt.InvalidTokenError as error:
            raise _unauthorized("The token is not one of this api.") from error
        return Caller(int(claims["sub"]), claims["kind"])


def _unauthorized(detail: str) -> Refusal:
    hint = "Register the job anew with the deployment key (HEADRACE_KEY)."
    return Refusal(401, "unauthorized", detail, hint=hint, headers=CHALLENGE)


def _bearer(request: Request) -> str:
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not credentials:
        raise _unauthorized("The request carries no bearer token.")
    return credentials.strip()


async def tokens(request: Request) -> Tokens:
    """Return the tokens of the app that serves the request."""
    made: Tokens = request.app.state.tokens
    return made


async def deployment(request: Request, known: Annotated[Tokens, Depends(tokens)]) -> None:
    """Let only the holder of the deployment key through."""
    if not known.is_key(_bearer(request)):
        raise _unauthorized("The deployment key is not the one of this api.")


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
