"""The fake of Google Cloud Pub/Sub on loopback, for tests with the mark `brokers`. It keeps nothing when it ends."""

from __future__ import annotations

import atexit
from functools import cache

from support.processes.broker_server import BrokerServer, require_server


@cache
def shared() -> BrokerServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require_server("pubsub", "pstest/pstest", library="google.pubsub_v1")
    server = BrokerServer("pubsub")
    atexit.register(server.close)
    return server
