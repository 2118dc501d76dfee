"""docs/requirements.md defines every requirement id, and tests prove them."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
REGISTER = PROJECT / "docs/requirements.md"

CITATION = re.compile(
    r"(?<![\w-])(?:"
    r"0(?:09|10|11)-(?:FR-\d+|SC-\d+|US\d+|edge-[a-z]+)"
    r"|R-(?:hook|baseline|turn|ledger)"
    r"|REQ-LOCK-\d+a?"
    r"|X-\d{3}"
    r"|K-[A-Z]+-\d+"
    r"|N-[a-z]+(?:-[a-z]+)*"
    r"|[Rr]ulings? \d{1,2}(?:(?:, | and )(?:ruling )?\d{1,2}(?![\w-]))*"
    r"|[Ff]indings? [SRHDCUEGM]\d+(?:(?:, | and )[SRHDCUEGM]\d+)*"
    r")(?!\w)"
)


def ids_in(text: str) -> set[str]:
    """Return the ids that a text cites; "rulings 2, 7 and 11" are three."""
    found = set()
    for match in CITATION.finditer(text):
        cited = match.group()
        if cited[:4].lower() == "ruli":
            found |= {f"ruling {number}" for number in re.findall(r"\d+", cited)}
        elif cited[:4].lower() == "find":
            found |= {f"finding {tag}" for tag in re.findall(r"[SRHDCUEGM]\d+", cited)}
        else:
            found.add(cited)
    return found


def register() -> dict[str, str]:
    """Return every id with the note in its last column."""
    rows = [
        line.strip().strip("|").split("|")
        for line in REGISTER.read_text().splitlines()
        if line.startswith("| `")
    ]
    return {row[0].strip().strip("`"): row[-1].strip() for row in rows if "…" not in row[0]}


def cited_under(*folders: str) -> dict[str, str]:
    """Return each id that files below these folders cite, with one such file."""
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted((PROJECT / folder).rglob("*")):
            if path.suffix in (".py", ".md", ".toml", ".yml") and path != REGISTER:
                found |= dict.fromkeys(ids_in(path.read_text()), str(path.relative_to(PROJECT)))
    return found


def test_an_id_is_recognised_in_the_spellings_that_people_use() -> None:
    """N-register: or the tests below would pass for want of citations."""
    text = "009-FR-004, R-hook and X-005; Rulings 2, 7 and 11: see finding C6, N-disk-full, 010-edge-empty. SHA-256."
    assert ids_in(text) == {
        *("009-FR-004", "R-hook", "X-005", "ruling 2", "ruling 7", "ruling 11"),
        *("finding C6", "N-disk-full", "010-edge-empty"),
    }


def test_every_id_that_is_cited_is_in_the_register() -> None:
    """N-register, finding C6: a reader can look up what a test, a comment or a document cites."""
    known = register()
    cited = cited_under("src", "tests", "torture", "bench", "docs")
    for page in PROJECT.glob("*.md"):
        cited |= dict.fromkeys(ids_in(page.read_text()), page.name)
    assert {name: where for name, where in cited.items() if name not in known} == {}


def test_every_id_in_the_register_has_a_test_or_says_why_not() -> None:
    """N-register: also the other way round: what has a test is not called "not built yet"."""
    tested = cited_under("tests")
    known = register()
    built = [name for name, note in known.items() if note in ("", "in part")]
    assert [name for name in built if name not in tested] == []
    assert [name for name, note in known.items() if note == "not built yet" and name in tested] == []
    assert set(known.values()) <= {"", "in part", "not built yet", "by reading"}


def test_nothing_cites_a_document_that_readers_do_not_have() -> None:
    """N-register, finding C6: numbers of work items and names of absent documents explain nothing."""
    loose = re.compile(
        r"\b[Ii]ssue \d|\b[Ii]tem \d|REQUIREMENTS\.md|FINDINGS\.md|DESIGN\.md|\b0(?:09|10|11) (?:US|edge)"
    )
    found = [
        f"{path.relative_to(PROJECT)}: {match.group()}"
        for folder in ("src", "tests", "torture", "bench", "docs")
        for path in sorted((PROJECT / folder).rglob("*"))
        if path.suffix in (".py", ".md") and path != Path(__file__)
        for match in loose.finditer(path.read_text())
    ]
    assert found == []
