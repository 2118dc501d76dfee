"""
A hook call against a bare interpreter and against node, and a long session against a short one.

The process is included on both sides: that is what a host waits for. Every round runs ours and its peers
once, in turn, and the best round of each counts: what a busy machine adds to a process that takes
milliseconds is noise, and it adds more to some than to others. Everybody gets the environment of whoever runs
this, as hosts hand theirs on; node is quicker where no certificates are named in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from bench import Row
from noclobber.hosts.hook_entries import START

ROUNDS = int(os.environ.get("BENCH_HOOK_ROUNDS", "25"))
PYTHON = os.path.realpath(sys.executable)
BARE = [PYTHON, "-I", "-S", "-c", "pass"]
HOOK = [PYTHON, "-I", "-S", START, "claude-code"]
LINE = "x" * 79 + "\n"
TEXT = LINE * 1280  # 100 KiB.


def rows() -> Iterator[Row]:
    """Every figure of hooks."""
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        yield from _write_rows(folder)
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        yield _memory_row(folder)


class _Session:
    """A project with one file, and what Claude Code says about it."""

    def __init__(self, folder: str) -> None:
        self.root, self.runtime = f"{folder}/project", f"{folder}/runtime"
        os.makedirs(f"{self.root}/.git")
        os.mkdir(self.runtime, 0o700)
        self.file = f"{self.root}/a.txt"
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": self.runtime}  # As a host hands it on.

    def payload(self, name: str, tool: str, call_id: str, given: dict[str, Any], **more: Any) -> bytes:
        about = {"session_id": "s", "cwd": self.root, "hook_event_name": name, "tool_use_id": call_id}
        return json.dumps({**about, "tool_name": tool, "tool_input": given, **more}).encode()

    def shown(self, path: str, text: str) -> bytes:
        lines = text.count("\n") + 1
        file = {"content": text, "startLine": 1, "numLines": lines, "totalLines": lines}
        return self.payload("PostToolUse", "Read", "r", {"file_path": path}, tool_response={"file": file})

    def seconds(self, command: list[str], data: bytes = b"") -> float:
        start_s = time.perf_counter()
        done = subprocess.run(command, input=data, capture_output=True, env=self.environment)
        taken_s = time.perf_counter() - start_s
        assert done.returncode == 0, done.stderr
        assert done.stdout == b"", done.stdout
        return taken_s


def _write_rows(folder: str) -> Iterator[Row]:
    session = _Session(folder)
    node = shutil.which("node")
    new = "y" + TEXT[1:]
    given = {"file_path": session.file, "content": new}
    taken_s: dict[str, list[float]] = {"bare": [], "node": [], "before": [], "after": []}
    for number in range(ROUNDS + 1):
        with open(session.file, "w") as file:
            file.write(TEXT)
        session.seconds([*HOOK, "note"], session.shown(session.file, TEXT).replace(b'"r"', b'"r%d"' % number))
        before = session.payload("PreToolUse", "Write", f"w{number}", given)
        response = {"type": "update", "filePath": session.file, "content": new, "originalFile": TEXT}
        after = session.payload("PostToolUse", "Write", f"w{number}", given, tool_response=response)
        taken = {"bare": session.seconds(BARE), "before": session.seconds([*HOOK, "check"], before)}
        with open(session.file, "w") as file:
            file.write(new)
        taken["after"] = session.seconds([*HOOK, "note"], after)
        if node:
            taken["node"] = session.seconds([node, "-e", "0"])
        if number:  # The first round makes folders and caches.
            for name, value in taken.items():
                taken_s[name].append(value)
    bare_s = min(taken_s["bare"])
    for name in ("before", "after"):
        ours_s = min(taken_s[name])
        yield Row(
            what=f"one hook call {name} a write of 100 KiB, process included",
            against="python3 -I -S -c pass",
            ratio=ours_s / bare_s,
            bar="<= 2.6 x",
            ok=ours_s <= 2.6 * bare_s,
            detail=f"{ours_s * 1000:.1f} ms against {bare_s * 1000:.1f} ms",
        )
        if node:
            node_s = min(taken_s["node"])
            yield Row(
                what=f"one hook call {name} a write of 100 KiB, process included",
                against="node -e 0",
                ratio=ours_s / node_s,
                bar="<= 0.5 x",
                ok=ours_s <= 0.5 * node_s,
                detail=f"{ours_s * 1000:.1f} ms against {node_s * 1000:.1f} ms",
            )


def _memory_row(folder: str) -> Row:
    """The same call in a session that has seen ten files, and in one that has seen ten thousand."""
    from noclobber.core.values import WHOLE
    from noclobber.hook.session_memory import SessionMemory

    sessions = {}
    for count in (10, 10_000):
        os.mkdir(f"{folder}/{count}")
        session = sessions[count] = _Session(f"{folder}/{count}")
        with open(session.file, "w") as file:
            file.write(LINE)
        os.environ["XDG_RUNTIME_DIR"] = session.runtime
        with SessionMemory("claude-code", "s", "main", root=session.root) as known:
            for number in range(count):
                path = f"{session.root}/{number}.txt"
                context, notes = known.recall(path, path)
                context.observe(path, path, "ab" * 32, None, WHOLE)
                known.keep(context, path, path, notes)
    taken_s: dict[int, list[float]] = {count: [] for count in sessions}
    for number in range(ROUNDS + 1):
        for count, session in sessions.items():
            shown = session.shown(session.file, LINE).replace(b'"r"', b'"r%d"' % number)
            given = {"file_path": session.file, "content": LINE}
            asked = session.payload("PreToolUse", "Write", f"w{number}", given)
            taken = session.seconds([*HOOK, "note"], shown) + session.seconds([*HOOK, "check"], asked)
            if number:
                taken_s[count].append(taken)
    few_s, many_s = min(taken_s[10]), min(taken_s[10_000])
    return Row(
        what="hook state with 10 000 files seen",
        against="the same with 10",
        ratio=many_s / few_s,
        bar="<= 1.2 x",
        ok=many_s <= 1.2 * few_s,
        detail=f"{many_s * 500:.1f} ms against {few_s * 500:.1f} ms a call",
    )
