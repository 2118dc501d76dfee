"""
An MCP server over stdio that knows nothing of noclobber: it reads and writes files, as many such servers do.

    python file_server.py LISTED

It makes the file LISTED once it was asked which tools it has.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TEXT = {"type": "string"}


def tool(name: str, *members: str) -> dict[str, Any]:
    """Describe a tool whose parameters are texts."""
    schema = {"type": "object", "properties": dict.fromkeys(members, TEXT), "required": list(members)}
    return {"name": name, "description": name, "inputSchema": schema}


TOOLS = [tool("read_text_file", "path"), tool("write_file", "path", "content"), tool("create_issue", "title")]


def call(name: str, given: dict[str, Any]) -> str:
    """Carry a call out."""
    if name == "write_file":
        Path(given["path"]).write_text(given["content"])
        return "written"
    return Path(given["path"]).read_text() if name == "read_text_file" else "created"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request's result."""
    given = request.get("params") or {}
    if request["method"] == "initialize":
        about = {"name": "files", "version": "1"}
        version = given.get("protocolVersion", "2025-06-18")
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if request["method"] == "tools/list":
        return {"tools": TOOLS}
    if request["method"] == "tools/call":
        return {"content": [{"type": "text", "text": call(given["name"], given.get("arguments", {}))}]}
    return {}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}), flush=True)
        if request["method"] == "tools/list":
            Path(sys.argv[1]).touch()
