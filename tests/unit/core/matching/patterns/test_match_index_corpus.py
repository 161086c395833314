from __future__ import annotations

from typing import Any

from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.core.matching.patterns.parser import parse_pattern
from support.patterns.corpus import Case, cases
from support.patterns.slow_evaluator import evaluate

CASES = list(cases())


def _is_matched(pattern: Any, event: Any) -> bool:
    index = MatchIndex()
    index.add(parse_pattern(pattern), 1)
    return index.matches(event) == [1]


def test_each_case_of_the_corpus_has_its_result() -> None:
    assert len(CASES) >= 1_000
    assert _failures(_is_matched) == []


def test_the_slow_evaluator_agrees_with_the_corpus() -> None:
    assert _failures(evaluate) == []


def test_all_patterns_of_the_corpus_in_one_index_have_their_results() -> None:
    index = MatchIndex()
    patterns = {repr(case.pattern): case.pattern for case in CASES}
    names = list(patterns)
    for number, pattern in enumerate(patterns.values()):
        index.add(parse_pattern(pattern), number)
    matched = {repr(case.event): {names[number] for number in index.matches(case.event)} for case in CASES}
    assert [case for case in CASES if (repr(case.pattern) in matched[repr(case.event)]) is not case.expected] == []


def _failures(is_matched: Any) -> list[Case]:
    return [case for case in CASES if is_matched(case.pattern, case.event) is not case.expected]
