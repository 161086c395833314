"""The fake of Google Cloud Pub/Sub on loopback, for tests with the mark `brokers`. It keeps nothing when it ends."""

from __future__ import annotations

from support.processes.broker_server import BrokerServer, require_server
from support.processes.shared_servers import shared_server


@shared_server
def shared() -> BrokerServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require_server("pubsub", "pstest/pstest", library="google.pubsub_v1")
    return BrokerServer("pubsub")
