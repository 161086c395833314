"""Clients of the services of AWS. Their library is imported when a stream opens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, Final, NamedTuple

from headrace.core.connection import Connection
from headrace.sources.aws.service_errors import described
from headrace.sources.aws.settings import client_settings, profile_of
from headrace.sources.connections.client_library import import_library

CONNECT_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 5.0


class Service(NamedTuple):
    """What distinguishes a service from others of AWS."""

    name: str
    """Its name in the client library."""
    kinds: Sequence[str]
    """The kinds of its connections."""
    hint: str
    """How to set a connection."""
    extra: str
    """The extra of Headrace that installs the client library."""
    library: str
    """The client library in the error that it is missing, as `what` of `import_library`."""
    rejected: Mapping[str, str]
    """Errors that another attempt does not change, with what to do."""


async def open_client(
    service: Service,
    connection: Connection,
    stack: AsyncExitStack,
    *,
    answer_seconds: float,
    max_requests: int,
    components: Mapping[str, Callable[[], Any]] | None = None,
    **config: Any,
) -> Any:
    """Return a client of the service, closed with the stack. It sends nothing yet.

    `components` create parts of the client that replace those of the library, by their names. `config` are further settings.

    Raises:
        UpstreamError: The client library is missing, or the connection cannot be used.
    """
    library = await asyncio.to_thread(import_library, service.library, service.extra, "aiobotocore.session", "aiobotocore.config")
    import aiobotocore.config

    try:
        settings = client_settings(connection, service.kinds, service.hint)
        session = library.AioSession(profile=profile_of(connection))
        session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
        await asyncio.to_thread(session.warm_up_loader_caches, service.name)
        for name, create in (components or {}).items():
            session.register_component(name, create())
        client_config = aiobotocore.config.AioConfig(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=answer_seconds,
            max_pool_connections=max_requests,
            retries={"total_max_attempts": 1},
            user_agent_extra="headrace",
            **config,
        )
        return await stack.enter_async_context(session.create_client(service.name, config=client_config, **settings))
    except Exception as error:
        raise described(f"The connection '{connection.id}' cannot be used", error, service.rejected) from None


@cache
def _loader(data_path: str | None) -> Any:
    """Return the loader of the library's descriptions of services, which retains them.

    With a loader for each client, each opening of a stream would parse them, which delays the other streams of the process by 0.1 s.
    """
    import botocore.loaders

    return botocore.loaders.create_loader(data_path)


async def close_client(stack: AsyncExitStack) -> None:
    """Close a client with its stack. After CLOSE_SECONDS, its connections are left to the loop."""
    closing = asyncio.ensure_future(stack.aclose())
    await asyncio.wait([closing], timeout=CLOSE_SECONDS)
    closing.cancel()
