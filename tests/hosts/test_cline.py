"""Cline's plugin: what it sends, what is understood, and what the next version may send."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from noclobber.hosts import install
from noclobber.hosts.hook_entries import hook_file
from tests.rigs.hooks import HookRig, refusal


def event(rig: HookRig, ev: str, tool: Any, args: Any, **more: Any) -> dict[str, Any]:
    """Return what the plugin sends."""
    given = {"tool": tool, "sessionID": "s1", "agentID": "main", "callID": "c1", "args": args}
    return {"ev": ev, "input": given, "directory": str(rig.root), **more}


def read(rig: HookRig, path: Path) -> None:
    """Read a file as Cline does, and tell the hook."""
    lines = path.read_text().removesuffix("\n").split("\n")
    shown = "\n".join(f"{number} | {line}" for number, line in enumerate(lines, 1))
    output = [{"query": str(path), "result": shown, "success": True}]
    args = {"files": [{"path": str(path)}]}
    assert rig.call("cline", event(rig, "after", "read_files", args, output=output), "note") == ({}, 0)


@pytest.fixture
def file(root: Path) -> Path:
    """A file that the agent may read."""
    path = root / "a.txt"
    path.write_text("hello\nworld\n")
    return path


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("editor", {"path": "a.txt", "old_text": "hello", "new_text": "HELLO"}),
        ("editor", {"path": "a.txt", "new_text": "mine\n"}),
        ("editor", {"path": "a.txt", "new_text": "mine\n", "insert_line": 1}),
        (
            "apply_patch",
            {"input": "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+HELLO\n*** End Patch"},
        ),
        ("rewrite_file", {"path": "a.txt", "content": "mine\n"}),
        (
            "editor",
            {"path": "a.txt", "old_text": "hello", "new_text": "HELLO", "reason": "of the next version"},
        ),
    ],
)
def test_a_stale_write_is_refused_by_whichever_tool(
    rig: HookRig, file: Path, tool: str, args: dict[str, Any]
) -> None:
    """009-FR-004, N-hosts: also by a tool that the next version brings, and with fields that it adds."""
    read(rig, file)
    assert rig.call("cline", event(rig, "before", tool, args), "check") == ({}, 0)
    file.write_text("hello\nworld\na person's\n")
    answer, code = rig.call("cline", event(rig, "before", tool, args), "check")
    assert (refusal(answer)["error_type"], code) == ("STALE_FILE", 0)


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("editor", {"file": {"path": "a.txt"}, "new_text": "x"}),
        ("editor", ["a.txt", "x"]),
        ("editor", None),
        ("apply_patch", {"operations": []}),
        ("apply_patch", {"input": "nonsense"}),
        ("write_everything", {"targets": ["a.txt"]}),
        (None, {"path": "a.txt", "new_text": "x"}),
        ("editor", {"path": "a.txt", "file_path": "b.txt", "old_text": "hello", "new_text": "x"}),
    ],
)
def test_a_write_that_is_not_understood_is_refused_with_what_to_report(
    rig: HookRig, file: Path, tool: Any, args: Any
) -> None:
    """N-hosts, N-input: moved and renamed fields are never passed silently, and never a crash."""
    answer, code = rig.call("cline", event(rig, "before", tool, args), "check")
    assert code == 0
    assert refusal(answer)["message"]
    assert rig.kinds() == ["MUTATION_REFUSED"]


def test_reads_of_several_files_and_failed_calls_are_understood(rig: HookRig, file: Path) -> None:
    """finding H5: a file that a read did not find is known to be absent."""
    missing = rig.root / "none.txt"
    output = [{"query": str(missing), "result": "", "error": "ENOENT", "success": False}]
    args = {"files": [{"path": str(missing)}]}
    rig.call("cline", event(rig, "after", "read_files", args, output=output), "note")
    create = event(rig, "before", "editor", {"path": str(missing), "new_text": "mine\n"})
    missing.write_text("somebody else's\n")
    answer, _ = rig.call("cline", create, "check")
    assert refusal(answer)["details"]["baseline_hash"] == "ABSENT"


@pytest.mark.skipif(not shutil.which("node"), reason="the plugin runs in node")
def test_the_plugin_skips_what_the_hook_refuses(rig: HookRig, root: Path, file: Path) -> None:
    """N-hook: the reason is the object; a hook that cannot be run skips writes, and lets reads pass."""
    where = hook_file("cline", "project", str(root))
    install.carry_out(where)
    module, broken = root / "plugin.mjs", root / "broken.mjs"
    source = Path(where.path).read_text()
    module.write_text(source)
    broken.write_text(source.replace("start.py", "gone.py"))
    program = f"""
        import {{ writeFileSync }} from "node:fs"
        const said = []
        console.error = () => {{}}
        for (const file of {json.dumps([str(module), str(broken)])}) {{
          const {{ hooks, setup }} = (await import(file)).default
          setup({{}}, {{ workspaceInfo: {{ rootPath: {json.dumps(str(root))} }} }})
          const snapshot = {{ agentId: "a", conversationId: file }}
          const call = (toolName, input) => ({{ snapshot, toolCall: {{ toolName, toolCallId: "1", input }} }})
          const read = call("read_files", {{ files: [{{ path: {json.dumps(str(file))} }}] }})
          const edit = call("editor", {{ path: {json.dumps(str(file))}, old_text: "hello", new_text: "x" }})
          said.push(await hooks.beforeTool(read) ?? null)
          const output = [{{ query: "q", result: "1 | hello\\n2 | world", success: true }}]
          await hooks.afterTool({{ ...read, result: {{ output }} }})
          writeFileSync({json.dumps(str(file))}, "hello, by a person\\n")
          said.push(await hooks.beforeTool(edit) ?? null)
          said.push(await hooks.beforeTool(call("search_codebase", {{}})) ?? null)
          writeFileSync({json.dumps(str(file))}, "hello\\nworld\\n")
        }}
        console.log(JSON.stringify(said))
    """
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(rig.runtime)},
        timeout=60,
    )
    assert done.stderr == ""
    read_first, stale, search, read_broken, refused, search_broken = json.loads(done.stdout)
    assert [read_first, search, read_broken, search_broken] == [None] * 4
    assert stale["skip"] is True
    assert json.loads(stale["reason"].splitlines()[0])["error_type"] == "STALE_FILE"
    assert refused["skip"] is True
    assert "noclobber could not check this write" in refused["reason"]
