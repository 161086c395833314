"""The order of acknowledgements: by a model, in any order of answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.mqtt.window import Window


@given(st.lists(st.booleans(), max_size=30), st.data())
def test_packets_are_acknowledged_once_each_in_the_order_of_receipt_and_never_past_an_open_one(
    with_packet: list[bool], data: st.DataObject
) -> None:
    window = Window()
    deliveries = [window.receive(number if has_packet else None) for number, has_packet in enumerate(with_packet)]
    order = data.draw(st.permutations(deliveries))
    count = data.draw(st.integers(0, len(order)))
    acknowledged: list[int] = []
    done = 0
    while done < count:
        step = data.draw(st.integers(1, count - done))
        acknowledged += window.finish(order[done : done + step])
        done += step
        first_open = next((number for number, delivery in enumerate(deliveries) if not delivery.is_done), len(deliveries))
        assert acknowledged == [number for number in range(first_open) if with_packet[number]]


def test_a_repeated_answer_acknowledges_nothing_again() -> None:
    window = Window()
    deliveries = [window.receive(number) for number in (7, 8, 9)]
    assert window.finish(deliveries[1:2]) == []
    assert window.finish(deliveries[:1]) == [7, 8]
    assert window.finish(deliveries[:2]) == []
    assert window.finish(deliveries) == [9]
