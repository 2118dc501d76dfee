"""A host's file tool that we carry out: the conversation of one process about one call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from noclobber.hosts.hook_entries import START
from tests.rigs.hooks import HookRig, refusal

BOM = b"\xef\xbb\xbf"


class Conversation:
    """One call of opencode's plugin, step by step."""

    def __init__(self, rig: HookRig, tool: str, args: Any, session: str = "s1") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", START, "opencode", "write"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(rig.runtime)},
        )
        event = {
            "ev": "write",
            "input": {"tool": tool, "sessionID": session, "callID": rig.next_id(), "args": args},
            "directory": str(rig.root),
            "worktree": str(rig.root),
        }
        self.plan = self.say(json.dumps(event).encode())

    def say(self, line: bytes) -> dict[str, Any]:
        """Send a line; return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def ring(self) -> None:
        """Send the alarm that the kernel would send later, once the process waits for the user."""
        while b"S (sleeping)" not in Path(f"/proc/{self._process.pid}/status").read_bytes():
            os.sched_yield()
        self._process.send_signal(signal.SIGALRM)

    def agree(self) -> dict[str, Any]:
        """The user agrees."""
        assert self.plan["decision"] == "ask", self.plan
        return self.say(b"go")

    def __enter__(self) -> Conversation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        out, err = self._process.communicate(timeout=30)
        assert (self._process.returncode, out, err) == (0, b"", b"")


@pytest.fixture
def file(root: Path) -> Path:
    """A file that the agent may read."""
    path = root / "a.txt"
    path.write_text("hello\nworld\n")
    return path


def read(rig: HookRig, path: Path) -> None:
    """Tell the hook that opencode showed a file."""
    text = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")
    lines = text.count("\n") + 1
    display = {"text": text, "lineStart": 1, "lineEnd": lines, "totalLines": lines, "truncated": False}
    payload = {
        "ev": "after",
        "input": {
            "tool": "read",
            "sessionID": "s1",
            "callID": rig.next_id(),
            "args": {"filePath": str(path)},
        },
        "output": {"output": text, "metadata": {"display": display}},
        "directory": str(rig.root),
    }
    assert rig.call("opencode", payload, "note") == ({}, 0)


def edit(path: Path, old: str, new: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of an edit."""
    return {"filePath": str(path), "oldString": old, "newString": new, **more}


def test_a_write_is_planned_then_agreed_to_and_then_on_disk(rig: HookRig, file: Path) -> None:
    """finding H4, N-events: nothing is written before the user agrees, and the guard writes it."""
    read(rig, file)
    with Conversation(rig, "edit", edit(file, "hello", "HELLO")) as call:
        [planned] = call.plan["files"]
        assert file.read_text() == "hello\nworld\n"
        assert call.agree() == {"decision": "done"}

    assert file.read_text() == "HELLO\nworld\n"
    assert (planned["path"], planned["type"], planned["additions"], planned["deletions"]) == (
        str(file),
        "update",
        1,
        1,
    )
    assert planned["diff"].endswith("@@ -1,2 +1,2 @@\n-hello\n+HELLO\n world\n")
    [event] = rig.ledger()
    assert (event["action_type"], event["identity"]["host"]) == ("MUTATION", "opencode")
    assert event["payload"]["level"] != "hook"


def test_a_save_while_the_dialogue_is_open_is_kept_and_the_write_refused(rig: HookRig, file: Path) -> None:
    """finding H4: check and write are one step, however long a person thinks."""
    read(rig, file)
    with Conversation(rig, "write", {"filePath": str(file), "content": "mine\n"}) as call:
        file.write_text("a person's\n")
        answer = refusal(call.agree())

    assert answer["error_type"] == "STALE_FILE"
    assert file.read_text() == "a person's\n"
    assert rig.kinds() == ["MUTATION_CONFLICT"]


def test_what_others_changed_is_told_after_a_write_of_another_file_once(rig: HookRig, file: Path) -> None:
    """N-notice: opencode's own event after a call is not sent for tools that we carry out."""
    other = rig.root / "b.txt"
    other.write_text("quiet\n")
    read(rig, file)
    read(rig, other)
    file.write_text("hello\nworld\ntheirs\n")
    with Conversation(rig, "edit", edit(other, "quiet", "QUIET")) as call:
        told = call.agree()
    assert told["decision"] == "done"
    assert "- a.txt, by an outsider, at " in told["told"]
    assert "+theirs" in told["told"]

    with Conversation(rig, "edit", edit(other, "QUIET", "still")) as call:
        assert call.agree() == {"decision": "done"}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc to see that the process waits")
def test_a_user_may_think_for_longer_than_a_hook_may_hang(rig: HookRig, file: Path) -> None:
    """finding H4: the alarm that ends a hook which hangs does not ring while the dialogue is open."""
    with Conversation(rig, "edit", edit(file, "hello", "HELLO")) as call:
        call.ring()
        assert call.agree() == {"decision": "done"}

    assert file.read_text() == "HELLO\nworld\n"


def test_nobody_is_asked_about_a_stale_write(rig: HookRig, file: Path) -> None:
    """009-FR-004: it is refused before the dialogue opens, once."""
    read(rig, file)
    file.write_text("a person's\n")
    with Conversation(rig, "edit", edit(file, "hello", "HELLO")) as call:
        assert refusal(call.plan)["error_type"] == "STALE_FILE"

    assert rig.kinds() == ["MUTATION_CONFLICT"]


def test_a_declined_write_leaves_nothing_behind_and_keeps_nobody_out(rig: HookRig, file: Path) -> None:
    """finding H8: the end of the input means no; another session writes at once."""
    read(rig, file)
    with Conversation(rig, "edit", edit(file, "hello", "HELLO")):
        pass
    with Conversation(rig, "write", {"filePath": str(file), "content": "theirs\n"}, session="s2") as call:
        assert call.agree() == {"decision": "done"}

    assert file.read_text() == "theirs\n"
    assert rig.kinds() == ["MUTATION"]


def test_two_dialogues_at_once_and_only_one_write_lands(rig: HookRig, file: Path) -> None:
    """009-SC-001: two sessions planned from the same version."""
    read(rig, file)
    with (
        Conversation(rig, "edit", edit(file, "hello", "one")) as first,
        Conversation(rig, "edit", edit(file, "hello", "two"), session="s2") as second,
    ):
        assert first.agree() == {"decision": "done"}
        assert refusal(second.agree())["error_type"] == "STALE_FILE"

    assert file.read_text() == "one\nworld\n"


def test_an_edit_that_does_not_fit_is_told_as_opencode_tells_it(rig: HookRig, file: Path) -> None:
    """finding H4: it is the tool's own error, and no refusal of ours is on record."""
    with Conversation(rig, "edit", edit(file, "goodbye", "x")) as call:
        assert call.plan["decision"] == "error"
        assert call.plan["reason"].startswith("Could not find oldString in the file.")
    with Conversation(rig, "edit", edit(rig.root / "none.txt", "a", "b")) as call:
        assert call.plan == {"decision": "error", "reason": f"File {rig.root}/none.txt not found"}
    with Conversation(rig, "edit", edit(file, "", "x")) as call:
        assert call.plan["reason"].startswith("oldString cannot be empty when editing an existing file.")

    assert not (rig.root / ".noclobber" / "agent_trace.jsonl").exists() or rig.ledger() == []


def test_a_new_file_gets_its_folders_and_may_be_edited_without_a_read(rig: HookRig) -> None:
    """009-SC-002: as the built-in tool does."""
    path = rig.root / "deep" / "er" / "n.txt"
    with Conversation(rig, "write", {"filePath": "deep/er/n.txt", "content": "one\n"}) as call:
        assert call.plan["files"][0]["exists"] is False
        assert call.agree() == {"decision": "done"}
    with Conversation(rig, "edit", edit(path, "one", "two")) as call:
        assert call.agree() == {"decision": "done"}

    assert path.read_text() == "two\n"


@pytest.mark.parametrize(
    ("before", "tool", "args", "after"),
    [
        pytest.param(
            b"one\r\ntwo\r\n",
            "edit",
            {"oldString": "one\ntwo", "newString": "1\n2"},
            b"1\r\n2\r\n",
            id="CRLF",
        ),
        pytest.param(
            BOM + b"one\n",
            "edit",
            {"oldString": "one", "newString": "1"},
            BOM + b"1\n",
            id="mark",
        ),
        pytest.param(
            BOM + b"one\n", "write", {"content": "two\n"}, BOM + b"two\n", id="mark of a whole file"
        ),
        pytest.param(
            b"caf\xe9 one\n", "edit", {"oldString": "one", "newString": "1"}, b"caf\xe9 1\n", id="not UTF-8"
        ),
    ],
)
def test_what_the_call_does_not_name_stays(
    rig: HookRig, file: Path, before: bytes, tool: str, args: dict[str, Any], after: bytes
) -> None:
    """N-bytes, finding H13: line endings, a byte-order mark, bytes that are no text."""
    file.write_bytes(before)
    read(rig, file)
    with Conversation(rig, tool, {"filePath": str(file), **args}) as call:
        assert call.agree() == {"decision": "done"}
    with Conversation(rig, "write", {"filePath": str(file), "content": "again\n"}) as call:
        assert call.agree() == {"decision": "done"}  # The agent knows what it wrote.

    assert rig.kinds() == ["MUTATION", "MUTATION"]
    assert rig.ledger()[0]["payload"]["after_hash"] == rig.ledger()[1]["payload"]["before_hash"]
    assert file.read_bytes() == (BOM if after.startswith(BOM) else b"") + b"again\n"


def test_a_patch_of_several_files_lands_whole_or_not_at_all(rig: HookRig, file: Path) -> None:
    """N-many: with one stale file in it, nothing of the patch lands."""
    other = rig.root / "b.txt"
    other.write_text("b\n")
    read(rig, file)
    read(rig, other)
    lines = (
        "*** Begin Patch",
        "*** Update File: a.txt",
        "@@",
        "-hello",
        "+HELLO",
        "*** Add File: new.txt",
        "+new",
        "*** Delete File: b.txt",
        "*** End Patch",
    )
    patch = {"patchText": "\n".join(lines)}
    with Conversation(rig, "apply_patch", patch) as call:
        other.write_text("a person's\n")
        assert refusal(call.agree())["error_type"] == "STALE_FILE"
    with Conversation(rig, "apply_patch", patch) as call:
        assert refusal(call.plan)["error_type"] == "STALE_FILE"
    read(rig, other)
    with Conversation(rig, "apply_patch", patch) as call:
        assert [each["type"] for each in call.plan["files"]] == ["update", "add", "delete"]
        assert call.agree() == {"decision": "done"}

    assert (file.read_text(), (rig.root / "new.txt").read_text()) == ("HELLO\nworld\n", "new\n")
    assert not other.exists()


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("write", {"filePath": "a.txt", "content": "x", "mode": "append"}),
        ("edit", {"filePath": "a.txt", "oldString": "hello", "newString": "x", "regex": True}),
        ("edit", {"filePath": "a.txt", "path": "b.txt", "oldString": "hello", "newString": "x"}),
        ("write", {"path": "a.txt", "content": "x"}),
        ("write", {"filePath": "a.txt", "content": ["x"]}),
        ("write", "a.txt"),
        ("rewrite", {"filePath": "a.txt", "content": "x"}),
        ("apply_patch", {"patchText": "nonsense"}),
    ],
)
def test_a_call_that_is_not_understood_writes_nothing_and_says_what_to_report(
    rig: HookRig, file: Path, tool: str, args: Any
) -> None:
    """N-hosts, N-input: a parameter of the next version may change what the tool does."""
    with Conversation(rig, tool, args) as call:
        told = refusal(call.plan)

    assert file.read_text() == "hello\nworld\n"
    assert told["message"]
    assert rig.kinds() == ["MUTATION_REFUSED"]


def test_a_file_outside_of_the_project_is_guarded_as_well(rig: HookRig, tmp_path: Path) -> None:
    """finding H4: hosts may write anywhere, after their own question."""
    outside = tmp_path / "elsewhere.txt"
    outside.write_text("one\n")
    with Conversation(rig, "edit", edit(outside, "one", "two")) as call:
        outside.write_text("one, by a person\n")
        assert refusal(call.agree())["error_type"] == "STALE_FILE"

    assert outside.read_text() == "one, by a person\n"
