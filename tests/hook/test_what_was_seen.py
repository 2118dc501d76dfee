"""What an agent has seen, in the words of each host: files that are missing, parts of files, odd bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hooks import HookRig, is_denied, refusal


def codex(rig: HookRig, name: str, tool: str, command: str, call: str, said: str = "") -> dict[str, Any]:
    more = {"tool_response": said} if name == "PostToolUse" else {}
    payload = rig.tool(name, tool, {"command": command}, tool_use_id=call, turn_id="t1", **more)
    return rig.call("codex", payload, "check" if name == "PreToolUse" else "note")[0]


def patch(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch", ""))


# -- files that are missing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "cat: a.txt: No such file or directory\n",
        "cat: a.txt: Datei oder Verzeichnis nicht gefunden\n",
        "Chunk ID: 1\nProcess exited with code 1\nOutput:\ncat: a.txt: No such file or directory\n",
    ],
)
def test_a_deleted_file_can_be_created_again_after_a_look(rig: HookRig, file: Path, said: str) -> None:
    """finding H5, ruling 5: a failed read of a missing file is an observation of its absence."""
    codex(rig, "PostToolUse", "Bash", "cat a.txt", "c1", "hello\nworld\n")
    file.unlink()
    add = patch("*** Add File: a.txt", "+new")
    assert is_denied(codex(rig, "PreToolUse", "apply_patch", add, "c2"))

    codex(rig, "PostToolUse", "Bash", "cat a.txt", "c3", said)

    assert codex(rig, "PreToolUse", "apply_patch", add, "c4") == {}


@pytest.mark.parametrize(
    "command",
    ["rm a.txt", "rm -f a.txt 2>/dev/null || true", "mv a.txt b.txt", "git rm -q a.txt", "cd . && rm a.txt"],
)
def test_an_own_command_that_removes_a_file_is_no_surprise(rig: HookRig, file: Path, command: str) -> None:
    """finding H5: read, remove by shell, create again."""
    codex(rig, "PostToolUse", "Bash", "cat a.txt", "c1", "hello\nworld\n")
    file.unlink()

    codex(rig, "PostToolUse", "Bash", command, "c2")

    add = patch("*** Add File: a.txt", "+new")
    assert codex(rig, "PreToolUse", "apply_patch", add, "c3") == {}


def test_a_file_that_was_shown_and_then_deleted_is_not_known_to_be_missing(rig: HookRig, file: Path) -> None:
    """finding H5: somebody deletes it between the command and our look; what the agent saw stays."""
    file.unlink()

    codex(rig, "PostToolUse", "Bash", "cat a.txt", "c1", "hello\nworld\n")
    file.write_text("somebody else's\n")
    codex(rig, "PostToolUse", "Bash", "cat a.txt", "c2", "somebody else's\n")
    file.unlink()
    codex(rig, "PostToolUse", "Bash", "cat a.txt", "c3", "somebody else's\n")

    found = refusal(codex(rig, "PreToolUse", "apply_patch", patch("*** Add File: a.txt", "+new"), "c4"))
    assert found["details"]["current_disk_hash"] == "DELETED"


def test_a_removed_file_that_somebody_made_anew_has_not_been_seen(rig: HookRig, file: Path) -> None:
    """finding H5: `rm`, and a stranger's file in its place a moment later."""
    codex(rig, "PostToolUse", "Bash", "cat a.txt", "c1", "hello\nworld\n")
    file.write_text("somebody else's\n")

    codex(rig, "PostToolUse", "Bash", "rm a.txt", "c2")

    assert is_denied(codex(rig, "PreToolUse", "apply_patch", patch("*** Add File: a.txt", "+new"), "c3"))


@pytest.mark.parametrize("host", ["claude-code", "qwen"])
def test_a_read_tool_that_fails_has_seen_that_there_is_no_file(rig: HookRig, file: Path, host: str) -> None:
    """finding H5: the host's own event for a failed call."""
    read, write = ("Read", "Write") if host == "claude-code" else ("read_file", "write_file")
    shown = {"tool_response": {"llmContent": "hello\nworld\n"}} if host == "qwen" else {}
    rig.call(host, rig.tool("PostToolUse", read, {"file_path": str(file)}, tool_use_id="r1", **shown))
    if host == "claude-code":
        rig.read(file)
    file.unlink()
    given = {"file_path": str(file), "content": "new\n"}
    assert is_denied(rig.call(host, rig.tool("PreToolUse", write, given, tool_use_id="w1"), "check")[0])

    failed = {"file_path": str(file)}, {"tool_use_id": "r2", "error": "File does not exist."}
    rig.call(host, rig.tool("PostToolUseFailure", read, failed[0], **failed[1]))

    assert rig.call(host, rig.tool("PreToolUse", write, given, tool_use_id="w2"), "check")[0] == {}


# -- parts of files ----------------------------------------------------------------------------------------

LINES = [f"line {number}" if number % 5 else "" for number in range(1, 31)]


def family(host: str, first: int, last: int) -> dict[str, Any]:
    """A part as Gemini and Qwen show it (0.61.0, 0.24.4)."""
    text = "\n".join(LINES[first - 1 : last])
    if host == "qwen":
        return {"llmContent": f"Showing lines {first}-{last} of 30 total lines.\n\n---\n\n{text}"}
    return {
        "llmContent": "\nIMPORTANT: The file content has been truncated.\n"
        f"Status: Showing lines {first}-{last} of 30 total lines.\nAction: To read more of the file, …\n\n"
        f"--- FILE CONTENT (truncated) ---\n{text}"
    }


def read_part(rig: HookRig, host: str, file: Path, first: int, last: int) -> None:
    if host == "claude-code":
        shown = {
            "file": {
                "content": "\n".join(LINES[first - 1 : last]),
                "startLine": first,
                "numLines": last - first + 1,
                "totalLines": 30,
            }
        }
        given = {"file_path": str(file), "offset": first, "limit": last - first + 1}
        payload = rig.tool("PostToolUse", "Read", given, tool_response=shown)
    elif host == "qwen":
        given = {"file_path": str(file), "offset": first - 1, "limit": last - first + 1}
        payload = rig.tool("PostToolUse", "read_file", given, tool_response=family(host, first, last))
    elif host == "gemini":
        given = {"file_path": str(file), "start_line": first, "end_line": last}
        payload = rig.tool("AfterTool", "read_file", given, tool_response=family(host, first, last))
    else:
        given = {"command": f"sed -n '{first},{last}p' {file}"}
        said = "".join(f"{line}\n" for line in LINES[first - 1 : last])
        payload = rig.tool("PostToolUse", "Bash", given, tool_response=said)
    rig.call(host, payload, "note")


def ask_edit(rig: HookRig, host: str, file: Path, call: str) -> dict[str, Any]:
    given: dict[str, Any] = {"file_path": str(file), "old_string": "line 1\n", "new_string": "LINE 1\n"}
    tool = {"claude-code": "Edit", "qwen": "edit", "gemini": "replace"}.get(host, "apply_patch")
    if host == "codex":
        given = {"command": patch(f"*** Update File: {file}", "@@", "-line 1", "+LINE 1")}
    name = "BeforeTool" if host == "gemini" else "PreToolUse"
    return rig.call(host, rig.tool(name, tool, given, tool_use_id=call), "check")[0]


@pytest.mark.parametrize("host", ["claude-code", "qwen", "gemini", "codex"])
def test_parts_at_one_hash_add_up_and_end_the_conflict(rig: HookRig, root: Path, host: str) -> None:
    """finding H7, finding H13: in files that are a moment old, with empty lines at the seams."""
    file = root / "long.txt"
    file.write_text("\n".join(["line 1", *["old"] * 29]) + "\n")
    whole = {"llmContent": file.read_text()}
    if host == "claude-code":
        rig.read(file)
    elif host == "codex":
        given: dict[str, Any] = {"command": f"cat {file}"}
        rig.call(host, rig.tool("PostToolUse", "Bash", given, tool_response=file.read_text()), "note")
    else:
        name = "AfterTool" if host == "gemini" else "PostToolUse"
        given = {"file_path": str(file)}
        rig.call(host, rig.tool(name, "read_file", given, tool_response=whole), "note")
    file.write_text("\n".join(LINES) + "\n")

    assert is_denied(ask_edit(rig, host, file, "e1"))
    read_part(rig, host, file, 1, 10)
    read_part(rig, host, file, 21, 30)
    assert is_denied(ask_edit(rig, host, file, "e2"))
    read_part(rig, host, file, 11, 20)

    assert ask_edit(rig, host, file, "e3") == {}


@pytest.mark.parametrize("host", ["claude-code", "qwen", "gemini", "codex"])
def test_a_part_of_a_new_file_is_a_part_that_was_seen(rig: HookRig, root: Path, host: str) -> None:
    """finding H13: a file younger than five seconds, read in part, may be edited."""
    file = root / "long.txt"
    file.write_text("\n".join(LINES) + "\n")

    read_part(rig, host, file, 1, 10)

    assert ask_edit(rig, host, file, "e1") == {}


# -- bytes that are not UTF-8 -----------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["kept", "marked", "latin-1"])
@pytest.mark.parametrize("host", ["claude-code", "qwen", "gemini"])
def test_a_file_that_is_not_utf8_is_no_race_however_the_host_writes_it(
    rig: HookRig, root: Path, host: str, left: str
) -> None:
    """finding H13: bytes kept, a mark for each bad byte, or all of it taken for Latin-1."""
    file = root / "cafe.txt"
    before = b"caf\xe9\nhello\n"
    file.write_bytes(before)
    given = {"file_path": str(file), "old_string": "hello", "new_string": "HELL\xd6"}
    tool = {"claude-code": "Edit", "qwen": "edit"}.get(host, "replace")
    names = ("BeforeTool", "AfterTool") if host == "gemini" else ("PreToolUse", "PostToolUse")
    assert rig.call(host, rig.tool(names[0], tool, given, tool_use_id="e"), "check")[0] == {}

    if left == "latin-1":
        file.write_bytes(b"caf\xe9\nHELL\xd6\n")
    else:
        text = before.decode("utf-8", "replace" if left == "marked" else "surrogateescape")
        file.write_bytes(text.replace("hello", "HELL\xd6").encode("utf-8", "surrogateescape"))
    told = rig.call(host, rig.tool(names[1], tool, given, tool_use_id="e", tool_response={}), "note")[0]

    assert told == {}
    assert rig.kinds() == ["MUTATION"]


def test_qwens_notebooks_are_checked(rig: HookRig, root: Path) -> None:
    """finding H13: `notebook_edit` reaches the hook, and a stale one is refused."""
    from noclobber.hosts.hook_entries import hook_file

    notebook = root / "n.ipynb"
    notebook.write_text("{}\n")
    shown = {"llmContent": "{}\n"}
    rig.call("qwen", rig.tool("PostToolUse", "read_file", {"file_path": str(notebook)}, tool_response=shown))
    notebook.write_text('{"theirs": 1}\n')
    given = {"notebook_path": str(notebook), "cell_id": "1", "new_source": "x"}

    assert is_denied(rig.call("qwen", rig.tool("PreToolUse", "notebook_edit", given), "check")[0])
    matchers = [entry.value.get("matcher", "-") for entry in hook_file("qwen", "project", str(root)).entries]
    assert sum(re.search(matcher, "notebook_edit") is not None for matcher in matchers) == 3


@pytest.mark.parametrize("ending", ["preserved", "older"])
def test_patches_of_files_with_crlf_follow_each_other(rig: HookRig, file: Path, ending: str) -> None:
    """finding H10: each patch is foreseen as Codex writes it, so none is refused for the one before."""
    file.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    codex(rig, "PostToolUse", "Bash", "cat a.txt", "c0", "one\r\ntwo\r\nthree\r\n")

    for number, word in enumerate(("one", "two", "three")):
        change = patch("*** Update File: a.txt", "@@", f"-{word}", f"+{word.upper()}")
        assert codex(rig, "PreToolUse", "apply_patch", change, f"p{number}") == {}
        new = word.upper().encode() + (b"\r\n" if ending == "preserved" else b"\n")
        file.write_bytes(file.read_bytes().replace(word.encode() + b"\r\n", new))
        assert codex(rig, "PostToolUse", "apply_patch", change, f"p{number}", "Exit code: 0\n") == {}

    assert rig.kinds() == ["MUTATION"] * 3
