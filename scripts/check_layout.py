"""Check where modules and unit tests are: python scripts/check_layout.py

- A folder of `src/headrace` has 3 to 12 modules. One of `sources/` may have two: `upstream.py` and `producer.py`.
- A file has at most 400 lines.
- A prefix that three modules of a folder share is a folder.
- A test module `tests/unit/<folder>/test_<module>[_<aspect>].py` mirrors `src/headrace/<folder>/<module>.py`, or a folder of that name;
  `tests/unit/scripts` mirrors `scripts`.
- A path that CONTRIBUTING.md names exists, and it names each folder of `src/headrace`.

`layout.toml` lists the exceptions with their reasons. The list only shrinks: an exception that no longer applies is an error.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/headrace")
UNIT_TESTS = Path("tests/unit")
MIN_MODULES, MAX_MODULES = 3, 12
BROKER = {"upstream", "producer"}
MAX_LINES = 400
MIN_SHARED_PREFIX = 3
GUIDE = "CONTRIBUTING.md"
NAMED_PATH = re.compile(r"[`(]((?:src|tests|docs|scripts)/[\w./-]+)[`)#]")


class Finding(NamedTuple):
    """A place that breaks a rule; `size` is compared with the limit of its exception."""

    rule: str
    path: str
    size: int
    text: str


def findings(root: Path) -> Iterator[Finding]:
    """Yield each place that breaks a rule."""
    files = sorted(path.relative_to(root) for path in (root / PACKAGE).rglob("*.py"))
    folders: dict[Path, list[str]] = {}
    for file in files:
        folders.setdefault(file.parent, []).extend([] if file.stem == "__init__" else [file.stem])
        lines = (root / file).read_text().count("\n")
        if lines > MAX_LINES:
            yield Finding("lines", file.as_posix(), lines, f"has {lines} lines, at most {MAX_LINES} are allowed")
    for folder, modules in folders.items():
        yield from _folder_findings(folder, modules)
    yield from _test_findings(root)
    yield from _guide_findings(root)


def _folder_findings(folder: Path, modules: list[str]) -> Iterator[Finding]:
    is_broker = folder.parent == PACKAGE / "sources" and set(modules) == BROKER
    if not (MIN_MODULES <= len(modules) <= MAX_MODULES or is_broker):
        yield Finding("modules", folder.as_posix(), len(modules), f"has {len(modules)} modules, not {MIN_MODULES} to {MAX_MODULES}")
    for prefix, number in Counter(module.partition("_")[0] for module in modules if not module.startswith("_")).items():
        if number >= MIN_SHARED_PREFIX:
            yield Finding("prefix", f"{folder.as_posix()}/{prefix}_*", number, f"is the prefix of {number} modules. Make a folder of them")


def _test_findings(root: Path) -> Iterator[Finding]:
    for test in sorted((root / UNIT_TESTS).rglob("test_*.py")):
        folder, name = test.parent.relative_to(root / UNIT_TESTS), test.stem.removeprefix("test_")
        source = root / folder if folder.parts[:1] == ("scripts",) else root / PACKAGE / folder
        modules = {path.stem for path in source.glob("*.py")} | {path.parent.name for path in source.glob("*/__init__.py")}
        words = name.split("_")
        if not any("_".join(words[:number]) in modules for number in range(1, len(words) + 1)):
            path = test.relative_to(root).as_posix()
            yield Finding("tests", path, 1, f"mirrors no module of {source.relative_to(root).as_posix()}")


def _guide_findings(root: Path) -> Iterator[Finding]:
    text = (root / GUIDE).read_text() if (root / GUIDE).exists() else ""
    for path in sorted({match[1] for match in NAMED_PATH.finditer(text)}):
        if not (root / path).exists():
            yield Finding("guide", path, 1, f"is named in {GUIDE} but does not exist")
    for folder in sorted((root / PACKAGE).iterdir()):
        if (folder / "__init__.py").exists() and f"`{folder.name}/`" not in text:
            yield Finding("guide", folder.relative_to(root).as_posix(), 1, f"is not in the layout of {GUIDE}")


class Exceptions(NamedTuple):
    """The exceptions of `layout.toml`: by rule and path, the allowed size."""

    limit: int
    sizes: dict[tuple[str, str], int | None]


def load_exceptions(file: Path) -> Exceptions:
    """Return the exceptions; exit where one has no reason.

    A test has no size. A folder's or file's size is the number of modules or lines that it may not exceed.
    """
    content = tomllib.loads(file.read_text())
    sizes: dict[tuple[str, str], int | None] = {}
    for rule in ("modules", "lines", "prefix", "tests", "guide"):
        for path, entry in content.get(rule, {}).items():
            if not entry.get("why"):
                raise SystemExit(f"error: {rule} {path!r} in {file.name}: no reason. Add `why`.")
            sizes[rule, path] = entry.get("limit")
    return Exceptions(content.get("limit", 0), sizes)


def problems(violations: Sequence[Finding], exceptions: Exceptions) -> Iterator[str]:
    """Yield what is wrong: findings without an exception, and exceptions without a finding."""
    for finding in violations:
        key = finding.rule, finding.path
        if key not in exceptions.sizes:
            yield f"{finding.path} {finding.text}."
            continue
        size = exceptions.sizes[key]
        if size is not None and finding.size > size:
            yield f"{finding.path} {finding.text}; its exception in scripts/layout.toml allows {size}."
        if size is not None and finding.size < size and finding.rule == "modules":
            yield f"{finding.path} has {finding.size} modules. Lower its `limit` in scripts/layout.toml."
    for rule, path in exceptions.sizes.keys() - {(finding.rule, finding.path) for finding in violations}:
        yield f"{path} needs no exception any more. Remove it from [{rule}] in scripts/layout.toml."
    if len(exceptions.sizes) != exceptions.limit:
        change = "Lower" if len(exceptions.sizes) < exceptions.limit else "Remove exceptions; do not raise"
        yield f"scripts/layout.toml has {len(exceptions.sizes)} exceptions, its `limit` is {exceptions.limit}. {change} it."


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the layout; return 1 where it breaks a rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder (%(default)s)")
    root = parser.parse_args(arguments).root
    wrong = list(problems(list(findings(root)), load_exceptions(root / "scripts" / "layout.toml")))
    for line in sorted(wrong):
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
