"""What a model or a program gets wrong: an error that names the thing and the remedy, in the framework's own form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.driver import Call, Script, read
from tests.frameworks.drivers import driver

pytestmark = pytest.mark.wrong_errors  # Frameworks make errors of their own.

WRONG: dict[str, tuple[Call, str]] = {
    "missing path": (Call("write", "", raw={"content": "x"}), "path"),
    "a path as a list": (Call("write", "", raw={"path": ["plan.md"], "content": "x"}), "path"),
    "a missing text": (Call("edit", "plan.md", raw={"path": "plan.md", "old": "one"}), "new"),
    "both texts empty": (Call("edit", "plan.md", raw={"path": "plan.md", "old": "", "new": ""}), "empty"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_named_to_the_model(framework: str, wrong: str, root: Path) -> None:
    """N-frameworks: nothing is touched, the model is told what was wrong, and the run goes on."""
    (root / "plan.md").write_bytes(b"- one\n")
    call, named = WRONG[wrong]
    playing = driver(framework)(root, guarded=True)
    try:
        received = playing.run(
            Script(lambda _: [read("plan.md")], lambda _: [call], lambda _: [read("plan.md")])
        )
    finally:
        playing.close()
    assert (root / "plan.md").read_bytes() == b"- one\n"
    assert len(received) == 3, "the run ended with the wrong call"
    assert named in received[1].text.lower(), received[1].text
    assert "- one" in received[2].text


def test_a_number_as_text_has_one_meaning(framework: str, root: Path) -> None:
    """N-frameworks: where a tool takes a range of lines, "1" is 1."""
    (root / "plan.md").write_bytes(b"- one\n- two\n")
    playing = driver(framework)(root, guarded=True)
    part = playing.read_part("plan.md")
    if part.raw is None:
        pytest.skip("its read tool takes no numbers")
    texts: dict[str, Any] = {name: str(value) for name, value in part.raw.items()}
    try:
        [received] = playing.run(Script(lambda _: [part._replace(raw=texts)]))
    finally:
        playing.close()
    assert "- one" in received.text
