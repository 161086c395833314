"""The status page and its files, held in memory and served under a policy that allows no other sources."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response

from headrace.api.http.problems import Refusal

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
PAGE = "page.html"
KINDS = {
    PAGE: "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "detail.js": "text/javascript; charset=utf-8",
    "ordering.js": "text/javascript; charset=utf-8",
    "parts.js": "text/javascript; charset=utf-8",
    "words.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """One file of the page; `tag` changes when its content does."""

    content: bytes
    kind: str
    tag: str


def _asset(name: str, kind: str) -> Asset:
    content = (files("headrace.api") / "static" / name).read_bytes()
    return Asset(content, kind, f'"{sha256(content).hexdigest()[:16]}"')


ASSETS: Final = {name: _asset(name, kind) for name, kind in KINDS.items()}
"""The files by name, read once: an installed update does not mix versions in a running process."""

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page(request: Request) -> Response:
    """Return the status page."""
    return _answer(request, ASSETS[PAGE])


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """Return one file of the page."""
    if name not in ASSETS:
        raise Refusal(404, "not-found", f"The page has no file {name}.")
    return _answer(request, ASSETS[name])


def _answer(request: Request, asset: Asset) -> Response:
    headers = {**HEADERS, "ETag": asset.tag}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.kind, headers=headers)
