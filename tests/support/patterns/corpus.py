"""Cases of event patterns, written from the published rules of EventBridge and of its open-source engine, event-ruler.

`LEAVES` has the leaf of one field, the values that pass and the values that do not. `WHOLE` has whole patterns and events. Neither is
computed from an implementation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

_OTHERS: list[Any] = [None, True, False, 0, -1.5, {}, [], {"a": "x"}, [[]], [{"a": "x"}]]
"""Values that no operator on texts passes."""
_TEXTS: list[Any] = ["", "x", "0", "null", "true"]

LEAVES: list[tuple[list[Any], list[Any], list[Any]]] = [
    # Exact values: a text, a number, true, false or null, each equal to itself only. The list is an "or".
    (["running"], ["running"], ["Running", "running ", "runnin", "running\n", *_OTHERS, *_TEXTS]),
    (["initializing", "running"], ["initializing", "running"], ["initializingrunning", "stopped", *_OTHERS, *_TEXTS]),
    ([""], [""], [" ", "a", *_OTHERS, *_TEXTS[1:]]),
    ([None], [None], ["null", "", 0, False, {}, []]),
    ([True], [True], ["true", 1, 1.0, False, None, {}, []]),
    ([False], [False], ["false", 0, 0.0, True, None, {}, []]),
    ([1], [1, 1.0, 1e0], ["1", True, 1.5, -1, 10, None, {}, []]),
    ([1.0], [1, 1.0], ["1.0", True, 1.1, 0]),
    ([0], [0, 0.0, -0.0], ["0", False, "", None, 1]),
    ([3.018e2], [301.8, 3018e-1], ["301.8", 301, 302, 301.81]),
    ([-5], [-5, -5.0], [5, "-5", 0]),
    ([10**15], [10**15, 1e15], [10**15 + 1, 10**15 - 1, str(10**15)]),
    ([100, "100", None], [100, 100.0, "100", None], [True, "100.0", 101, {}, []]),
    (["été"], ["été"], ["ete", "ÉTÉ", "e\u0301te\u0301"]),
    (["$or"], ["$or"], ["or", *_TEXTS]),
    (["a*b"], ["a*b"], ["ab", "axb", "a**b"]),
    ([{"exactly": "a*b"}], ["a*b"], ["ab", "axb", *_OTHERS, *_TEXTS]),
    ([{"exactly": ""}], [""], [" ", *_OTHERS]),
    # Prefix and suffix work on texts only.
    (
        [{"prefix": "2017-10-02"}],
        ["2017-10-02", "2017-10-02T18:43:48Z"],
        ["2017-10-0", "017-10-02", " 2017-10-02", 20171002, *_OTHERS, *_TEXTS],
    ),
    ([{"prefix": ""}], ["", "a", " ", "\n"], _OTHERS),
    ([{"prefix": "a"}], ["a", "ab", "a\nb", "aa"], ["b", "ba", "A", "Ab", *_OTHERS, *_TEXTS]),
    ([{"prefix": "us-"}, {"prefix": "eu-"}], ["us-east-1", "eu-", "us-"], ["us", "eu", "ap-us-", *_OTHERS, *_TEXTS]),
    ([{"prefix": "0"}], ["0", "007", "0x"], [0, 0.0, 0.5, *_OTHERS]),
    ([{"prefix": "tr"}], ["true", "tr", "tree"], [True, *_OTHERS]),
    (
        [{"prefix": {"equals-ignore-case": "EventB"}}],
        ["eventbridge", "EVENTB", "EventBx", "eVENTb"],
        ["event", "xeventb", *_OTHERS, *_TEXTS],
    ),
    ([{"prefix": {"equals-ignore-case": ""}}], ["", "A", "ß"], _OTHERS),
    ([{"prefix": {"equals-ignore-case": "ÉT"}}], ["été", "ÉTÉ", "ÉT", "étau"], ["ete", "é", "tété", *_OTHERS]),
    ([{"suffix": ".png"}], [".png", "a.png", "a.b.png", ".png.png"], [".PNG", "png", "a.png ", "a.pngx", *_OTHERS, *_TEXTS]),
    ([{"suffix": ""}], ["", "a", "\t"], _OTHERS),
    ([{"suffix": "aa"}], ["aa", "aaa", "baa"], ["a", "aab", "", *_OTHERS]),
    (
        [{"suffix": {"equals-ignore-case": "tBridge"}}],
        ["eventbridge", "TBRIDGE", "tBridge", "xTbRiDgE"],
        ["bridge", "tbridges", *_OTHERS, *_TEXTS],
    ),
    ([{"suffix": {"equals-ignore-case": "\u03a3"}}], ["\u039f\u03a3", "\u03c3", "\u03bf\u03c2"], ["o", "\u03a3x", *_OTHERS]),
    # Equality in any case.
    ([{"equals-ignore-case": "Alice"}], ["Alice", "alice", "ALICE", "aLiCe"], ["alic", "alicee", " alice", *_OTHERS, *_TEXTS]),
    ([{"equals-ignore-case": ""}], [""], [" ", *_OTHERS, *_TEXTS[1:]]),
    ([{"equals-ignore-case": "ÅNGSTRÖM"}], ["ångström", "Ångström", "ÅNGSTRÖM"], ["angstrom", *_OTHERS]),
    ([{"equals-ignore-case": "null"}], ["NULL", "null", "Null"], [None, "nil", *_OTHERS]),
    # Wildcards: * stands for any text, also none; backslash escapes * and itself.
    ([{"wildcard": "*.png"}], [".png", "dir/a.png", "a.b.png"], ["a.PNG", "png", "a.pngx", *_OTHERS, *_TEXTS]),
    (
        [{"wildcard": "Simple*Service"}],
        ["SimpleService", "SimpleQueueService", "Simple\nService"],
        ["SimpleServic", "impleService", "Simple", "Service"],
    ),
    ([{"wildcard": "dir/*.png"}], ["dir/.png", "dir/a.png", "dir/a/b.png"], ["dir.png", "xdir/a.png", "dir/a.png/", *_OTHERS]),
    ([{"wildcard": "a*b*c"}], ["abc", "axbxc", "abbbc", "abcbc", "aabbcc"], ["acb", "ab", "bc", "abcd", "xabc", *_OTHERS]),
    ([{"wildcard": "*a*"}], ["a", "ba", "ab", "bab", "aaa"], ["b", "", "A", *_OTHERS]),
    ([{"wildcard": "aa*aa"}], ["aaaa", "aaaaa", "aabaa", "aaxxaa"], ["aaa", "aa", "aabaab", *_OTHERS]),
    ([{"wildcard": "*"}], ["", "a", "*", "\\"], _OTHERS),
    ([{"wildcard": "a*a"}], ["aa", "aba", "aaa"], ["a", "ab", "", *_OTHERS]),
    ([{"wildcard": "*ab*ab*"}], ["abab", "xabxabx", "ababab"], ["ab", "aab", "abba", *_OTHERS]),
    ([{"wildcard": r"\*"}], ["*"], ["", "a", "**", "\\*", *_OTHERS]),
    ([{"wildcard": r"a\*b*"}], ["a*b", "a*bc"], ["ab", "axb", "a\\*b", *_OTHERS]),
    ([{"wildcard": r"\\*"}], ["\\", "\\a", "\\\\"], ["a\\", "", "*", *_OTHERS]),
    ([{"wildcard": "plain"}], ["plain"], ["plain ", "Plain", *_OTHERS]),
    ([{"wildcard": "*/bin/*.jar"}], ["/bin/.jar", "a/bin/b.jar", "/bin/x/bin/.jar"], ["/bin.jar", "bin/a.jar", "/bin/a.jarx", *_OTHERS]),
    # Anything but: any value that is there and is not excluded.
    (
        [{"anything-but": "initializing"}],
        ["running", "", "Initializing", None, True, False, 0, 1.5],
        ["initializing", {}, [], {"a": 1}, [{}]],
    ),
    ([{"anything-but": ["stopped", "overloaded"]}], ["running", "", "STOPPED", None, 0, True], ["stopped", "overloaded", {}, []]),
    ([{"anything-but": 123}], [124, 122.9, "123", None, True, ""], [123, 123.0, {}, []]),
    ([{"anything-but": [100, 200, 300]}], [150, "100", 100.5, None, False], [100, 200.0, 300, {}, []]),
    ([{"anything-but": 1}], [True, "1", 0, 1.1], [1, 1.0, {}, []]),
    ([{"anything-but": 0}], [False, "", None, "0", 1], [0, 0.0, -0.0, {}, []]),
    ([{"anything-but": ""}], ["a", " ", None, 0, False], ["", {}, []]),
    ([{"anything-but": {"prefix": "init"}}], ["xinit", "ini", "Init", "", None, 0, True], ["init", "initializing", {}, []]),
    ([{"anything-but": {"prefix": ["init", "error"]}}], ["running", "err", "", 0], ["init", "errors", "error", {}, []]),
    ([{"anything-but": {"suffix": "1234"}}], ["12345", "234", "", None, 1234], ["1234", "i-1234", {}, []]),
    ([{"anything-but": {"suffix": ["1234", "6789"]}}], ["12345", "", 6789], ["1234", "x6789", {}, []]),
    ([{"anything-but": {"equals-ignore-case": "Stopped"}}], ["stoppe", "", None, 0, "stopped "], ["STOPPED", "stopped", "Stopped", {}, []]),
    ([{"anything-but": {"equals-ignore-case": ["Stopped", "OverLoaded"]}}], ["up", "", 0], ["stopped", "OVERLOADED", {}, []]),
    ([{"anything-but": {"wildcard": "*/bin/*.jar"}}], ["a.jar", "/bin/a.war", "", None, 0], ["/bin/a.jar", "x/bin/.jar", {}, []]),
    ([{"anything-but": {"wildcard": ["*.jar", "*.class"]}}], ["a.py", "", 0, None], ["a.jar", ".class", {}, []]),
    ([{"anything-but": {"wildcard": "a"}}], ["b", "aa", ""], ["a", {}, []]),
    # Numeric comparisons work on numbers only.
    ([{"numeric": [">", 0, "<=", 5]}], [0.1, 1, 5, 5.0], [0, -1, 5.1, 6, "3", None, True, {}, []]),
    ([{"numeric": ["<", 10]}], [9, 9.999, -1e300, 0, -(10**30)], [10, 10.0, 11, "9", None, False, {}, []]),
    ([{"numeric": ["<=", 10]}], [10, 10.0, 9, -1], [10.1, 11, "10", None, {}, []]),
    ([{"numeric": [">", 10]}], [10.1, 11, 1e300, 10**30], [10, 9, "11", None, True, {}, []]),
    ([{"numeric": [">=", 10]}], [10, 10.0, 11], [9.99, -10, "10", None, {}, []]),
    ([{"numeric": ["=", 3.018e2]}], [301.8, 3018e-1], [301, 302, "301.8", None, {}, []]),
    ([{"numeric": ["=", 1]}], [1, 1.0], [True, "1", 0, 2]),
    ([{"numeric": [">=", 0, "<", 1]}], [0, 0.5, 0.999], [1, -0.001, False, True, "0"]),
    ([{"numeric": [">=", -1.5, "<=", -0.5]}], [-1.5, -1, -0.5], [-1.6, 0, -0.4, 1]),
    ([{"numeric": [">=", 5, "<=", 5]}], [5, 5.0], [4, 6, "5"]),
    ([{"numeric": ["<", 0]}, {"numeric": [">", 100]}], [-1, 101, -0.1], [0, 50, 100, "-1"]),
    # IP networks work on texts of addresses.
    (
        [{"cidr": "10.0.0.0/24"}],
        ["10.0.0.0", "10.0.0.1", "10.0.0.255"],
        ["10.0.1.0", "9.255.255.255", "10.0.0", "10.0.0.256", "10.0.0.1 ", "x", *_OTHERS],
    ),
    ([{"cidr": "10.1.2.3/8"}], ["10.0.0.0", "10.255.255.255"], ["11.0.0.0", "9.0.0.1", *_OTHERS]),
    ([{"cidr": "0.0.0.0/0"}], ["0.0.0.0", "255.255.255.255", "1.2.3.4"], ["::", "::1", "::ffff:1.2.3.4", "1.2.3", *_OTHERS]),
    ([{"cidr": "192.168.1.7/32"}], ["192.168.1.7"], ["192.168.1.6", "192.168.1.8", "192.168.001.007", "192.168.1.7/32", *_OTHERS]),
    ([{"cidr": "10.0.0.128/25"}], ["10.0.0.128", "10.0.0.255"], ["10.0.0.127", "10.0.1.128", *_OTHERS]),
    (
        [{"cidr": "2001:db8::/32"}],
        ["2001:db8::", "2001:DB8::1", "2001:0db8:0:0:0:0:0:1"],
        ["2001:db9::", "::2001:db8", "10.0.0.1", *_OTHERS],
    ),
    ([{"cidr": "::1/128"}], ["::1", "0:0:0:0:0:0:0:1"], ["::2", "::", "0.0.0.1", *_OTHERS]),
    ([{"cidr": "::/0"}], ["::", "fe80::1", "2001:db8::1"], ["0.0.0.0", "fe80::1%eth0", "[::1]", *_OTHERS]),
    # Existence works on leaves only: an object is no leaf, and an array without plain values has none.
    ([{"exists": True}], ["", "x", None, 0, False, True, ["x"], [None], [{}, 1]], [{}, [], {"c1": 100}, [[]], [{}], [{"c1": 100}]]),
    ([{"exists": False}], [{}, [], {"c1": 100}, [[]], [{}], [{"c1": 100}]], ["", "x", None, 0, False, True, ["x"], [None], [{}, 1]]),
    ([{"exists": False}, "x"], ["x", {}, [], ["x", "y"]], ["y", None, 0, ["y"]]),
    ([{"exists": True}, "x"], ["x", "y", None], [{}, []]),
    # An array passes if one of its elements does; arrays in arrays are no different.
    (["x"], [["x"], ["y", "x"], [["x"]], [["y"], [["x"]]], [{}, "x"]], [["y"], [], [["y"]], [{"x": "x"}]]),
    ([1, None], [[1], [None], [2, 1.0]], [["1"], [True], [2]]),
    ([{"prefix": "a"}], [["b", "ab"], [["a"]]], [["b"], [1, None]]),
    ([{"suffix": "a"}], [["b", "ba"]], [["ab"], [1]]),
    ([{"anything-but": ["x"]}], [["x", "y"], ["y"], [1], [None, "x"]], [["x"], ["x", "x"], [["x"]], []]),
    ([{"numeric": [">", 5]}], [[1, 6], [[7]]], [[1, 5], ["6"], []]),
    ([{"cidr": "10.0.0.0/8"}], [["x", "10.1.1.1"]], [["x", "11.1.1.1"], []]),
    ([{"wildcard": "a*z"}], [["b", "a-z"]], [["a", "z"], []]),
    ([{"equals-ignore-case": "a"}], [["b", "A"]], [["b", "aa"], []]),
    # Several operators in one list are an "or".
    ([{"prefix": "a"}, {"suffix": "z"}, 5, None], ["a", "bz", 5, 5.0, None, "az"], ["b", 4, True, {}, []]),
    ([{"numeric": ["<", 0]}, {"prefix": "-"}, False], [-1, "-1", "-", False], [0, "1", True, None]),
    ([{"anything-but": ["a"]}, {"prefix": "a"}], ["a", "b", None, 0], [{}, []]),
]

WHOLE: list[tuple[Any, Any, bool]] = [
    # All fields must match; fields that the pattern does not name do not matter.
    ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "y"}, True),
    ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "y", "c": 1}, True),
    ({"a": ["x"], "b": ["y"]}, {"a": "x"}, False),
    ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "x"}, False),
    ({"a": ["x"]}, {}, False),
    ({"a": {"b": {"c": [1]}}}, {"a": {"b": {"c": 1, "d": 2}, "e": 3}}, True),
    ({"a": {"b": {"c": [1]}}}, {"a": {"b": 1}}, False),
    ({"a": {"b": {"c": [1]}}}, {"a": 1}, False),
    ({"a.b": [1]}, {"a.b": 1}, True),
    ({"a.b": [1]}, {"a": {"b": 1}}, False),
    ({"": [1]}, {"": 1}, True),
    # Absence: of the leaf, on a path that need not be there.
    ({"a": [{"exists": False}]}, {}, True),
    ({"a": [{"exists": False}]}, {"b": 1}, True),
    ({"a": {"b": [{"exists": False}]}}, {}, True),
    ({"a": {"b": [{"exists": False}]}}, {"a": 1}, True),
    ({"a": {"b": [{"exists": False}]}}, {"a": {"b": {"c": 1}}}, True),
    ({"a": {"b": [{"exists": False}]}}, {"a": {"b": None}}, False),
    ({"a": ["x"], "b": [{"exists": False}]}, {"a": "x"}, True),
    ({"a": ["x"], "b": [{"exists": False}]}, {"a": "x", "b": 0}, False),
    ({"a": ["x"], "b": [{"exists": False}]}, {}, False),
    ({"a": [{"exists": True}], "b": [{"exists": False}]}, {"a": None}, True),
    # The fields of one element of an array belong together.
    ({"a": {"b": [1], "c": [2]}}, {"a": [{"b": 1, "c": 2}]}, True),
    ({"a": {"b": [1], "c": [2]}}, {"a": [{"b": 1}, {"c": 2}]}, False),
    ({"a": {"b": [1], "c": [2]}}, {"a": [{"b": 1, "c": 3}, {"b": 2, "c": 2}]}, False),
    ({"a": {"b": [1], "c": [2]}}, {"a": [{"b": 1, "c": 3}, {"b": 1, "c": 2}]}, True),
    ({"a": {"b": [1], "c": [2]}}, {"a": [[{"b": 1}, {"c": 2}]]}, False),
    ({"a": {"b": [1], "c": [2]}}, {"a": [[{"b": 1, "c": 2}], []]}, True),
    ({"a": {"b": [1], "c": [2]}}, {"a": {"b": [0, 1], "c": [2, 3]}}, True),
    ({"a": {"b": [1]}, "c": {"d": [2]}}, {"a": [{"b": 1}], "c": [{"d": 0}, {"d": 2}]}, True),
    ({"a": {"b": {"c": [1], "d": [2]}, "e": [3]}}, {"a": [{"b": [{"c": 1, "d": 2}], "e": 3}]}, True),
    ({"a": {"b": {"c": [1], "d": [2]}, "e": [3]}}, {"a": [{"b": [{"c": 1}, {"d": 2}], "e": 3}]}, False),
    ({"a": {"b": {"c": [1], "d": [2]}, "e": [3]}}, {"a": [{"b": [{"c": 1, "d": 2}]}, {"e": 3}]}, False),
    ({"a": {"b": [1], "c": [{"exists": False}]}}, {"a": [{"b": 1}, {"b": 2, "c": 3}]}, True),
    ({"a": {"b": [1], "c": [{"exists": False}]}}, {"a": [{"b": 1, "c": 3}, {"b": 2}]}, False),
    ({"a": {"c": [{"exists": False}]}}, {"a": [{"b": 1}, {"c": 3}]}, False),
    ({"a": {"c": [{"exists": False}]}}, {"a": [{"b": 1}, 5]}, True),
    ({"a": {"b": [1], "c": {"d": [{"exists": False}]}}}, {"a": [{"b": 1, "c": [{"e": 1}, {"f": 2}]}]}, True),
    ({"a": {"b": [1], "c": {"d": [{"exists": False}]}}}, {"a": [{"b": 1, "c": [{"e": 1}, {"d": 2}]}]}, False),
    ({"a": ["x"], "b": ["y"]}, [{"a": "x", "b": "y"}], True),
    ({"a": ["x"], "b": ["y"]}, [{"a": "x"}, {"b": "y"}], False),
    ({"a": ["x"]}, {"a": [{"a": "x"}]}, False),
    # $or, at any level.
    ({"$or": [{"a": [1]}, {"b": [2]}]}, {"a": 1}, True),
    ({"$or": [{"a": [1]}, {"b": [2]}]}, {"b": 2}, True),
    ({"$or": [{"a": [1]}, {"b": [2]}]}, {"a": 1, "b": 2}, True),
    ({"$or": [{"a": [1]}, {"b": [2]}]}, {"a": 2, "b": 1}, False),
    ({"s": ["x"], "$or": [{"a": [1]}, {"b": [2]}]}, {"s": "x", "b": 2}, True),
    ({"s": ["x"], "$or": [{"a": [1]}, {"b": [2]}]}, {"s": "y", "b": 2}, False),
    ({"s": ["x"], "$or": [{"a": [1]}, {"b": [2]}]}, {"s": "x"}, False),
    ({"$or": [{"a": [1], "c": [3]}, {"b": [2]}]}, {"a": 1, "c": 3}, True),
    ({"$or": [{"a": [1], "c": [3]}, {"b": [2]}]}, {"a": 1, "c": 4}, False),
    ({"$or": [{"a": [1]}, {"b": [2]}], "d": {"$or": [{"e": [1]}, {"f": [2]}]}}, {"a": 1, "d": {"f": 2}}, True),
    ({"$or": [{"a": [1]}, {"b": [2]}], "d": {"$or": [{"e": [1]}, {"f": [2]}]}}, {"a": 1, "d": {"f": 1}}, False),
    ({"$or": [{"a": [1]}, {"b": [2], "$or": [{"c": [3]}, {"d": [4]}]}]}, {"b": 2, "d": 4}, True),
    ({"$or": [{"a": [1]}, {"b": [2], "$or": [{"c": [3]}, {"d": [4]}]}]}, {"b": 2, "d": 3}, False),
    ({"$or": [{"a": [{"exists": False}]}, {"a": [{"prefix": "x"}]}]}, {}, True),
    ({"$or": [{"a": [{"exists": False}]}, {"a": [{"prefix": "x"}]}]}, {"a": "xy"}, True),
    ({"$or": [{"a": [{"exists": False}]}, {"a": [{"prefix": "x"}]}]}, {"a": "y"}, False),
    ({"a": {"b": [1], "$or": [{"c": [2]}, {"d": [3]}]}}, {"a": [{"b": 1, "d": 3}, {"c": 2}]}, True),
    ({"a": {"b": [1], "$or": [{"c": [2]}, {"d": [3]}]}}, {"a": [{"b": 1}, {"d": 3}, {"c": 2}]}, False),
    ({"a": {"b": [1]}, "$or": [{"a": {"c": [2]}}, {"d": [3]}]}, {"a": [{"b": 1}, {"c": 2}]}, False),
    ({"a": {"b": [1]}, "$or": [{"a": {"c": [2]}}, {"d": [3]}]}, {"a": [{"b": 1, "c": 2}]}, True),
    # The examples of the guides.
    (
        {
            "time": [{"prefix": "2017-10-02"}],
            "detail": {"state": [{"anything-but": "initializing"}], "c-count": [{"numeric": [">", 0, "<=", 5]}]},
        },
        {"time": "2017-10-02T18:43:48Z", "detail": {"state": "running", "c-count": 5}},
        True,
    ),
    (
        {
            "time": [{"prefix": "2017-10-02"}],
            "detail": {"state": [{"anything-but": "initializing"}], "c-count": [{"numeric": [">", 0, "<=", 5]}]},
        },
        {"time": "2017-10-02T18:43:48Z", "detail": {"state": "initializing", "c-count": 5}},
        False,
    ),
    (
        {"source": ["aws.cloudwatch"], "$or": [{"metricName": ["CPUUtilization", "ReadLatency"]}, {"namespace": ["AWS/EC2", "AWS/ES"]}]},
        {"source": "aws.cloudwatch", "namespace": "AWS/ES"},
        True,
    ),
    (
        {"resources": ["arn:aws:ec2:us-east-1:123456789012:instance/i-1"], "detail": {"state": ["initializing", "running"]}},
        {"resources": ["arn:x", "arn:aws:ec2:us-east-1:123456789012:instance/i-1"], "detail": {"state": "running"}},
        True,
    ),
]


class Case(NamedTuple):
    """A pattern, an event, and whether it matches."""

    pattern: Any
    event: Any
    expected: bool


def cases() -> Iterator[Case]:
    """Yield all cases: the leaves at the top, below an object, and beside another field."""
    for leaf, passing, others in LEAVES:
        for value, expected in [*((value, True) for value in passing), *((value, False) for value in others)]:
            yield Case({"a": leaf}, {"a": value}, expected)
            yield Case({"o": {"a": leaf}, "b": [1]}, {"o": {"a": value, "z": "x"}, "b": 1}, expected)
    for pattern, event, expected in WHOLE:
        yield Case(pattern, event, expected)
