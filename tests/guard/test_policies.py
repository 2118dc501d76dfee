"""The rules, as tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import noclobber
from noclobber.core.options import DEFAULTS, Options
from noclobber.core.switches import runtime_folder
from noclobber.errors import ABSENT, DELETED, NOT_A_FILE, UNKNOWN, UNREADABLE, ReservedFileError
from noclobber.guard.facts import Facts
from noclobber.guard.policies import decide, lock_files
from noclobber.guard.workspace import Workspace
from tests.conftest import sha256

H1, H2 = sha256(b"v1"), sha256(b"v2")
FILE = Facts("write", "/ws/a.md", "/ws/a.md")


def verdict(**changes: Any) -> str:
    of_options = {
        name: changes.pop(name) for name in list(changes) if name in Options._fields and name != "write_scope"
    }
    decision = decide(FILE._replace(options=DEFAULTS._replace(**of_options), **changes))
    assert decision.allowed == (decision.error is None)
    return "ALLOW" if decision.allowed else decision.error.code


@pytest.mark.parametrize(
    ("expected", "actual", "answer"),
    [
        (H1, H1, "ALLOW"),
        (H1, H2, "STALE_FILE"),
        (H1, DELETED, "STALE_FILE"),
        ("f" * 64, DELETED, "STALE_FILE"),
        (H1, NOT_A_FILE, "STALE_FILE"),
        (H1, UNREADABLE, "STALE_FILE"),
        (ABSENT, DELETED, "ALLOW"),
        (ABSENT, H1, "STALE_FILE"),
        (ABSENT, UNREADABLE, "STALE_FILE"),
        (None, H1, "ALLOW"),
        (None, DELETED, "ALLOW"),
        (H1, None, "ALLOW"),
    ],
)
@pytest.mark.parametrize("kind", ["write", "edit", "delete", "move"])
def test_what_is_there_must_be_what_was_seen(
    kind: str, expected: str | None, actual: str | None, answer: str
) -> None:
    """009-FR-003, 009-FR-004, 011-FR-001, rulings 5 and 7; None on the disk's side: nobody looked."""
    assert verdict(kind=kind, expected=expected, actual=actual) == answer


@pytest.mark.parametrize(
    ("scope", "named"),
    [(("/ws/docs",), "/ws/docs"), (("/ws/docs", "/ws/src"), "/ws/docs, /ws/src"), ((), "no folder at all")],
)
def test_a_refusal_names_the_folders_that_may_be_written(scope: tuple[str, ...], named: str) -> None:
    """K-WRITE-1: so that the agent can choose another path."""
    error = decide(FILE._replace(write_scope=scope)).error
    assert error is not None
    assert error.details["scope"] == named
    assert f"This turn may write in {named}." in error.message


@pytest.mark.parametrize(
    ("deny", "expected", "actual", "answer"),
    [
        (True, None, H1, "UNREAD_FILE"),
        (True, None, None, "UNREAD_FILE"),
        (True, None, UNREADABLE, "UNREAD_FILE"),
        (True, None, DELETED, "ALLOW"),
        (True, H1, H1, "ALLOW"),
        (True, ABSENT, DELETED, "ALLOW"),
        (False, None, H1, "ALLOW"),
    ],
)
@pytest.mark.parametrize("kind", ["write", "edit", "delete", "move"])
def test_unread_files_can_be_denied(
    kind: str, deny: bool, expected: str | None, actual: str | None, answer: str
) -> None:
    """Ruling 7; where nothing stands there is nothing to read."""
    assert verdict(kind=kind, unread="deny" if deny else "allow", expected=expected, actual=actual) == answer


@pytest.mark.parametrize(
    ("kind", "expected", "answer"),
    [
        ("write", None, "NOT_A_FILE"),
        ("edit", None, "NOT_A_FILE"),
        ("write", H1, "STALE_FILE"),
        ("delete", None, "ALLOW"),
        ("move", None, "ALLOW"),
        ("read", None, "ALLOW"),
    ],
)
def test_a_folder_is_neither_written_nor_edited(kind: str, expected: str | None, answer: str) -> None:
    """Ruling 12, finding D13; what was a file when it was read is stale (ruling 5)."""
    assert verdict(kind=kind, expected=expected, actual=NOT_A_FILE) == answer


@pytest.mark.parametrize(
    ("kind", "deny", "whole", "answer"),
    [
        ("write", True, False, "PARTIAL_READ"),
        ("write", True, True, "ALLOW"),
        ("write", False, False, "ALLOW"),
        ("edit", True, False, "ALLOW"),
        ("move", True, False, "ALLOW"),
    ],
)
def test_replacing_what_was_seen_in_part_can_be_denied(
    kind: str, deny: bool, whole: bool, answer: str
) -> None:
    """Ruling 11: whole-file replacement only."""
    assert verdict(kind=kind, partial="deny" if deny else "allow", seen_whole=whole, expected=H1) == answer


@pytest.mark.parametrize(
    ("scope", "path", "answer"),
    [
        (None, "/ws/a.md", "ALLOW"),
        (("/ws",), "/ws/a.md", "ALLOW"),
        (("/ws/docs", "/ws/src"), "/ws/src/deep/a.md", "ALLOW"),
        (("/ws/docs",), "/ws/a.md", "OUTSIDE_SCOPE"),
        (("/ws/docs",), "/ws/docs2/a.md", "OUTSIDE_SCOPE"),
        (("/ws/docs",), "/ws/docs", "OUTSIDE_SCOPE"),
        ((), "/ws/a.md", "OUTSIDE_SCOPE"),
        (("/",), "/ws/a.md", "ALLOW"),
    ],
)
@pytest.mark.parametrize("kind", ["write", "edit", "delete", "move", "create"])
def test_a_turn_with_a_write_scope_writes_nowhere_else(
    kind: str, scope: tuple[Any, ...] | None, path: str, answer: str
) -> None:
    """K-WRITE-1."""
    assert verdict(kind=kind, write_scope=scope, path=path, name=path) == answer


def test_the_write_scope_does_not_limit_reading() -> None:
    """K-WRITE-1 is about writes."""
    assert verdict(kind="read", write_scope=()) == "ALLOW"


@pytest.mark.parametrize("kind", ["read", "write", "edit", "delete", "move", "create"])
@pytest.mark.parametrize("name", [".lock", ".LOCK", ".lock-ledger.jsonl", ".lock.take.01ab"])
def test_lock_files_are_served_to_nobody(kind: str, name: str) -> None:
    """REQ-LOCK-010: neither by their own name nor through a link."""
    assert verdict(kind=kind, path=f"/ws/d/{name}", name="/ws/link") == "RESERVED_FILE"
    assert verdict(kind=kind, path="/ws/elsewhere", name=f"/ws/d/{name}") == "RESERVED_FILE"


@pytest.mark.parametrize("name", ["a.lock", "poetry.lock", ".locked", ".lock.md", "lock"])
def test_other_files_with_lock_in_their_name_are_ordinary(name: str) -> None:
    """REQ-LOCK-010, its limits."""
    assert verdict(path=f"/ws/{name}", name=f"/ws/{name}") == "ALLOW"


@pytest.mark.parametrize(
    ("asked", "refused_from", "expected", "answer"),
    [
        (True, H1, H2, "STALE_RESUBMITTED"),
        (True, H1, H1, "ALLOW"),  # The file went back to what they were made from.
        (True, None, H2, "ALLOW"),
        (False, H1, H2, "ALLOW"),  # 009-US2: in a plain turn a re-read is enough.
    ],
)
def test_refused_bytes_that_come_back_are_refused_again_if_a_controller_asks(
    asked: bool, refused_from: str | None, expected: str, answer: str
) -> None:
    """N-resubmission: passing them would launder the lost update."""
    assert (
        verdict(resubmitted="deny" if asked else "allow", refused_from=refused_from, expected=expected)
        == answer
    )


def test_staleness_is_said_before_what_a_re_read_would_settle() -> None:
    """011-SC-001: a stale write is told that it is stale, whatever else is wrong with it."""
    everything = {"partial": "deny", "seen_whole": False, "resubmitted": "deny", "refused_from": H2}
    assert verdict(expected=H1, actual=H2, **everything) == "STALE_FILE"
    assert verdict(expected=H1, actual=H1, **everything) == "PARTIAL_READ"


@pytest.mark.parametrize(
    ("kind", "answer"),
    [("write", "UNREAD_FILE"), ("edit", "UNREAD_FILE"), ("delete", "UNREAD_FILE"), ("read", "ALLOW")],
)
def test_a_file_seen_at_an_unknown_version_must_be_read_again(kind: str, answer: str) -> None:
    """Ruling 22, finding D1: also if nothing is there any more, and never with an invented hash."""
    for actual in (H1, DELETED, None):
        assert verdict(kind=kind, expected=UNKNOWN, actual=actual) == answer


@pytest.mark.parametrize(
    ("is_explicit", "actual", "answer"),
    [
        (False, H1, "UNREAD_FILE"),
        (False, None, "UNREAD_FILE"),
        (True, H1, "ALLOW"),
        (False, DELETED, "ALLOW"),
    ],
)
def test_a_change_can_be_asked_to_say_what_it_is_made_from(
    is_explicit: bool, actual: str | None, answer: str
) -> None:
    """N-mcp: `explicit = "require"`, what `noclobber mcp --strict` asks for."""
    for expected in (None, H1):
        if expected is not None and actual == DELETED:
            continue  # That is stale, whatever was said.
        assert (
            verdict(explicit="require", is_explicit=is_explicit, expected=expected, actual=actual) == answer
        )


def test_a_session_that_lost_its_memory_must_read_first() -> None:
    """N-hook: what is not known to be unseen may have been seen."""
    assert verdict(is_memory_lost=True, actual=H1) == "UNREAD_FILE"
    assert verdict(is_memory_lost=True, expected=H1, actual=H1) == "ALLOW"


@pytest.mark.parametrize("kind", ["read", "write", "edit", "delete", "move", "create"])
def test_an_agent_does_not_touch_its_own_record(kind: str) -> None:
    """N-state: neither by name nor through a link."""
    ours = "/ws/.noclobber/agent_trace.jsonl"
    assert verdict(kind=kind, path=ours, name="/ws/link") == "OUTSIDE_WORKSPACE"
    assert verdict(kind=kind, path="/ws/a.md", name=ours) == "OUTSIDE_WORKSPACE"


HOME = os.path.expanduser("~")


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/ws/noclobber.toml", "RESERVED_FILE"),
        ("/ws/.claude/settings.json", "RESERVED_FILE"),
        ("/ws/.claude/settings.local.json", "RESERVED_FILE"),
        ("/ws/.github/hooks/any.json", "RESERVED_FILE"),
        ("/ws/.opencode/plugin/noclobber.js", "RESERVED_FILE"),
        (f"{HOME}/.codex/config.toml", "RESERVED_FILE"),
        (f"{HOME}/.gemini/settings.json", "RESERVED_FILE"),
        (f"{runtime_folder()}/claude-code.x.y/f0", "RESERVED_FILE"),
        (noclobber.__file__, "RESERVED_FILE"),
        ("/ws/pyproject.toml", "ALLOW"),
        ("/ws/.claude/commands/x.md", "ALLOW"),
        ("/ws/.github/hooks-of-ours/x", "ALLOW"),
        ("/ws/.git/config", "ALLOW"),
        ("/ws/sub/noclobber.toml", "RESERVED_FILE"),
        ("/noclobber.toml", "RESERVED_FILE"),
        ("/other/project/.claude/settings.json", "RESERVED_FILE"),
        ("/ws/docs/noclobber.md", "ALLOW"),
    ],
)
@pytest.mark.parametrize("kind", ["write", "edit", "delete", "move", "create"])
def test_the_guards_own_switches_are_not_an_agents_to_flip(kind: str, path: str, answer: str) -> None:
    """finding S8: by its name or through a link; `switches = "open"` lets agents have them; reading is free."""
    assert verdict(kind=kind, root="/ws", path=path, name="/ws/link") == answer
    assert verdict(kind=kind, root="/ws", path="/ws/link", name=path) == answer
    assert verdict(kind=kind, root="/ws", path=path, name=path, switches="open") == "ALLOW"
    assert verdict(kind="read", root="/ws", path=path, name=path) == "ALLOW"


def test_a_project_may_reserve_more() -> None:
    """finding S8: files and folders, relative to the root or absolute."""
    reserved = ("infra", "/etc/ours", "LICENSE")
    for path in ("/ws/infra/a.tf", "/etc/ours/x", "/ws/LICENSE"):
        assert verdict(root="/ws", path=path, name=path, reserved=reserved) == "RESERVED_FILE"
        assert verdict(kind="read", root="/ws", path=path, name=path, reserved=reserved) == "ALLOW"
    assert verdict(root="/ws", path="/ws/infrared", name="/ws/infrared", reserved=reserved) == "ALLOW"


def test_a_write_makes_no_folder_with_the_name_of_a_locks_file(root: Path) -> None:
    """finding S20: a write creates missing folders. What is above the workspace is not judged."""
    workspace = Workspace(root)
    with workspace.turn() as turn, pytest.raises(ReservedFileError):
        turn.write_file("part/.lock-ledger.jsonl/x", b"x")
    workspace.close()

    assert not (root / "part").exists()
    assert lock_files(Facts("write", "/.lock/ws/a.md", "/.lock/ws/a.md", "/.lock/ws")).allowed


@pytest.mark.parametrize(
    "spelled", ["secret", "secret/", "./secret", "other/../secret", "/ws/secret", ".", "/"]
)
def test_a_reserved_path_counts_however_it_is_spelled(spelled: str) -> None:
    """finding S8: a rule that protects nothing without a word is worse than none."""
    path = "/ws/secret/key"
    assert verdict(root="/ws", path=path, name=path, reserved=(spelled,)) == "RESERVED_FILE"


@pytest.mark.parametrize("kind", ["move", "create"])
@pytest.mark.parametrize("folder", ["/ws/.claude", "/ws/.github", "/ws/top"])
def test_a_folder_with_a_switch_in_it_is_not_moved_away_or_put_in_place(kind: str, folder: str) -> None:
    """finding S8: moving the folder would move the switch."""
    reserved = ("top/secret",)
    assert verdict(kind=kind, root="/ws", path=folder, name=folder, reserved=reserved) == "RESERVED_FILE"
    assert verdict(kind=kind, root="/ws", path="/ws/docs", name="/ws/docs", reserved=reserved) == "ALLOW"
