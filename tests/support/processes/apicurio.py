"""Apicurio, a real schema registry with Confluent's API, on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from support.processes.broker_server import BrokerServer, java, require_server
from support.processes.shared_servers import shared_server

PATH = "/apis/ccompat/v7"


class Apicurio(BrokerServer):
    """One registry. It forgets its schemas when it ends."""

    def __init__(self) -> None:
        super().__init__("apicurio")
        self._client = httpx.Client(base_url=f"http://{self.address}{PATH}", timeout=60, trust_env=False, verify=False)

    @property
    def url(self) -> str:
        """The address for a connection."""
        return f"http://{self.address}{PATH}"

    def register(self, subject: str, schema: Any, type: str = "AVRO", references: Sequence[Mapping[str, Any]] = ()) -> int:
        """Register a schema, text or JSON, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": type, "references": list(references)}
        response = self._client.post(f"/subjects/{subject}/versions", json=body)
        assert response.status_code == 200, response.text
        return int(response.json()["id"])

    def close(self) -> None:
        self._client.close()
        super().close()


@shared_server
def shared() -> Apicurio:
    """Return the registry that all tests of this process share. Skip the test where it is not installed."""
    require_server("apicurio", "apicurio-2.6.13.Final", program=java())
    return Apicurio()
