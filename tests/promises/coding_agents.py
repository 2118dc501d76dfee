"""
Ways in of coding agents: each host asks its hook before it writes, writes itself, and tells the hook.

The words of each host are those of its captured sessions (tests/data/hosts) and, for Cline, Cursor and Qwen, of
their drivers and documentation. `opencode's tools` is its plugin's own tools, which noclobber carries out.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from noclobber.hosts.hook_entries import START
from tests.promises.agent import LANDED, Agent, Stand, Told, Way
from tests.promises.programs import NO_COMMANDS, OWN_CONTENT
from tests.rigs.hooks import beside, is_denied, refusal


class Call(NamedTuple):
    """One tool call, in the host's words."""

    tool: str
    given: Any
    response: Any = None
    is_failure: bool = False


class HostAgent(Agent):
    """Claude Code. The other hosts are told apart from it."""

    host = "claude-code"

    def __init__(self, stand: Stand, name: str) -> None:
        super().__init__(stand, name)
        self.session = f"{name}-1"
        self.knows: dict[str, str] = {}
        """What the model has last seen of each file: it makes its edits from that."""
        self._calls = 0

    # -- what differs ----------------------------------------------------------------------------------

    def event(self, moment: str, call: Call, call_id: str) -> dict[str, Any]:
        """Return the host's payload before (`pre`) or after (`post`) a call."""
        name = {"pre": "PreToolUse", "post": "PostToolUseFailure" if call.is_failure else "PostToolUse"}
        said = {} if moment == "pre" or call.is_failure else {"tool_response": call.response}
        told = {"error": "ENOENT"} if moment == "post" and call.is_failure else {}
        return {
            "session_id": self.session,
            "cwd": str(self.root),
            "hook_event_name": name[moment],
            "tool_name": call.tool,
            "tool_input": call.given,
            "tool_use_id": call_id,
            **said,
            **told,
        }

    def reading(self, path: Path, text: str | None, lines: tuple[int, int] | None) -> Call:
        """Return a read of a file that has this text; None: there is none."""
        first, last = lines or (1, 0)
        given = {"file_path": str(path), **({"offset": first, "limit": last - first + 1} if lines else {})}
        if text is None:
            return Call("Read", given, is_failure=True)
        total = text.count("\n") + 1
        count = last - first + 1 if lines else total
        file = {"content": part(text, lines), "startLine": first, "numLines": count, "totalLines": total}
        return Call("Read", given, {"type": "text", "file": file})

    def writing(self, path: Path, content: str) -> Call:
        """Return a write of a whole file."""
        return Call("Write", {"file_path": str(path), "content": content}, {})

    def editing(self, path: Path, old: str, new: str) -> Call:
        """Return an edit."""
        return Call("Edit", {"file_path": str(path), "old_string": old, "new_string": new}, {})

    # -- what all do -----------------------------------------------------------------------------------

    def hook(self, payload: dict[str, Any], duty: str) -> dict[str, Any]:
        """Give the hook an event. In a process of its own where several agents work at once, as hosts do it."""
        if threading.current_thread() is threading.main_thread():
            return self.stand.rig.call(self.host, payload, duty)[0]
        return self.stand.zygote.hook(self.host, duty, payload, self.root, **self.stand.environment)

    def call_id(self) -> str:
        """Return the id of the next call."""
        self._calls += 1
        return f"call-{self.session}-{self._calls}"

    def read(self, name: str, lines: tuple[int, int] | None = None) -> None:
        path = self.stand.path(name)
        text = path.read_bytes().decode("utf-8", "replace") if path.is_file() else None
        self._tell_read(self.reading(path, text, lines))
        if text is not None:
            self.knows[name] = text

    def read_unsure(self, name: str, shown: bytes) -> None:
        self._tell_read(self.reading(self.stand.path(name), shown.decode(), None))

    def _tell_read(self, call: Call) -> None:
        self.hook(self.event("post", call, self.call_id()), "note")

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        return self._change(name, self.writing(self.stand.path(name), content.decode()), content)

    def edit(self, name: str, old: str, new: str) -> Told:
        path = self.stand.path(name)
        return self._change(name, self.editing(path, old, new), (old.encode(), new.encode()))

    def _change(self, name: str, call: Call, what: bytes | tuple[bytes, bytes]) -> Told:
        path, call_id = self.stand.path(name), self.call_id()
        answer = self.hook(self.event("pre", call, call_id), "check")
        if is_denied(answer):
            found = refusal(answer)
            return Told(found["error_type"], found, None, text_beside(answer))
        if (changed := rewritten(answer)) is not None:
            what = changed
        if isinstance(what, bytes):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(what)
        else:
            path.write_bytes(path.read_bytes().replace(what[0], what[1], 1))
        self.knows[name] = path.read_text()
        said = self.hook(self.event("post", call, call_id), "note")
        text = json.dumps(said)
        if '{\\"error_type' in text:
            found = refusal(said) if "hookSpecificOutput" in said else json.loads(said["reason"])
            return Told(found["error_type"], found, None, text)
        return Told(LANDED, text=text)

    def new_turn(self) -> None:
        self.session = f"{self.session}+"
        self.knows.clear()


def text_beside(answer: dict[str, Any]) -> str:
    """What a denial tells beside the object."""
    return str(answer["agent_message"]) if "agent_message" in answer else beside(answer)


def part(text: str, lines: tuple[int, int] | None) -> str:
    """Return some lines of a text, or all of it."""
    return text if lines is None else "".join(text.splitlines(keepends=True)[lines[0] - 1 : lines[1]])


def rewritten(answer: dict[str, Any]) -> bytes | None:
    """Return the content that a host is given in place of the model's."""
    nested = answer.get("hookSpecificOutput", {})
    given = nested.get("updatedInput") or nested.get("tool_input") or answer.get("args")
    return None if given is None else str(given["content"]).encode()


class VSCodeAgent(HostAgent):
    """VS Code's agent: it runs every hook of Claude Code's about every tool, and waits for all of them."""

    DUTIES = ("check", "shell", "check")

    def hook(self, payload: dict[str, Any], duty: str) -> dict[str, Any]:
        answers = [
            super(VSCodeAgent, self).hook(payload, each)
            for each in (self.DUTIES if duty == "check" else (duty,))
        ]
        return next(filter(is_denied, answers), answers[0])

    def _tell_read(self, call: Call) -> None:
        call_id = self.call_id()
        if not is_denied(self.hook(self.event("pre", call, call_id), "check")):
            self.hook(self.event("post", call, call_id), "note")

    def reading(self, path: Path, text: str | None, lines: tuple[int, int] | None) -> Call:
        first, last = lines or (1, (text or "").count("\n") + 1)
        given = {"filePath": str(path), "startLine": first, "endLine": last}
        shown = f"File: `{path}`. Lines {first} to {last}:\n```\n{part(text or '', lines)}\n```"
        return Call("read_file", given, shown, is_failure=text is None)

    def writing(self, path: Path, content: str) -> Call:
        if path.is_file():
            known = self.knows.get(str(path.relative_to(self.root)))
            return self.editing(path, known if known is not None else path.read_text(), content)
        return Call("create_file", {"filePath": str(path), "content": content}, "Created.")

    def editing(self, path: Path, old: str, new: str) -> Call:
        given = {"explanation": "e", "filePath": str(path), "oldString": old, "newString": new}
        return Call("replace_string_in_file", given, "Edited.")


class CodexAgent(HostAgent):
    """Codex reads with its shell and writes patches."""

    host = "codex"

    def reading(self, path: Path, text: str | None, lines: tuple[int, int] | None) -> Call:
        shown = shlex.quote(str(path))
        command = f"cat {shown}" if lines is None else f"sed -n '{lines[0]},{lines[1]}p' {shown}"
        return Call("Bash", {"command": command}, part(text or "", lines))

    def writing(self, path: Path, content: str) -> Call:
        return self._patch(f"*** Add File: {path}", *(f"+{line}" for line in content.splitlines()))

    def editing(self, path: Path, old: str, new: str) -> Call:
        gone, came = (
            [f"{sign}{line}" for line in text.splitlines()] for sign, text in (("-", old), ("+", new))
        )
        return self._patch(f"*** Update File: {path}", "@@", *gone, *came)

    @staticmethod
    def _patch(*lines: str) -> Call:
        text = "\n".join(("*** Begin Patch", *lines, "*** End Patch", ""))
        return Call("apply_patch", {"command": text}, "Exit code: 0\nOutput:\nSuccess.\n")


class CopilotAgent(HostAgent):
    """Copilot CLI: `view`, `create`, `edit`. It replaces a whole file by an edit of all of it."""

    host = "copilot"

    def event(self, moment: str, call: Call, call_id: str) -> dict[str, Any]:
        about = {"sessionId": self.session, "cwd": str(self.root), "timestamp": int(time.time() * 1000)}
        about |= {"toolName": call.tool, "toolArgs": call.given}
        if moment == "pre":
            return about
        if call.is_failure:
            return {**about, "error": "there is no such file"}
        return {**about, "toolResult": {"resultType": "success", "textResultForLlm": call.response}}

    def reading(self, path: Path, text: str | None, lines: tuple[int, int] | None) -> Call:
        given = {"path": str(path), **({"view_range": list(lines)} if lines else {})}
        return Call("view", given, part(text or "", lines), is_failure=text is None)

    def writing(self, path: Path, content: str) -> Call:
        if path.is_file():
            known = self.knows.get(str(path.relative_to(self.root)))
            return self.editing(path, known if known is not None else path.read_text(), content)
        return Call("create", {"path": str(path), "file_text": content}, "Created.")

    def editing(self, path: Path, old: str, new: str) -> Call:
        return Call("edit", {"path": str(path), "old_str": old, "new_str": new}, "Updated.")


class GeminiAgent(HostAgent):
    """Gemini CLI."""

    host = "gemini"

    def event(self, moment: str, call: Call, call_id: str) -> dict[str, Any]:
        name = {"pre": "BeforeTool", "post": "AfterTool"}[moment]
        response = {"error": {"message": "no such file"}} if call.is_failure else call.response
        return {
            "session_id": self.session,
            "cwd": str(self.root),
            "hook_event_name": name,
            "tool_name": call.tool,
            "tool_input": call.given,
            **({} if moment == "pre" else {"tool_response": response}),
        }

    def reading(self, path: Path, text: str | None, lines: tuple[int, int] | None) -> Call:
        asked = {"start_line": lines[0], "end_line": lines[1]} if lines else {}
        given = {"file_path": str(path), **asked}
        shown = part(text or "", lines)
        if lines:
            total = (text or "").count("\n")
            shown = (
                "\nIMPORTANT: The file content has been truncated.\n"
                f"Status: Showing lines {lines[0]}-{lines[1]} of {total} total lines.\n"
                f"Action: read on.\n\n--- FILE CONTENT (truncated) ---\n{shown}"
            )
        return Call("read_file", given, {"llmContent": shown, "returnDisplay": ""}, is_failure=text is None)

    def writing(self, path: Path, content: str) -> Call:
        return Call("write_file", {"file_path": str(path), "content": content}, {"llmContent": "Wrote."})

    def editing(self, path: Path, old: str, new: str) -> Call:
        given = {"file_path": str(path), "instruction": "i", "old_string": old, "new_string": new}
        return Call("replace", given, {"llmContent": "Modified."})


class QwenAgent(GeminiAgent):
    """Qwen Code: Claude's events, Gemini's tools, and `edit`."""

    host = "qwen"

    def event(self, moment: str, call: Call, call_id: str) -> dict[str, Any]:
        return HostAgent.event(self, moment, call, call_id)

    def reading(self, path: Path, text: str | None, lines: tuple[int, int] | None) -> Call:
        call = super().reading(path, text, lines)
        asked = {"offset": lines[0] - 1, "limit": lines[1] - lines[0] + 1} if lines else {}
        if lines:
            total = (text or "").count("\n")
            shown = f"Showing lines {lines[0]}-{lines[1]} of {total} total lines.\n\n---\n\n{part(text or '', lines)}"
            call = call._replace(response={"llmContent": shown})
        return call._replace(given={"file_path": str(path), **asked})

    def editing(self, path: Path, old: str, new: str) -> Call:
        return super().editing(path, old, new)._replace(tool="edit")


class CursorAgent(HostAgent):
    """Cursor: its edits carry the whole new text."""

    host = "cursor"

    def event(self, moment: str, call: Call, call_id: str) -> dict[str, Any]:
        about = {"conversation_id": self.session, "generation_id": "g", "workspace_roots": [str(self.root)]}
        if call.tool == "Read":
            return {**about, "hook_event_name": "beforeReadFile", **call.given, "content": call.response}
        name = {"pre": "preToolUse", "post": "postToolUse"}[moment]
        about |= {"hook_event_name": name, "tool_name": call.tool, "tool_use_id": call_id}
        return {**about, "tool_input": call.given}

    def reading(self, path: Path, text: str | None, lines: tuple[int, int] | None) -> Call:
        return Call("Read", {"file_path": str(path)}, text)

    def edit(self, name: str, old: str, new: str) -> Told:
        known = self.knows.get(name) or self.stand.path(name).read_text()
        return self.write(name, known.replace(old, new, 1).encode())


class PluginAgent(HostAgent):
    """opencode, by the events of its plugin around its own tools."""

    host = "opencode"

    def event(self, moment: str, call: Call, call_id: str) -> dict[str, Any]:
        about = {"tool": call.tool, "sessionID": self.session, "callID": call_id}
        place = {"directory": str(self.root), "worktree": str(self.root)}
        if moment == "pre":
            return {"ev": "before", "input": about, "output": {"args": call.given}, **place}
        name = "failed" if call.is_failure else "after"
        return {"ev": name, "input": {**about, "args": call.given}, "output": call.response, **place}

    def reading(self, path: Path, text: str | None, lines: tuple[int, int] | None) -> Call:
        asked = {"offset": lines[0], "limit": lines[1] - lines[0] + 1} if lines else {}
        given = {"filePath": str(path), **asked}
        if text is None:
            return Call("read", given, {}, is_failure=True)
        shown = part(text, lines).replace("\r\n", "\n").removesuffix("\n")
        total = text.count("\n")
        first, last = lines or (1, total)
        about = {"type": "file", "path": str(path), "text": shown, "lineStart": first, "lineEnd": last}
        display = {**about, "totalLines": total, "truncated": last < total}
        return Call("read", given, {"output": shown, "metadata": {"display": display}})

    def writing(self, path: Path, content: str) -> Call:
        return Call(
            "write", {"filePath": str(path), "content": content}, {"output": "Wrote.", "metadata": {}}
        )

    def editing(self, path: Path, old: str, new: str) -> Call:
        given = {"filePath": str(path), "oldString": old, "newString": new}
        return Call("edit", given, {"output": "Edited.", "metadata": {}})


class ReplacedToolsAgent(PluginAgent):
    """opencode, with the tools of our plugin in the place of its own: noclobber writes."""

    def _change(self, name: str, call: Call, what: bytes | tuple[bytes, bytes]) -> Told:
        about = {"tool": call.tool, "sessionID": self.session, "callID": self.call_id(), "args": call.given}
        place = {"directory": str(self.root), "worktree": str(self.root)}
        event = json.dumps({"ev": "write", "input": about, **place}).encode()
        environment = {"PATH": "/usr/bin:/bin", **self.stand.environment}
        command = [sys.executable, "-I", "-S", START, "opencode", "write"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(event + b"\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            if answer["decision"] == "ask":
                process.stdin.write(b"go\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
        if is_denied(answer):
            found = refusal(answer)
            return Told(found["error_type"], found, None, text_beside(answer))
        assert answer["decision"] == "done", answer
        return Told(LANDED, text=answer.get("told", ""))


class ClineAgent(PluginAgent):
    """Cline: a plugin; `editor` replaces a whole file by an edit of all of it."""

    host = "cline"

    def event(self, moment: str, call: Call, call_id: str) -> dict[str, Any]:
        about = {"tool": call.tool, "sessionID": self.session, "callID": call_id, "args": call.given}
        event = {
            "ev": {"pre": "before", "post": "after"}[moment],
            "input": about,
            "directory": str(self.root),
        }
        if moment == "pre":
            return event
        return {**event, "output": [call.response], "isError": call.is_failure}

    def reading(self, path: Path, text: str | None, lines: tuple[int, int] | None) -> Call:
        asked = {"start_line": lines[0], "end_line": lines[1]} if lines else {}
        given = {"files": [{"path": str(path), **asked}]}
        if text is None:
            return Call("read_files", given, {"success": False, "error": "ENOENT"}, is_failure=True)
        first = lines[0] if lines else 1
        shown = part(text, lines).replace("\r\n", "\n").removesuffix("\n").split("\n")
        numbered = "\n".join(f"{number} | {line}" for number, line in enumerate(shown, first))
        return Call("read_files", given, {"success": True, "result": numbered})

    def writing(self, path: Path, content: str) -> Call:
        if path.is_file():
            known = self.knows.get(str(path.relative_to(self.root)))
            return self.editing(path, known if known is not None else path.read_text(), content)
        return Call("editor", {"path": str(path), "new_text": content}, {"success": True, "result": "Done."})

    def editing(self, path: Path, old: str, new: str) -> Call:
        given = {"path": str(path), "old_text": old, "new_text": new}
        return Call("editor", given, {"success": True, "result": "Done."})


ITS_OWN_TOOLS = "the host's own tools have no such parameter"
FOR_THE_MODEL = "a host hands the object to its model; there is no controller"
NO_API = "a hook is a process for one event; there is nothing to call it by"
RAW = "what the host shows of such a file is not its text"
LOOKED = "it asks before it reads, so the file is looked at before and after, and the version is known"
HOST = {"expected": ITS_OWN_TOOLS, "controller": FOR_THE_MODEL, "initial": NO_API, "commands": NO_COMMANDS}
BY_EDITS = "the host replaces a whole file by an edit of all of its text"
OWN_TOOLS = {**HOST, "unsure": "only its writes are replaced; reads are those of the column opencode"}

WAYS = (
    Way("Claude Code", "hosts", HostAgent, HOST),
    Way(
        "Codex",
        "hosts",
        CodexAgent,
        {**HOST, "rewrite": OWN_CONTENT, "absence": "Codex reads by `cat`, and a failed one shows nothing"},
    ),
    Way(
        "VS Code", "hosts", VSCodeAgent, {**HOST, "whole": BY_EDITS, "rewrite": OWN_CONTENT, "unsure": LOOKED}
    ),
    Way("Copilot", "hosts", CopilotAgent, {**HOST, "whole": BY_EDITS, "rewrite": OWN_CONTENT}),
    Way("Gemini", "hosts", GeminiAgent, HOST),
    Way("Qwen", "hosts", QwenAgent, {**HOST, "rewrite": OWN_CONTENT}),
    Way(
        "Cursor",
        "hosts",
        CursorAgent,
        {
            **HOST,
            "rewrite": OWN_CONTENT,
            "replacement": "Cursor's edits carry the whole new content, as its writes do",
            "part": "Cursor's event of a read brings the whole file",
            "absence": "Cursor has no event of a read that failed",
        },
    ),
    Way("Cline", "hosts", ClineAgent, {**HOST, "whole": BY_EDITS, "rewrite": OWN_CONTENT}),
    Way("opencode", "hosts", PluginAgent, HOST),
    Way("opencode's tools", "hosts", ReplacedToolsAgent, OWN_TOOLS),
)
