"""The Versity S3 gateway, a server with the protocol of Amazon S3, on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from support.processes.broker_server import BrokerServer, require_server
from support.processes.shared_servers import shared_server

INSTALLED = "versitygw/versitygw"


class VersityGateway(BrokerServer):
    """One server. Its objects stay the same over `kill` and `start`."""

    scheme = "s3"

    def __init__(self, folder: Path | None = None, *, metadata: str = "folder") -> None:
        import botocore.config
        import botocore.session

        super().__init__("versitygw", folder=folder, HEADRACE_VERSITYGW_METADATA=metadata)
        self.client: Any = botocore.session.get_session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=f"http://{self.address}",
            aws_access_key_id="test",
            aws_secret_access_key="testtest",
            config=botocore.config.Config(retries={"total_max_attempts": 5}, s3={"addressing_style": "path"}),
        )

    @property
    def connection(self) -> str:
        """The value of a connection to this server."""
        return f"s3://test:testtest@{self.address}?region=us-east-1&scheme=http"

    def set_account(self, access: str, secret: str) -> None:
        """Create an account that may use all buckets, or set its secret."""
        self._run("account", access, secret)

    def close(self) -> None:
        self.client.close()
        super().close()

    def create_bucket(self) -> str:
        """Create a bucket of its own, and return its name."""
        name = f"bucket-{secrets.token_hex(6)}"
        self.client.create_bucket(Bucket=name)
        return name

    def put(self, bucket: str, key: str, body: bytes) -> str:
        """Write an object, and return its ETag."""
        return str(self.client.put_object(Bucket=bucket, Key=key, Body=body)["ETag"]).strip('"')

    def get(self, bucket: str, key: str) -> bytes:
        """Return the content of an object."""
        return bytes(self.client.get_object(Bucket=bucket, Key=key)["Body"].read())

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object."""
        self.client.delete_object(Bucket=bucket, Key=key)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the keys of a bucket."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def delete_bucket(self, bucket: str) -> None:
        """Delete a bucket with its objects."""
        for key in self.keys(bucket):
            self.delete(bucket, key)
        self.client.delete_bucket(Bucket=bucket)


def require() -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed."""
    require_server("versitygw", INSTALLED, library="aiobotocore")


@shared_server
def shared() -> VersityGateway:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require()
    return VersityGateway()
