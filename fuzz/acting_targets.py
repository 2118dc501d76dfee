"""
Readers that act on what they read: recovery, locks, undo, git's excludes, the MCP tools.

Parsing is not enough here. What was read decides what is written, so each target lets the package act, and
then looks at what lies outside the project.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzz.engine import Target
from noclobber import Workspace
from noclobber.core import json_text, wire
from noclobber.disk.commit import journal
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import NoclobberError
from noclobber.guard import undo
from noclobber.guard.blame import blame
from noclobber.ledger.history import landed_writes
from noclobber.lock import git_exclude
from noclobber.lock.lock import DeliverableLock
from noclobber.text import gitignore, merge

if TYPE_CHECKING:
    from fuzz.targets import Place


class Acting:
    """A project of its own for each target, beside the folder that nothing may touch."""

    def __init__(self, where: Place) -> None:
        self.where = where

    def _project(self, name: str) -> str:
        root = f"{os.path.dirname(self.where.root)}/{name}"
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(f"{root}/sub")
        for each in ("a.txt", "sub/b.txt"):
            Path(root, each).write_text("hello\n")
        return root

    def recovery(self, data: bytes) -> None:
        """A note that is ours, but for what it says: the next read recovers."""
        root = self._project("crashed")
        guard = FileGuard(root, wait_s=0.01)
        guard.write("c.txt", b"x", expected=None)  # Makes the note.
        guard.sweep()
        state = f"{root}/.noclobber"
        (note,) = os.listdir(f"{state}/notes")
        Path(state, "swap", "swap-0123456789ab-x~a.txt").write_text("staged\n")
        inode = os.stat(f"{root}/a.txt").st_ino
        body = data.replace(b"INODE", b"%d" % inode).replace(b"FOLDER", b"%d" % os.stat(root).st_ino)
        body = body[: journal.NOTE_BYTES].ljust(journal.NOTE_BYTES, b"\0")
        with open(f"{state}/notes/{note}", "r+b") as file:
            file.write(body[: journal.TOKEN_AT])
            file.seek(journal.RECORD_AT)
            file.write(body[journal.RECORD_AT :])
        again = FileGuard(root, wait_s=0.01)
        for name in ("a.txt", "sub/b.txt"):
            with suppress(NoclobberError):
                again.read(name)
        for each in (guard, again):
            if each.committer.store_if_open is not None:
                each.committer.store_if_open.close()
        self.where.check()

    def lock_file(self, data: bytes) -> None:
        """Whatever lies at `.lock`: somebody asks, takes, or is refused."""
        root = self._project("locked")
        Path(root, ".lock").write_bytes(data)
        lock = DeliverableLock(root, holder="me", heartbeat=False)
        with suppress(NoclobberError):
            lock.status()
        with suppress(NoclobberError):
            lock.acquire()
            lock.release()
        self.where.check()

    def git_file(self, data: bytes) -> None:
        """A `.git` that came with the folder says where the repository is."""
        root = self._project("cloned")
        Path(root, ".git").write_bytes(data.replace(b"OUTSIDE", os.fsencode(self.where.outside)))
        git_exclude.keep_lock_files_out_of_git(root)
        self.where.check()

    def undone(self, data: bytes) -> None:
        """A ledger that came with the folder says what was written: undo acts on it."""
        root = self._project("recorded")
        os.mkdir(f"{root}/.noclobber", 0o700)
        Path(root, ".noclobber", "agent_trace.jsonl").write_bytes(data)
        with suppress(NoclobberError):
            list(landed_writes(root))
        with suppress(NoclobberError):
            blame(root, f"{root}/a.txt", b"hello\n")
        with Workspace(root) as workspace, suppress(NoclobberError):
            undo.undo(workspace, undo.Selection())
        self.where.check()

    def mcp(self, data: bytes) -> None:
        """Arguments of a tool: every tool gets them, under its own name."""
        from noclobber.mcp import dispatch
        from noclobber.mcp.connection import ClientConnection, Workspaces
        from noclobber.mcp.roots import Roots
        from noclobber.mcp.tools import TOOLS

        root = self._project("served")
        try:
            given = json_text.parse(data.replace(b"ROOT", os.fsencode(root)))
        except ValueError:
            return
        if not isinstance(given, dict):
            return
        workspaces = Workspaces()
        connection = ClientConnection(workspaces, Roots([root]), is_session=True)
        name = given.get("tool")
        for tool in [name] if name in TOOLS else list(TOOLS)[:3]:
            answer = dispatch.call(connection, tool, {k: v for k, v in given.items() if k != "tool"}, _silent)
            text = str(answer.content)
            assert "noclobber failed inside" not in text, text
        workspaces.close()
        self.where.check()


def _silent(*_: Any, **__: Any) -> None:
    """Nobody listens to progress."""


def _merge(data: bytes) -> None:
    parts = [*data.split(b"\x1e"), b"", b"", b""][:3]
    found = merge.merge(*parts)
    assert found.content is not None or found.conflicts


def _ignored(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    rules = {"": gitignore.rules_in(text)}
    for path in ("a.txt", "sub/deep/er/b.txt", "x" * 60 + "/y"):
        gitignore.is_ignored(path, rules)


def _answers(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    wire.parse_stale(text)
    wire.parse_refusal(text)
    with suppress(ValueError):
        value = json_text.parse(data)
        wire.parse_stale(value)
        wire.parse_refusal(value)


def _ledger_of(root_name: str) -> bytes:
    event = {
        "action_type": "MUTATION",
        "payload": {"target_file": root_name, "content_sha256": "0" * 64, "previous_sha256": "1" * 64},
        "result": {"status": "LANDED"},
        "identity": {"agent_id": "x"},
    }
    return b"".join(
        json.dumps({"seq": n, "time": "2026-01-01T00:00:00Z", **event}).encode() + b"\n" for n in (1, 2)
    )


def _record(rows: list[list[Any]]) -> bytes:
    return json.dumps(rows).replace("7", "INODE").replace("8", "FOLDER").encode() + b"\n"


def acting_targets(where: Place) -> list[Target]:
    """Every reader that acts."""
    acting = Acting(where)
    planned = ["exchange", "", "a.txt", "0" * 64, "1" * 64, "swap-0123456789ab-x~a.txt", 7, "", 8]
    row = _record([planned])
    notes = [
        state + b"swap-0123456789ab\n".ljust(journal.RECORD_AT - 1, b"\0") + row
        for state in (b"S", b"L", b"R", b"P")
    ]
    # Every other kind of row, alone; a move has two.
    for kind in ("create", "delete", "inplace", "remove", "mode"):
        undo_name = "swap-0123456789ab-y~a.txt" if kind == "inplace" else ""
        rows = [[kind, *planned[1:7], undo_name, 8]]
        notes.append(notes[0][: journal.RECORD_AT] + _record(rows))
    moved = ["move", "", "a.txt", *planned[3:]], ["moved", "", "c.txt", *planned[3:]]
    notes.append(notes[0][: journal.RECORD_AT] + _record([*moved]))
    calls: list[dict[str, Any]] = [
        {"tool": "write_file", "path": "ROOT/a.txt", "content": "x"},
        {"tool": "edit_file", "path": "ROOT/a.txt", "edits": [{"oldText": "hello", "newText": "x"}]},
        {"tool": "move_file", "source": "ROOT/a.txt", "destination": "ROOT/../outside/n"},
        {"tool": "read_text_file", "path": "ROOT/a.txt", "head": 1},
        {"tool": "search_files", "path": "ROOT", "pattern": "**/*.txt"},
        {"tool": "create_directory", "path": "ROOT/../outside/d"},
        {"tool": "delete_file", "path": "../outside/secret"},
    ]
    base = b"a\nb\nc\n\x1ea\nB\nc\n\x1ea\nb\nC\n"
    stale = {"error_type": "STALE_FILE", "file_path": "a", "expected_hash": "0" * 64, "actual_hash": "1" * 64}
    return [
        Target("recovery", acting.recovery, notes),
        Target("lock file", acting.lock_file, [b"{}", b'{"deliverable_id":"d","holder":"h","pid":1}']),
        Target(
            "git file", acting.git_file, [b"gitdir: OUTSIDE\n", b"gitdir: ../outside\n", b"gitdir: sub\n"]
        ),
        Target("undo", acting.undone, [_ledger_of("a.txt"), _ledger_of("../outside/secret")]),
        Target("mcp", acting.mcp, [json.dumps(call).encode() for call in calls]),
        Target("merge", _merge, [base]),
        Target("gitignore", _ignored, [b"*.txt\n!a.txt\n/sub/**/b\n[a-z]*\n\\#x\n"]),
        Target("answers", _answers, [json.dumps(stale).encode()]),
    ]
