"""`on_stale = "merge"` in a framework: a stale write that loses nothing lands, and the model need not write again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.driver import Call, FrameworkDriver, Received, Script, edit, read, write
from tests.frameworks.drivers import driver
from tests.frameworks.scenarios import conflicts, refused_as_stale
from tests.frameworks.test_variants import variants

pytestmark = pytest.mark.wrong_errors  # Frameworks make errors of their own.

LINES = [f"- line {number} of the plan\n" for number in range(1, 13)]


def ways(framework: str) -> list[type[FrameworkDriver]]:
    """Every way in whose writes are ours: a host's tool is not given other content."""
    kinds = (driver(framework), *variants(framework))
    return [kind for kind in kinds if not kind.__name__.startswith("Hooks")]


def _edits(way: type[FrameworkDriver]) -> bool:
    return "stale_edit" not in way.lacks


@pytest.mark.parametrize("kind", ["write", "edit"])
def test_a_stale_write_that_loses_nothing_lands(framework: str, root: Path, kind: str) -> None:
    """N-merge, N-frameworks: both changes are in the file, and the call is no error."""
    for number, way in enumerate(way for way in ways(framework) if kind != "edit" or _edits(way)):
        folder = root / f"{number}" / "workspace"
        folder.mkdir(parents=True)
        plan = folder / "plan.md"
        plan.write_text("".join(LINES))
        theirs = ["- theirs\n", *LINES[1:]]
        playing = way(folder, guarded=True, options={"on_stale": "merge"})

        def then(
            seen: list[Received],
            plan: Path = plan,
            theirs: list[str] = theirs,
            playing: FrameworkDriver = playing,
        ) -> list[Call]:
            plan.write_text("".join(theirs))
            if kind == "edit":
                return [edit("plan.md", LINES[-1], "- mine\n")]
            return [write("plan.md", playing.shown(seen[0].text).replace(LINES[-1], "- mine\n"))]

        received = playing.run(Script(lambda _: [read("plan.md")], then))
        playing.close()
        assert plan.read_text() == "".join([*theirs[:-1], "- mine\n"]), f"{way.__name__}: {received[-1].text}"
        assert not refused_as_stale(playing, received[-1])
        assert conflicts(folder) == 0


def test_an_edit_that_hits_another_place_by_now_is_refused(framework: str, root: Path) -> None:
    """N-merge, 009-FR-004: its old text occurs once, and where the agent never meant it."""
    for number, way in enumerate(filter(_edits, ways(framework))):
        folder = root / f"{number}" / "workspace"
        folder.mkdir(parents=True)
        plan = folder / "plan.md"
        plan.write_text("".join(LINES))
        theirs = [LINES[-1], *LINES[:-1], "- theirs\n"]

        def then(_: list[Received], plan: Path = plan, theirs: list[str] = theirs) -> list[Call]:
            plan.write_text("".join(theirs))
            return [edit("plan.md", LINES[-1], "- mine\n")]

        playing = way(folder, guarded=True, options={"on_stale": "merge"})
        received = playing.run(Script(lambda _: [read("plan.md")], then))
        playing.close()
        assert plan.read_text() == "".join(theirs), f"{way.__name__}: {received[-1].text}"
        assert refused_as_stale(playing, received[-1]), received[-1].text
