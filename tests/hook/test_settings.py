"""Hooks find the project and read its options as the library does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noclobber.core.options import HOOK_DEFAULTS
from noclobber.hook.settings import options_of, project_of
from tests.core.test_options_file import SPELLINGS
from tests.rigs.hooks import HookRig, is_denied, refusal


def answer_of_a_process(rig: HookRig, path: Path, **given: Any) -> dict[str, Any]:
    """What a real hook process says to a write."""
    payload = rig.tool(
        "PreToolUse", "Write", {"file_path": str(path), "content": "x"}, tool_use_id="w", **given
    )
    done = rig.process("claude-code", payload, "check")
    assert done.stderr == b""
    return json.loads(done.stdout) if done.stdout else {}


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_hook_obeys_the_table_in_every_spelling_of_toml(rig: HookRig, root: Path, text: str) -> None:
    """Ruling 20, finding C1: what is `deny` in the library is `deny` in a hook."""
    (root / "pyproject.toml").write_bytes(text.encode())
    (root / "a.md").write_text("x\n")
    assert refusal(answer_of_a_process(rig, root / "a.md"))["error_type"] == "UNREAD_FILE"


@pytest.mark.parametrize(
    "text", ["unraed = 'deny'\n", "unread = \n", b"\xff", "unread = 'deny'\nunread = 'allow'\n"]
)
def test_options_that_cannot_be_understood_stop_writes_and_are_on_record(
    rig: HookRig, root: Path, text: bytes | str
) -> None:
    """Ruling 20: never a default; and reading goes on, so that the cause can be found."""
    rig.write(root / "first.md", "x\n")
    (root / "noclobber.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    told = refusal(answer_of_a_process(rig, root / "new.md"))
    assert told["error_type"] == "BAD_CONFIG"
    assert str(root / "noclobber.toml") in told["file_path"]
    assert "BAD_CONFIG" in json.dumps(rig.ledger()[-1])
    (root / "a.md").write_text("x\n")
    told_of_read = rig.read(root / "a.md")  # It goes ahead, but which version it saw is not known.
    assert not is_denied(told_of_read)
    (root / "noclobber.toml").unlink()
    (root / "a.md").write_text("theirs\n")
    assert refusal(answer_of_a_process(rig, root / "a.md"))["error_type"] == "UNREAD_FILE"


def test_a_nested_repository_does_not_change_the_project_of_a_hook(rig: HookRig, root: Path) -> None:
    """finding S5: `mkdir docs/.git; cd docs` leaves the rules in force."""
    (root / "noclobber.toml").write_text('unread = "deny"\n')
    (root / "docs" / ".git").mkdir(parents=True)
    (root / "docs" / "a.md").write_text("x\n")
    told = answer_of_a_process(rig, root / "docs" / "a.md", cwd=str(root / "docs"))
    assert refusal(told)["error_type"] == "UNREAD_FILE"


def test_options_in_a_parent_folder_count_for_a_hook_that_works_below(rig: HookRig, root: Path) -> None:
    """Ruling 16: the command line found them there, and hooks did not."""
    (root / "pyproject.toml").write_text('[tool.noclobber]\nwrite_scope = ["docs"]\n')
    (root / "docs" / "deep").mkdir(parents=True)
    below = {"cwd": str(root / "docs" / "deep")}
    assert answer_of_a_process(rig, root / "docs" / "new.md", **below) == {}
    assert is_denied(answer_of_a_process(rig, root / "elsewhere.md", **below))


def test_hooks_keep_baselines_for_the_session_unless_the_file_says_otherwise(root: Path) -> None:
    """Ruling 14: a coding agent's model remembers earlier turns."""
    assert options_of(str(root)) == HOOK_DEFAULTS
    assert HOOK_DEFAULTS.scope == "session"
    (root / "noclobber.toml").write_text('unread = "deny"\n')
    assert options_of(str(root)) == HOOK_DEFAULTS._replace(unread="deny")
    (root / "noclobber.toml").write_text('scope = "turn"\n')
    assert options_of(str(root)).scope == "turn"


def test_a_hooks_write_scope_is_made_of_canonical_folders(root: Path) -> None:
    """K-WRITE-1: hooks compare it with canonical paths."""
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    (root / "noclobber.toml").write_text('write_scope = ["link", "/abs", "."]\n')
    assert options_of(str(root)).write_scope == (str(root / "real"), "/abs", str(root))


def test_the_folder_that_the_host_names_is_the_project_where_nothing_marks_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 16: and a mark beats it."""
    (root / "sub" / ".git").mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(root))
    assert project_of(str(root / "sub")) == str(root)
    (root / "sub" / "noclobber.toml").write_text("")
    assert project_of(str(root / "sub")) == str(root / "sub")


def test_a_hook_refuses_the_same_bytes_again_if_it_was_told_to(rig: HookRig, root: Path) -> None:
    """Ruling 23: the option is the hook's, too; by default they may be written after the re-read."""
    path = root / "a.md"
    for option, lands in (("deny", False), ("allow", True)):
        (root / "noclobber.toml").write_text(f'resubmitted = "{option}"\n')
        path.write_text("v1\n")
        rig.read(path)
        path.write_text("theirs\n")
        assert refusal(rig.write(path, "mine\n"))["error_type"] == "STALE_FILE"
        rig.read(path)
        answer = rig.write(path, "mine\n")
        assert (path.read_text() == "mine\n") is lands
        assert lands or refusal(answer)["error_type"] == "STALE_RESUBMITTED"
