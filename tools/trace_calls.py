"""
Count what one call runs through: calls, functions and modules of ours, for each way in.

    python tools/trace_calls.py            the table
    python tools/trace_calls.py write      the modules of one way, with their functions

A write is the second one of a turn: what is made once is made. Hooks and commands are processes of their own,
and are counted from their start; a command is counted in the process that lands it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

SOURCE = str(Path(__file__).resolve().parent.parent / "src" / "noclobber") + "/"
CHILD = "NOCLOBBER_TRACE_TO"  # Set by `_child`: a process that was started traces itself from there on.

Counts = Counter[tuple[str, str]]


def traced(work: Callable[[], object]) -> Counts:
    """Run some work; return how often each of our functions was called."""
    found: Counts = Counter()
    _count_into(found)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def _count_into(found: Counts) -> None:
    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name != "<module>":
            found[code.co_filename[len(SOURCE) :], f"{code.co_qualname}:{code.co_firstlineno}"] += 1

    sys.setprofile(note)


def of_write(folder: Path) -> Counts:
    """`turn.write_file`."""
    from noclobber import Workspace

    with Workspace(folder) as workspace, workspace.turn() as turn:
        turn.write_file("a.md", "one\n")
        return traced(lambda: turn.write_file("a.md", "two\n"))


def of_edit(folder: Path) -> Counts:
    """`turn.edit_file`."""
    from noclobber import Edit, Workspace

    with Workspace(folder) as workspace, workspace.turn() as turn:
        turn.write_file("a.md", "one\n")
        turn.edit_file("a.md", [Edit("one", "two")])
        return traced(lambda: turn.edit_file("a.md", [Edit("two", "three")]))


def of_hook(folder: Path) -> Counts:
    """Claude Code's question before a write."""
    event = {
        "session_id": "s",
        "cwd": str(folder),
        "hook_event_name": "PreToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": str(folder / "a.md"), "content": "two\n"},
        "tool_use_id": "1",
    }
    return _child(
        "from noclobber.hook.main import main\nmain(['claude-code'])", folder, json.dumps(event).encode()
    )


def of_command(folder: Path) -> Counts:
    """`noclobber run -- sed -i`."""
    program = "from noclobber.cli import main\nmain(['run', '--', 'sed', '-i', 's/one/two/', 'a.md'])"
    return _child(program, folder)


def of_mcp(folder: Path) -> Counts:
    """MCP's `write_file`, below the transport."""
    from noclobber.mcp import dispatch
    from noclobber.mcp.connection import ClientConnection, Workspaces
    from noclobber.mcp.roots import Roots

    connection = ClientConnection(Workspaces(), Roots([str(folder)]), is_session=True)

    def write(content: str) -> object:
        given = {"path": str(folder / "a.md"), "content": content}
        return dispatch.call(connection, "write_file", given, lambda *_: None)

    write("one\n")
    return traced(lambda: write("two\n"))


def of_undo(folder: Path) -> Counts:
    """`noclobber undo` of one agent's write."""
    from noclobber import Workspace

    with Workspace(folder) as workspace:
        with workspace.turn(agent_id="bot") as turn:
            turn.write_file("a.md", "two\n")
        return traced(lambda: workspace.undo(agent_id="bot"))


WAYS: dict[str, Callable[[Path], Counts]] = {
    "write": of_write,
    "edit": of_edit,
    "hook": of_hook,
    "command": of_command,
    "mcp": of_mcp,
    "undo": of_undo,
}


def _child(program: str, folder: Path, stdin: bytes = b"") -> Counts:
    """Run a program in a process of its own, which counts for itself."""
    out = folder.parent / "calls.json"
    environment = {**os.environ, CHILD: str(out), "HOME": str(folder.parent)}
    words = [sys.executable, os.path.abspath(__file__), "--child", program]
    subprocess.run(words, input=stdin, cwd=folder, env=environment, capture_output=True, check=False)
    return Counter({(name, function): count for name, function, count in json.loads(out.read_bytes())})


def _run_child(program: str) -> None:
    found: Counts = Counter()
    exit_process, me = os._exit, os.getpid()

    def leave(code: int) -> None:
        sys.setprofile(None)
        if os.getpid() == me:  # A process that was forked ends by the same call.
            rows = [[name, function, count] for (name, function), count in found.items()]
            Path(os.environ[CHILD]).write_text(json.dumps(rows))
        exit_process(code)

    os._exit = leave  # type: ignore[assignment]
    _count_into(found)
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "__child__"})
    except SystemExit:
        pass
    leave(0)


def main() -> None:
    """Print the table, or one way's functions."""
    if sys.argv[1:2] == ["--child"]:
        _run_child(sys.argv[2])
        return
    asked = sys.argv[1:]
    print(f"{'':<10}{'calls':>8}{'functions':>11}{'modules':>9}")
    for name in asked or WAYS:
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home) / "project"
            folder.mkdir()
            (folder / "a.md").write_text("one\n")
            found = WAYS[name](folder)
        modules = sorted({module for module, _ in found})
        print(f"{name:<10}{found.total():>8}{len(found):>11}{len(modules):>9}")
        for module in modules if asked else ():
            names = (function for file, function in found if file == module)
            print(f"    {module}: {', '.join(name.rpartition(':')[0] for name in names)}")


if __name__ == "__main__":
    main()
