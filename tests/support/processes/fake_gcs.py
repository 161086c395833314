"""A fake of Google Cloud Storage, on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import secrets
from urllib.parse import quote

import httpx

from support.processes.broker_server import BrokerServer, require_server
from support.processes.shared_servers import shared_server

INSTALLED = "fake-gcs/fake-gcs-server"


class FakeGcs(BrokerServer):
    """One server. In a file system its objects stay the same over `kill` and `start`, but keys must be those of files."""

    scheme = "gs"

    def __init__(self, backend: str = "memory") -> None:
        super().__init__("fake-gcs", HEADRACE_FAKE_GCS_BACKEND=backend)
        self._client = httpx.Client(base_url=f"http://{self.address}", timeout=30)

    @property
    def connection(self) -> str:
        """The value of a connection to this server."""
        return f"gcs://{self.address}?scheme=http&anonymous=true&project=shop"

    def close(self) -> None:
        self._client.close()
        super().close()

    def create_bucket(self) -> str:
        """Create a bucket of its own, and return its name."""
        name = f"bucket-{secrets.token_hex(6)}"
        self._client.post("/storage/v1/b?project=shop", json={"name": name}).raise_for_status()
        return name

    def put(self, bucket: str, key: str, body: bytes) -> str:
        """Write an object, and return its generation."""
        answer = self._client.post(f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}", content=body)
        return str(answer.raise_for_status().json()["generation"])

    def get(self, bucket: str, key: str) -> bytes:
        """Return the content of an object."""
        return self._client.get(f"{self._path(bucket, key)}?alt=media").raise_for_status().content

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object."""
        self._client.delete(self._path(bucket, key)).raise_for_status()

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the keys of a bucket."""
        answer = self._client.get(f"/storage/v1/b/{bucket}/o?prefix={quote(prefix, safe='')}").raise_for_status()
        return [one["name"] for one in answer.json().get("items", ())]

    def delete_bucket(self, bucket: str) -> None:
        """Delete a bucket with its objects."""
        for key in self.keys(bucket):
            self.delete(bucket, key)
        self._client.delete(f"/storage/v1/b/{bucket}").raise_for_status()

    @staticmethod
    def _path(bucket: str, key: str) -> str:
        return f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}"


def require() -> None:
    """Skip the test, or fail it in CI, where the server is not installed."""
    require_server("fake-gcs", INSTALLED)


@shared_server
def shared() -> FakeGcs:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require()
    return FakeGcs()
