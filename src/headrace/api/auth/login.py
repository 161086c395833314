"""GET and POST /login: exchange a token for a cookie, so that a browser can read an API that is reachable from outside."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from headrace.api.auth.authentication import COOKIE, TokensOf, allow
from headrace.api.http.problems import Refusal

POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with a stricter policy, browsers send a null origin with this form
}
MAX_BODY_BYTES = 4096
LOGIN_ERROR = "That token opens nothing here, or no longer."
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
<title>Headrace: who looks?</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/page.css">
</head>
<body>
<main>
<h1>Headrace</h1>
<p role="alert">{message}</p>
<form method="post" action="/login">
<label for="token">Token, made with <code>headrace tokens create --scope read</code></label>
<p>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Look</button>
</p>
</form>
</main>
</body>
</html>
"""

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def ask() -> Response:
    """Ask for a token."""
    return HTMLResponse(PAGE.format(message=""), headers=HEADERS)


@router.post("/login")
async def enter(request: Request, tokens: TokensOf) -> Response:
    """Keep the token in a cookie that no script reads and no other site sends, and show the page."""
    body = (await request.body())[:MAX_BODY_BYTES].decode("ascii", "replace")
    token = parse_qs(body).get("token", [""])[0].strip()
    try:
        if tokens.is_key(token):
            raise Refusal(403, "forbidden", "The deployment key does not belong in a browser.")
        allow(tokens, token, "read")
    except Refusal:
        return HTMLResponse(PAGE.format(message=LOGIN_ERROR), 403, headers=HEADERS)
    seconds = tokens.seconds_left(token)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(COOKIE, token, max_age=seconds, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return answer
