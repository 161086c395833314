"""Azurite, an emulator of Azure Storage, on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import base64
import hmac
import secrets
import shutil
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from hashlib import sha256
from urllib.parse import quote, urlencode
from xml.sax.saxutils import escape

import httpx
import pytest

from headrace.sources.azure.client import API_VERSION
from headrace.sources.azure.signing import authorization
from headrace.sources.objects.azure.listing_parser import parse_listing
from support.processes.broker_server import BrokerServer, is_installed
from support.processes.certificates import Authority
from support.processes.shared_servers import shared_server

INSTALLED = "azurite-3.37.0/node_modules"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key of every Azurite: both are public."""


class Azurite(BrokerServer):
    """One server. With `storage="files"`, blobs stay the same over `kill` and `start`. With an authority, it has TLS and accepts tokens."""

    scheme = "az"

    def __init__(self, storage: str = "memory", *, authority: Authority | None = None) -> None:
        self._authority = authority
        secured = {}
        if authority is not None:
            certificate = authority.issue("azurite")
            secured = {"HEADRACE_AZURITE_CERTIFICATE": str(certificate), "HEADRACE_AZURITE_KEY": str(certificate.with_suffix(".key"))}
        super().__init__("azurite", folder=None, HEADRACE_AZURITE_STORAGE=storage, **secured)
        self._protocol = "http" if authority is None else "https"
        self._client = httpx.Client(base_url=f"{self._protocol}://{self.address}", timeout=30, verify=self._verify())

    @property
    def queue_address(self) -> str:
        """The address of the queue service."""
        return f"127.0.0.1:{(self._folder / 'azurite-0' / 'queue' / 'port').read_text().strip()}"

    @property
    def connection(self) -> str:
        """The value of a connection to this server, with the key."""
        return f"azure://{ACCOUNT}:{quote(KEY, safe='')}@{self.located}"

    @property
    def located(self) -> str:
        """What follows the credentials in a connection to this server."""
        queues = quote(f"{self._protocol}://{self.queue_address}/{ACCOUNT}", safe="")
        authority = "" if self._authority is None else f"&ca_bundle={self._authority.certificate}"
        return f"{self.address}/{ACCOUNT}?scheme={self._protocol}&queue_endpoint_url={queues}{authority}"

    @staticmethod
    def shared_access(resources: str = "sco", permissions: str = "rwdlac") -> str:
        """Return a SAS token of the account for an hour. `resources`: service (s), containers (c) and objects (o)."""
        until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        signed = [ACCOUNT, permissions, "bq", resources, "", until, "", "https", API_VERSION, "", ""]
        fields = {"sv": API_VERSION, "ss": "bq", "srt": resources, "sp": permissions, "se": until, "spr": "https"}
        fields["sig"] = _signature(signed)
        return urlencode(fields, quote_via=quote)

    def set_policy(self, bucket: str, policy: str) -> None:
        """Give a container one access policy. Signatures of another one are no longer valid."""
        until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        rights = f"<AccessPolicy><Expiry>{until}</Expiry><Permission>rwdlac</Permission></AccessPolicy>"
        body = f"<SignedIdentifiers><SignedIdentifier><Id>{policy}</Id>{rights}</SignedIdentifier></SignedIdentifiers>".encode()
        self.send("PUT", f"/{bucket}", {"restype": "container", "comp": "acl"}, body=body)

    @staticmethod
    def policy_access(bucket: str, policy: str) -> str:
        """Return a SAS token of an access policy of a container."""
        signed = ["", "", "", f"/blob/{ACCOUNT}/{bucket}", policy, "", "", API_VERSION, "c", "", "", "", "", "", "", ""]
        return urlencode({"sv": API_VERSION, "sr": "c", "si": policy, "sig": _signature(signed)}, quote_via=quote)

    def kill(self) -> None:
        """End it in order: with SIGKILL, it would lose what it has confirmed in the last seconds."""
        self._run("stop")

    def close(self) -> None:
        self._client.close()
        super().close()

    def create_bucket(self) -> str:
        """Create a container of its own, and return its name."""
        name = f"container-{secrets.token_hex(6)}"
        self.send("PUT", f"/{name}", {"restype": "container"})
        return name

    def put(self, bucket: str, key: str, body: bytes, **metadata: str) -> str:
        """Write a blob, and return its ETag."""
        headers = {"x-ms-blob-type": "BlockBlob"} | {f"x-ms-meta-{name}": value for name, value in metadata.items()}
        answer = self.send("PUT", f"/{bucket}/{quote(key)}", headers=headers, body=body)
        return answer.headers["ETag"].strip('"')

    def get(self, bucket: str, key: str) -> bytes:
        """Return the content of a blob."""
        return self.send("GET", f"/{bucket}/{quote(key)}").content

    def delete(self, bucket: str, key: str) -> None:
        """Delete a blob."""
        self.send("DELETE", f"/{bucket}/{quote(key)}")

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the names of the blobs of a container."""
        listing = self.send("GET", f"/{bucket}", {"restype": "container", "comp": "list", "prefix": prefix}).content
        return [stored.key for stored in parse_listing(listing).objects]

    def delete_bucket(self, bucket: str) -> None:
        """Delete a container with its blobs."""
        self.send("DELETE", f"/{bucket}", {"restype": "container"})

    def create_queue(self) -> str:
        """Create a queue of its own, and return its name."""
        name = f"queue-{secrets.token_hex(6)}"
        self.send("PUT", f"/{name}", to_queues=True)
        return name

    def put_message(self, queue: str, text: str) -> None:
        """Send a message to a queue."""
        body = f"<QueueMessage><MessageText>{escape(text)}</MessageText></QueueMessage>".encode()
        self.send("POST", f"/{queue}/messages", body=body, to_queues=True)

    def count_messages(self, queue: str) -> int:
        """Return the number of messages of a queue, with those that readers hold."""
        return int(self.send("GET", f"/{queue}", {"comp": "metadata"}, to_queues=True).headers["x-ms-approximate-messages-count"])

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        to_queues: bool = False,
    ) -> httpx.Response:
        """Send a signed request. Raises for a refusal."""
        path, query = f"/{ACCOUNT}{path}", query or {}
        sent = {"x-ms-version": API_VERSION, "x-ms-date": formatdate(usegmt=True), "Content-Type": "application/octet-stream"}
        sent |= dict(headers or {}) | ({"Content-Length": str(len(body))} if body else {})
        sent["Authorization"] = authorization(ACCOUNT, base64.b64decode(KEY), method, path, query, sent)
        url = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
        url = f"{self._protocol}://{self.queue_address}{url}" if to_queues else url
        return self._client.request(method, url, headers=sent, content=body).raise_for_status()

    def _verify(self) -> ssl.SSLContext | bool:
        return True if self._authority is None else ssl.create_default_context(cafile=str(self._authority.certificate))


def _signature(fields: Sequence[str]) -> str:
    """Return the signature of the fields of a SAS token."""
    return base64.b64encode(hmac.new(base64.b64decode(KEY), "\n".join(fields).encode(), sha256).digest()).decode()


def require() -> None:
    """Skip the test where Node.js is missing or the server is not installed, also in CI: no other server needs npm."""
    if shutil.which("node") is None or not is_installed(INSTALLED):
        pytest.skip("azurite is not installed: install Node.js, then run `make setup-brokers`.")


@shared_server
def shared() -> Azurite:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require()
    return Azurite()
