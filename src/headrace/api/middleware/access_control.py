"""Access control before every route: accepted host names, origins that may send changes, readers' credentials, and
security headers.

On loopback, any process of this machine may read, and the Host header is checked. Otherwise a page whose name
resolves to this machine (DNS rebinding) could read the responses. From outside, a read needs a token of scope
`read`. A change always needs the key or a token as a bearer. The cookie of the login page permits only reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.auth.authentication import COOKIE, Tokens, allow, bearer, unauthorized
from headrace.api.http.problems import Refusal, problem
from headrace.api.middleware.version import DESCRIPTION_PATH, EXECUTION_PREFIX

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
LOGIN = "/login"
PUBLIC_PATHS = frozenset({"/healthz", LOGIN, "/static/page.css", "/static/icon.svg"})
MAX_KNOWN_HOSTS = 100
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


@dataclass(frozen=True, slots=True)
class NetworkExposure:
    """The exposure of the API: reachable from outside this machine or not, and its host names besides those of loopback."""

    outside: bool = False
    hosts: frozenset[str] = frozenset()

    def knows(self, host: str) -> bool:
        """Return whether `host` (with or without a port) means this API. From outside, any name does unless some are configured."""
        if self.outside and not self.hosts:
            return True
        name = _name(host)
        return name in LOOPBACK or name in self.hosts


class AccessControl:
    """Refuse forbidden requests before any other processing."""

    def __init__(self, app: ASGIApp, tokens: Tokens, exposure: NetworkExposure) -> None:
        self._app = app
        self._tokens = tokens
        self._exposure = exposure
        self._known: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an allowed request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith(EXECUTION_PREFIX):
            await self._serve_execution(scope, receive, send)
        else:
            await self._serve_admin(scope, receive, send)

    async def _serve_execution(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._check_host(headers.get("host", ""))
            if scope["path"] != DESCRIPTION_PATH:
                self._check_caller(headers)
        except Refusal as refused:
            await _answer(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _serve_admin(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    answered.setdefault(name, value)
            await send(message)

        try:
            self._check_host(headers.get("host", ""))
            self._check_origin(scope, headers)
            self._check_person(scope, headers)
        except Refusal as refused:
            person = scope["method"] == "GET" and "text/html" in headers.get("accept", "")
            answer = RedirectResponse(LOGIN, 303) if person and refused.status_code == 401 else _answer(refused)
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _check_host(self, host: str) -> None:
        if host in self._known:
            return
        if not self._exposure.knows(host):
            hint = "Name it in HEADRACE_ALLOWED_HOSTS, or use 127.0.0.1."
            raise Refusal(421, "wrong-host", "This api is not called by that name.", hint=hint)
        if len(self._known) < MAX_KNOWN_HOSTS:
            self._known.add(host)

    def _check_caller(self, headers: Headers) -> None:
        """Refuse a request without valid credentials before its body is read. The route checks their scope."""
        token = bearer(headers)
        if token is None:
            raise unauthorized("The request carries no bearer token.")
        try:
            self._tokens.claims(token)  # first, because it is nearly always a cached token
        except Refusal:
            if not self._tokens.is_key(token):
                raise

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Refuse a page of another site that sends a change through the user's browser."""
        if scope["method"] in SAFE_METHODS:
            return
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
        if foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refusal(403, "cross-origin", "A page of another site may change nothing here.")

    def _check_person(self, scope: Scope, headers: Headers) -> None:
        if scope["path"] in PUBLIC_PATHS:
            return
        if scope["method"] not in SAFE_METHODS:
            token = bearer(headers)  # never the cookie, which a browser sends automatically
            if token is None:
                raise unauthorized("The request carries no bearer token.")
            allow(self._tokens, token, "admin")
        elif self._exposure.outside:
            token = credentials(headers)
            if token is None:
                raise unauthorized("Looking needs a token, since this api can be reached from outside.")
            allow(self._tokens, token, "read")


def _answer(refused: Refusal) -> Response:
    return problem(refused.status_code, refused.slug, refused.detail, hint=refused.hint, headers=refused.headers)


def credentials(headers: Headers) -> str | None:
    """Return the reader's token: from the bearer header, or from the cookie of the login page."""
    token = bearer(headers)
    if token is not None:
        return token
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return cookie.value if cookie is not None else None


def _name(host: str) -> str:
    """Return a Host header's name without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""
