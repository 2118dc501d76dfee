"""
The tools: what is listed to a client, and where a call goes.

To add one: write its function in the module of its kind, define it below the function with `tool(…, run=…)`,
and list it here. `docs/mcp.md` names every tool; a test checks that.

| module | tools that |
|---|---|
| `reading` | read files, and show what changed since |
| `writing` | write, edit and delete files |
| `folders` | create folders; move files and folders |
| `listing` | list, search and describe what is there |
| `locks` | lock a deliverable's folder |
| `commands` | run commands, if the server was told `--allow-run` |
"""

from __future__ import annotations

from noclobber.mcp.tools import commands, folders, listing, locks, reading, writing
from noclobber.mcp.tools.definition import McpTool

REFERENCE = (
    reading.READ_FILE,
    reading.READ_TEXT_FILE,
    reading.READ_MEDIA_FILE,
    reading.READ_MULTIPLE_FILES,
    writing.WRITE_FILE,
    writing.EDIT_FILE,
    folders.CREATE_DIRECTORY,
    listing.LIST_DIRECTORY,
    listing.LIST_DIRECTORY_WITH_SIZES,
    listing.DIRECTORY_TREE,
    folders.MOVE_FILE,
    listing.SEARCH_FILES,
    listing.GET_FILE_INFO,
    listing.LIST_ALLOWED_DIRECTORIES,
)
"""The tools of the server that this one replaces, in its order: same names, parameters and answers."""

OURS = (
    writing.WRITE_FILES,
    writing.DELETE_FILE,
    reading.CHANGES_SINCE_READ,
    locks.LOCK_ACQUIRE,
    locks.LOCK_RENEW,
    locks.LOCK_RELEASE,
    locks.LOCK_STATUS,
)
"""The tools that it does not have."""

TOOLS: dict[str, McpTool] = {
    **{tool.name: tool._replace(ignores_unknown=tool.annotations["readOnlyHint"]) for tool in REFERENCE},
    **{tool.name: tool for tool in OURS},
}

WITH_COMMANDS: dict[str, McpTool] = {**TOOLS, commands.RUN_COMMAND.name: commands.RUN_COMMAND}
"""The same, for a server that may run commands."""
