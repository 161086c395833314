"""The word check counts names and texts by area, and its limits only shrink."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.check_words import (
    AREAS,
    INTERNAL_TEXT,
    ROOT,
    USER_TEXT,
    Piece,
    find,
    load_limits,
    load_rules,
    main,
    python_pieces,
    script_pieces,
)

WORDS = """
[bell]
say = "commit signal"

[most]
say = "limit"
words = ["most"]
where = "identifiers"

["so many"]
say = "a number"
pattern = 'so many'
where = "text"
not_in = ["docs/*"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "words.toml").write_text(WORDS)
    (tmp_path / "src" / "parcel").mkdir(parents=True)
    (tmp_path / "src" / "parcel" / "signal.py").write_text('"""A bell."""\n\nmost = 1  # so many\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("The bell has so many notes.\n")
    assert run(project=tmp_path, update=True) == 0
    return tmp_path


def run(*, project: Path, update: bool = False) -> int:
    return main([f"--root={project}", *(["--update"] if update else [])])


def limits(project: Path) -> dict[str, dict[str, int]]:
    return load_limits(project / "scripts" / "words_left.toml")


def texts(source: str) -> set[tuple[str, str]]:
    return {(piece.area, piece.text) for piece in python_pieces("src/parcel/lorry.py", source)}


def test_the_first_update_counts_each_area(project: Path) -> None:
    assert limits(project) == {
        "bell": {"identifiers": 0, "user_text": 1, "internal_text": 1},
        "most": {"identifiers": 1, "user_text": 0, "internal_text": 0},
        "so many": {"identifiers": 0, "user_text": 0, "internal_text": 1},
    }
    assert run(project=project) == 0


def test_a_grown_count_fails_and_names_the_places_and_the_replacement(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "src" / "parcel" / "doorbell.py").write_text("def ring_bell() -> None: ...\n")
    assert run(project=project) == 1
    message = capsys.readouterr().err
    assert "src/parcel/doorbell.py:1" in message
    assert "commit signal" in message


def test_update_does_not_raise_a_limit(project: Path) -> None:
    before = limits(project)
    (project / "src" / "parcel" / "doorbell.py").write_text("bell = 1\n")
    assert run(project=project, update=True) == 1
    assert limits(project) == before


def test_update_lowers_a_word_although_another_word_has_grown(project: Path) -> None:
    (project / "src" / "parcel" / "signal.py").write_text("bell = 1\n")
    assert run(project=project, update=True) == 1
    assert limits(project)["most"]["identifiers"] == 0
    assert limits(project)["bell"] == {"identifiers": 0, "user_text": 1, "internal_text": 0}


def test_a_shrunken_count_asks_for_update_and_passes_after_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "docs" / "index.md").write_text("The signal.\n")
    assert run(project=project) == 1
    assert "python scripts/check_words.py --update" in capsys.readouterr().err
    assert run(project=project, update=True) == 0
    assert limits(project)["bell"]["user_text"] == 0


def test_a_word_whose_limit_is_zero_fails_when_it_is_used(project: Path) -> None:
    (project / "docs" / "index.md").write_text("The signal.\n")
    run(project=project, update=True)
    (project / "docs" / "index.md").write_text("The bell.\n")
    assert run(project=project, update=True) == 1


@pytest.mark.parametrize("folder", ["bench/yard", "scripts"])
def test_all_text_of_benchmarks_and_scripts_is_internal(project: Path, folder: str) -> None:
    (project / folder).mkdir(parents=True, exist_ok=True)
    (project / folder / "lorry.py").write_text('"""A bell."""\n\nbell = f"no bell: {1}"  # a bell\n')
    (project / "scripts" / "words_left.toml").unlink()
    assert run(project=project, update=True) == 0
    assert limits(project)["bell"] == {"identifiers": 1, "user_text": 1, "internal_text": 4}


def test_a_struck_example_in_markdown_is_not_counted(project: Path) -> None:
    (project / "README.md").write_text("Say signal, not ~~bell~~.\n")
    assert run(project=project) == 0


def test_a_word_removed_from_the_list_is_removed_from_the_limits(project: Path) -> None:
    file = project / "scripts" / "words.toml"
    file.write_text(WORDS.partition("[most]")[0])
    assert run(project=project) == 1
    assert run(project=project, update=True) == 0
    assert limits(project).keys() == {"bell"}


@pytest.mark.parametrize(
    ("source", "area", "text"),
    [
        ("class DeadLetter: ...", "identifiers", "dead letter"),
        ("def f(max_bells): ...", "identifiers", "max bells"),
        ("async def f(): ringHTTPBell = 1", "identifiers", "ring http bell"),
        ("self.bell_rope = 1", "identifiers", "bell rope"),
        ("import a as old_bell", "identifiers", "old bell"),
        ("x = {'bell_id': 1}", "identifiers", "bell id"),
        ("x = 'SELECT bell_id FROM bells'", "identifiers", "select bell id from bells"),
        ("x = f'the {bell} rings'", USER_TEXT, "the {} rings"),
        ("x = ('the bell '\n 'rings')", USER_TEXT, "the bell rings"),
        ("def f():\n    'Ring the bell.'", INTERNAL_TEXT, "Ring the bell."),
        ("@app.command()\ndef f():\n    'Ring the bell.'", USER_TEXT, "Ring the bell."),
        ("def f():\n    'Ring the bell.'\napp.command('f')(f)", USER_TEXT, "Ring the bell."),
        ("class A:\n    x = 1\n    'The bell.'", INTERNAL_TEXT, "The bell."),
        ("x = '# no comment'  # ein Glöckchen", INTERNAL_TEXT, "# ein Glöckchen"),
        ("x = 'ä # no comment'  # a bell", INTERNAL_TEXT, "# a bell"),
    ],
)
def test_python_is_read_by_area(source: str, area: str, text: str) -> None:
    assert (area, text) in texts(source)


def test_a_number_sign_in_a_string_does_not_begin_a_comment() -> None:
    assert all(area != INTERNAL_TEXT for area, _ in texts("x = '''a\n# text\n'''"))


def test_a_use_of_a_name_is_not_counted() -> None:
    names = [piece.text for piece in python_pieces("src/parcel/lorry.py", "bell = 1\nbell = bell + bell\nprint(bell)")]
    assert names.count("bell") == 1


def test_scripts_of_pages_are_read_by_area() -> None:
    pieces = script_pieces("page.js", "const bell = `${ringing.now} rang twice`; // a note")
    assert {(piece.area, piece.text) for piece in pieces} >= {
        ("identifiers", "bell"),
        (USER_TEXT, "`{} rang twice`"),
        (INTERNAL_TEXT, "// a note"),
    }


def test_the_word_list_of_the_project_is_valid_and_has_limits() -> None:
    rules = load_rules(ROOT / "scripts" / "words.toml")
    saved = load_limits(ROOT / "scripts" / "words_left.toml")
    assert {rule.name for rule in rules} == saved.keys()
    assert all(areas.keys() == set(AREAS) for areas in saved.values())


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("A place is none of these.", 1),
        ("This is no queue.", 1),
        ("`revision` is None if the database is empty.", 0),
        ("There is no queue.", 0),
        ("It is no longer read.", 0),
    ],
)
def test_the_python_value_none_is_not_a_denial(text: str, places: int) -> None:
    rules = [rule for rule in load_rules(ROOT / "scripts" / "words.toml") if rule.name == "is no"]
    found = find(rules, [Piece("docs/design/x.md", 1, INTERNAL_TEXT, text)])
    assert len(found.get(("is no", INTERNAL_TEXT), [])) == places


@pytest.mark.parametrize("entry", ['[bell]\nwords = ["bell"]', '[bell]\nsay = "x"\nwhere = "here"', '[bell]\nsay = "x"\nsyn = "y"'])
def test_an_invalid_word_list_is_an_error(tmp_path: Path, entry: str) -> None:
    (tmp_path / "words.toml").write_text(entry)
    with pytest.raises(SystemExit, match="bell"):
        load_rules(tmp_path / "words.toml")
