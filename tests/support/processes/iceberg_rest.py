"""A real REST catalog of Iceberg tables, with files on the disk, on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import atexit
from functools import cache

from support.processes.broker_server import BrokerServer, java, require_server


class IcebergRest(BrokerServer):
    """One catalog. Its tables stay the same over `kill` and `start`."""

    def __init__(self) -> None:
        super().__init__("iceberg-rest")

    @property
    def url(self) -> str:
        """The address for pyiceberg."""
        return f"http://{self.address}"


@cache
def shared() -> IcebergRest:
    """Return the catalog that all tests of this process share. Skip the test where it is not installed."""
    require_server("the REST catalog of Iceberg", "iceberg-rest-1.10.1", program=java())
    server = IcebergRest()
    atexit.register(server.close)
    return server
