"""Route the events of a batch to pipelines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline_declaration import Pipeline

_SEPARATOR = "\x1f"


def route(triggers: pa.ChunkedArray, pipelines: Sequence[Pipeline]) -> list[npt.NDArray[np.int64]]:
    """Return, for each pipeline, the rows whose triggers it takes, in order."""
    if not len(triggers):
        return [np.empty(0, dtype=np.int64) for _ in pipelines]
    # Each distinct group of triggers is matched once; a Spark expression per trigger would take many times as long.
    column = pc.binary_join(triggers, _SEPARATOR).combine_chunks().dictionary_encode()
    codes = column.indices.to_numpy()
    groups = [group.split(_SEPARATOR) if group else [] for group in column.dictionary.to_pylist()]
    return [np.flatnonzero(np.array([any(map(each.takes, group)) for group in groups], dtype=np.bool_)[codes]) for each in pipelines]
