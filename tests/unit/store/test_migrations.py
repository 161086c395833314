"""Every revision of the database schema has its own number and its own parent, so parallel revisions are detected."""

from __future__ import annotations

import ast
from pathlib import Path

from headrace.store import migrations

VERSIONS = Path(migrations.__file__).parent / "versions"


def assigned(path: Path) -> dict[str, object]:
    """Return the constants that a revision's file assigns."""
    body = ast.parse(path.read_text()).body
    return {
        target.id: node.value.value
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def test_the_revisions_are_one_chain_in_the_order_of_their_numbers() -> None:
    found = [(path.name, assigned(path)) for path in sorted(VERSIONS.glob("[0-9]*.py"))]
    assert found
    revisions = [known["revision"] for _, known in found]
    assert revisions == [f"{number:04}" for number in range(1, len(found) + 1)], "two revisions with one number, or a gap"
    assert [known["down_revision"] for _, known in found] == [None, *revisions[:-1]], "two revisions with one parent"
    assert all(name.startswith(f"{known['revision']}_") for name, known in found), "a file that is named for another number"
