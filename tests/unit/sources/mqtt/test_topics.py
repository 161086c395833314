"""Topic filters: which are valid, and what they match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UpstreamError
from headrace.sources.mqtt.topics import check_filters, topic_matcher


@pytest.mark.parametrize(
    ("name", "matched", "others"),
    [
        ("a/b", ["a/b"], ["a", "a/b/c", "a/", "/a/b", "A/b"]),
        ("a/+", ["a/b", "a/"], ["a", "a/b/c", "b/b"]),
        ("+", ["a", ""], ["a/b", "$SYS"]),
        ("+/+", ["a/b", "/b"], ["a", "$SYS/b", "a/b/c"]),
        ("/+", ["/a"], ["a", "a/b"]),
        ("a/#", ["a", "a/", "a/b", "a/b/c"], ["ab", "b/a"]),
        ("#", ["a", "a/b", "/"], ["$SYS", "$SYS/a"]),
        ("$SYS/#", ["$SYS", "$SYS/a"], ["SYS/a"]),
        ("a.b/+/c", ["a.b/x/c"], ["aXb/x/c", "a.b/x/y/c"]),
        ("a/#", ["a/b\nc"], ["a\nb"]),
        ("$share/group/a/+", ["a/b"], ["$share/group/a/b", "group/a/b"]),
    ],
)
def test_a_filter_matches_as_mqtt_says(name: str, matched: list[str], others: list[str]) -> None:
    matches = topic_matcher(check_filters(name))
    assert [topic for topic in matched + others if matches(topic)] == matched


def test_several_filters_match_what_one_of_them_matches() -> None:
    matches = topic_matcher(check_filters(["b/+", "a"]))
    assert [topic for topic in ("a", "b/c", "a/c", "b") if matches(topic)] == ["a", "b/c"]


@pytest.mark.parametrize(
    "name",
    ["", "a/#/b", "a#", "a/b#", "a+", "+a/b", "a/+b", "a\0", "#/a", "x" * 65_536, "$share", "$share/g", "$share//a", "$share/+/a", 3],
)
def test_an_invalid_filter_is_named(name: object) -> None:
    with pytest.raises(UpstreamError, match=r"^Invalid topic filter") as raised:
        check_filters([name])  # type: ignore[list-item]
    assert "sensors" in str(raised.value.hint)


@pytest.mark.parametrize("names", [[], ["a"] * 101])
def test_the_number_of_filters_has_limits(names: list[str]) -> None:
    with pytest.raises(UpstreamError, match="number of topic filters"):
        check_filters(names)


LEVELS = st.lists(st.text("ab", max_size=2), min_size=1, max_size=4)


@given(LEVELS, LEVELS, st.data())
def test_filters_agree_with_a_comparison_of_levels(topic: list[str], levels: list[str], data: st.DataObject) -> None:
    """The reference compares level by level."""
    wild = [data.draw(st.sampled_from([level, "+"])) for level in levels]
    if data.draw(st.booleans()):
        wild.append("#")
    name = "/".join(wild)
    if not name:
        return

    def expected(parts: list[str], names: list[str]) -> bool:
        if names[:1] == ["#"]:
            return True
        if not parts or not names:
            return not parts and not names
        return names[0] in ("+", parts[0]) and expected(parts[1:], names[1:])

    assert topic_matcher(check_filters(name))("/".join(topic)) == expected(topic, wild)
