"""Cline's command line: from npm, over chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.e2e.attended import Decide, cline_terminal
from tests.e2e.calls import Call, Delegate, Edit, Native, Read, Shell, Write
from tests.e2e.driver import HostDriver, Refusal
from tests.e2e.programs import Program, from_npm
from tests.e2e.project import Project
from tests.e2e.protocols import Use

VERSION = "3.0.65"
PROVIDER, MODEL = "openai-compatible", "claude-sonnet-4-5"


class Cline(HostDriver):
    """`cline PROMPT`."""

    name = "cline"
    read_tool = "read_files"
    server_tool = "{server}__{tool}"
    write_tools = ("editor",)

    def locate(self) -> Program:
        """Return the program."""
        return from_npm(self.name, "cline", VERSION, "cline", node_at_least=20)

    def configure(self, project: Project, url: str, *, is_trusted: bool) -> None:
        """Name the endpoint. It knows no trust in folders."""
        settings = {"provider": PROVIDER, "apiKey": "none", "model": MODEL, "baseUrl": f"{url}/v1"}
        entry = {"settings": settings, "updatedAt": "2026-11-16T00:00:00.000Z", "tokenSource": "manual"}
        folder = project.home / ".cline" / "data" / "settings"
        folder.mkdir(parents=True, exist_ok=True)
        known = {"version": 1, "lastUsedProvider": PROVIDER, "providers": {PROVIDER: entry}}
        (folder / "providers.json").write_text(json.dumps(known))

    def environment(self, url: str) -> dict[str, str]:
        """Return what it wants in its environment."""
        # Otherwise it gives a plugin 4 seconds to load, and on a busy machine works without it.
        return {"CLINE_NO_AUTO_UPDATE": "1", "CLINE_PLUGIN_IMPORT_TIMEOUT_MS": "60000"}

    def command(self, prompt: str, *, is_trusted: bool) -> list[str]:
        """Return the words that run one prompt: two words at least, because one would be a command."""
        return ["-P", PROVIDER, "-m", MODEL, "--json", f"{prompt} please"]

    def attend(self, project: Project, url: str, prompts: Iterable[str], decide: Decide) -> None:
        """Say prompts at a terminal. It asks nobody: our tests run it with everything allowed."""
        program = self.locate()
        self.configure(project, url, is_trusted=True)
        environment = project.environment(**{**program.environment(), **self.environment(url)})
        cline_terminal([program.path, "-i", "-P", PROVIDER, "-m", MODEL], project, environment, prompts)

    def add_hook(self, project: Project, command: str) -> None:
        """Add a hook of the user's own: a file that is run."""
        file = project.file(".cline/hooks/PostToolUse", f"#!/bin/sh\ncat >/dev/null\n{command}\n")
        file.chmod(0o755)

    def add_server(self, project: Project, name: str, command: list[str]) -> None:
        """Add an MCP server."""
        server = {"command": command[0], "args": command[1:], "disabled": False}
        folder = project.home / ".cline" / "data" / "settings"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cline_mcp_settings.json").write_text(json.dumps({"mcpServers": {name: server}}))

    def use(self, call: Call) -> Use:
        """Return a neutral call in the host's own words."""
        match call:
            case Read(path, first, count):
                part = {} if first is None else {"start_line": first, "end_line": first + (count or 1) - 1}
                return Use("read_files", {"files": [{"path": str(path), **part}]})
            case Edit(path, old, new):
                return Use("editor", {"path": str(path), "old_text": old, "new_text": new})
            case Write(path, content) if path.exists():  # It refuses to replace a file without its old text.
                old = path.read_bytes().decode("utf-8", "surrogateescape")
                return Use("editor", {"path": str(path), "old_text": old, "new_text": content})
            case Write(path, content):
                return Use("editor", {"path": str(path), "new_text": content})
            case Shell(command):
                return Use("run_commands", {"commands": [command]})
            case Native(tool, given):
                return Use(tool, given)
            case Delegate(word):
                return Use("spawn_agent", {"systemPrompt": "s", "task": f"script:{word}"})
        raise AssertionError(call)

    def shown(self, told: str) -> str | None:
        """Return the content of numbered lines."""
        result = json.loads(told)[0].get("result", "")
        return "".join(f"{line.partition(' | ')[2]}\n" for line in result.split("\n")) if result else None

    def is_success(self, told: str) -> bool:
        """Return whether the model was told that a write or an edit was carried out."""
        return json.loads(told).get("success") is True

    def refusal(self, told: str) -> Refusal:
        """Return a refusal's parts: the host puts it into an object of its own."""
        return super().refusal(json.loads(told)["error"])
