from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headrace import ServiceBus
from headrace.errors import UpstreamError
from headrace.sources.service_bus.producer import receivers_of
from headrace.triggers.upstream import load_upstream


@pytest.mark.parametrize(
    ("upstream", "key"),
    [
        (ServiceBus("orders"), "servicebus:servicebus/orders"),
        (ServiceBus("shop/orders", connection="bus"), "servicebus:bus/shop/orders"),
        (ServiceBus("orders", "billing", decode="text", lock=300, sessions=100), "servicebus:servicebus/orders/Subscriptions/billing"),
    ],
)
def test_an_upstream_is_the_same_after_serialization(upstream: ServiceBus, key: str) -> None:
    again = load_upstream(*upstream.serialize())
    assert isinstance(again, ServiceBus)
    assert (again.stream_key(), again.serialize(), again.description()) == (key, upstream.serialize(), upstream.description())
    assert again.event_type == "headrace.servicebus.message"


def test_an_argument_without_a_value_is_not_serialized() -> None:
    assert ServiceBus("orders").serialize()[1] == {"entity": "orders", "connection": "servicebus", "decode": "json", "lock": 30}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"entity": ""}, "Invalid entity"),
        ({"entity": None}, "Invalid entity"),
        ({"entity": "orders/"}, "Invalid entity"),
        ({"entity": "sb://shop/orders"}, "Invalid entity"),
        ({"entity": "orders/$deadletterqueue"}, "Invalid entity"),
        ({"entity": "a" * 261}, "Invalid entity"),
        ({"entity": "orders\n"}, "Invalid entity"),
        ({"subscription": ""}, "Invalid subscription"),
        ({"subscription": "a/b"}, "Invalid subscription"),
        ({"subscription": "a" * 51}, "Invalid subscription"),
        ({"connection": ""}, "Invalid connection"),
        ({"connection": 7}, "Invalid connection"),
        ({"decode": "xml"}, "Invalid decode"),
        ({"lock": 4}, "Invalid lock"),
        ({"lock": 301}, "Invalid lock"),
        ({"lock": True}, "Invalid lock"),
        ({"lock": 5.5}, "Invalid lock"),
        ({"sessions": 0}, "Invalid sessions"),
        ({"sessions": 101}, "Invalid sessions"),
        ({"sessions": True}, "Invalid sessions"),
        ({"dead_letter_queue": ""}, "Invalid dead_letter_queue"),
        ({"dead_letter_queue": 5}, "Invalid dead_letter_queue"),
        ({"dead_letter_queue": "orders"}, "is the one that is read"),
        ({"dead_letter_queue": "ORDERS"}, "is the one that is read"),
        ({"dead_letter_queue": "orders", "subscription": "billing"}, "is the one that is read"),
    ],
)
def test_an_invalid_argument_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason):
        ServiceBus(**({"entity": "orders"} | arguments))


@pytest.mark.parametrize("entity", ["a", "a" * 260, "shop/eu.orders_1-b"])
def test_a_name_may_have_what_the_service_allows(entity: str) -> None:
    assert ServiceBus(entity, entity[:1]).description().entity == entity


def test_the_dead_letter_queue_is_not_part_of_the_stream_key() -> None:
    upstream = ServiceBus("orders", dead_letter_queue="orders-dead")
    assert upstream.stream_key() == ServiceBus("orders").stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "queue orders-dead"
    assert load_upstream(*ServiceBus("orders").serialize()).dead_letter_target is None


def test_a_receiver_reads_the_queue_or_the_subscription() -> None:
    class Client:
        def get_queue_receiver(self, *names: str, **options: Any) -> tuple[Any, ...]:
            return ("queue", *names, options["session_id"])

        def get_subscription_receiver(self, *names: str, **options: Any) -> tuple[Any, ...]:
            return ("subscription", *names, options["session_id"])

    read = [receivers_of(Client(), one.description(), session_id="a")() for one in (ServiceBus("orders"), ServiceBus("orders", "billing"))]
    assert read == [("queue", "orders", "a"), ("subscription", "orders", "billing", "a")]


def test_the_client_library_is_not_imported_before_the_stream_opens() -> None:
    code = "import sys; from headrace import ServiceBus; ServiceBus('orders').producer(); sys.exit('azure' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
