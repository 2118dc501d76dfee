"""opencode: from npm, over Anthropic's Messages."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.e2e.attended import Decide
from tests.e2e.calls import Call, Delegate, Edit, Native, Read, Shell, Write
from tests.e2e.driver import HostDriver, Running
from tests.e2e.programs import Program, from_npm
from tests.e2e.project import Project
from tests.e2e.protocols import Use

VERSION = "1.18.33"
MODEL = "anthropic/claude-sonnet-4-5"


class Opencode(HostDriver):
    """`opencode run`."""

    name = "opencode"
    read_tool = "read"
    routes_shell = True
    server_tool = "{server}_{tool}"
    write_tools = ("edit", "write")
    refusal_before = ""

    def locate(self) -> Program:
        """Return the program."""
        return from_npm(self.name, "opencode-ai", VERSION, "opencode", node_at_least=18)

    def configure(self, project: Project, url: str, *, is_trusted: bool) -> None:
        """Name the endpoint. It knows no trust in folders."""
        home = project.home / ".config" / "opencode"
        home.mkdir(parents=True, exist_ok=True)
        endpoint = {"anthropic": {"options": {"baseURL": f"{url}/v1", "apiKey": "none"}}}
        config = {
            "model": MODEL,
            "small_model": MODEL,
            "provider": endpoint,
            "autoupdate": False,
            "share": "disabled",
        }
        project.settle(home / "config.json", json.dumps(config))
        for folder in (home, project.root / ".opencode"):
            if folder.is_dir():
                has_packages(folder)

    def environment(self, url: str) -> dict[str, str]:
        """Return what it wants in its environment."""
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}

    def before_a_race(self, project: Project, url: str) -> None:
        """Have its database made: two first starts at once make the same tables, and one of them fails."""
        super().before_a_race(project, url)
        program = self.locate()
        environment = project.environment(**{**program.environment(), **self.environment(url)})
        done = Running([program.path, "session", "list"], project, environment, subprocess.DEVNULL).wait()
        assert done.returncode == 0, done

    def command(self, prompt: str, *, is_trusted: bool) -> list[str]:
        """Return the words that run one prompt. With a title given it does not ask the model for one."""
        return ["run", "--title", "t", "--format", "json", prompt]

    def attended_command(self) -> list[str]:
        """Return the words for the Agent Client Protocol."""
        return ["acp"]

    def attend(self, project: Project, url: str, prompts: Iterable[str], decide: Decide) -> None:
        """Have it ask before it writes: on its own it does not."""
        project.file("opencode.json", json.dumps({"permission": {"edit": "ask"}}))
        super().attend(project, url, prompts, decide)

    def add_hook(self, project: Project, command: str) -> None:
        """Add a formatter, which is what it has in place of a hook."""
        formatter = {"command": ["/bin/sh", "-c", command], "extensions": [".py"]}
        project.file("opencode.json", json.dumps({"formatter": {"spaces": formatter}}))

    def add_server(self, project: Project, name: str, command: list[str]) -> None:
        """Add an MCP server."""
        server = {"type": "local", "command": command, "enabled": True}
        project.file("opencode.json", json.dumps({"mcp": {name: server}}))

    def use(self, call: Call) -> Use:
        """Return a neutral call in the host's own words."""
        match call:
            case Read(path, first, count):
                part = {} if first is None else {"offset": first, "limit": count}
                return Use("read", {"filePath": str(path), **part})
            case Edit(path, old, new):
                return Use("edit", {"filePath": str(path), "oldString": old, "newString": new})
            case Write(path, content):
                return Use("write", {"filePath": str(path), "content": content})
            case Shell(command):
                return Use("bash", {"command": command, "description": "d"})
            case Native(tool, given):
                return Use(tool, given)
            case Delegate(word):
                return Use(
                    "task", {"description": "d", "prompt": f"script:{word}", "subagent_type": "general"}
                )
        raise AssertionError(call)

    def shown(self, told: str) -> str | None:
        """Return the content of numbered lines."""
        found = re.search(r"<content>\n(.*?)\n\n\(", told, re.S)
        if found is None:
            return None
        return "".join(f"{line.split(': ', 1)[-1]}\n" for line in found[1].split("\n"))

    def is_success(self, told: str) -> bool:
        """Return whether the model was told that a write or an edit was carried out."""
        return told in ("Edit applied successfully.", "Wrote file successfully.")


def has_packages(folder: Path) -> None:
    """Make a folder look as after opencode's first start there; without a registry that would try for a minute."""
    (folder / "node_modules").mkdir(exist_ok=True)
    packages = {"": {"dependencies": {"@opencode-ai/plugin": VERSION}}}
    (folder / "package-lock.json").write_text(json.dumps({"lockfileVersion": 3, "packages": packages}))
