"""Names in a command that lead over a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noclobber.shell.named_links import first_link, leads_to, named_links


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A file and a folder, each with a link to it, and a link that leads out."""
    root = tmp_path / "project"
    (root / "real").mkdir(parents=True)
    (root / "real/plan.md").write_text("one\n")
    os.symlink("real/plan.md", root / "link")
    os.symlink("real", root / "docs")
    os.symlink("/etc/passwd", root / "out")
    os.symlink("nowhere", root / "dangling")
    return root


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("echo x >> link", ["link"]),
        ("echo x>link;cat docs/plan.md|tee out", ["link", "docs/plan.md"]),
        ("dd if=a of=link status=none", ["link"]),
        ("python3 -c \"open('docs/../link', 'w')\"", ["link"]),
        ("cat {root}/link", ["link"]),
        ("echo x >> real/plan.md; cat dangling out nothing - -- $X '*' \0", []),
    ],
)
def test_names_over_links_are_found_with_where_they_lead(tree: Path, text: str, names: list[str]) -> None:
    """N-shell: whatever stands around them; not plain names, and not what leads out of the project."""
    found = named_links([text.format(root=tree)], str(tree), str(tree))
    assert found == {(str(tree / name), str(tree / "real/plan.md")) for name in names}


def test_a_command_of_many_words_is_looked_at_for_a_bounded_time(tree: Path) -> None:
    """N-shell: a heredoc may be long; what comes after two hundred names is not looked at."""
    words = " ".join(f"word{number}" for number in range(10_000))
    assert named_links([f"link {words}"], str(tree), str(tree))
    assert not named_links([f"{words} link"], str(tree), str(tree))


def test_the_first_link_on_a_way_is_found(tree: Path) -> None:
    """N-shell: that is the name which somebody else may replace."""
    base = os.path.realpath(tree)
    assert first_link(f"{base}/docs/plan.md") == f"{base}/docs"
    assert first_link(f"{base}/link") == f"{base}/link"
    assert first_link(f"{base}/real/plan.md") is None
    assert leads_to(f"{base}/docs/plan.md") == f"{base}/real/plan.md"
    assert leads_to(f"{base}/dangling") is None
