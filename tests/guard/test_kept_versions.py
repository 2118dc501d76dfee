"""Kept versions: which file each belongs to, putting one back, dropping one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noclobber import AgentTraceLedger, Workspace
from noclobber.errors import BadRequestError, MissingFileError
from noclobber.guard import kept_versions

REPLACED = "d" * 64


def keep(root: Path, name: str, content: bytes, target: str | None) -> str:
    """Put a version aside as a commit does, with its event if the file is to be known."""
    folder = root / ".noclobber" / "kept"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"kept-00ab-{REPLACED}~{name}"
    kept.write_bytes(content)
    if target is not None:
        AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl").append(
            {
                "action_type": "MUTATION",
                "payload": {
                    "tool_name": "write_file",
                    "target_file": target,
                    "before_hash": f"sha256:{REPLACED}",
                    "after_hash": "sha256:" + "e" * 64,
                    "level": "exchange",
                },
                "result": {"status": "APPLIED"},
            }
        )
    return kept.name


def test_a_kept_version_is_put_back_by_a_guarded_write(root: Path) -> None:
    """N-versions: what was there becomes a past version, and the kept one goes."""
    (root / "src").mkdir()
    (root / "src" / "plan.md").write_bytes(b"now\n")
    name = keep(root, "plan.md", b"theirs\n", "src/plan.md")
    path = kept_versions.restore(str(root), name)
    assert path == str(root / "src" / "plan.md")
    assert (root / "src" / "plan.md").read_bytes() == b"theirs\n"
    assert kept_versions.listed(str(root)) == ()
    with Workspace(root):
        events = list(AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl").events())
    assert events[-1]["identity"]["agent_id"] == kept_versions.AGENT_ID


def test_a_kept_version_whose_file_is_not_on_record_needs_a_name(root: Path) -> None:
    """N-versions: nothing is guessed; with a name it is written there."""
    name = keep(root, "plan.md", b"theirs\n", None)
    with pytest.raises(BadRequestError, match="name the file"):
        kept_versions.restore(str(root), name)
    assert len(kept_versions.listed(str(root))) == 1
    kept_versions.restore(str(root), name[:12], str(root / "plan.md"))
    assert (root / "plan.md").read_bytes() == b"theirs\n"


def test_a_kept_version_is_dropped(root: Path) -> None:
    """N-versions: it is gone, and asking again says so."""
    name = keep(root, "plan.md", b"theirs\n", None)
    kept_versions.drop(str(root), name)
    with pytest.raises(MissingFileError):
        kept_versions.drop(str(root), name)


def test_a_kept_version_that_is_written_to_meanwhile_is_not_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-versions: bytes that nobody has looked at are not thrown away."""
    name = keep(root, "plan.md", b"theirs\n", "plan.md")
    path = root / ".noclobber" / "kept" / name
    write = Workspace.close

    def written(workspace: Workspace) -> None:
        path.write_bytes(b"theirs, and more\n")
        write(workspace)

    monkeypatch.setattr(Workspace, "close", written)
    with pytest.raises(BadRequestError, match="just now"):
        kept_versions.restore(str(root), name)
    assert path.read_bytes() == b"theirs, and more\n"
    assert os.path.exists(root / "plan.md")
