"""
Every reader of untrusted input, each with the exceptions that it documents, and seeds to start from.

What comes with a folder (notes, locks, ledgers, options, claims) and what a host or a model sends (events,
patches, commands) may be anything. Whatever it is: no traceback, no write outside the root, and no write let
through by an error.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fuzz.acting_targets import acting_targets
from fuzz.command_targets import command_targets
from fuzz.engine import Target
from noclobber.core import json_text
from noclobber.core.options import load_options
from noclobber.core.project import OPTIONS_NAME, SHARED_OPTIONS_NAME
from noclobber.disk.commit import journal
from noclobber.errors import NoclobberError
from noclobber.guard import claims, open_turns
from noclobber.guard.git import literal
from noclobber.hook import main
from noclobber.hook.session_memory import SessionMemory
from noclobber.hosts import HOSTS, json_edit, load
from noclobber.ledger import browse, line, reader, tail, verify
from noclobber.ledger.ledger import AgentTraceLedger
from noclobber.lock import liveness, record
from noclobber.shell import read_only, recognise
from noclobber.shell import targets as shell_targets
from noclobber.text import apply_patch, search_blocks

PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+x\n*** Add File: b.txt\n+y\n*** End Patch\n"
OUTSIDE = "outside"


class Place:
    """A project, a runtime folder, and beside them a folder that nothing may touch."""

    def __init__(self, folder: str) -> None:
        self.root, self.outside, self.runtime = f"{folder}/root", f"{folder}/{OUTSIDE}", f"{folder}/runtime"
        for path in (self.root, self.outside, self.runtime):
            os.mkdir(path, 0o700)
        os.makedirs(f"{self.root}/.noclobber/turns")
        Path(self.outside, "secret").write_text("secret\n")
        Path(self.root, "a.txt").write_text("hello\n")

    def check(self) -> None:
        """Nothing outside was written, and the file that nobody may write is as it was."""
        assert os.listdir(self.outside) == ["secret"]
        assert Path(self.outside, "secret").read_text() == "secret\n"
        assert Path(self.root, "a.txt").read_text() == "hello\n"


@contextmanager
def place() -> Iterator[Place]:
    """A scratch place, and the environment and the current folder that go with it."""
    before, folder = os.environ.get("XDG_RUNTIME_DIR"), os.getcwd()
    patience_s, claims.PATIENCE_S = claims.PATIENCE_S, 0.0  # Nobody else is going to finish.
    with tempfile.TemporaryDirectory(prefix="noclobber-fuzz-") as scratch:
        made = Place(os.path.realpath(scratch))
        os.environ["XDG_RUNTIME_DIR"] = made.runtime
        os.chdir(made.root)
        try:
            yield made
        finally:
            claims.PATIENCE_S = patience_s
            os.chdir(folder)
            if before is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = before


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _events(root: str) -> dict[str, list[bytes]]:
    given = {"file_path": f"{root}/a.txt", "content": "mine\n"}
    edit = {"file_path": "a.txt", "old_string": "hello", "new_string": "x", "replace_all": True}
    shown = {"content": "hello\n", "startLine": 1, "numLines": 2, "totalLines": 2}
    patch = {"command": PATCH}
    plain = {"session_id": "s1", "cwd": root, "tool_use_id": "w"}
    found: dict[str, list[dict[str, object]]] = {
        "claude-code": [
            {**plain, "hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": given},
            {**plain, "hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": edit},
            {**plain, "hook_event_name": "PostToolUse", "tool_name": "Read", "tool_input": given,
             "tool_response": {"file": shown}},
            {**plain, "hook_event_name": "SessionStart", "source": "resume"},
        ],
        "codex": [
            {**plain, "hook_event_name": "PreToolUse", "tool_name": "apply_patch",
             "tool_input": patch},
            {**plain, "hook_event_name": "PostToolUse", "tool_name": "Bash",
             "tool_input": {"command": "cat a.txt"}, "tool_response": "hello\n"},
        ],
        "qwen": [{**plain, "hook_event_name": "PreToolUse", "tool_name": "write_file", "tool_input": given}],
        "gemini": [{**plain, "hook_event_name": "BeforeTool", "tool_name": "write_file",
             "tool_input": given}],
        "cursor": [
            {"hook_event_name": "preToolUse", "conversation_id": "s1", "cwd": root, "tool_name": "Write",
             "tool_input": given},
        ],
        "copilot": [
            {"sessionId": "s1", "cwd": root, "toolName": "create",
             "toolArgs": {"path": "a.txt", "file_text": "m"}},
        ],
        "cline": [
            {"ev": "before", "directory": root, "input": {"tool": "editor", "sessionID": "s1", "callID": "w",
             "args": {"command": "create", "path": "a.txt", "file_text": "m"}}},
            {"ev": "after", "directory": root, "input": {"tool": "read_files", "sessionID": "s1",
             "callID": "w", "args": {"paths": ["a.txt"]}}, "output": [{"result": "1 | hello"}]},
        ],
        "opencode": [
            {"ev": "before", "directory": root, "input": {"tool": "write", "sessionID": "s1", "callID": "w"},
             "output": {"args": {"filePath": "a.txt", "content": "mine\n"}}},
        ],
    }  # fmt: skip
    return {host: [json.dumps(event).encode() for event in events] for host, events in found.items()}


def _is_denied(stdout: str) -> bool:
    answer = json.loads(stdout) if stdout else {}
    nested = answer.get("hookSpecificOutput", {})
    return "deny" in (answer.get("decision"), answer.get("permission"), nested.get("permissionDecision"))


class _Hook:
    """The whole hook of one host, in this process. It must answer everything, and never fail itself."""

    def __init__(self, host: str, where: Place, duty: str = main.CHECK) -> None:
        self.host, self.where, self.duty = host, where, duty

    def __call__(self, data: bytes) -> None:
        with tempfile.TemporaryFile() as stdin:
            stdin.write(data)
            stdin.seek(0)
            answer = main.respond(self.host, self.duty, stdin.fileno())
        try:
            payload = json_text.parse(data)
        except ValueError:
            payload = None
        if self.duty == main.CHECK and not isinstance(payload, dict):  # A write may wait for the answer.
            assert _is_denied(answer.stdout) or answer.code == 2, "an error let a write through"
        log = Path(self.where.runtime, "noclobber", main.LOG_NAME)
        if log.exists():
            logged = log.read_text()
            log.unlink()
            assert '"traceback"' not in logged, logged
        self.where.check()


def _host(host: str, data: bytes) -> None:
    module = load(host)
    try:
        payload = json_text.parse(data)
    except ValueError:
        return
    if isinstance(payload, dict):
        with suppress(NoclobberError, ValueError):
            module.phrase(module.read(payload), None)


def _lock(data: bytes) -> None:
    found = record.parse(data)
    liveness.judge(found, 1_700_000_000.0)
    if found.record is not None:
        record.parse(found.record.to_bytes())


def _patch(data: bytes) -> None:
    with suppress(NoclobberError):
        for action in apply_patch.actions(_text(data)):
            if isinstance(action.change, apply_patch.Patch):
                with suppress(NoclobberError):
                    action.change.apply(b"hello\nworld\nhello\n", "a.txt")


def _shell(data: bytes) -> None:
    text = _text(data)
    for kind in ("pre", "post"):
        with suppress(NoclobberError):
            recognise.actions(text, kind)
    # A command that only reads names nothing that it writes.
    assert not (read_only.is_read_only(text) and shell_targets.targets(text))
    literal.reaches_of(text, "/p")


def _blocks(data: bytes) -> None:
    with suppress(NoclobberError):
        search_blocks.Blocks(_text(data)).apply(b"hello\nworld\n", "")


def _json(data: bytes) -> None:
    with suppress(ValueError):
        json_text.parse(data)


def _json_edit(data: bytes) -> None:
    with suppress(json_edit.BadConfigurationError):
        found = json_edit.parse(_text(data))
        with suppress(json_edit.BadConfigurationError):
            json_edit.add_member(_text(data), found, "hooks", {})


class _Files:
    """Readers of files that come with a folder."""

    def __init__(self, where: Place) -> None:
        self.where = where
        self.root_fd = os.open(where.root, os.O_RDONLY | os.O_DIRECTORY)

    def _put(self, name: str, data: bytes) -> str:
        path = f"{self.where.root}/{name}"
        Path(path).write_bytes(data)
        return path

    def note(self, data: bytes) -> None:
        root = self.where.root
        note = journal.Note("note", self.root_fd, base=root, folder_inode=1, owner=os.geteuid())
        try:
            # As somebody could write it who may change a note of ours: all of it but what proves it ours.
            body = data[: journal.NOTE_BYTES].ljust(journal.NOTE_BYTES, b"\0")
            with open(f"{root}/note", "r+b") as file:
                file.write(body[: journal.TOKEN_AT])
                file.seek(journal.RECORD_AT)
                file.write(body[journal.RECORD_AT :])
            for planned in note.read().files:
                assert f"{planned.folder}/".startswith(f"{root}/")
                assert "/" not in planned.name + planned.swap + planned.undo
            _ = note.book, note.is_idle
        finally:
            note.close()

    def ledger(self, data: bytes) -> None:
        path = self._put("ledger.jsonl", data)
        line.link_of(data)
        line.is_sealed(data)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with suppress(NoclobberError):
                tail.read_tail(descriptor, len(data), path)
            list(reader.backwards(descriptor))
            with suppress(NoclobberError):
                verify.audit(descriptor, len(data), path, None, None)
            with suppress(NoclobberError):
                for event in verify.read_events(descriptor, path):
                    browse.summary_of(event, self.where.root)
                    browse.EventFilter(files=("a.txt",)).test()(event)
        finally:
            os.close(descriptor)
        with suppress(NoclobberError):
            list(reader.Lines(path))

    def options(self, data: bytes) -> None:
        for name in (OPTIONS_NAME, SHARED_OPTIONS_NAME):
            path = self._put(name, data)
            with suppress(NoclobberError):
                load_options(self.where.root)
            os.unlink(path)

    def claim(self, data: bytes) -> None:
        claims._read(self._put("claim", data), "a.txt")

    def turns(self, data: bytes) -> None:
        self._put(".noclobber/turns/1", data)
        open_turns.look(f"{self.where.root}/.noclobber")
        open_turns.left_behind(f"{self.where.root}/.noclobber")

    def memory(self, data: bytes) -> None:
        path = f"{self.where.root}/a.txt"
        with SessionMemory("codex", "s1", "main", root=self.where.root) as known:
            known._write("f", path, {})
            for name in os.listdir(known._fd):
                for kind in "fn":
                    descriptor = os.open(
                        kind + name[1:], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=known._fd
                    )
                    os.write(descriptor, data)
                    os.close(descriptor)
            known.recall(path, path)


def _ledger_seed(folder: str) -> bytes:
    path = f"{folder}/seed.jsonl"
    ledger = AgentTraceLedger(path)
    for number in range(3):
        ledger.append({"action_type": "write", "path": f"a{number}", "agent_id": "x"})
    ledger.close()
    data = Path(path).read_bytes()
    os.unlink(path)
    return data


def _lock_seeds(lock: bytes) -> list[bytes]:
    """Records with every optional member, and with none of them: mutations rarely invent a name."""
    more = {
        "schema_version": "1",
        "boot_id": "b",
        "pid_namespace": "n",
        "secret_sha256": "0" * 64,
        "pid_started": 5,
        "folder_device": 1,
        "folder_inode": 2,
        "renewal_s": 60,
        "recovered_from": {"recovery_reason": "dead", "previous_holder": "x"},
    }
    members = json.loads(lock)
    return [json.dumps(members | each).encode() for each in (more, dict.fromkeys(more), {"holder": None})]


def targets(where: Place) -> list[Target]:
    """Every reader, with a place to read in."""
    files, events = _Files(where), _events(where.root)
    every_event = [event for listed in events.values() for event in listed]
    lock = record.LockRecord("d", "me", "2026-01-01T00:00:00Z", 60, 1, "a" * 32, host="h").to_bytes()
    planned = ["exchange", where.root, "a.txt", "0" * 64, "1" * 64, "swap-1", 7, ""]
    body = (json.dumps([planned]) + "\n").encode()
    notes = [
        state + b"swap-x\n".ljust(journal.RECORD_AT - 1, b"\0") + body for state in (b"S", b"L", b"R", b"P")
    ]
    notes.append(b"M".ljust(journal.RECORD_AT, b"\0") + json.dumps(where.root).encode() + b"\n")
    turns = {"process": [1, 2, "h", "b", "n"], "turns": [["t", "a", None, "h", None, "2026-01-01T00:00:00Z"]]}
    known = {"path": f"{where.root}/a.txt", "seen": ["0" * 64, "0" * 64, None, None], "noted": {}}
    commands = [
        b"cat a.txt && sed -n '1,5p' b | head -3",
        b"cd x && git -C y checkout -- a.txt; git stash push -m z | tee log > out &",
        b"find . -name '*.py' -exec grep -l x {} + | xargs -n1 sed -i s/a/b/ && cp a b",
        b"cd x; apply_patch <<'EOF'\n" + PATCH.encode() + b"EOF\n",
    ]
    return [
        *(Target(f"host {host}", lambda data, host=host: _host(host, data), every_event) for host in HOSTS),  # type: ignore[misc]
        *(Target(f"hook {host}", _Hook(host, where), events[host]) for host in HOSTS),
        Target("note", files.note, notes),
        Target("lock", _lock, [lock, *_lock_seeds(lock)]),
        Target("ledger", files.ledger, [_ledger_seed(where.root)]),
        Target(
            "options", files.options, [b'[tool.noclobber]\nresubmitted = "deny"\n', b'resubmitted = "deny"\n']
        ),
        Target("patch", _patch, [PATCH.encode()]),
        Target("shell", _shell, commands),
        Target("search blocks", _blocks, [b"<<<<<<< SEARCH\nhello\n=======\nx\n>>>>>>> REPLACE\n"]),
        Target("claim", files.claim, [b'["a.txt","s1","w",1700000000.5]']),
        Target("turns", files.turns, [json.dumps(turns).encode()]),
        Target("session memory", files.memory, [json.dumps(known).encode(), b'["a","b",null]']),
        Target("json", _json, [b'{"a":[1,2.5e3,"x\\u00e4",null,true]}']),
        Target("json edit", _json_edit, [b'{"a": [1, 2], // x\n "b": {"c": "d",}}']),
        *(Target(f"note {host}", _Hook(host, where, main.NOTE), events[host]) for host in HOSTS),
        *acting_targets(where),
        *command_targets(where),
    ]
