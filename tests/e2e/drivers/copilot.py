"""Copilot CLI: from npm, with a provider of one's own, over Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar

from tests.e2e.calls import Call, Delegate, Edit, Native, Read, Shell, Write
from tests.e2e.driver import HostDriver
from tests.e2e.programs import Program, from_npm
from tests.e2e.project import Project
from tests.e2e.protocols import Use

VERSION = "1.0.102"


class Copilot(HostDriver):
    """`copilot -p`."""

    name = "copilot"
    read_tool = "view"
    server_tool = "{server}-{tool}"
    write_tools: tuple[str, ...] = ("edit", "create")
    limits: ClassVar[Mapping[str, str]] = {
        "untrusted": "with -p in a folder that is not trusted it runs no hooks of the project",
    }
    refusal_before = "Denied by preToolUse hook: "

    def locate(self) -> Program:
        """Return the program."""
        return from_npm(self.name, "@github/copilot", VERSION, "copilot", node_at_least=20)

    def configure(self, project: Project, url: str, *, is_trusted: bool) -> None:
        """Trust the folder, or not: then the hooks of the project are not run."""
        home = project.home / ".copilot"
        home.mkdir(exist_ok=True)
        trusted = [str(project.root)] if is_trusted else []
        project.settle(home / "config.json", json.dumps({"trusted_folders": trusted}))

    def environment(self, url: str) -> dict[str, str]:
        """Return what it wants in its environment."""
        return {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_BASE_URL": url,
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_API_KEY": "none",
            "COPILOT_MODEL": "claude-sonnet-4.5",
        }

    def command(self, prompt: str, *, is_trusted: bool) -> list[str]:
        """Return the words that run one prompt."""
        return ["-p", prompt, "--allow-all-tools"]

    def attended_command(self) -> list[str]:
        """Return the words for the Agent Client Protocol."""
        return ["--acp"]

    def add_hook(self, project: Project, command: str) -> None:
        """Add a hook of the user's own."""
        hook = {"type": "command", "bash": command, "timeoutSec": 30}
        file = project.file(".github/hooks/formatter.json", "")
        file.write_text(json.dumps({"version": 1, "hooks": {"postToolUse": [hook]}}))

    def add_server(self, project: Project, name: str, command: list[str]) -> None:
        """Add an MCP server."""
        server = {"type": "local", "command": command[0], "args": command[1:], "tools": ["*"]}
        home = project.home / ".copilot"
        home.mkdir(exist_ok=True)
        (home / "mcp-config.json").write_text(json.dumps({"mcpServers": {name: server}}))

    def use(self, call: Call) -> Use:
        """Return a neutral call in the host's own words."""
        match call:
            case Read(path, first, count):
                part = {} if first is None else {"view_range": [first, first + (count or 1) - 1]}
                return Use("view", {"path": str(path), **part})
            case Edit(path, old, new):
                return Use("edit", {"path": str(path), "old_str": old, "new_str": new})
            case Write(path, content) if path.exists():  # `create` refuses that, whatever anybody saw.
                old = path.read_bytes().decode("utf-8", "surrogateescape")
                return Use("edit", {"path": str(path), "old_str": old, "new_str": content})
            case Write(path, content):
                return Use("create", {"path": str(path), "file_text": content})
            case Shell(command):
                return Use("bash", {"command": command, "description": "d"})
            case Native(tool, given):
                return Use(tool, given)
            case Delegate(word):
                task = {"name": word, "description": "d", "prompt": f"script:{word}"}
                return Use("task", {**task, "agent_type": "general-purpose", "mode": "sync"})
        raise AssertionError(call)

    def shown(self, told: str) -> str | None:
        """Return what was shown, without what our hook said beside it."""
        return told.partition('\n\n\nTool "view" succeeded.')[0]

    def is_success(self, told: str) -> bool:
        """Return whether the model was told that a write or an edit was carried out, and nothing beside it."""
        is_done = told.endswith("updated with changes.") or " with " in told.partition("Created file ")[2]
        return is_done and "\n" not in told.strip()


class CopilotGpt(Copilot):
    """The same with a GPT model: other tools, over OpenAI's Responses."""

    name = "copilot"
    write_tools = ("apply_patch",)

    def environment(self, url: str) -> dict[str, str]:
        """Return what it wants in its environment."""
        kind = {"COPILOT_PROVIDER_TYPE": "openai", "COPILOT_PROVIDER_WIRE_API": "responses"}
        return {**super().environment(url), **kind, "COPILOT_MODEL": "gpt-5.1-codex"}
