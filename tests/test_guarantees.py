"""What docs/guarantees.md names is there: files, tests, commands, levels, options, errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import noclobber.core.values
from noclobber import errors
from noclobber.cli import COMMANDS
from noclobber.core.options import Options
from noclobber.disk.filesystems import PROMISES
from noclobber.guard.turn import Turn
from noclobber.hook.turn import HookTurn

PROJECT = Path(__file__).parents[1]
PAGE = (PROJECT / "docs" / "guarantees.md").read_text()
QUOTED = re.findall(r"`([^`\n]+)`", PAGE)
SECTIONS = re.split(r"^## \d+\. ", PAGE, flags=re.M)[1:]
PROMISE, CONDITIONS, PROOF, NOT = "**Promise.**", "**Conditions.**", "**Proof.**", "**Not promised.**"


def levels_in_code() -> set[str]:
    """The levels that a write can return, as the type says."""
    text = Path(noclobber.core.values.__file__).read_text()
    found = re.search(r"^Level = Literal\[(.*)\]$", text, re.M)
    assert found is not None
    return set(re.findall(r'"([^"]+)"', found[1]))


def test_every_file_and_test_exists() -> None:
    """N-register: a proof that cannot be found proves nothing."""
    named = [word for word in QUOTED if re.match(r"(tests|torture|models|bench|fuzz|tools|src)/", word)]
    assert len(named) > 30
    missing = []
    for word in named:
        file, _, test = word.partition("::")
        path = PROJECT / file
        if not path.exists() or (test and f"def {test}(" not in path.read_text()):
            missing.append(word)
    assert missing == []


def test_every_make_target_and_command_exists() -> None:
    """N-register: as they would be typed."""
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (PROJECT / "Makefile").read_text(), re.M))
    named = {word.removeprefix("make ") for word in QUOTED if word.startswith("make ")}
    assert len(named) > 6
    assert named <= targets
    commands = {word.split()[1] for word in QUOTED if word.startswith("noclobber ")}
    assert commands <= set(COMMANDS)


def test_the_levels_are_those_that_the_code_returns() -> None:
    """N-level: on this page, in the table that doctor prints, and in the README."""
    table = PAGE.partition("## Levels")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|", table, re.M)
    assert set(rows) == levels_in_code() == set(PROMISES)
    words = {Turn.outside_level, HookTurn.outside_level}
    assert words == set(re.findall(r"`(\w+)` \(", table))
    known = levels_in_code() | words
    named = {word for word in QUOTED if re.fullmatch(r"(lease\+)?(exchange|inplace|plain|create)", word)}
    assert named <= known


def test_every_option_and_error_that_is_named_exists() -> None:
    """N-register: with a value that the option takes."""
    annotations = dict(re.findall(r"^    (\w+): (.+?) = ", Path(options_file()).read_text(), re.M))
    for name, value in re.findall(r'`(\w+) = "?([\w-]+)"?`', PAGE):
        assert name in Options._fields
        assert f'"{value}"' in annotations[name] or (
            annotations[name] == "bool" and value in ("true", "false")
        )
    codes = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    assert {word for word in QUOTED if re.fullmatch(r"[A-Z]+(_[A-Z]+)+", word)} <= codes


def options_file() -> str:
    """Where the options are described."""
    import noclobber.core.options as module

    assert module.__file__ is not None
    return module.__file__


@pytest.mark.parametrize("section", SECTIONS, ids=lambda text: text.splitlines()[0])
def test_every_promise_has_its_conditions_its_proof_and_its_limits(section: str) -> None:
    """N-register: in this order, and each proof names something that can be run."""
    places = [section.find(part) for part in (PROMISE, CONDITIONS, PROOF, NOT)]
    assert -1 not in places
    assert places == sorted(places)
    proof = section[places[2] : places[3]]
    assert re.search(r"`tests/[^`]+\.py", proof)


def test_the_page_is_found_from_the_readme_and_links_lead_somewhere() -> None:
    """N-readme: the README's table is a short form of it; SECURITY.md and the page know each other."""
    readme, security = ((PROJECT / name).read_text() for name in ("README.md", "SECURITY.md"))
    assert "(docs/guarantees.md)" in readme
    assert "(SECURITY.md)" in readme
    assert "(docs/guarantees.md)" in security
    for text, folder in ((PAGE, PROJECT / "docs"), (security, PROJECT)):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (folder / link).exists(), link


def test_nothing_is_promised_in_security_md_that_is_not_there() -> None:
    """finding S20: files and findings that it names exist; no gap is told that is closed."""
    security = (PROJECT / "SECURITY.md").read_text()
    for word in re.findall(r"`((?:tests|docs|src)/[^`]+)`", security):
        file, _, test = word.partition("::")
        assert (PROJECT / file).exists(), word
        assert not test or f"def {test}(" in (PROJECT / file).read_text(), word
    assert "not built yet" not in security
