"""The client of a namespace: what is wrong with its connection is named before it connects."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.service_bus.client import open_client

pytest.importorskip("azure.servicebus")


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_file_without_certificates_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    connection = parse_connection("orders", f"servicebus://policy:a2V5@shop.servicebus.windows.net?ca_bundle={file}")
    with pytest.raises(UpstreamError, match=f"'orders' cannot be used: ca_bundle {file}: ") as refused:
        await open_client(connection)
    assert refused.value.hint == "Give a file with certificates in PEM."
