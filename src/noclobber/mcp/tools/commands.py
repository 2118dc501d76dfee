"""
The tool that runs commands, as one transaction each. Not listed unless the server was told `--allow-run`.

A command can do whatever the server's user can, outside of the root, too: only what it changes below the root
is guarded. So it is for servers that are started by somebody who wants that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noclobber.guard import commands
from noclobber.mcp.tools.definition import PATH, TEXT, WRITTEN, McpAnswer, text_answer, tool, written
from noclobber.shell.watched import LEVEL as WATCHED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noclobber.mcp.connection import ClientConnection
    from noclobber.mcp.tools.definition import Report

SHOWN_BYTES = 30_000


def run_command(connection: ClientConnection, given: Mapping[str, Any], report: Report) -> McpAnswer:
    """Run a command in a folder of a root."""
    path = connection.roots.locate(given["path"])
    turn = connection.turn(path)
    command, timeout_s = given["command"], given["timeout_s"]
    done = commands.run_command(
        turn, command, cwd=path.real, timeout_s=timeout_s, max_output_bytes=SHOWN_BYTES
    )
    out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    told = "".join(f"{text}\n" if text and not text.endswith("\n") else text for text in (out, err))
    landed = [{"path": result.path, **written(result)} for result in done.landed]
    told += "".join(f"{error}\n" for error in done.overwritten)
    told += "".join(f"could not be landed: {trouble}\n" for trouble in done.not_landed)
    if done.level == WATCHED:
        told += "There is no guarded shell here: what it changed was not checked, only recorded.\n"
    return text_answer(
        f"{told}Exit code {done.exit_code}.",
        exit_code=done.exit_code,
        level=done.level,
        stdout=out,
        stderr=err,
        landed=landed,
    )


RUN_COMMAND = tool(
    "run_command",
    "Run Command",
    "Run a shell command in a folder. What it changes below the root lands all together, or not at all: "
    "refused with STALE_FILE if somebody else changed one of those files since you read it, or since the "
    "command began. Then read the files again, and run it again.",
    run=run_command,
    takes={
        "command": {"type": "string", "description": "Run by sh -c."},
        "path": {"type": "string", "default": ".", "description": "The folder to run it in."},
        "timeout_s": {"type": "number", "default": 600, "description": "After so many seconds it is ended."},
    },
    required=["command"],
    answers={
        "exit_code": {"type": "integer"},
        "level": {"type": "string", "enum": ["guarded", "joined", "watched"]},
        "stdout": TEXT,
        "stderr": TEXT,
        "landed": {"type": "array", "items": {"type": "object", "properties": {**PATH, **WRITTEN}}},
    },
    hints="change",
)
