"""
A host with a person at its approval dialogue.

Hosts that editors drive speak JSON, a message a line, over their standard streams, and ask there before they write.
`decide` is called while the dialogue is open: it plays what the person does meanwhile, and says yes or no.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.e2e.project import Project

Decide = Callable[[], bool]
TIMEOUT_S = 90
PERSON_S = 0.2


class JsonLines:
    """A program that is talked to in JSON, a message a line. Use as a context manager: at the end it is ended."""

    def __init__(self, command: list[str], project: Project, environment: Mapping[str, str]) -> None:
        self._errors = (project.home / "attended.err").open("w+")
        self._process = subprocess.Popen(
            command,
            cwd=project.root,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._limit = threading.Timer(TIMEOUT_S, self._process.kill)

    def __enter__(self) -> JsonLines:
        self._limit.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._limit.cancel()
        self._process.stdout.close()
        self._errors.close()

    def say(self, message: dict[str, Any]) -> None:
        """Send a message."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def heard(self) -> Iterator[dict[str, Any]]:
        """Yield messages as they come; a program that ends before it is told to has failed."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # A word to nobody, before it starts to speak the protocol.
            if isinstance(message, dict):
                yield message
        self._errors.seek(0)
        raise AssertionError(f"the host ended in the middle: {self._errors.read()[-2000:]}")


def agent_client(talk: JsonLines, project: Project, prompts: Iterable[str], decide: Decide) -> None:
    """Speak the Agent Client Protocol, as editors do."""
    left, session = iter(prompts), ""
    talk.say(_call(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {"fs": _NO_FILES}}))
    for message in talk.heard():
        number, method = message.get("id"), message.get("method")
        if method == "session/request_permission":
            wanted = "allow_once" if decide() else "reject_once"
            options = message["params"]["options"]
            chosen = next(option["optionId"] for option in options if option["kind"] == wanted)
            outcome = {"outcome": "selected", "optionId": chosen}
            talk.say({"jsonrpc": "2.0", "id": number, "result": {"outcome": outcome}})
        elif method is not None and number is not None:
            error = {"code": -32601, "message": "not offered"}
            talk.say({"jsonrpc": "2.0", "id": number, "error": error})
        elif number == 1:
            talk.say(_call(2, "session/new", {"cwd": str(project.root), "mcpServers": []}))
        elif isinstance(number, int):
            assert "result" in message, message
            session = session or message["result"]["sessionId"]
            prompt = next(left, None)
            if prompt is None:
                return
            said = [{"type": "text", "text": prompt}]
            talk.say(_call(number + 1, "session/prompt", {"sessionId": session, "prompt": said}))


_NO_FILES = {"readTextFile": False, "writeTextFile": False}


def _call(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def claude_control(talk: JsonLines, prompts: Iterable[str], decide: Decide) -> None:
    """Speak Claude Code's control protocol, as its SDK does."""
    begin = {"subtype": "initialize", "hooks": None}
    talk.say({"type": "control_request", "request_id": "r0", "request": begin})
    for prompt in prompts:
        said = {"role": "user", "content": prompt}
        talk.say({"type": "user", "message": said, "parent_tool_use_id": None, "session_id": "default"})
        _until_result(talk, decide)


def _until_result(talk: JsonLines, decide: Decide) -> None:
    for message in talk.heard():
        if message.get("type") == "result":
            return
        asked = message.get("request", {})
        if message.get("type") == "control_request" and asked.get("subtype") == "can_use_tool":
            answer = (
                {"behavior": "allow", "updatedInput": asked["input"]}
                if decide()
                else {"behavior": "deny", "message": "The person said no."}
            )
            reply = {"subtype": "success", "request_id": message["request_id"], "response": answer}
            talk.say({"type": "control_response", "response": reply})


def terminal(
    command: list[str],
    project: Project,
    environment: Mapping[str, str],
    prompts: Iterable[str],
    decide: Decide,
) -> None:
    """
    Sit at a terminal of Gemini CLI, whose hooks do not run when an editor drives it.

    Its screen is drawn again and again, so a dialogue is known by the file that it names. `prompts` are what is
    typed after the first one, which is on the command line.
    """
    left, said = iter(prompts), "\0"
    child, screen = pty.fork()
    if child == 0:
        os.chdir(project.root)
        os.execve(command[0], command, {**environment, "TERM": "xterm-256color"})
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 150, 0, 0))
    limit = threading.Timer(TIMEOUT_S, os.kill, (child, signal.SIGKILL))
    limit.start()
    answered: set[str] = set()
    seen = ""
    try:
        # It ends its turn when the model says that it is done, and when a person says no.
        while True:
            if "\u2726 done" in seen or "Request cancelled" in seen:
                prompt = next(left, None)
                if prompt is None:
                    break
                _type(screen, prompt)
                seen, said = "", prompt
            seen += _CONTROL.sub("", os.read(screen, 65536).decode(errors="replace"))
            seen = seen.rpartition(said)[2]  # Above it is an earlier turn, which is drawn again.
            head, mark, _ = seen.rpartition("Apply this change?")
            names = _NAME.findall(head)
            if not mark or not names or names[-1] in answered:
                continue
            answered.add(names[-1])
            # Enter takes the first choice, "Allow once"; Escape is "No".
            os.write(screen, b"\r" if decide() else b"\x1b")
            seen = ""
    except OSError:
        raise AssertionError(f"the host ended in the middle: {seen[-2000:]}") from None
    finally:
        limit.cancel()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(screen)


def _type(screen: int, prompt: str) -> None:
    """Type a line, and Enter as a person would: within 30 ms it takes Enter for a part of pasted text."""
    os.write(screen, prompt.encode())
    _wait_for(screen, prompt)
    time.sleep(PERSON_S)
    os.write(screen, b"\r")


def cline_terminal(
    command: list[str], project: Project, environment: Mapping[str, str], prompts: Iterable[str]
) -> None:
    """Sit at a terminal of Cline: nowhere else does it take a second message in one session."""
    child, screen = pty.fork()
    if child == 0:
        os.chdir(project.root)
        os.execve(command[0], command, {**environment, "TERM": "xterm-256color"})
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 150, 0, 0))
    limit = threading.Timer(TIMEOUT_S, os.kill, (child, signal.SIGKILL))
    limit.start()
    try:
        _wait_for(screen, "any other key to close")  # It begins with an advertisement.
        os.write(screen, b"\x1b")
        _wait_for(screen, "What can I do for you?")
        for prompt in prompts:
            _type(screen, prompt)
            _wait_for(screen, "done")
    except OSError:
        raise AssertionError("the host ended in the middle") from None
    finally:
        limit.cancel()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(screen)


def _wait_for(screen: int, words: str) -> None:
    seen = ""
    while words not in " ".join(seen.split()):
        seen += _CONTROL.sub(" ", os.read(screen, 65536).decode(errors="replace"))


_CONTROL = re.compile("\x1b\\[[0-9;?]*[A-Za-z]|\x1b\\][^\x07]*\x07")
_NAME = re.compile(r"[\w-]+\.txt")


def codex_server(talk: JsonLines, project: Project, prompts: Iterable[str], decide: Decide) -> None:
    """Speak with Codex's app server, as its editor extensions do."""
    left, thread = iter(prompts), ""

    def say_next() -> bool:
        prompt = next(left, None)
        if prompt is not None:
            said = {"threadId": thread, "input": [{"type": "text", "text": prompt}]}
            talk.say({"id": 3, "method": "turn/start", "params": said})
        return prompt is not None

    about = {"name": "noclobber_tests", "title": "t", "version": "0"}
    talk.say({"id": 1, "method": "initialize", "params": {"clientInfo": about}})
    for message in talk.heard():
        number, method = message.get("id"), str(message.get("method", ""))
        if method.endswith("requestApproval"):
            # Commands are asked about as well; they are its way to read.
            is_agreed = decide() if "fileChange" in method else True
            talk.say({"id": number, "result": {"decision": "accept" if is_agreed else "decline"}})
        elif method == "turn/completed":
            if not say_next():
                return
        elif method:
            continue
        elif number == 1:
            talk.say({"method": "initialized"})
            begin: dict[str, Any] = {
                "cwd": str(project.root),
                "approvalPolicy": "untrusted",
                "sandbox": "danger-full-access",
            }
            begin["config"] = {"bypass_hook_trust": True}
            talk.say({"id": 2, "method": "thread/start", "params": begin})
        elif number == 2:
            assert "result" in message, message
            thread = message["result"]["thread"]["id"]
            say_next()
        else:
            assert "error" not in message, message
