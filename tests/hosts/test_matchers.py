"""Which tools the installed hooks are asked about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.hosts import load
from noclobber.hosts.hook_entries import hook_file
from noclobber.hosts.matchers import all_but, all_but_spelled_out
from tests.rigs.hooks import HookRig, refusal

HOSTS = {
    "claude-code": ("PreToolUse", "PostToolUse", "Bash", ("Edit", "Write", "NotebookEdit")),
    "codex": ("PreToolUse", "PostToolUse", "Bash", ("apply_patch",)),
    "gemini": ("BeforeTool", "AfterTool", "run_shell_command", ("write_file", "replace")),
    "qwen": ("PreToolUse", "PostToolUse", "run_shell_command", ("write_file", "edit", "notebook_edit")),
}
READERS = {"claude-code": "Read", "gemini": "read_file", "qwen": "read_file"}


def duties(host: str, root: Path, event: str, tool: str) -> list[str]:
    """Return what the hooks that a host runs for a tool are for."""
    found = []
    for entry in hook_file(host, "project", str(root), portable=True).entries:
        hook = entry.value["hooks"][0]
        if entry.event == event and "if" not in hook and is_matched(host, entry.value["matcher"], tool):
            found.append(hook["command"].split()[-1])
    return found


def is_matched(host: str, matcher: str, tool: str) -> bool:
    """Return what a host takes for a match: anywhere in the name; in Claude Code a plain word is that name."""
    if host == "claude-code" and re.fullmatch(r"[A-Za-z0-9_|]*", matcher):
        return tool in matcher.split("|")
    return re.search(matcher, tool) is not None


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("tool", ["FileWriter", "patch_files", "mcp", "Basher", "readwrite", "B", "x"])
def test_a_tool_of_the_next_version_reaches_the_hook(host: str, tool: str, tmp_path: Path) -> None:
    """N-hosts: a built-in tool that was renamed, or is new, is judged before it writes and looked at after."""
    before, after, shell, writers = HOSTS[host]
    for name in (tool, *writers, "mcp_fs_write_file" if host == "gemini" else "mcp__fs__write_file"):
        assert duties(host, tmp_path, before, name) == ["check"]
        assert duties(host, tmp_path, after, name) == ["note"]
    assert duties(host, tmp_path, before, shell) == ["shell"]


@pytest.mark.parametrize("host", HOSTS)
def test_tools_that_are_known_to_write_nothing_start_no_process(host: str, tmp_path: Path) -> None:
    """N-hook: nobody waits for an answer that is known. Codex has few, which are slow by themselves."""
    before, after, _, _ = HOSTS[host]
    reader = READERS.get(host)
    if reader is not None:
        assert (duties(host, tmp_path, before, reader), duties(host, tmp_path, after, reader)) == (
            [],
            ["note"],
        )
    foreign = "mcp_search_find" if host == "gemini" else "mcp__search__find"
    assert duties(host, tmp_path, before, foreign) == duties(host, tmp_path, after, foreign) == []
    harmless: tuple[str, ...] = getattr(load("qwen" if host == "gemini" else host), "HARMLESS")  # noqa: B009
    if host != "codex":
        for name in set(harmless) - {"invoke_agent"}:  # In Gemini CLI it says who asks.
            assert duties(host, tmp_path, before, name) == duties(host, tmp_path, after, name) == []


NAMES = st.text("ab_mcp", max_size=7)


@given(names=st.frozensets(NAMES.filter(bool), max_size=4), tool=NAMES.filter(bool))
def test_without_looking_ahead_the_same_tools_match(names: frozenset[str], tool: str) -> None:
    """N-hosts: Rust's regular expressions cannot look ahead; what is spelled out means the same."""
    spelled = all_but_spelled_out(names, "mcp__b.*")
    assert "(?" not in spelled
    expected = (tool not in names and not tool.startswith("mcp__")) or tool.startswith("mcp__b")
    assert (
        bool(re.search(spelled, tool))
        == bool(re.search(all_but(names or ("-",), "mcp__b.*"), tool))
        == expected
    )


PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+HELLO\n*** End Patch\n"


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("FileWriter", {"filename": "a.txt", "text": "mine\n"}, "STALE_FILE"),
        ("RunShell", {"command": f"apply_patch <<'EOF'\n{PATCH}EOF"}, "STALE_FILE"),
        ("PatchFiles", {"input": PATCH}, "UNKNOWN_TOOL"),
        ("WriteFiles", {"files": [{"name": "a.txt", "body": "mine\n"}]}, "UNKNOWN_TOOL"),
        ("SaveAll", {"which": ["Makefile"]}, "UNKNOWN_TOOL"),
        ("UpdateGoal", {"status": "done", "why": "All of it is written, see above.\nTwo lines."}, None),
        ("MemoryWrite", {"fact": "The user likes tabs", "level": 3}, None),
        ("ShowCard", {"title": "a.txt"}, None),
    ],
)
def test_a_tool_that_nobody_knows_is_judged_by_what_it_is_given(
    rig: HookRig, root: Path, tool: str, given: dict[str, Any], expected: str | None
) -> None:
    """N-hosts, N-input: what may write a file is checked or refused; what can name none is let through."""
    file = root / "a.txt"
    file.write_text("hello\n")
    (root / "Makefile").write_text("all:\n")
    rig.read(file)
    file.write_text("theirs\n")

    answer = rig.call("claude-code", rig.tool("PreToolUse", tool, given), "check")[0]

    assert (refusal(answer)["error_type"] if answer else None) == expected
