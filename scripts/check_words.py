"""Count the words that `words.toml` replaces, and compare with `words_left.toml`: python scripts/check_words.py [--update] [--show WORD]

The check reads the Python files of `src`, `bench` and `scripts`, the static files of `src`, and the Markdown of the project. It counts
three areas separately:

- `identifiers`: names of modules, classes, functions, arguments, attributes and locals, once per scope; strings without white space; SQL.
- `user_text`: strings with white space (errors, hints, log events), docstrings of commands and routes, pages, guides, README, changelog.
- `internal_text`: all other docstrings, comments, design pages, decisions, CONTRIBUTING, and all text of `bench` and `scripts`, which
  only maintainers read. Text between ~~ in Markdown is not counted.

A count above its limit fails. A count below its limit fails too, until `--update` lowers the limit. `--update` never raises one.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
IDENTIFIERS, USER_TEXT, INTERNAL_TEXT = AREAS = ("identifiers", "user_text", "internal_text")
TEXT = {USER_TEXT, INTERNAL_TEXT}
INTERNAL_FOLDERS = ("bench", "scripts")  # only maintainers read the help texts and messages of these Python files
MARKDOWN = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md")
INTERNAL_MARKDOWN = ("docs/design/*", "docs/adr/*", "docs/contributing.md", "CONTRIBUTING.md")
MAX_OCCURRENCES = 12

PUBLISHED = {"command", "callback", "get", "post", "put", "patch", "delete", "head"}  # decorators whose function's docstring users read
NAME_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
PLAIN_WORD = re.compile(r"[a-z]+")
SQL = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE \S+ SET|DELETE FROM|CREATE|ALTER|DROP|PRAGMA|WITH \S+ )\b")
SCRIPT_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|(?P<name>[A-Za-z_$][\w$]*)""",
    re.DOTALL,
)
INDENT = re.compile(r"[ \t]*\n[ \t]*")
INSERTED = re.compile(r"\$\{[^}]*\}")
STRUCK = re.compile(r"~~[^~\n]*~~")  # an example of wrong text
MARKUP = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)


class Rule(NamedTuple):
    """One word to replace, by its forms or by a pattern."""

    name: str
    say: str
    words: frozenset[str]
    pattern: re.Pattern[str] | None
    areas: frozenset[str]
    only_in: tuple[str, ...]
    not_in: tuple[str, ...]

    def applies(self, path: str, area: str) -> bool:
        """Return whether the rule counts in an area of a file."""
        if area not in self.areas or any(fnmatch(path, glob) for glob in self.not_in):
            return False
        return not self.only_in or any(fnmatch(path, glob) for glob in self.only_in)


class Piece(NamedTuple):
    """A text of one area, and the line on which it begins. An identifier comes as its parts, in lower case, joined by spaces."""

    path: str
    line: int
    area: str
    text: str


class Occurrence(NamedTuple):
    """An occurrence of a word in a text."""

    path: str
    line: int
    excerpt: str


Counts = dict[str, dict[str, int]]  # by the rule's name, then by area


def load_rules(file: Path) -> list[Rule]:
    """Return the rules of a word list."""
    return [_rule(name, entry) for name, entry in tomllib.loads(file.read_text()).items()]


def _rule(name: str, entry: dict[str, object]) -> Rule:
    unknown = entry.keys() - {"say", "words", "pattern", "where", "only_in", "not_in"}
    if unknown or "say" not in entry:
        raise SystemExit(f"error: {name!r} in the word list: unknown keys {sorted(unknown)} or no `say`.")
    pattern, words = entry.get("pattern"), entry.get("words")
    if words is None:
        words = [] if pattern else [name, f"{name}s"]
    where = str(entry.get("where", "both"))
    areas = {"both": set(AREAS), "text": TEXT, "identifiers": {IDENTIFIERS}}.get(where)
    if areas is None:
        raise SystemExit(f"error: {name!r} in the word list: `where` is {where!r}. Use 'identifiers', 'text' or 'both'.")
    compiled = re.compile(str(pattern).replace(" ", r"\s"), re.IGNORECASE) if pattern else None
    return Rule(
        name,
        str(entry["say"]),
        frozenset(_list(words)),
        compiled,
        frozenset(areas),
        _list(entry.get("only_in")),
        _list(entry.get("not_in")),
    )


def _list(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def load_limits(file: Path) -> Counts:
    """Return the limits of the ratchet file; none where there is no file."""
    return tomllib.loads(file.read_text()) if file.exists() else {}


def write_limits(file: Path, limits: Counts) -> None:
    """Write the ratchet file, one word a line, so that changes of different words merge."""
    lines = ["# Written by `python scripts/check_words.py --update`. Limits only shrink.\n"]
    for name in sorted(limits):
        values = ", ".join(f"{area} = {limits[name].get(area, 0)}" for area in AREAS)
        lines.append(f'"{name}" = {{ {values} }}\n')
    file.write_text("".join(lines))


def pieces(root: Path) -> Iterator[Piece]:
    """Yield all texts of the project under `root`."""
    for file in sorted((root / "src").rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix == ".py":
            yield from python_pieces(path, file.read_text())
        elif file.suffix == ".js":
            yield from script_pieces(path, file.read_text())
        elif file.suffix == ".html":
            text = MARKUP.sub(lambda markup: " " + "\n" * markup[0].count("\n"), file.read_text())
            yield Piece(path, 1, USER_TEXT, text)
    for folder in INTERNAL_FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            for piece in python_pieces(file.relative_to(root).as_posix(), file.read_text()):
                yield piece._replace(area=INTERNAL_TEXT) if piece.area == USER_TEXT else piece
    for glob in MARKDOWN:
        for file in sorted(root.glob(glob)):
            path = file.relative_to(root).as_posix()
            area = INTERNAL_TEXT if any(fnmatch(path, internal) for internal in INTERNAL_MARKDOWN) else USER_TEXT
            yield Piece(path, 1, area, STRUCK.sub("", file.read_text()))


def python_pieces(path: str, source: str) -> Iterator[Piece]:
    """Yield the identifiers, strings, docstrings and comments of a Python file."""
    module = path.removesuffix("/__init__.py").removesuffix(".py").rpartition("/")[2]
    reader = _PythonReader(path)
    reader.name(module, 1)
    reader.visit(ast.parse(source))
    yield from reader.pieces
    for line, text in _comments(source, reader.spans):
        yield Piece(path, line, INTERNAL_TEXT, text)


def script_pieces(path: str, source: str) -> Iterator[Piece]:
    """Yield the identifiers, strings and comments of a JavaScript file."""
    seen = set()
    for token in SCRIPT_TOKEN.finditer(source):
        text, line = token[0], source.count("\n", 0, token.start()) + 1
        if token.lastgroup == "comment":
            yield Piece(path, line, INTERNAL_TEXT, text)
        elif token.lastgroup == "string" and " " in text:
            yield Piece(path, line, USER_TEXT, INSERTED.sub("{}", text))
        elif text not in seen:
            seen.add(text)
            yield Piece(path, line, IDENTIFIERS, _split(text))


def _comments(source: str, spans: dict[int, list[tuple[int, int]]]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source.splitlines(), 1):
        if "#" not in line:
            continue
        encoded = line.encode()  # columns of the syntax tree count bytes
        at = encoded.find(b"#")
        while at >= 0 and any(start <= at < end for start, end in spans.get(number, ())):
            at = encoded.find(b"#", at + 1)
        if at >= 0:
            yield number, encoded[at:].decode()


def _split(name: str) -> str:
    return " ".join(NAME_PARTS.findall(name)).lower()


class _PythonReader(ast.NodeVisitor):
    """Collects the pieces of one file, and the columns of its strings by line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._commands: set[str] = set()  # functions that `app.command("name")(function)` registers
        self._seen: set[str] = set()  # names of the current scope
        self.pieces: list[Piece] = []
        self.spans: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def name(self, name: str, line: int) -> None:
        if name not in self._seen:
            self._seen.add(name)
            self.pieces.append(Piece(self._path, line, IDENTIFIERS, _split(name)))

    def visit_Module(self, node: ast.Module) -> None:
        self._commands = set(_registered(node))
        self._scope(node, INTERNAL_TEXT)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.name(node.name, node.lineno)
        self._scope(node, INTERNAL_TEXT)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.name(node.name, node.lineno)
        published = node.name in self._commands or any(map(_is_published, node.decorator_list))
        self._scope(node, USER_TEXT if published else INTERNAL_TEXT)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def generic_visit(self, node: ast.AST) -> None:
        name = _bound_name(node)
        if name:
            self.name(name, getattr(node, "lineno", 1))
        super().generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            self._docstring(node.value, INTERNAL_TEXT)  # of an attribute
        else:
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._string(node, node.value)
        elif isinstance(node.value, bytes):
            self._span(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
        self._string(node, "".join(parts))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def _scope(self, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, area: str) -> None:
        outer, self._seen = self._seen, set() if not isinstance(node, ast.Module) else self._seen
        docstring = node.body[0] if node.body and ast.get_docstring(node, clean=False) is not None else None
        for child in ast.iter_child_nodes(node):
            if child is docstring and isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                self._docstring(child.value, area)
            else:
                self.visit(child)
        self._seen = outer

    def _docstring(self, node: ast.Constant, area: str) -> None:
        self._span(node)
        self.pieces.append(Piece(self._path, node.lineno, area, str(node.value)))

    def _string(self, node: ast.expr, text: str) -> None:
        self._span(node)
        if not any(map(str.isalpha, text)):
            return
        if SQL.match(text):
            self.pieces.append(Piece(self._path, node.lineno, IDENTIFIERS, text.lower().replace("_", " ")))
        elif len(text.split()) > 1:
            self.pieces.append(Piece(self._path, node.lineno, USER_TEXT, text))
        else:
            self.name(text.strip(), node.lineno)

    def _span(self, node: ast.expr) -> None:
        last = node.end_lineno or node.lineno
        for line in range(node.lineno, last + 1):
            start = node.col_offset if line == node.lineno else 0
            self.spans[line].append((start, (node.end_col_offset or 0) if line == last else sys.maxsize))


def _bound_name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.alias(asname=name) | ast.ExceptHandler(name=name) | ast.MatchAs(name=name):
            return name
        case _:
            return None


def _registered(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _is_published(node.func):
            yield from (argument.id for argument in node.args if isinstance(argument, ast.Name))


def _is_published(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute) and decorator.func.attr in PUBLISHED


def find(rules: Sequence[Rule], texts: Iterable[Piece]) -> dict[tuple[str, str], list[Occurrence]]:
    """Return the occurrences of each rule's word, by the rule's name and the area."""
    by_word: dict[str, list[Rule]] = defaultdict(list)
    patterns = [(rule, rule.pattern) for rule in rules if rule.pattern]
    for rule in rules:
        for word in rule.words:
            by_word[word].append(rule)
    occurrences: dict[tuple[str, str], list[Occurrence]] = defaultdict(list)
    for text in texts:
        piece = text._replace(text=INDENT.sub("\n", text.text)) if "\n" in text.text else text
        lowered = piece.text.lower()
        if not by_word.keys().isdisjoint(PLAIN_WORD.findall(lowered)):
            for match in PLAIN_WORD.finditer(lowered):
                for rule in by_word.get(match[0], ()):
                    _add(occurrences, rule, piece, match)
        for rule, pattern in patterns:
            for match in pattern.finditer(piece.text):
                _add(occurrences, rule, piece, match)
    return occurrences


def _add(occurrences: dict[tuple[str, str], list[Occurrence]], rule: Rule, piece: Piece, match: re.Match[str]) -> None:
    if rule.applies(piece.path, piece.area):
        start = match.start() + len(match[0]) - len(match[0].lstrip())
        line = piece.line + piece.text.count("\n", 0, start)
        excerpt = " ".join(piece.text[max(0, start - 40) : match.end() + 40].split())
        occurrences[rule.name, piece.area].append(Occurrence(piece.path, line, excerpt))


def count(rules: Sequence[Rule], occurrences: dict[tuple[str, str], list[Occurrence]]) -> Counts:
    """Return the number of occurrences of each word in each area."""
    return {rule.name: {area: len(occurrences.get((rule.name, area), ())) for area in AREAS} for rule in rules}


def lowered_limits(limits: Counts, counts: Counts) -> Counts:
    """Return the lower of limit and count for each word and area. A word that is new in the list starts at its counts."""
    return {
        name: {area: min(number, limits[name].get(area, 0)) if name in limits else number for area, number in areas.items()}
        for name, areas in counts.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the counts; return 1 where they differ from the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="lower the limits to the counts")
    parser.add_argument("--show", metavar="WORD", help="print each occurrence of a word, or of all words with --show AREA")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder (%(default)s)")
    options = parser.parse_args(arguments)
    scripts = options.root / "scripts"
    rules, limits_file = load_rules(scripts / "words.toml"), scripts / "words_left.toml"
    occurrences = find(rules, pieces(options.root))
    if options.show:
        return _show(options.show, occurrences)
    counts, limits = count(rules, occurrences), load_limits(limits_file)
    if options.update:
        limits = lowered_limits(limits, counts)
        write_limits(limits_file, limits)
    return _report(rules, counts, limits, occurrences)


def _show(word: str, occurrences: dict[tuple[str, str], list[Occurrence]]) -> int:
    for (name, area), in_area in sorted(occurrences.items()):
        if word in {name, area}:
            for occurrence in in_area:
                print(f"{occurrence.path}:{occurrence.line}: [{area}] {name}: … {occurrence.excerpt} …")
    return 0


def _report(rules: Sequence[Rule], counts: Counts, limits: Counts, occurrences: dict[tuple[str, str], list[Occurrence]]) -> int:
    grown = stale = False
    for rule in rules:
        for area in AREAS:
            number, limit = counts[rule.name][area], limits.get(rule.name, {}).get(area, 0)
            stale = stale or number < limit or rule.name not in limits
            if number > limit and rule.name in limits:
                grown = True
                print(
                    f"error: {rule.name!r} occurs {number} times in {area}, at most {limit} are allowed. Use instead: {rule.say}.",
                    file=sys.stderr,
                )
                for occurrence in occurrences[rule.name, area][:MAX_OCCURRENCES]:
                    print(f"  {occurrence.path}:{occurrence.line}: … {occurrence.excerpt} …", file=sys.stderr)
                if number > MAX_OCCURRENCES:
                    print(f"  … all: python scripts/check_words.py --show {rule.name!r}", file=sys.stderr)
    if stale or limits.keys() - counts.keys():
        print("error: scripts/words_left.toml is out of date. Lower it: python scripts/check_words.py --update", file=sys.stderr)
        return 1
    if not grown:
        totals = Counter({area: sum(areas[area] for areas in counts.values()) for area in AREAS})
        print("Words left: " + ", ".join(f"{totals[area]} in {area}" for area in AREAS))
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
