"""Ways in of scripts and commands: `noclobber write`, `noclobber run`, `turn.run`, MCP's `run_command`, a host's shell."""

from __future__ import annotations

import base64
import json
import shlex

from tests.conftest import sha256
from tests.promises.agent import LANDED, Agent, Stand, Told, Way, outcome
from tests.promises.coding_agents import FOR_THE_MODEL, NO_API, HostAgent
from tests.promises.programs import OWN_READS, TurnAgent
from tests.promises.servers import NO_HASHES, StdioAgent
from tests.rigs.hooks import beside, refusal

ABSENT = "ABSENT"


class ScriptAgent(Agent):
    """A script: it asks for a file's hash when it reads, and says it when it writes."""

    def __init__(self, stand: Stand, name: str) -> None:
        super().__init__(stand, name)
        self.seen: dict[str, str] = {}

    def read(self, name: str, lines: tuple[int, int] | None = None) -> None:
        path = self.stand.path(name)
        self.seen[name] = sha256(path.read_bytes()) if path.exists() else ABSENT

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        known = expected or self.seen.get(name)
        words = ["--any"] if known is None else ["--expect", known]
        done = self.stand.zygote.cli(
            *("write", name, *words, "--agent", self.name, "--json"),
            cwd=self.root,
            stdin=content,
            environment=self.stand.environment,
        )
        told = _told(done.out)
        assert (done.code == 0) == (told.code == LANDED), done
        if told.code == LANDED:
            self.seen[name] = sha256(content)
        return told


def _told(printed: bytes) -> Told:
    """What a command printed for a program."""
    found = json.loads(printed)
    found = found.get("refused") or found
    code = found.get("error_type")
    if code is None:
        return Told(LANDED)
    is_controllers = "file_path" in found or code != "STALE_FILE"
    return Told(code, None if is_controllers else found, found if is_controllers else None)


def command_for(name: str, content: bytes) -> str:
    """Return a command that replaces a file, whatever the bytes."""
    return f"printf %s {base64.b64encode(content).decode()} | base64 -d > {shlex.quote(name)}"


def command_for_edit(name: str, old: str, new: str) -> str:
    """Return a command that replaces a text of one line in a file."""
    return f"sed -i 's/{old.rstrip()}/{new.rstrip()}/' {shlex.quote(name)}"


class Commands(Agent):
    """What all do that change files by commands."""

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        return self.run(command_for(name, content))

    def edit(self, name: str, old: str, new: str) -> Told:
        return self.run(command_for_edit(name, old, new))


class RunAgent(Commands, ScriptAgent):
    """`noclobber run`, with `--expect` for what was read."""

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        if expected is not None:
            self.seen[name] = expected
        return Commands.write(self, name, content)

    def run(self, command: str) -> Told:
        expect = [word for name, known in self.seen.items() for word in ("--expect", f"{name}={known}")]
        done = self.stand.zygote.cli(
            *("run", "--require", "--json", "--agent", self.name, *expect, "--", "sh", "-c", command),
            cwd=self.root,
            environment=self.stand.environment,
        )
        told = _told(done.out)
        if told.code != LANDED:
            assert done.code == 75, done
            return told
        for name in self.seen:
            path = self.stand.path(name)
            self.seen[name] = sha256(path.read_bytes()) if path.is_file() else ABSENT
        return told if done.code == 0 else Told(f"EXIT {done.code}")


class TurnRunAgent(Commands, TurnAgent):
    """`turn.run`, in a turn that reads with its tools."""

    def write_by_tool(self, name: str, content: bytes) -> Told:
        return TurnAgent.write(self, name, content)

    def run(self, command: str) -> Told:
        code = 0

        def run() -> None:
            nonlocal code
            code = self.turn.run(command, require=True).exit_code

        told = outcome(run)
        return told if not code else Told(f"EXIT {code}")

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        if expected is None:
            return Commands.write(self, name, content)
        command = command_for(name, content)
        return outcome(lambda: self.turn.run(command, require=True, expected_hashes={name: expected}))


class RunCommandAgent(Commands, StdioAgent):
    """MCP's `run_command`, on a connection that reads with the server's tools."""

    def write_by_tool(self, name: str, content: bytes) -> Told:
        return StdioAgent.write(self, name, content)

    def run(self, command: str) -> Told:
        result = self.peer.call("run_command", command=command)
        if result.get("isError"):
            structured = result["structuredContent"]
            text = result["content"][0]["text"]
            return Told(structured["error_type"], json.loads(text), structured)
        code = result["structuredContent"]["exit_code"]
        return Told(LANDED if code == 0 else f"EXIT {code}")


class BashAgent(Commands, HostAgent):
    """Claude Code's Bash in the guarded shell; it reads with Read."""

    def write_by_tool(self, name: str, content: bytes) -> Told:
        return HostAgent.write(self, name, content)

    def __init__(self, stand: Stand, name: str) -> None:
        super().__init__(stand, name)
        self.environment = {**stand.environment, "SHELL": "/bin/bash"}
        self.environment["CLAUDE_ENV_FILE"] = f"{stand.rig.runtime}/sessionstart-hook-{name}.sh"
        self._start()

    def _start(self) -> None:
        self.environment["CLAUDE_CODE_SESSION_ID"] = self.session
        about = {"session_id": self.session, "cwd": str(self.root), "hook_event_name": "SessionStart"}
        # It writes a file for the shell, whose name it finds in its environment.
        start = {**about, "source": "startup"}
        self.stand.zygote.hook(self.host, "note", start, self.root, **self.environment)

    def run(self, command: str) -> Told:
        call_id = self.call_id()
        given = {"command": command, "description": "d"}
        about = {"session_id": self.session, "cwd": str(self.root), "tool_name": "Bash", "tool_input": given}
        about["tool_use_id"] = call_id
        if denied := self.hook({**about, "hook_event_name": "PreToolUse"}, "shell"):
            found = refusal(denied)
            return Told(found["error_type"], found, None, beside(denied))
        text = f"source /dev/null || true && eval {shlex.quote(command)} < /dev/null && pwd -P >| /dev/null"
        done = self.stand.zygote.prefix(text, self.root, **self.environment)
        name = "PostToolUse" if done.code == 0 else "PostToolUseFailure"
        response = {"tool_response": {"stdout": done.out.decode()}} if done.code == 0 else {"error": "failed"}
        self.hook({**about, "hook_event_name": name, **response}, "note")
        if done.code == 75:
            found, _ = json.JSONDecoder().raw_decode(done.err[done.err.index(b"{") :].decode())
            return Told(found["error_type"], found)
        return Told(LANDED if done.code == 0 else f"EXIT {done.code}", text=done.err.decode())

    def new_turn(self) -> None:
        super().new_turn()
        self._start()


NOT_A_SHELL = "it writes one file; see the columns of commands"
BY_HASH = "a script says what it has seen by its hash, which is of the whole file"
NO_MEMORY = "nothing is remembered between two commands: what was seen is said with each"
FOR_AGENTS = "`--json` prints the object for the agent"
SHELL = {"folder": "a shell says itself that a folder is no file", "tools": "a command, not a tool"}
SHELL["whole"] = "of a command, a text in it that replaces a file is asked about, in a row of its own"
SHELL["rewrite"] = "a command is made from what is there when it begins; what changed before is refused"
SCRIPT = {
    "controller": FOR_AGENTS,
    "part": BY_HASH,
    "unsure": OWN_READS,
    "initial": NO_MEMORY,
    "turns": NO_MEMORY,
}

WAYS = (
    Way(
        "noclobber write",
        "command line",
        ScriptAgent,
        {
            **SCRIPT,
            "edit": "it takes the whole new content",
            "options": "each call says with --expect or --any what it expects",
            "rewrite": "it says itself what it expects, so it is refused",
            "commands": NOT_A_SHELL,
        },
    ),
    Way("noclobber run", "commands", RunAgent, {**SCRIPT, **SHELL}),
    Way("turn.run", "commands", TurnRunAgent, SHELL),
    Way(
        "run_command",
        "commands",
        RunCommandAgent,
        {
            **SHELL,
            "unsure": OWN_READS,
            "initial": NO_HASHES,
            "expected": "it takes no hashes; the reads count",
        },
    ),
    Way(
        "Claude's Bash",
        "commands",
        BashAgent,
        {**SHELL, "expected": "a command takes no hashes; the reads count", "controller": FOR_THE_MODEL}
        | {"initial": NO_API},
    ),
)
