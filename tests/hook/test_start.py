"""What a hook loads: the modules that must be light, and nothing slow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import noclobber
from noclobber.hosts import HOSTS
from noclobber.hosts.hook_entries import START
from tests.rigs.hooks import HookRig

PACKAGE = Path(noclobber.__file__).parent
SLOW = (
    *(
        "argparse",
        "ast",
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
        "hashlib",
        "inspect",
    ),
    *("json", "random", "re", "threading", "tomllib", "typing"),
)
GUARD = re.compile(r"^TYPE_CHECKING = False$", re.M)
# Runs the hook as a host does, and then lists what was loaded.
PROGRAM = """\
import os, sys
def leave(code, end=os._exit):
    sys.stderr.write("\\n" + " ".join(sys.modules))
    sys.stderr.flush()
    end(code)
os._exit = leave
sys.argv = sys.argv[1:]
__file__ = sys.argv[0]
exec(compile(open(__file__).read(), __file__, "exec"))
"""


@pytest.fixture
def run(rig: HookRig) -> Callable[[str, str, dict[str, Any]], set[str]]:
    """Answer an event in a process of its own; return the modules that it loaded."""

    def loaded(host: str, duty: str, payload: dict[str, Any]) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROGRAM, START, host, duty],
            input=json.dumps(payload).encode(),
            capture_output=True,
            env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(rig.runtime)},
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return set(done.stderr.decode().rpartition("\n")[2].split())

    return loaded


def events(rig: HookRig, file: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every kind of event once: what a session of Claude Code tells, and a patch of Codex."""
    shown = {"file": {"content": "x\n", "startLine": 1, "numLines": 2, "totalLines": 2}}
    given = {"file_path": str(file), "content": "y\n"}
    edit = {"file_path": str(file), "old_string": "x", "new_string": "y"}
    patch = f"*** Begin Patch\n*** Update File: {file}\n@@\n-x\n+y\n*** End Patch\n"
    yield "claude-code", "note", rig.event("SessionStart")
    yield (
        "claude-code",
        "note",
        rig.tool("PostToolUse", "Read", {"file_path": str(file)}, tool_response=shown),
    )
    yield "claude-code", "check", rig.tool("PreToolUse", "Edit", edit, tool_use_id="e")
    yield "claude-code", "note", rig.tool("PostToolUseFailure", "Edit", edit, tool_use_id="e")
    yield "claude-code", "check", rig.tool("PreToolUse", "Write", given, tool_use_id="w")
    file.write_text("y\n")
    yield "claude-code", "note", rig.tool("PostToolUse", "Write", given, tool_use_id="w", tool_response={})
    file.write_text("y \n")  # A formatter.
    yield "claude-code", "check", rig.tool("PreToolUse", "Write", given, tool_use_id="formatted")
    command = {"command": f"cat {file}"}
    yield "claude-code", "note", rig.tool("PostToolUse", "Bash", command, tool_response={"stdout": "y\n"})
    command = {"command": f"echo z >> {file}; python fix.py"}
    yield "claude-code", "shell", rig.tool("PreToolUse", "Bash", command, tool_use_id="b")
    file.write_text("z\n")
    yield "claude-code", "note", rig.tool("PostToolUse", "Bash", command, tool_use_id="b", tool_response={})
    foreign = {"path": str(file), "content": "z\n"}
    yield "claude-code", "check", rig.tool("PreToolUse", "mcp__fs__write_file", foreign, tool_use_id="m")
    file.write_text("somebody else's\n")
    yield "claude-code", "check", rig.tool("PreToolUse", "Write", given, tool_use_id="stale")
    yield "claude-code", "note", rig.event("Stop")
    yield "claude-code", "note", rig.event("SessionEnd")
    yield "codex", "check", rig.tool("PreToolUse", "apply_patch", {"command": patch}, tool_use_id="p")
    for host in HOSTS:
        yield host, "note", {}


def test_a_hook_loads_nothing_slow_and_only_what_it_loads_avoids_typing(
    rig: HookRig, root: Path, run: Callable[[str, str, dict[str, Any]], set[str]]
) -> None:
    """N-speed, finding C4: `TYPE_CHECKING = False` is for modules on a hook's path; others import typing."""
    file = root / "a.txt"
    file.write_text("x\n")
    rig.write(root / "first.txt", "first\n")  # Makes the state folder, which happens once and loads more.
    loaded: set[str] = set()
    for host, duty, payload in events(rig, file):
        modules = run(host, duty, payload)
        assert modules.isdisjoint(SLOW), (host, duty, sorted(modules & set(SLOW)))
        loaded |= {name for name in modules if name.partition(".")[0] == "noclobber"}

    assert {"noclobber.guard.judge", "noclobber.ledger.ledger", "noclobber.core.wire"} <= loaded
    wrong = {name for name in guarded_modules() if name not in loaded | ALSO_LIGHT | loaded_by_a_landing()}
    wrong = {name for name in wrong if not name.startswith("noclobber.shell.")}  # A process a command.
    assert sorted(wrong) == [], "not loaded by a hook: use `from typing import TYPE_CHECKING`"


ALSO_LIGHT = {
    # `noclobber hook`, for configurations that a team shares, comes this way.
    "noclobber.cli",
    "noclobber.cli.clean_output",
    "noclobber.cli.hook",
    # The process that looks on while a dialogue is open (`guard.watch`).
    "noclobber.disk.filesystems",
    # The guarded shell: a process for each command, and its start is what a command pays.
    "noclobber.cli.run",
    "noclobber.core.light.own_modules",
    "noclobber.cli.shell_prefix",
    "noclobber.guard.git.rule",
    "noclobber.guard.unchecked_rule",
    # What a session's first hook leaves behind.
    "noclobber.hook.standby",
}


def loaded_by_a_landing() -> set[str]:
    """What `noclobber run` loads when its command has written something."""
    program = (
        f"import sys; sys.path.append({str(PACKAGE.parent)!r})\n"
        "import noclobber.guard.command_turn, noclobber.guard.commands\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, check=True)
    return set(done.stdout.decode().split())


def test_a_landing_loads_nothing_slow() -> None:
    """N-shell, N-speed: a command that wrote something waits for what its landing loads."""
    assert sorted(loaded_by_a_landing() & set(SLOW)) == []


def guarded_modules() -> set[str]:
    """The modules that avoid `typing` at run time."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if GUARD.search(path.read_text()):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found
