"""The client of a namespace, created when a stream opens, and the probe of a connection."""

from __future__ import annotations

import asyncio
import logging
import ssl
from functools import partial
from typing import Any, Final

from headrace.core.connection import Connection
from headrace.sources.azure.tokens import Tokens
from headrace.sources.connections.client_library import import_library
from headrace.sources.connections.tls import authority_context
from headrace.sources.service_bus.handler import LIBRARY_SECONDS
from headrace.sources.service_bus.receiver import EntityReceiver
from headrace.sources.service_bus.service_errors import described
from headrace.sources.service_bus.settings import ClientSettings, client_settings

PROBED_QUEUE: Final = "headrace-connection-test"
SCOPE: Final = "https://servicebus.azure.net/.default"
LIBRARY: Final = "Service Bus cannot be used: its client library"


async def open_client(connection: Connection) -> Any:
    """Return a client. Each of its receivers and senders connects for itself, with its first request. Raises `UpstreamError`."""
    return await asyncio.to_thread(_new_client, connection)


def _new_client(connection: Connection) -> Any:
    settings = client_settings(connection)
    library = import_library(LIBRARY, "service-bus", "azure.servicebus.aio", "azure.core.credentials")
    logger = logging.getLogger("azure.servicebus")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)  # its requests raise what it logs
    context = _ssl_context(connection, settings)
    try:
        return library.ServiceBusClient(
            settings.address,
            _credential(settings),
            retry_total=0,
            try_timeout=LIBRARY_SECONDS,
            use_tls=not settings.is_emulator,
            ssl_context=context,
            user_agent="headrace",
        )
    except Exception as error:
        raise described(f"Connection '{connection.id}' cannot be used", error) from None


def next_session() -> Any:
    """Return what the library has in place of the id of a session, for the next one that has messages and no reader."""
    return import_library(LIBRARY, "service-bus", "azure.servicebus").NEXT_AVAILABLE_SESSION


def probe(connection: Connection) -> str:
    """Request a queue that need not exist, and return the namespace.

    Raises:
        UpstreamError: The client library is missing, or the service refuses the credentials.
        StreamError: The service does not answer.
    """
    return asyncio.run(_probe(connection))


async def _probe(connection: Connection) -> str:
    client = await open_client(connection)
    receiver = EntityReceiver(partial(client.get_queue_receiver, PROBED_QUEUE), "The connection to Service Bus failed")
    try:
        await receiver.reach()
    finally:
        await receiver.aclose()
        await client.close()
    settings = client_settings(connection)
    return f"Service Bus at {settings.address}" + (", emulator" if settings.is_emulator else "")


def _ssl_context(connection: Connection, settings: ClientSettings) -> ssl.SSLContext:
    """Return the TLS settings of all connections of a client. Without them, the library would read the certificates for each connection."""
    if settings.is_emulator:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not used: it has no TLS
    import certifi

    return authority_context(connection, settings.ca_bundle or certifi.where())


def _credential(settings: ClientSettings) -> Any:
    if settings.policy is not None:
        from azure.core.credentials import AzureNamedKeyCredential

        return AzureNamedKeyCredential(*settings.policy)
    return _TokenCredential(Tokens(settings.identity, SCOPE))


class _TokenCredential:
    """The access tokens of an identity, as the client requests them."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return a token and the time when it expires."""
        from azure.core.credentials import AccessToken

        del scopes, options
        token, expires = await self._tokens.token()
        return AccessToken(token, int(expires))

    async def close(self) -> None:
        """Keep the tokens: other receivers use them."""
