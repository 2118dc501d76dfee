"""A command of a host's that was let through as guarded, and did not run in the guarded shell (finding S27)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber.hook import guarded_calls
from noclobber.hosts import launched
from noclobber.hosts.hook_entries import START as HOOK
from tests.cli.test_shell_prefix import Shell, file, guarded, shell
from tests.rigs.hooks import HookRig

__all__ = ["file", "guarded", "shell"]


class Gemini:
    """Gemini CLI, started by `noclobber start`: its hooks, and its shell."""

    def __init__(self, rig: HookRig) -> None:
        self.rig = rig
        base = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "XDG_RUNTIME_DIR": str(rig.runtime)}
        self.environment = {**base, **launched.environment("gemini")}
        self.environment[launched.NOTES] = guarded_calls.notes_of("gemini", self.environment[launched.LAUNCH])

    def hook(self, duty: str, event: str, **more: Any) -> str:
        """What a hook answers, run as Gemini does: by `bash -c`."""
        given = {"session_id": "s", "cwd": str(self.rig.root), "hook_event_name": event, **more}
        text = f"{sys.executable} -I -S {HOOK} gemini {duty}"
        return self.bash(text, json.dumps(given))

    def bash(self, text: str, given: str = "") -> str:
        """What a text prints that Gemini runs."""
        done = subprocess.run(
            ["bash", "-c", text],
            input=given,
            env=self.environment,
            cwd=self.rig.root,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout

    def run(self, command: str, spelled: str | None = None) -> str:
        """Run a command between its hooks; return what the hook afterwards said."""
        call = {"tool_name": "run_shell_command", "tool_input": {"command": command}}
        self.hook("shell", "BeforeTool", **call)
        shown = self.bash(f"shopt -u promptvars; {{ {command if spelled is None else spelled}\n}}; exit $?")
        return self.hook("note", "AfterTool", **call, tool_response={"llmContent": shown})


@pytest.fixture
def gemini(rig: HookRig, guarded: None, monkeypatch: pytest.MonkeyPatch) -> Gemini:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(rig.runtime))
    return Gemini(rig)


ASK = 'echo "${NOCLOBBER_RUN:-unguarded}" > new.txt'


@pytest.mark.parametrize(
    ("command", "spelled"),
    [
        (f"{ASK} # /noclobber/hook/start.py", None),
        (f"noclobber_said=; {ASK}", None),
        (f"{ASK}; : 'noclobber hook '", None),
        (f"bash -c '{ASK}'", ASK),
        (f"  sh -c '{ASK}'", ASK),
        (f"  {ASK}  ", ASK),
        (ASK, None),
    ],
)
def test_no_text_of_a_command_takes_the_guard_away(
    gemini: Gemini, rig: HookRig, command: str, spelled: str | None
) -> None:
    """findings S27, H16: a comment did, and what Gemini strips of a command."""
    said = gemini.run(command, spelled)

    assert "unguarded" not in (rig.root / "new.txt").read_text()
    assert "guarded shell" not in said
    assert [event["payload"]["target_file"] for event in rig.ledger()] == ["new.txt"]
    assert not list((rig.runtime / "noclobber").glob("*.run.*"))


def test_a_command_that_passed_the_guard_by_is_looked_at_recorded_and_told(
    gemini: Gemini, rig: HookRig
) -> None:
    """finding S27: whatever the way: here the host spells the command as nobody knows."""
    said = gemini.run(ASK, ASK.replace("echo", "'ec'ho"))

    assert (rig.root / "new.txt").read_text() == "unguarded\n"
    assert "did not run there" in said
    assert "new.txt" in said
    [event] = rig.ledger()
    assert event["payload"]["target_file"] == "new.txt"
    assert not list((rig.runtime / "noclobber").glob("*.run.*"))


def answers(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Collect what hooks answer, where the rig expects them to say nothing."""
    said: list[dict[str, Any]] = []
    hook = shell._hook

    def collected(duty: str, payload: dict[str, Any]) -> dict[str, Any]:
        said.append(hook(duty, payload))
        return {}

    monkeypatch.setattr(shell, "_hook", collected)
    return said


def test_a_session_file_that_somebody_has_changed_is_no_way_around(
    shell: Shell, rig: HookRig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding S27: a line before ours in CLAUDE_ENV_FILE has our line do nothing."""
    session_file = rig.runtime / "sessionstart-hook-0.sh"
    session_file.write_text("export NOCLOBBER_INSIDE_SHELL=1\n" + session_file.read_text())
    said = answers(shell, monkeypatch)
    shell.run("echo changed > a.txt; echo ${NOCLOBBER_RUN:-unguarded} >> a.txt")

    assert file.read_text() == "changed\nunguarded\n"
    assert "a.txt" in str(said[-1])
    assert [event["payload"]["target_file"] for event in rig.ledger()] == ["a.txt"]


def test_a_command_whose_guard_was_killed_is_looked_at(
    shell: Shell, rig: HookRig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding S27: it had the note, and nobody knows what it did."""
    said = answers(shell, monkeypatch)
    outside = rig.root / "b.txt"
    shell.run(f"echo x > a.txt; nsenter -t $PPID -m sh -c 'echo x > {outside}' 2>/dev/null; kill -9 $PPID")

    assert file.read_text() == "hello\nworld\n"
    assert outside.exists() == ("b.txt" in str(said[-1]))
    assert not list((rig.runtime / "noclobber").glob("*.run.*"))
