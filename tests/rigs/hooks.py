"""
A stand for hooks: a project, a runtime folder, and a host that asks before it writes, as the real ones do.

`HookRig.call()` runs the hook in this process, which is quick; `HookRig.process()` runs it as hosts do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from noclobber.hook.main import respond
from noclobber.hosts.hook_entries import START
from tests.rigs.ledgers import recorded
from tests.rigs.schemas import check, check_texts_in


class HookRig:
    """One project, seen by one session of one host at a time."""

    def __init__(self, root: Path, runtime: Path, session: str = "s1") -> None:
        self.root, self.runtime, self.session = root, runtime, session
        self._calls = 0

    # -- any host -----------------------------------------------------------------------------------

    def call(self, host: str, payload: Any, duty: str = "auto") -> tuple[dict[str, Any], int]:
        """Give the hook a payload (bytes as they are, everything else as JSON); return answer and code."""
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        with tempfile.TemporaryFile() as stdin:
            stdin.write(data)
            stdin.seek(0)
            answer = respond(host, duty, stdin.fileno())
        return self._checked(answer.stdout), answer.code

    def process(
        self, host: str, payload: Any, duty: str = "auto", **more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the hook as a host does."""
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        done = subprocess.run(
            [sys.executable, "-I", "-S", START, host, duty],
            input=data,
            capture_output=True,
            env={
                "PATH": os.environ["PATH"],
                "XDG_RUNTIME_DIR": str(self.runtime),
                "XDG_STATE_HOME": os.environ.get("XDG_STATE_HOME", ""),
            },
            timeout=60,
            **more,
        )
        self._checked(done.stdout)
        return done

    @staticmethod
    def _checked(stdout: str | bytes) -> dict[str, Any]:
        """Return an answer; what it tells the model fits its schema, and a denial tells something."""
        answer: dict[str, Any] = json.loads(stdout) if stdout else {}
        assert check_texts_in(answer) or not is_denied(answer), answer
        return answer

    def ledger(self) -> list[dict[str, Any]]:
        """Return what is on record, after checking the chain and every event."""
        return recorded(self.root / ".noclobber" / "agent_trace.jsonl")

    def kinds(self) -> list[str]:
        """Return the kinds of what is on record."""
        return [event["action_type"] for event in self.ledger()]

    # -- Claude Code ----------------------------------------------------------------------------------

    def event(self, name: str, **members: Any) -> dict[str, Any]:
        """Return one of Claude Code's payloads."""
        return {"session_id": self.session, "cwd": str(self.root), "hook_event_name": name, **members}

    def tool(self, name: str, tool: str, given: dict[str, Any], **members: Any) -> dict[str, Any]:
        """Return one of its payloads about a tool call."""
        return self.event(name, tool_name=tool, tool_input=given, **members)

    def next_id(self) -> str:
        """Return a fresh tool-call id."""
        self._calls += 1
        return f"toolu_{self.session}_{self._calls}"

    def read(self, path: Path, **members: Any) -> dict[str, Any]:
        """Read a file as the host does, and tell the hook; return its answer."""
        text = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        lines = text.count("\n") + 1
        response = {"file": {"content": text, "startLine": 1, "numLines": lines, "totalLines": lines}}
        payload = self.tool(
            "PostToolUse", "Read", {"file_path": str(path)}, tool_response=response, **members
        )
        return self.call("claude-code", payload)[0]

    def ask(self, tool: str, given: dict[str, Any], **members: Any) -> dict[str, Any]:
        """Ask before a tool call; return the hook's answer."""
        return self.call("claude-code", self.tool("PreToolUse", tool, given, **members), "check")[0]

    def told(self, tool: str, given: dict[str, Any], **members: Any) -> dict[str, Any]:
        """Tell the hook that a tool call was carried out; return its answer."""
        payload = self.tool("PostToolUse", tool, given, tool_response={}, **members)
        return self.call("claude-code", payload, "note")[0]

    def write(self, path: Path, content: str, **members: Any) -> dict[str, Any]:
        """Ask, write if that is let through, tell; return the first answer that is one."""
        given = {"file_path": str(path), "content": content}
        members.setdefault("tool_use_id", self.next_id())
        answer = self.ask("Write", given, **members)
        if answer:
            return answer
        path.write_text(content)
        return self.told("Write", given, **members)

    def edit(self, path: Path, old: str, new: str, **members: Any) -> dict[str, Any]:
        """The same with a replacement."""
        given = {"file_path": str(path), "old_string": old, "new_string": new}
        members.setdefault("tool_use_id", self.next_id())
        answer = self.ask("Edit", given, **members)
        if answer:
            return answer
        path.write_bytes(path.read_bytes().replace(old.encode(), new.encode(), 1))
        return self.told("Edit", given, **members)


def refusal(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the object that a denial gives to the model; fails for anything that is not a denial."""
    if "additionalContext" in answer.get("hookSpecificOutput", {}):
        reason = answer["hookSpecificOutput"]["additionalContext"]  # After a call: added to its result.
    elif "hookSpecificOutput" in answer:
        nested = answer["hookSpecificOutput"]
        assert nested["permissionDecision"] == "deny"
        reason = nested["permissionDecisionReason"]
        if "permissionDecision" in answer:  # Copilot's own hooks obey the flat form only.
            assert (answer["permissionDecision"], answer["permissionDecisionReason"]) == ("deny", reason)
    elif "permission" in answer:
        assert answer["permission"] == "deny"
        assert answer["user_message"] == answer["agent_message"]
        reason = answer["agent_message"]
    else:
        assert answer["decision"] in ("deny", "block"), answer
        reason = answer["reason"]
    value: dict[str, Any]
    value, end = json.JSONDecoder().raw_decode(reason)
    assert reason[end : end + 1] in ("", "\n"), "the object has a line of its own"
    check(value)
    return value


def beside(answer: dict[str, Any]) -> str:
    """Return what a denial or a warning tells the model beside the object."""
    nested = answer.get("hookSpecificOutput", {})
    reason = (
        nested.get("permissionDecisionReason") or nested.get("additionalContext") or answer.get("reason", "")
    )
    return str(reason[json.JSONDecoder().raw_decode(reason)[1] :])


def is_denied(answer: dict[str, Any]) -> bool:
    """True if an answer refuses, in any host's words."""
    nested = answer.get("hookSpecificOutput", {})
    return "deny" in (answer.get("decision"), answer.get("permission"), nested.get("permissionDecision"))
