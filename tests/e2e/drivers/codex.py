"""Codex: from npm, over OpenAI's Responses. Its reads are shell commands, its writes are patches."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import ClassVar

from tests.e2e.attended import Decide, JsonLines, codex_server
from tests.e2e.calls import Call, Delegate, Edit, Native, Read, Shell, Write
from tests.e2e.driver import HostDriver, add_group
from tests.e2e.programs import Program, from_npm
from tests.e2e.project import Project
from tests.e2e.protocols import Use

VERSION = "0.169.0"


class Codex(HostDriver):
    """`codex exec`."""

    name = "codex"
    read_tool = "cat"
    server_tool = "mcp__{server}.{tool}"
    write_tools = ("apply_patch",)
    limits: ClassVar[Mapping[str, str]] = {
        "not_utf8": "its patches apply to UTF-8 only",
        "untrusted": "it skips hooks until the user has trusted them",
    }
    refusal_before = "Command blocked by PreToolUse hook: "

    def locate(self) -> Program:
        """Return the program."""
        return from_npm(self.name, "@openai/codex", VERSION, "codex", node_at_least=16)

    def configure(self, project: Project, url: str, *, is_trusted: bool) -> None:
        """Name the endpoint, and trust the folder (not its hooks)."""
        home = project.home / ".codex"
        home.mkdir(exist_ok=True)
        project.settle(
            home / "config.toml",
            'model = "gpt-6-astra"\n'
            'model_provider = "local"\n'
            "[model_providers.local]\n"
            'name = "local"\n'
            f'base_url = "{url}/v1"\n'
            'wire_api = "responses"\n'
            'env_key = "LOCAL_KEY"\n'
            "request_max_retries = 0\n"
            "stream_max_retries = 0\n"
            f'[projects."{project.root}"]\n'
            'trust_level = "trusted"\n',
        )

    def environment(self, url: str) -> dict[str, str]:
        """Return what it wants in its environment."""
        return {"LOCAL_KEY": "none"}

    def command(self, prompt: str, *, is_trusted: bool) -> list[str]:
        """Return the words that run one prompt."""
        return [
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            *(["--dangerously-bypass-hook-trust"] if is_trusted else []),
            prompt,
        ]

    def attended_command(self) -> list[str]:
        """Return the words for its app server."""
        return ["app-server"]

    def talk(self, talk: JsonLines, project: Project, prompts: Iterable[str], decide: Decide) -> None:
        """Play its editor extension."""
        codex_server(talk, project, prompts, decide)

    def add_hook(self, project: Project, command: str) -> None:
        """Add a hook of the user's own."""
        add_group(project.root / ".codex" / "hooks.json", "PostToolUse", "^apply_patch$", command)

    def add_server(self, project: Project, name: str, command: list[str]) -> None:
        """Add an MCP server. JSON's strings and lists are TOML's."""
        table = (
            f"[mcp_servers.{name}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
        )
        project.file(".codex/config.toml", table)

    def use(self, call: Call) -> Use:
        """Return a neutral call in the host's own words."""
        match call:
            case Read(path, None, _):
                return self.use(Shell(f"cat {shlex.quote(str(path))}"))
            case Read(path, int(first), count):
                last = first + (count or 1) - 1
                return self.use(Shell(f"sed -n '{first},{last}p' {shlex.quote(str(path))}"))
            case Edit(path, old, new):
                return patch(f"*** Update File: {path}", "@@", f"-{old}", f"+{new}")
            case Write(path, content):
                return patch(f"*** Add File: {path}", *(f"+{line}" for line in content.splitlines()))
            case Shell(command):
                return Use("exec_command", {"cmd": command})
            case Native(tool, given):
                return Use(tool, given)
            case Delegate(word):
                task = {"task_name": word, "message": f"script:{word}", "fork_turns": "none"}
                return Use("collaboration.spawn_agent", task)
        raise AssertionError(call)

    def delegate(self, word: str) -> list[Call]:
        """Start an agent, then wait for what it answers."""
        return [Delegate(word), Native("collaboration.wait_agent", {"timeout_ms": 60_000})]

    def shown(self, told: str) -> str | None:
        """Return a command's output without what Codex says about it."""
        head, mark, output = told.partition("\nOutput:\n")
        return output if mark and "exited with code 0" in head else None

    def is_success(self, told: str) -> bool:
        """Return whether the model was told that a patch was carried out."""
        return "Success. Updated the following files" in told


def patch(*lines: str) -> Use:
    """Return a patch with these lines between its first and its last."""
    return Use("apply_patch", {"patch": "\n".join(("*** Begin Patch", *lines, "*** End Patch", ""))})
