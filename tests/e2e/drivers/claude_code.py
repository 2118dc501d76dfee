"""Claude Code: from the PyPI package that bundles it, over Anthropic's Messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from tests.e2e.attended import Decide, JsonLines, claude_control
from tests.e2e.calls import Call, Delegate, Edit, Native, Read, Shell, Write
from tests.e2e.driver import HostDriver, add_group
from tests.e2e.programs import MissingHostError, Program, given
from tests.e2e.project import Project
from tests.e2e.protocols import Use


class ClaudeCode(HostDriver):
    """`claude -p`."""

    name = "claude-code"
    read_tool = "Read"
    write_tools = ("Edit", "Write")
    routes_shell = True
    refusal_before = "PreToolUse:{tool} hook error: "
    limits: ClassVar[Mapping[str, str]] = {
        "not_utf8": "it writes no file that is not UTF-8 (or UTF-16 with a byte-order mark)"
    }

    def locate(self) -> Program:
        """Return the program inside `claude-agent-sdk`."""
        program = given(self.name)
        if program is not None:
            return program
        found = find_spec("claude_agent_sdk")  # Not imported: all that is wanted is the program inside.
        if found is None or found.origin is None:
            raise MissingHostError("claude-agent-sdk is not installed: run `make e2e`, or pip install it")
        binary = Path(found.origin).parent / "_bundled" / "claude"
        if not binary.exists():
            raise MissingHostError(
                "this build of claude-agent-sdk bundles no Claude Code; there are wheels that do"
            )
        bundled = (Path(found.origin).parent / "_cli_version.py").read_text()
        version = re.search(r'"([0-9.]+)"', bundled)
        return Program(str(binary), version[1] if version else "unknown")

    def configure(self, project: Project, url: str, *, is_trusted: bool) -> None:
        """Write nothing: the environment says it all, and `-p` asks for no trust."""

    def environment(self, url: str) -> dict[str, str]:
        """Return what it wants in its environment."""
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def command(self, prompt: str, *, is_trusted: bool) -> list[str]:
        """Return the words that run one prompt."""
        return [
            *("-p", prompt),
            *("--permission-mode", "acceptEdits"),
            *("--allowedTools", "Bash,Read,Edit,Write,Agent"),
            *("--output-format", "json"),
        ]

    def attended_command(self) -> list[str]:
        """Return the words for its SDK's protocol."""
        streams = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        return [*streams, "--permission-prompt-tool", "stdio", "--permission-mode", "default"]

    def talk(self, talk: JsonLines, project: Project, prompts: Iterable[str], decide: Decide) -> None:
        """Play its SDK."""
        claude_control(talk, prompts, decide)

    def add_hook(self, project: Project, command: str) -> None:
        """Add a hook of the user's own."""
        add_group(project.root / ".claude" / "settings.json", "PostToolUse", "Edit|Write", command)

    def add_server(self, project: Project, name: str, command: list[str]) -> None:
        """Add an MCP server, and allow its tools."""
        server = {"command": command[0], "args": command[1:]}
        (project.home / ".claude.json").write_text(json.dumps({"mcpServers": {name: server}}))
        allowed = {"permissions": {"allow": [f"mcp__{name}"]}}
        (project.home / ".claude").mkdir(exist_ok=True)
        (project.home / ".claude" / "settings.json").write_text(json.dumps(allowed))

    def use(self, call: Call) -> Use:
        """Return a neutral call in the host's own words."""
        match call:
            case Read(path, first, count):
                part = {} if first is None else {"offset": first, "limit": count}
                return Use("Read", {"file_path": str(path), **part})
            case Edit(path, old, new):
                return Use("Edit", {"file_path": str(path), "old_string": old, "new_string": new})
            case Write(path, content):
                return Use("Write", {"file_path": str(path), "content": content})
            case Shell(command):
                return Use("Bash", {"command": command, "description": "d"})
            case Native(tool, given):
                return Use(tool, given)
            case Delegate(word):
                task = {"description": "d", "prompt": f"script:{word}", "subagent_type": "general-purpose"}
                return Use("Agent", {**task, "run_in_background": False})

    def shown(self, told: str) -> str | None:
        """Return the content of numbered lines."""
        lines = told.partition("\n\n<system-reminder>")[0].split("\n")
        if not re.match(r"\s*1\t", lines[0]):
            return None
        return (
            "".join(f"{line.split(chr(9), 1)[1]}\n" for line in lines if "\t" in line).removesuffix("\n\n")
            + "\n"
        )

    def is_success(self, told: str) -> bool:
        """Return whether the model was told that a write or an edit was carried out."""
        return "has been updated successfully" in told or "created successfully" in told
