"""Probe of a connection to RabbitMQ."""

from __future__ import annotations

import asyncio

from headrace.core.connection import Connection
from headrace.sources.rabbitmq.client import RabbitConnection
from headrace.sources.rabbitmq.settings import address_of


def probe(connection: Connection) -> str:
    """Connect and log in, and return the version of the server, the virtual host and the user.

    Raises:
        UpstreamError: The client library is missing, or the server refuses the credentials or the virtual host.
        StreamError: The server does not answer.
    """
    return asyncio.run(_probe(connection))


async def _probe(connection: Connection) -> str:
    address = address_of(connection)
    session = await RabbitConnection.open(address, _ignore)
    try:
        return f"{session.product} {session.version}: virtual host {address.vhost}, user {address.login}"
    finally:
        await session.close()


def _ignore(error: BaseException) -> None:
    """Ignore the end of the connection: a failed request reports it."""
