"""What a declaration of a pipeline may say. Each check returns the value; whatever is wrong with it is a `ProjectError`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, get_args

from headrace.core.batching import BatchPolicy, Debounce, Window
from headrace.core.values.ddl import check_ddl
from headrace.errors import ProjectError

TABLE = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
OnFailure = Literal["release", "hold"]


def check_patterns(on: object, pipeline: str) -> tuple[str, ...]:
    """Return the triggers that the pipeline takes."""
    patterns = (on,) if isinstance(on, str) else tuple(on) if isinstance(on, Sequence) else ()
    if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise ProjectError(f"The pipeline {pipeline!r} has on={on!r}.", hint="Name the triggers: on='legs.*' or on=['legs.united'].")
    return patterns


def check_payload(payload: object, pipeline: str) -> str | None:
    """Return the schema of the payload."""
    if payload is None:
        return None
    if not isinstance(payload, str):
        raise ProjectError(
            f"The pipeline {pipeline!r} has payload={payload!r}.", hint="Give a schema: payload='customer string, amount double'."
        )
    try:
        check_ddl(payload)
    except ValueError as error:
        hint = "Give it as in SQL: payload='customer string, amount double, items array<struct<name: string>>'."
        raise ProjectError(f"The pipeline {pipeline!r} has payload={payload!r}: {error}", hint=hint) from error
    return payload


def check_table(table: object, pipeline: str) -> str | None:
    """Return the table's name."""
    if table is None:
        return None
    if not isinstance(table, str) or not TABLE.fullmatch(table):
        raise ProjectError(f"The pipeline {pipeline!r} has table={table!r}.", hint="A table's name has letters, digits and '_'.")
    return table


def check_batch(batch: object, pipeline: str) -> BatchPolicy:
    """Return the batch policy."""
    if batch == "micro" or batch == "each" or isinstance(batch, Debounce | Window):
        return batch
    raise ProjectError(f"The pipeline {pipeline!r} has batch={batch!r}.", hint="There are: 'micro', 'each', Debounce(...) and Window(...).")


def check_attempts(attempts: object, pipeline: str) -> int:
    """Return how often a run is attempted."""
    if not isinstance(attempts, int) or attempts < 1:
        raise ProjectError(f"The pipeline {pipeline!r} has attempts={attempts!r}.", hint="Give it a number of at least 1.")
    return attempts


def check_on_failure(on_failure: OnFailure, pipeline: str) -> OnFailure:
    """Return what becomes of the followers of a failed event."""
    if on_failure not in get_args(OnFailure):
        raise ProjectError(
            f"The pipeline {pipeline!r} has on_failure={on_failure!r}.",
            hint="There are 'release' (what follows a failed event goes on) and 'hold' (it waits for the dead letter).",
        )
    return on_failure
