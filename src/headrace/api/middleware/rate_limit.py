"""Rate limits: high enough for a triggerer at full speed, and low enough to stop a faulty loop.

Invariants: an accepted token has a bucket of its own, whatever its address. All other calls take from the bucket of
their address. Every call is charged after its response, by its outcome. A call that finds its bucket empty is
refused. Both sets of buckets are bounded: the least recently used one is dropped.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_network
from typing import Generic, TypeVar

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.auth.authentication import Tokens
from headrace.api.http.problems import Refusal, problem

K = TypeVar("K", bound=Hashable)

EXEMPT_PATHS = frozenset({"/healthz"})
INGEST_PREFIX = "/execution/triggers/"
HINT = "Wait as long as Retry-After says. A client that meets this at its usual speed repeats a call that is refused: see its log."


@dataclass(frozen=True, slots=True)
class Bucket:
    """The size of a bucket: calls in a burst, and calls refilled per second."""

    size: float
    refill: float


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """The buckets of callers, and the costs of calls.

    A call that stores costs 1, any other `call`, a refused one (4xx) `refused`. A failed authentication costs an
    address `forged`.
    """

    token: Bucket = Bucket(size=20_000, refill=5_000)
    address: Bucket = Bucket(size=2_000, refill=300)
    call: float = 5.0
    refused: float = 50.0
    forged: float = 30.0
    max_callers: int = 10_000


class Buckets(Generic[K]):
    """The buckets of one kind of caller, at most `max_callers` of them."""

    def __init__(self, bucket: Bucket, max_callers: int) -> None:
        self._bucket = bucket
        self._max_callers = max_callers
        self._levels: OrderedDict[K, tuple[float, float]] = OrderedDict()

    def __contains__(self, caller: K) -> bool:
        return caller in self._levels

    def __len__(self) -> int:
        return len(self._levels)

    def wait(self, caller: K, now: float) -> float:
        """Return the seconds that the caller must wait, 0 if none."""
        return max(0.0, -self._level(caller, now) / self._bucket.refill)

    def charge(self, caller: K, cost: float, now: float) -> None:
        """Take `cost` from the caller's bucket. The balance may become negative."""
        self._levels[caller] = (self._level(caller, now) - cost, now)
        self._levels.move_to_end(caller)
        if len(self._levels) > self._max_callers:
            self._levels.popitem(last=False)

    def drop(self, caller: K) -> None:
        """Drop the caller's bucket."""
        self._levels.pop(caller, None)

    def _level(self, caller: K, now: float) -> float:
        level, then = self._levels.get(caller, (self._bucket.size, now))
        return min(self._bucket.size, level + (now - then) * self._bucket.refill)


class RateLimit:
    """Refuse calls above the rate limit with 429 and a Retry-After. `accepted` decides which credentials are valid."""

    def __init__(
        self,
        app: ASGIApp,
        accepted: Callable[[str], bool],
        policy: RatePolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._accepted = accepted
        self._policy = policy or RatePolicy()
        self._clock = clock
        self.tokens: Buckets[int] = Buckets(self._policy.token, self._policy.max_callers)
        self.addresses: Buckets[str] = Buckets(self._policy.address, self._policy.max_callers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose caller is within the limit."""
        if scope["type"] != "http" or scope["path"] in EXEMPT_PATHS:
            await self._app(scope, receive, send)
            return
        authorization = Headers(scope=scope).get("authorization", "")
        token = hash(authorization)  # keyed with a secret of this process: no client can construct a collision
        wait = self.tokens.wait(token, self._clock()) if token in self.tokens else self.addresses.wait(_address(scope), self._clock())
        if wait > 0:
            headers = {"Retry-After": str(math.ceil(wait))}
            await problem(429, "too-often", "Too many calls in a short time.", hint=HINT, headers=headers)(scope, receive, send)
            return

        async def paid(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._pay(scope, message["status"], authorization, token)
            await send(message)

        await self._app(scope, receive, paid)

    def _pay(self, scope: Scope, status: int, authorization: str, token: int) -> None:
        now = self._clock()
        if status == 401:
            self.tokens.drop(token)
            self.addresses.charge(_address(scope), self._policy.forged, now)
        elif token in self.tokens or (authorization and self._accepted(authorization.partition(" ")[2].strip())):
            self.tokens.charge(token, self._cost(scope, status), now)
        else:
            self.addresses.charge(_address(scope), 1.0, now)

    def _cost(self, scope: Scope, status: int) -> float:
        if 400 <= status < 500:
            return self._policy.refused
        return 1.0 if scope["method"] == "POST" and scope["path"].startswith(INGEST_PREFIX) else self._policy.call


def accepted_by(tokens: Tokens) -> Callable[[str], bool]:
    """Return a function that decides whether a credential is the deployment key or a valid token."""

    def accepted(credential: str) -> bool:
        if tokens.is_key(credential):
            return True
        try:
            tokens.claims(credential)
        except Refusal:
            return False
        return True

    return accepted


def _address(scope: Scope) -> str:
    """Return the key of an address: for IPv6 the network of 64 bits, which belongs to one customer."""
    client = scope.get("client")
    host = str(client[0]) if client else ""
    if ":" not in host:
        return host
    return str(ip_network((IPv6Address(host.partition("%")[0]), 64), strict=False))
