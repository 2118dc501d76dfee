"""A tool of the user's own fails, and the framework makes an answer of it: that is neither a read nor a write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.driver import Call, FrameworkDriver, Received, Script, read, write
from tests.frameworks.own_notes import fail_next
from tests.frameworks.scenarios import refused_as_stale
from tests.frameworks.test_variants import variants

pytestmark = pytest.mark.wrong_errors  # Frameworks make errors of their own.


def own_tools(framework: str) -> list[type[FrameworkDriver]]:
    """The drivers whose tools are the user's own."""
    found = [kind for kind in variants(framework) if kind.__name__.startswith("Own")]
    if not found:
        pytest.skip("this adapter has no check around tools of the user's own")
    return found


def test_a_read_that_failed_has_shown_nothing(framework: str, root: Path) -> None:
    """N-frameworks, 009-FR-004: the model was told of an error, and still knows the old version only."""
    for number, kind in enumerate(own_tools(framework)):
        folder = root / f"{number}" / "workspace"
        folder.mkdir(parents=True)
        plan = folder / "plan.md"
        plan.write_bytes(b"- one\n")

        def again(_: list[Received], plan: Path = plan, folder: Path = folder) -> list[Call]:
            plan.write_bytes(b"- theirs\n")
            fail_next(folder)
            return [read("plan.md")]

        playing = kind(folder, guarded=True)
        received = playing.run(
            Script(lambda _: [read("plan.md")], again, lambda _: [write("plan.md", "- mine\n")])
        )
        playing.close()
        assert plan.read_bytes() == b"- theirs\n", f"{kind.__name__}: {received}"
        assert refused_as_stale(playing, received[-1]), received[-1].text


def test_a_write_that_failed_and_is_tried_again_is_judged_again(framework: str, root: Path) -> None:
    """N-frameworks, 009-FR-004: somebody saved during the first try, whoever tries again: model or framework."""
    for number, kind in enumerate(own_tools(framework)):
        folder = root / f"{number}" / "workspace"
        folder.mkdir(parents=True)
        plan = folder / "plan.md"
        plan.write_bytes(b"- one\n")

        def fails(_: list[Received], folder: Path = folder) -> list[Call]:
            fail_next(folder, and_save=("plan.md", b"- theirs\n"))
            return [write("plan.md", "- mine\n")]

        playing = kind(folder, guarded=True)
        received = playing.run(
            Script(lambda _: [read("plan.md")], fails, lambda _: [write("plan.md", "- mine again\n")])
        )
        playing.close()
        assert plan.read_bytes() == b"- theirs\n", f"{kind.__name__}: {received}"
        assert refused_as_stale(playing, received[-1]), received[-1].text
