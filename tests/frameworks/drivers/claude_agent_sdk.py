"""Claude Agent SDK: the real Claude Code inside it, with its own tools or with noclobber's; the model is on loopback."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool

from noclobber.adapters.claude_agent_sdk import guarded
from tests.e2e.model import ScriptedModel
from tests.e2e.protocols import Use
from tests.frameworks.driver import Call, FrameworkDriver, Received, Script

_OWN = {"path": "file_path", "content": "content", "old": "old_string", "new": "new_string"}
ENVIRONMENT = {
    "ANTHROPIC_API_KEY": "none",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
}


class Driver(FrameworkDriver):
    """The SDK on one folder."""

    name = "claude-agent-sdk"
    packages = ("claude-agent-sdk",)
    lacks: ClassVar = {}
    untold: ClassVar = dict.fromkeys(("agent", "thread", "call"), "its ids are its own, not the script's")
    by: ClassVar[Literal["tools", "hooks"]] = "tools"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._home = tempfile.TemporaryDirectory()
        self._sessions: dict[str, str] = {}
        self._runs = 0
        self.restart()

    def restart(self) -> None:
        self._given: dict[str, Any] = {}
        gc.collect()  # The turns are shared for as long as somebody holds them.
        if self.guarded:
            beside = {"disallowed_tools": ["Bash"]} if self.by == "tools" else {}
            self._given = guarded(self.root, by=self.by, beside=beside, **self.options)
        else:
            self._given = {"cwd": str(self.root)}

    def close(self) -> None:
        self._home.cleanup()

    def run(self, script: Script, *, agent: str = "agent", thread: str | None = None) -> list[Received]:
        return asyncio.run(self.arun(script, agent=agent, thread=thread))

    async def arun(
        self, script: Script, *, agent: str = "agent", thread: str | None = None
    ) -> list[Received]:
        asked: list[str] = []
        self._runs += 1
        word = f"run{self._runs}x"  # A resumed conversation has the earlier runs' words and ids in it.
        with ScriptedModel(**{word: lambda told: self._next(script, asked, told)}) as model:
            await self._query(model.url, f"script:{word}", thread)
        script.ask(dict(zip(asked, ((text, False) for text in model.told[word]), strict=False)))
        return script.received

    def run_together(self, scripts: Sequence[Script]) -> list[list[Received]]:
        """Two subagents of one session."""
        asked: dict[str, list[str]] = {f"sub{number}": [] for number in range(len(scripts))}
        tasks = [
            Use(
                "Agent",
                {
                    "description": "d",
                    "prompt": f"script:{word}",
                    "subagent_type": "general-purpose",
                    "run_in_background": False,
                },
            )
            for word in asked
        ]
        followed = {
            word: (lambda told, script=script, word=word: self._next(script, asked[word], told))
            for word, script in zip(asked, scripts, strict=True)
        }
        with ScriptedModel(main=[tasks], **followed) as model:
            asyncio.run(self._query(model.url, "script:main", None))
        for word, script in zip(asked, scripts, strict=True):
            script.ask(dict(zip(asked[word], ((text, False) for text in model.told[word]), strict=False)))
        return [script.received for script in scripts]

    def _next(self, script: Script, asked: list[str], told: list[str]) -> list[Use] | None:
        calls = script.ask(dict(zip(asked, ((text, False) for text in told), strict=False)))
        asked += [call_id for call_id, _ in calls]
        return [Use(*self.arguments(call)) for _, call in calls] or None

    async def _query(self, url: str, prompt: str, thread: str | None) -> None:
        options = ClaudeAgentOptions(
            **{
                "permission_mode": "bypassPermissions" if os.geteuid() else "acceptEdits",
                "env": {**ENVIRONMENT, "ANTHROPIC_BASE_URL": url, "HOME": self._home.name},
                "setting_sources": [],
                "max_buffer_size": 64 << 20,  # Its own Edit reports the whole file to the SDK.
                **({"resume": self._sessions[thread]} if thread in self._sessions else {}),
                **self._given,
            }
        )
        async for message in query(prompt=prompt, options=options):
            if isinstance(message, ResultMessage) and thread is not None:
                self._sessions[thread] = message.session_id

    def read_part(self, path: str) -> Call:
        if not self.guarded or self.by == "hooks":
            return Call("read", path, raw={"path": path, "limit": 20})
        return Call("read", path, raw={"path": path, "start_line": 1, "end_line": 20})

    def arguments(self, call: Call) -> tuple[str, dict[str, Any]]:
        given = call.given()
        if self.guarded and self.by == "tools":
            if call.kind == "edit":
                given["edits"] = [
                    {f"{name}_string": given.pop(name) for name in ("old", "new") if name in given}
                ]
            return f"mcp__noclobber__{call.kind}_file", given
        given = {_OWN.get(name, name): value for name, value in given.items()}
        if isinstance(given.get("file_path"), str):
            given["file_path"] = os.path.normpath(self.root / given["file_path"])
        return call.kind.capitalize(), given

    def shown(self, text: str) -> str:
        if self.guarded and self.by == "tools":
            return text
        lines = text.partition("\n\n<system-reminder>")[0].split("\n")
        if not re.match(r"\s*1\t", lines[0]):
            return text
        # A last line that is empty stands for the end of the line before it.
        return "\n".join(line.split("\t", 1)[1] for line in lines if "\t" in line)

    def refuses_itself(self, text: str) -> bool:
        if self.guarded and self.by == "tools":
            return False
        # The second: it looked again at the moment of its own write, after every hook had been asked.
        return "<tool_use_error>" in text or text.startswith(
            "File content has changed since it was last read"
        )

    def refusal(self, text: str) -> str:
        if self.guarded and self.by == "tools":
            return text
        found = re.search(r"\{\"error_type\".*?\}(?=\n|$|</)", text, re.S)
        return found[0] if found else text


class HooksDriver(Driver):
    """The built-in tools, with hooks in this process around them."""

    by = "hooks"
    lacks: ClassVar = {
        "cancelled": "the built-in tools write by themselves; there is no moment inside a commit of ours",
        "not_utf8": "Claude Code's own tools refuse a file that is not UTF-8, and say so",
    }


class FloorDriver(Driver):
    """For `make bench`: tools of a user's own that do nothing, so what a call into this process costs by itself."""

    text: ClassVar = ("x" * 79 + "\n") * 128
    """What a read answers: as much as the benchmark's files have."""

    def restart(self) -> None:
        async def load(given: dict[str, Any]) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": self.text}]}

        async def save(given: dict[str, Any]) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": "written"}]}

        takes = {"read_file": {"path": str}, "write_file": {"path": str, "content": str}}
        tools = [
            tool(name, "Does nothing.", takes[name])(run)
            for name, run in (("read_file", load), ("write_file", save))
        ]
        server: Any = create_sdk_mcp_server("noclobber", tools=tools)
        self._given = {
            "cwd": str(self.root),
            "mcp_servers": {"noclobber": {**server, "alwaysLoad": True}},
            "allowed_tools": [f"mcp__noclobber__{name}" for name in takes],
            "disallowed_tools": ["Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Bash"],
        }


VARIANTS = [HooksDriver]
FLOOR = FloorDriver
