"""Ports for servers that a test starts as processes of their own."""

from __future__ import annotations

import socket
from contextlib import suppress
from random import SystemRandom
from typing import Final

PORTS: Final = range(20_000, 32_000)
"""Below those that the kernel gives to whoever connects: a port of those can be taken before the server that it is meant for listens."""


def free_port() -> int:
    """Return a free port of the loopback interface."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", SystemRandom().choice(PORTS))) as bound:
            return int(bound.getsockname()[1])
