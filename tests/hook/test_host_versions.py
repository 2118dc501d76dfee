"""
Versions of what hosts write over, and of what they write: enough to take it back.

The check runs as a process, as hosts run it, because that is what forks the process that keeps them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber import Workspace
from noclobber.disk.version_keeper import MOST_FILE_BYTES
from noclobber.disk.versions import Versions
from noclobber.guard.blame import blame
from tests.conftest import sha256
from tests.hook.test_approval_window import check, save, until
from tests.rigs.hooks import HookRig, refusal
from tests.rigs.trusting import trusted_options

BEFORE = b"hello\nworld\n"


@pytest.fixture
def agent(rig: HookRig, file: Path) -> Iterator[HookRig]:
    """A session that has read the file; whatever looks on ends with it."""
    rig.read(file)
    yield rig
    rig.call("claude-code", rig.event("SessionEnd", reason="exit"), "note")


def carry_out(rig: HookRig, tool: str, given: dict[str, Any], data: bytes, how: str = "in place") -> None:
    """Ask, write as the host does, and tell."""
    check(rig, tool, given)
    save(Path(given["file_path"]), data, how)
    assert rig.told(tool, given, tool_use_id="w") == {}


def kept(root: Path) -> set[str]:
    """The hashes of what is kept."""
    try:
        with Versions(str(root), make=False) as versions:
            return {version.sha256 for version in versions}
    except FileNotFoundError:
        return set()


@pytest.mark.parametrize("how", ["in place", "renamed"])
@pytest.mark.parametrize(
    ("tool", "given", "after"),
    [
        ("Write", {"content": "mine\n"}, b"mine\n"),
        ("Edit", {"old_string": "hello", "new_string": "HELLO"}, b"HELLO\nworld\n"),
    ],
)
def test_what_a_host_wrote_over_comes_back_by_undo(
    agent: HookRig, root: Path, file: Path, tool: str, given: dict[str, Any], after: bytes, how: str
) -> None:
    """N-versions, ruling 19: and an undo of the undo brings the agent's version back."""
    carry_out(agent, tool, {"file_path": str(file), **given}, after, how)
    assert kept(root) == {sha256(BEFORE), sha256(after)}

    with Workspace(root) as workspace:
        workspace.undo(agent_id="main")
        assert file.read_bytes() == BEFORE
        workspace.undo(agent_id="noclobber-undo")
    assert file.read_bytes() == after


def test_what_an_agent_created_is_kept_when_somebody_else_replaces_it(agent: HookRig, root: Path) -> None:
    """N-versions, N-who: every line has its author, because the bytes of each version are there."""
    new = root / "new.txt"
    carry_out(agent, "Write", {"file_path": str(new), "content": "mine\n"}, b"mine\n")
    save(new, b"mine\ntheirs\n", "renamed")

    assert [line.author.kind for line in blame(str(root), str(new), new.read_bytes())] == [
        "agent",
        "outsider",
    ]


def test_a_call_that_the_user_declined_leaves_no_versions(agent: HookRig, root: Path, file: Path) -> None:
    """N-versions: nothing was replaced."""
    given = {"file_path": str(file), "content": "mine\n"}
    check(agent, "Write", given)
    agent.call("claude-code", agent.event("Stop"), "note")

    assert kept(root) == set()


@pytest.mark.parametrize("why", ["off", "secret", "ignored", "large", "outside"])
def test_what_the_rules_leave_out_is_not_kept(rig: HookRig, root: Path, tmp_path: Path, why: str) -> None:
    """N-versions, ruling 19: the same rules as in the library; and nothing of what is outside the project."""
    (root / ".git").mkdir(exist_ok=True)
    (root / ".gitignore").write_text("build.txt\n")
    if why == "off":
        trusted_options(root, 'versions = "off"\n')
    name = {"secret": ".env", "ignored": "build.txt"}.get(why, "plain.txt")
    file = (tmp_path if why == "outside" else root) / name
    file.write_bytes(b"x" * (MOST_FILE_BYTES + 1 if why == "large" else 1))
    rig.read(file)
    carry_out(rig, "Write", {"file_path": str(file), "content": "y\n"}, b"y\n")

    assert kept(root) == ({sha256(b"y\n")} if why == "large" else set())


def test_what_the_agent_saw_is_kept_when_its_write_is_refused(agent: HookRig, root: Path, file: Path) -> None:
    """N-versions, finding U6: `noclobber diff` shows what changed, also when the session is over."""
    file.write_bytes(b"hello\nworld\ntheirs\n")
    given = {"file_path": str(file), "content": "mine\n"}
    done = agent.process("claude-code", agent.tool("PreToolUse", "Write", given, tool_use_id="w"), "check")
    assert b"STALE_FILE" in done.stdout

    until(lambda: kept(root) == {sha256(BEFORE)})


def test_what_a_patch_in_a_command_may_replace_is_kept_before_it_runs(
    rig: HookRig, root: Path, file: Path
) -> None:
    """N-versions: nobody looks on while a command runs, so it is kept when it is let through."""
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+HELLO\n*** End Patch"
    given = {"command": f"apply_patch <<'EOF'\n{patch}\nEOF"}
    done = rig.process("codex", rig.tool("PreToolUse", "Bash", given, tool_use_id="p"), "shell")
    assert (done.returncode, done.stdout) == (0, b"")

    until(lambda: kept(root) == {sha256(BEFORE)})


def test_versions_that_a_repository_brought_as_a_link_are_not_used(
    agent: HookRig, root: Path, file: Path
) -> None:
    """N-versions: the write is on record all the same."""
    agent.write(root / "first.txt", "first\n")
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (root / ".noclobber" / f"versions.{os.geteuid()}").symlink_to(elsewhere)
    carry_out(agent, "Write", {"file_path": str(file), "content": "mine\n"}, b"mine\n")

    assert list(elsewhere.iterdir()) == []
    assert agent.kinds()[-1] == "MUTATION"


def test_processes_that_each_keep_a_little_look_at_the_bounds_together(
    agent: HookRig, root: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-versions: a process for each write never sees that it is too much; their count does."""
    from noclobber.core.clock import SYSTEM_CLOCK
    from noclobber.core.options import load_options
    from noclobber.disk import version_keeper
    from noclobber.disk.version_keeper import VersionKeeper

    monkeypatch.setattr(version_keeper, "TIDY_AFTER_BYTES", 4 << 16)
    agent.write(root / "first.txt", "first\n")
    options = load_options(str(root))._replace(versions_bytes=3)
    sizes = []
    for number in range(9):
        keeper = VersionKeeper(str(root), options, SYSTEM_CLOCK)
        assert keeper.keep(str(file), b"%d" % number)
        keeper.tidy(is_alone=False)
        keeper.close()
        sizes.append(len(kept(root)))

    assert max(sizes) < 3 + 4
    assert sizes[-1] < sizes[-2] or sizes[-1] <= 3 + 1


def test_a_refusal_without_anything_seen_keeps_nothing(rig: HookRig, root: Path, file: Path) -> None:
    """N-versions: `unread = "deny"` refuses, and there is nothing that the agent saw."""
    (root / "noclobber.toml").write_text('unread = "deny"\n')
    assert refusal(rig.write(file, "mine\n"))["error_type"] == "UNREAD_FILE"
    assert kept(root) == set()
