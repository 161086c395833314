from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import RunConflict
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, digest_of


def events(*ids: str, first: int = 1, source: str = "s") -> pa.Table:
    seqs = pa.array(range(first, first + len(ids)), pa.int64())
    return pa.table({"seq": seqs, "source": pa.array([source] * len(ids), pa.string()), "id": pa.array(ids, pa.string())})


def test_a_digest_depends_on_the_events_and_their_order_alone() -> None:
    whole = events("a", "é", "", "ccc")
    digest = digest_of(whole)
    assert digest == digest_of(pa.concat_tables([whole.slice(0, 1), whole.slice(1, 0), whole.slice(1)]))
    assert digest == digest_of(pa.concat_tables([events("x", "y", first=7), whole]).slice(2))
    others = [
        events("a", "é", "", "ccc", first=2),
        events("a", "é", "", "ccc", source="t"),
        events("a", "é", "c", "cc"),
        whole.take(pa.array([1, 0, 2, 3])),
        whole.slice(0, 3),
        whole.slice(0, 0),
    ]
    assert len({digest, *map(digest_of, others)}) == 7


def test_different_parts_of_a_run_name_give_different_keys() -> None:
    origin = Origin("log", "scope", "first")
    keys = [origin.key("a", 1, ""), origin.key("a", 1, "1"), origin.key("a", 11, ""), Origin("log", "scop", "first").key("ea", 1, "")]
    assert len(set(keys)) == 4
    assert {len(key) for key in keys} == {32}


@pytest.mark.parametrize(
    "metadata", [None, "", "{", "[]", "{}", Origin("log", "other", "first").metadata(RunKey("t", "p", 3), Attempt("d"))]
)
def test_rows_without_an_identity_conflict_with_a_run(metadata: str | None) -> None:
    with pytest.raises(RunConflict, match="here has the place of batch 3 of the pipeline 'p', and does not say that it is this run"):
        Origin("log", "scope", "first").check(RunKey("t", "p", 3), "d", metadata, "here")
