"""Qwen Code: from npm, over OpenAI's Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar

from tests.e2e.calls import Call, Delegate, Edit, Native, Read, Shell, Write
from tests.e2e.driver import HostDriver, add_group, add_member
from tests.e2e.programs import Program, from_npm
from tests.e2e.project import Project
from tests.e2e.protocols import Use

VERSION = "0.24.4"


class Qwen(HostDriver):
    """`qwen PROMPT`."""

    name = "qwen"
    read_tool = "read_file"
    limits: ClassVar[Mapping[str, str]] = {
        "formatter": "it refuses to edit a file whose date or size has changed, whoever changed it",
        "untrusted": "in a folder that is not trusted it loads no hooks of the project",
    }
    write_tools = ("edit", "write_file")

    def locate(self) -> Program:
        """Return the program."""
        return from_npm(self.name, "@qwen-code/qwen-code", VERSION, "qwen", node_at_least=22)

    def configure(self, project: Project, url: str, *, is_trusted: bool) -> None:
        """Trust the folder or not."""
        home = project.home / ".qwen"
        home.mkdir(exist_ok=True)
        settings = {
            "security": {"folderTrust": {"enabled": True}},
            "general": {"disableAutoUpdate": True},
            # Many scenarios are one turn: it must not take them for a model that goes round in circles.
            "model": {"maxToolCallsPerTurn": 0, "skipLoopDetection": True},
            "privacy": {"usageStatisticsEnabled": False},
        }
        project.settle(home / "settings.json", json.dumps(settings))
        trusted = {str(project.root): "TRUST_FOLDER"} if is_trusted else {}
        project.settle(home / "trustedFolders.json", json.dumps(trusted))

    def environment(self, url: str) -> dict[str, str]:
        """Return what it wants in its environment."""
        return {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{url}/v1"}

    def command(self, prompt: str, *, is_trusted: bool) -> list[str]:
        """Return the words that run one prompt."""
        return ["--auth-type", "openai", "-m", "scripted", "--approval-mode", "yolo", prompt]

    def attended_command(self) -> list[str]:
        """Return the words for the Agent Client Protocol."""
        return ["--auth-type", "openai", "-m", "scripted", "--approval-mode", "default", "--acp"]

    def add_hook(self, project: Project, command: str) -> None:
        """Add a hook of the user's own."""
        add_group(project.root / ".qwen" / "settings.json", "PostToolUse", "^(edit|write_file)$", command)

    def add_server(self, project: Project, name: str, command: list[str]) -> None:
        """Add an MCP server."""
        server = {"command": command[0], "args": command[1:], "trust": True}
        add_member(project.root / ".qwen" / "settings.json", "mcpServers", {name: server})

    def use(self, call: Call) -> Use:
        """Return a neutral call in the host's own words."""
        match call:
            case Read(path, first, count):
                part = {} if first is None else {"offset": first - 1, "limit": count}
                return Use("read_file", {"file_path": str(path), **part})
            case Edit(path, old, new):
                return Use("edit", {"file_path": str(path), "old_string": old, "new_string": new})
            case Write(path, content):
                return Use("write_file", {"file_path": str(path), "content": content})
            case Shell(command):
                return Use("run_shell_command", {"command": command, "is_background": False})
            case Native(tool, given):
                return Use(tool, given)
            case Delegate(word):
                task = {"description": "d", "prompt": f"script:{word}", "subagent_type": "general-purpose"}
                return Use("agent", {**task, "run_in_background": False})

    def is_success(self, told: str) -> bool:
        """Return whether the model was told that a write or an edit was carried out."""
        return "has been updated" in told or told.startswith("Successfully ")
