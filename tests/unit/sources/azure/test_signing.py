"""Signatures with the key of an account are those of Microsoft's client library."""

from __future__ import annotations

import pytest

from headrace.sources.azure.signing import authorization

SENT = {"x-ms-date": "Mon, 23 Nov 2026 12:00:00 GMT", "x-ms-version": "2023-11-03"}


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "signature"),
    [
        (
            "GET",
            "/c",
            {"restype": "container", "comp": "list", "prefix": "in/é x"},
            {},
            "oeiCNMG1aiL/RVjuvSOi0G4MO3DyB1KY6leijrk5f7s=",
        ),
        (
            "PUT",
            "/c/in/a%20b",
            {},
            {"x-ms-blob-type": "BlockBlob", "If-Match": '"0x8D1"', "Content-Length": "5", "Content-Type": "application/octet-stream"},
            "zrNuvoIcoim6BY3J4NgcJvKI3fsfSoNBz4B0SCyiwZo=",
        ),
        ("GET", "/", {"comp": "list", "maxresults": 5000}, {}, "TQb0FnM+wZf6KuZk0O5Lw0oEdLHfkQUidXJvMcYUx7g="),
    ],
)
def test_signatures(method: str, path: str, query: dict[str, object], headers: dict[str, str], signature: str) -> None:
    """The signatures were computed with azure-storage-blob 12.31.1."""
    header = authorization("shop", b"a key of the account", method, path, query, SENT | headers)
    assert header == f"SharedKey shop:{signature}"
