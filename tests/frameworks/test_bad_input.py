"""What a model gets wrong is told to the model, in the framework's own form; what a program does, to the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noclobber.errors import BadRequestError
from tests.frameworks.driver import Call, Script, edit, write
from tests.frameworks.drivers import driver

pytestmark = pytest.mark.wrong_errors


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (Call("write", "", raw={"content": "mine\n"}), ("path", "file_path", "file_name", "filename")),
        (Call("write", "", raw={"path": ["plan.md"], "content": "mine\n"}), ("path", "file", "list")),
        (Call("edit", "", raw={"path": "plan.md", "old": "", "new": ""}), ("old", "empty")),
        (Call("read", "", raw={"path": {"name": "plan.md"}}), ("path", "file")),
    ],
    ids=["missing path", "list as path", "empty edit", "object as path"],
)
def test_a_model_is_told_what_is_wrong_with_its_arguments(
    framework: str, root: Path, call: Call, names: tuple[str, ...]
) -> None:
    """N-frameworks: nothing is written, the run goes on, and the next call is right."""
    plan = root / "plan.md"
    plan.write_bytes(b"- one\n")
    if call.kind == "edit" and "stale_edit" in driver(framework).lacks:
        pytest.skip("it has no tool that edits")
    playing = driver(framework)(root, guarded=True)
    try:
        received = playing.run(Script(lambda _: [call], lambda _: [write("new.md", "right\n")]))
    finally:
        playing.close()
    assert plan.read_bytes() == b"- one\n"
    assert {path.name for path in root.iterdir()} <= {"plan.md", "new.md", ".noclobber"}
    assert (root / "new.md").read_bytes() == b"right\n"
    said = received[0].text.lower()
    assert any(name in said for name in names) or "argument" in said, received[0].text


def test_a_workspace_that_does_not_exist_is_named(framework: str, root: Path) -> None:
    """N-frameworks: before the first run, with the remedy."""
    if framework == "tools":
        pytest.skip("a program opens its workspace itself")
    with pytest.raises(BadRequestError, match=r"There is no such folder\. Create it"):
        driver(framework)(root / "missing", guarded=True).run(Script(lambda _: [write("a.md", "x\n")]))


def test_two_adapters_with_different_options_are_refused(framework: str, root: Path) -> None:
    """N-frameworks: which of two rules would hold is a guess."""
    if framework == "tools":
        pytest.skip("a turn has its own options")
    kind: Any = driver(framework)
    host = kind.host or framework
    first = kind(root, guarded=True)
    first.run(Script(lambda _: [edit("none.md", "a", "b")]))
    said = rf"\({host}\) has unread='allow', and this one \({host}\) was given 'deny'\. Make one Workspace"
    with pytest.raises(BadRequestError, match=said):
        kind(root, guarded=True, options={"unread": "deny"}).run(Script(lambda _: [write("a.md", "x\n")]))
    first.close()


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
