"""Bytes of past versions, wherever they still are; and versions that cannot be relied on."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber import StaleFileError, Workspace
from noclobber.disk.versions import Versions
from noclobber.guard.turn import Turn
from tests.conftest import sha256

LINES = "".join(f"line {number}\n" for number in range(12))
THEIRS = LINES.replace("line 9", "theirs 9")
OURS = LINES.replace("line 2", "LINE 2")
BOTH = THEIRS.replace("line 2", "LINE 2")


def folder_of(root: Path) -> Path:
    return root / f".noclobber/versions.{os.geteuid()}"


def kept_base(root: Path) -> Path:
    """Where the base is."""
    name = sha256(LINES.encode())
    return folder_of(root) / name[:1] / name[1:]


def stale(root: Path, **options: int) -> tuple[Workspace, Turn]:
    """Return a turn whose base only the versions have, because another agent has written the file since."""
    (root / "plan.md").write_text(LINES)
    workspace = Workspace(root, on_stale="merge", retained_file_bytes=10)
    turn = workspace.turn(agent_id="me")
    turn.read_file("plan.md")
    with workspace.turn(agent_id="other") as other:
        other.read_file("plan.md")
        other.write_file("plan.md", THEIRS)
    assert kept_base(root).read_text() == LINES
    return workspace, turn


def forged(root: Path) -> None:
    kept_base(root).write_text(LINES.replace("line 5", "forged"))


def gone(root: Path) -> None:
    shutil.rmtree(folder_of(root))


def open_to_others(root: Path) -> None:
    os.chmod(folder_of(root), 0o755)


def a_link(root: Path) -> None:
    folder_of(root).rename(root / "elsewhere")
    os.symlink(root / "elsewhere", folder_of(root))


def a_file(root: Path) -> None:
    shutil.rmtree(folder_of(root))
    folder_of(root).write_text("not a folder")


def unreadable(root: Path) -> None:
    kept_base(root).unlink()
    kept_base(root).mkdir()


def cut_short(root: Path) -> None:
    os.truncate(kept_base(root), 10)


def somebody_elses(root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(folder_of(root), 12345, 12345)


@pytest.mark.parametrize(
    "spoil", [forged, gone, open_to_others, a_link, a_file, unreadable, cut_short, somebody_elses]
)
def test_a_base_that_cannot_be_relied_on_is_no_base(root: Path, spoil: Callable[[Path], None]) -> None:
    """N-merge, N-versions, ruling 17: refused as without merging, and the file is as it was."""
    workspace, turn = stale(root)
    workspace.guard.close()  # Or it has the folder open.
    spoil(root)
    with workspace, turn, pytest.raises(StaleFileError) as refused:
        turn.write_file("plan.md", OURS)
    assert refused.value.not_merged == "What you read is not kept any more."
    assert (root / "plan.md").read_text() == THEIRS


def test_a_file_that_became_binary_is_refused(root: Path) -> None:
    """N-merge, ruling 17: with a base that is only among the versions, too."""
    workspace, turn = stale(root)
    (root / "plan.md").write_bytes(b"\0\1\2")
    with workspace, turn, pytest.raises(StaleFileError) as refused:
        turn.write_file("plan.md", OURS)
    assert refused.value.not_merged is not None
    assert (root / "plan.md").read_bytes() == b"\0\1\2"


def test_a_merge_lands_although_there_is_no_space_for_a_version(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-merge, N-versions: a full disk, as far as versions are concerned."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    workspace, turn = stale(root)
    monkeypatch.setattr(Versions, "put", full)
    monkeypatch.setattr(Versions, "take", full)
    with workspace, turn:
        assert turn.write_file("plan.md", OURS).merged is not None
    assert (root / "plan.md").read_text() == BOTH


def test_a_ledger_that_disagrees_with_the_versions_changes_no_merge(root: Path) -> None:
    """N-merge, N-who: bytes come by their hash; who wrote them is then not known."""
    workspace, turn = stale(root)
    ledger = root / ".noclobber/agent_trace.jsonl"
    text = ledger.read_text()
    assert sha256(THEIRS.encode()) in text
    ledger.write_text(text.replace(sha256(THEIRS.encode()), sha256(b"something else")))
    with workspace, turn:
        done = turn.write_file("plan.md", OURS)
    assert done.merged is not None
    assert done.merged.by.startswith("an outsider")
    assert (root / "plan.md").read_text() == BOTH


def test_a_base_that_the_turn_let_go_is_found_among_the_versions(root: Path) -> None:
    """N-merge, N-versions: another agent's guarded write has put it there."""
    (root / "plan.md").write_text(LINES)
    with Workspace(root, on_stale="merge", retained_file_bytes=10) as workspace, workspace.turn() as turn:
        turn.read_file("plan.md")
        assert turn.baseline_bytes("plan.md") is None
        with workspace.turn(agent_id="other") as other:
            other.read_file("plan.md")
            other.write_file("plan.md", LINES.replace("line 9", "theirs 9"))
        done = turn.write_file("plan.md", LINES.replace("line 2", "LINE 2"))
    assert done.merged is not None
    assert (root / "plan.md").read_text() == LINES.replace("line 9", "theirs 9").replace("line 2", "LINE 2")


def test_a_base_that_nobody_has_any_more_is_refused(root: Path) -> None:
    """N-merge: an outsider wrote over it, and there is no git."""
    (root / "plan.md").write_text(LINES)
    with Workspace(root, on_stale="merge", retained_file_bytes=10) as workspace, workspace.turn() as turn:
        turn.read_file("plan.md")
        (root / "plan.md").write_text(LINES.replace("line 9", "theirs 9"))
        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", LINES.replace("line 2", "LINE 2"))
    assert refused.value.not_merged == "What you read is not kept any more."
    assert (root / "plan.md").read_text() == LINES.replace("line 9", "theirs 9")
