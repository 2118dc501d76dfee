"""Gemini CLI: from npm, over generateContent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import ClassVar

from tests.e2e.attended import Decide, terminal
from tests.e2e.calls import Call, Delegate, Edit, Native, Read, Shell, Write
from tests.e2e.driver import HostDriver, Refusal, add_group, add_member
from tests.e2e.programs import Program, from_npm
from tests.e2e.project import Project
from tests.e2e.protocols import Use

VERSION = "0.61.0"


class Gemini(HostDriver):
    """`gemini -p`."""

    name = "gemini"
    read_tool = "read_file"
    server_tool = "mcp_{server}_{tool}"
    write_tools = ("replace", "write_file")
    limits: ClassVar[Mapping[str, str]] = {
        "untrusted": "in a folder that is not trusted it loads no hooks of the project, with --skip-trust either",
    }
    subagent_ends_with = Native("complete_task", {"result": "done"})
    refusal_before = "Tool execution blocked: "

    def locate(self) -> Program:
        """Return the program."""
        return from_npm(self.name, "@google/gemini-cli", VERSION, "gemini", node_at_least=20)

    def configure(self, project: Project, url: str, *, is_trusted: bool) -> None:
        """Choose the key as the way to sign in, and trust the folder or not."""
        home = project.home / ".gemini"
        home.mkdir(exist_ok=True)
        security = {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": True}}
        settings = {
            "security": security,
            "general": {"enableAutoUpdate": False},
            # After 30 messages it would ask the model whether it goes round in circles, and wait for an answer in JSON.
            "model": {"disableLoopDetection": True},
            "privacy": {"usageStatisticsEnabled": False},
        }
        project.settle(home / "settings.json", json.dumps(settings))
        trusted = {str(project.root): "TRUST_FOLDER"} if is_trusted else {}
        project.settle(home / "trustedFolders.json", json.dumps(trusted))

    def environment(self, url: str) -> dict[str, str]:
        """Return what it wants in its environment."""
        return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url}

    def command(self, prompt: str, *, is_trusted: bool) -> list[str]:
        """Return the words that run one prompt."""
        trust = [] if is_trusted else ["--skip-trust"]
        return ["-m", "gemini-2.5-flash", "--approval-mode", "yolo", *trust, "-p", prompt]

    def attend(self, project: Project, url: str, prompts: Iterable[str], decide: Decide) -> None:
        """Say prompts at a terminal: `--acp` runs no hooks."""
        program = self.locate()
        self.configure(project, url, is_trusted=True)
        environment = project.environment(**{**program.environment(), **self.environment(url)})
        words = ["-m", "gemini-2.5-flash", "--approval-mode", "default", "-i"]
        left = iter(prompts)
        terminal([program.path, *words, next(left)], project, environment, left, decide)

    def attended_command(self) -> list[str]:
        """Return the words for the Agent Client Protocol."""
        return ["-m", "gemini-2.5-flash", "--acp"]

    def add_hook(self, project: Project, command: str) -> None:
        """Add a hook of the user's own."""
        add_group(project.root / ".gemini" / "settings.json", "AfterTool", "^(replace|write_file)$", command)

    def add_server(self, project: Project, name: str, command: list[str]) -> None:
        """Add an MCP server."""
        server = {"command": command[0], "args": command[1:], "trust": True}
        add_member(project.root / ".gemini" / "settings.json", "mcpServers", {name: server})

    def use(self, call: Call) -> Use:
        """Return a neutral call in the host's own words."""
        match call:
            case Read(path, None, _):
                return Use("read_file", {"file_path": str(path)})
            case Read(path, int(first), count):
                part = {"start_line": first, "end_line": first + (count or 1) - 1}
                return Use("read_file", {"file_path": str(path), **part})
            case Edit(path, old, new):
                texts = {"old_string": old, "new_string": new, "instruction": "i"}
                return Use("replace", {"file_path": str(path), **texts})
            case Write(path, content):
                return Use("write_file", {"file_path": str(path), "content": content})
            case Shell(command):
                return Use("run_shell_command", {"command": command, "description": "d"})
            case Native(tool, given):
                return Use(tool, given)
            case Delegate(word):
                return Use("invoke_agent", {"agent_name": "generalist", "prompt": f"script:{word}"})
        raise AssertionError(call)

    def is_success(self, told: str) -> bool:
        """Return whether the model was told that a write or an edit was carried out."""
        return told.startswith("Successfully ")

    def refusal(self, told: str) -> Refusal:
        """Return a refusal's parts: the host puts it into an object of its own."""
        return super().refusal(json.loads(told)["error"])
