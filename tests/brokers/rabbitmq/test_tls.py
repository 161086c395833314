"""Connections with TLS. The certificate of the server is verified."""

from __future__ import annotations

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import reading
from support.processes.rabbitmq import RabbitServer
from support.sources.rabbitmq import MakeQueue
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq-outages")]


async def test_a_server_with_a_certificate_of_the_named_authority_is_read(make_queue: MakeQueue, own_server: RabbitServer) -> None:
    queue = make_queue(server=own_server)
    queue.send(numbers(0, 50))
    queue.set_connection(f"amqps://guest:guest@{own_server.tls_address}/?cafile={own_server.authority}")
    async with reading(queue.producer()) as stream:
        await stream.advance(await stream.take(50))
    assert queue.ready() == 0


def test_an_unknown_authority_and_another_host_are_refused(own_server: RabbitServer) -> None:
    with pytest.raises(UpstreamError, match="certificate of the server is not trusted") as raised:
        probe_connection(parse_connection("x", f"amqps://{own_server.tls_address}"))
    assert "cafile" in str(raised.value.hint)
    port = own_server.tls_address.partition(":")[2]
    with pytest.raises(UpstreamError, match="certificate of the server is not trusted"):
        probe_connection(parse_connection("x", f"amqps://localhost:{port}?cafile={own_server.authority}"))
