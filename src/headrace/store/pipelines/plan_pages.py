"""Pages of a plan that is too large for one request. The scope's state has them under separate keys until the plan is stored."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from headrace.errors import ApiRefused
from headrace.store.dialects.statements import Upsert
from headrace.store.tables.pipelines import scope_state
from headrace.wire.pipelines.plans import Plan, PlanPage

_PAGES: Final = "page/"
_AFTER_PAGES: Final = "page0"  # sorts after all page keys

_mine = (scope_state.c.incarnation == bindparam("of"), scope_state.c.key >= _PAGES, scope_state.c.key < _AFTER_PAGES)
_pages = select(scope_state.c.value).where(*_mine).order_by(scope_state.c.key)
_drop = delete(scope_state).where(*_mine)
_keep = Upsert(scope_state, ["incarnation", "key"], lambda new: {"value": new["value"]})


def keep_page(connection: Connection, incarnation: str, page: PlanPage) -> None:
    """Store a page. The first page replaces all stored ones."""
    if page.page == 0:
        drop_pages(connection, incarnation)
    key = f"{_PAGES}{page.page:06d}"
    _keep(connection, [{"incarnation": incarnation, "key": key, "value": page.model_dump_json().encode()}])


def drop_pages(connection: Connection, incarnation: str) -> None:
    """Delete the pages of a plan that no driver will store."""
    connection.execute(_drop, {"of": incarnation})


def whole_plan(connection: Connection, incarnation: str, plan: Plan) -> Plan:
    """Return the plan with the contents of its pages, and delete the pages.

    Raises:
        ApiRefused: Pages of the plan are missing.
    """
    pages = [PlanPage.model_validate_json(value) for value in connection.execute(_pages, {"of": incarnation}).scalars()]
    expected = [(plan.epoch, plan.cursor.batch, number) for number in range(plan.pages)]
    if [(page.epoch, page.batch, page.page) for page in pages] != expected:
        raise ApiRefused(
            f"The plan of batch {plan.cursor.batch} has {plan.pages} pages, and not all of them were sent.",
            hint="Send all pages again, then the plan.",
            status=409,
            problem="conflict",
        )
    drop_pages(connection, incarnation)
    parts: list[Plan | PlanPage] = [*pages, plan]
    return plan.model_copy(
        update={
            "runs": [run for part in parts for run in part.runs],
            "slices": [data for part in parts for data in part.slices],
            "state": {name: value for part in parts for name, value in part.state.items()},
            "positions": [block for part in parts for block in part.positions],
        }
    )
