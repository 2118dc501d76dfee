"""Commands and `on_stale = "merge"`: a text in the command merges; what a command computed is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber import StaleFileError, Workspace
from tests.conftest import sha256
from tests.rigs.meanwhile import Meanwhile
from tests.shell.test_process import events, is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")

LINES = "".join(f"line {number}\n" for number in range(12))
THEIRS = LINES.replace("line 9", "theirs 9")
BOTH = THEIRS.replace("line 2", "LINE 2")
CHANGE = "sed -i 's/line 2/LINE 2/' plan.md"


@pytest.fixture
def plan(root: Path) -> Path:
    """A file that the agent will have read."""
    (root / "plan.md").write_text(LINES)
    return root / "plan.md"


@pytest.fixture
def meanwhile(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], object]], Meanwhile]:
    """Return a way to act in the middle of a command."""
    return lambda act: Meanwhile(tmp_path_factory.mktemp("pipes"), act)


def saved_by_rename(plan: Path, text: str) -> None:
    """Save as editors do."""
    (plan.parent / ".plan.md.new").write_text(text)
    os.rename(plan.parent / ".plan.md.new", plan)


Acting = Callable[[Callable[[], object]], Meanwhile]


@pytest.mark.parametrize(
    ("order", "save"), [("{change}; {pause}", Path.write_text), ("{pause}; {change}", saved_by_rename)]
)
def test_what_a_command_computed_is_refused_if_others_changed_the_file_meanwhile(
    plan: Path, meanwhile: Acting, order: str, save: Callable[[Path, str], None]
) -> None:
    """N-merge, N-shell: nobody knows which version the command has read. Run again, it lands."""
    then = meanwhile(lambda: save(plan, THEIRS))
    with Workspace(plan.parent, on_stale="merge").turn() as turn:
        turn.read_file("plan.md")
        with pytest.raises(StaleFileError) as refused:
            turn.run(order.format(change=CHANGE, pause=then.pause))
        assert refused.value.not_merged == "What a command computed is not merged. Run it again."
        assert plan.read_text() == THEIRS
        turn.read_file("plan.md")
        turn.run(CHANGE)
    assert plan.read_text() == BOTH


@pytest.mark.parametrize("command", ["sed -i 3d plan.md", "sed 's/line 2/LINE 2/' old.md > plan.md"])
def test_a_file_that_had_changed_before_the_command_began_is_refused(plan: Path, command: str) -> None:
    """
    N-merge, ruling 18: the agent wrote the command for another version.

    `3d` would remove "line 1", where the agent meant "line 2". Nothing of the others' would be lost by that.
    """
    theirs = f"new line\n{LINES}"
    (plan.parent / "old.md").write_text(LINES)
    with Workspace(plan.parent, on_stale="merge").turn() as turn:
        turn.read_file("plan.md")
        plan.write_text(theirs)
        with pytest.raises(StaleFileError) as refused:
            turn.run(command)
    assert "What a command computed" in (refused.value.not_merged or "")
    assert plan.read_text() == theirs


def heredoc(text: str) -> str:
    """Return a command that writes a text."""
    return f"cat > plan.md <<'EOF'\n{text}EOF\n"


def test_a_text_that_the_agent_wrote_in_the_command_is_merged_like_any_whole_file_write(plan: Path) -> None:
    """N-merge, ruling 17: the base is what the agent saw, whenever the others changed it."""
    with Workspace(plan.parent, on_stale="merge").turn() as turn:
        turn.read_file("plan.md")
        plan.write_text(THEIRS)
        done = turn.run(heredoc(LINES.replace("line 2", "LINE 2")))
        (landed,) = done.landed
        assert landed.merged is not None
        assert "+theirs 9" in landed.merged.changes
        assert plan.read_text() == BOTH
        turn.write_file("plan.md", "mine alone\n")  # Its baseline is the merged version.
    (first, *_) = [event for event in events(plan.parent) if event["action_type"] == "MUTATION"]
    merged = first["payload"]["merged"]
    assert merged["base_hash"] == "sha256:" + sha256(LINES.encode())
    assert merged["theirs_hash"] == "sha256:" + sha256(THEIRS.encode())
    assert merged["ours_hash"] == "sha256:" + sha256(LINES.replace("line 2", "LINE 2").encode())
    assert first["payload"]["after_hash"] == "sha256:" + sha256(BOTH.encode())


def test_a_text_in_the_command_is_refused_if_the_agent_saw_only_part_of_the_file(plan: Path) -> None:
    """N-merge, ruling 17: seen in part is refused."""
    with Workspace(plan.parent, on_stale="merge").turn() as turn:
        turn.read_file("plan.md", start_line=1, end_line=4)
        plan.write_text(THEIRS)
        with pytest.raises(StaleFileError) as refused:
            turn.run(heredoc(LINES.replace("line 2", "LINE 2")))
    assert refused.value.not_merged == "You have read only part of the file."
    assert plan.read_text() == THEIRS


def test_commands_that_touch_the_same_lines_are_refused_with_the_reason(
    plan: Path, meanwhile: Acting
) -> None:
    """N-merge, N-shell: a conflict and a delete stay stale; nothing of the command lands."""
    theirs = LINES.replace("line 2", "theirs 2")
    then = meanwhile(lambda: plan.write_text(theirs))
    with Workspace(plan.parent, on_stale="merge").turn() as turn:
        turn.read_file("plan.md")
        with pytest.raises(StaleFileError) as refused:
            turn.run(f"{heredoc(LINES.replace('line 2', 'LINE 2'))}echo new > new.md; {then.pause}")
        assert "same lines" in (refused.value.not_merged or "")
        with pytest.raises(StaleFileError):
            turn.run("rm plan.md")
    assert plan.read_text() == theirs
    assert not (plan.parent / "new.md").exists()


def test_a_command_that_counts_what_others_counted_is_refused(root: Path, meanwhile: Acting) -> None:
    """Finding E3, ruling 29: 3 became 4 while the command made 4 of 3. That is two, so nothing lands."""
    stock = root / "stock.md"
    stock.write_text("stock 3\n")
    then = meanwhile(lambda: stock.write_text("stock 4\n"))
    with Workspace(root, on_stale="merge").turn() as turn:
        turn.read_file("stock.md")
        with pytest.raises(StaleFileError) as refused:
            turn.run(f"sed -i s/3/4/ stock.md; {then.pause}")
    assert (refused.value.not_merged or "").startswith("Already so, by an outsider")


@pytest.mark.parametrize("theirs", [b"\0binary\n", None])
def test_a_file_that_became_binary_or_is_gone_is_refused(
    plan: Path, meanwhile: Acting, theirs: bytes | None
) -> None:
    """N-merge, N-shell: as without merging."""
    then = meanwhile(plan.unlink if theirs is None else lambda: plan.write_bytes(theirs))
    with Workspace(plan.parent, on_stale="merge").turn() as turn:
        turn.read_file("plan.md")
        with pytest.raises(StaleFileError):
            turn.run(f"{CHANGE}; {then.pause}")
    assert (plan.read_bytes() if plan.exists() else None) == theirs


def test_a_name_that_is_never_merged_is_refused(root: Path, meanwhile: Acting) -> None:
    """N-merge: JSON, by default."""
    file = root / "data.json"
    file.write_text(LINES)
    then = meanwhile(lambda: file.write_text(THEIRS))
    with Workspace(root, on_stale="merge").turn() as turn:
        turn.read_file("data.json")
        with pytest.raises(StaleFileError) as refused:
            turn.run(heredoc(LINES.replace("line 2", "LINE 2")).replace("plan.md", "data.json") + then.pause)
    assert "never_merge" in (refused.value.not_merged or "")
    assert file.read_text() == THEIRS


def test_without_the_option_a_commands_stale_file_is_refused(plan: Path, meanwhile: Acting) -> None:
    """009-FR-004, N-merge: refusing is the default."""
    then = meanwhile(lambda: plan.write_text(THEIRS))
    with Workspace(plan.parent).turn() as turn:
        turn.read_file("plan.md")
        with pytest.raises(StaleFileError):
            turn.run(f"{CHANGE}; {then.pause}")
    assert plan.read_text() == THEIRS


def test_noclobber_run_merges_a_text_in_the_command_and_shows_what_others_changed(
    plan: Path, meanwhile: Acting
) -> None:
    """N-merge, N-shell, N-who: a process of its own; what others changed is on its standard error."""
    root = plan.parent
    (root / "noclobber.toml").write_text('on_stale = "merge"\n')
    plan.unlink()
    with Workspace(root).turn() as turn:
        turn.write_file("plan.md", LINES)  # So what the caller expects is among the versions.
    then = meanwhile(lambda: plan.write_text(THEIRS))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "noclobber", "run", "--expect", f"plan.md={sha256(LINES.encode())}"),
            *("--", "sh", "-c", heredoc(LINES.replace("line 2", "LINE 2")) + then.pause),
        ],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert plan.read_text() == BOTH
    assert "was changed by an outsider while the command ran" in done.stderr
    assert "-line 9\n+theirs 9" in done.stderr
