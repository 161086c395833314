"""The messages of one session that are not acknowledged. No clock, no I/O.

MQTT acknowledges messages in the order in which they were received. So the first message that is not answered, or has failed, holds back
the acknowledgements of all later ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Delivery:
    """One received message, the broker payload of its raw event. `packet` is its packet identifier, or None with QoS 0."""

    __slots__ = ("is_done", "packet")

    def __init__(self, packet: int | None) -> None:
        self.packet = packet
        self.is_done = False


class Window:
    """The deliveries of one connection, from the first that is not acknowledged."""

    def __init__(self) -> None:
        self._open: deque[Delivery] = deque()

    def receive(self, packet: int | None) -> Delivery:
        """Add a message and return its delivery."""
        delivery = Delivery(packet)
        self._open.append(delivery)
        return delivery

    def finish(self, deliveries: Iterable[Delivery]) -> list[int]:
        """Record that messages need no more delivery. Return the packet identifiers to acknowledge, in order, each once."""
        for delivery in deliveries:
            delivery.is_done = True
        packets: list[int] = []
        while self._open and self._open[0].is_done:
            packet = self._open.popleft().packet
            if packet is not None:
                packets.append(packet)
        return packets
