"""The command that hosts run: an answer that the host understands, whatever is left of the installation."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber.hosts import HOSTS, command_line, load
from noclobber.hosts.command_line import START, command
from noclobber.hosts.hook_entries import hook_file, is_ours
from tests.rigs.hooks import HookRig, is_denied, refusal

SHELLS = [name for name in ("sh", "bash", "dash", "zsh", "fish", "busybox") if shutil.which(name)]
HOOKED = [
    host for host in HOSTS if host not in ("cline", "opencode")
]  # Plugins run the hook without a shell.
PATCH = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a\n+b\n*** End Patch\nEOF"
# What is left of an interpreter, as a shell script in its place. None: nothing at all.
WRECKS = {
    "no interpreter": None,
    "the script is gone": "exit 2",
    "exit code 1": "echo it broke >&2; exit 1",
    "killed": "kill -9 $$",
    "killed after half an answer": """printf '{"hookSpecificOutput": {"perm'; kill -9 $$""",
    "a whole answer, and then a crash": "printf '{}'; exit 2",
    "killed after it read the event": "cat >/dev/null; kill -9 $$",
}


@pytest.fixture
def wreck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put something else where the interpreter was; the path has all that shells care about."""

    def broken(kind: str) -> None:
        path = tmp_path / 'it\'s a $HOME \\ of `x` & "y"' / "python"
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        script = WRECKS[kind]
        if script is not None:
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return broken


def run(line: str, payload: Any, shell: str = "sh") -> subprocess.CompletedProcess[str]:
    """Run a command line as hosts do: by a shell, with the event on stdin."""
    words = ["busybox", "sh"] if shell == "busybox" else [shell]
    return subprocess.run(
        [*words, "-c", line],
        input=json.dumps(payload),
        capture_output=True,
        text=True,
        timeout=60,
    )


def shell_event(script: str) -> dict[str, Any]:
    """What Codex sends before a shell command."""
    return {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": script}}


@pytest.mark.parametrize("kind", WRECKS)
@pytest.mark.parametrize("host", HOOKED)
def test_a_check_that_cannot_run_is_one_valid_denial_that_leads_out(host: str, kind: str, wreck: Any) -> None:
    """finding H3: hosts that let a failed hook pass get a denial as well; half an answer is not in front of it."""
    wreck(kind)
    done = run(command(host, "check"), {})

    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert is_denied(answer)
    told = refusal(answer)
    assert told["error_type"] == "HOOK_FAILED"
    for way in ("`noclobber doctor`", f"`noclobber install {host} --uninstall`", "Reading files still works"):
        assert way in told["message"]


@pytest.mark.parametrize("kind", WRECKS)
@pytest.mark.parametrize("host", HOOKED)
def test_a_note_that_cannot_run_says_nothing_and_succeeds(host: str, kind: str, wreck: Any) -> None:
    """finding H3: exit code 2 at the end of a turn makes Codex, Gemini CLI and Qwen Code go on for ever."""
    wreck(kind)
    done = run(command(host, "note"), {})

    assert done.returncode == 0
    assert done.stdout in ("", '{"permission":"allow"}')  # Cursor takes an empty answer for a failure.


@pytest.mark.parametrize("kind", WRECKS)
def test_a_broken_hook_refuses_a_patch_in_a_shell_command_and_lets_others_pass(kind: str, wreck: Any) -> None:
    """finding H3: Codex reads files by shell commands, and a patch may come in one."""
    wreck(kind)
    patched = run(command("codex", "shell"), shell_event(PATCH))
    assert (patched.returncode, is_denied(json.loads(patched.stdout))) == (0, True)

    read = run(command("codex", "shell"), shell_event("cat a.txt"))
    assert read.returncode == 0
    # With the event gone nothing is known about the command, so that it may be a patch.
    assert bool(read.stdout) == (kind == "killed after it read the event")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_reads_the_command_alike(
    shell: str, wreck: Any, rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H3: a host may run hooks by the user's own shell; the denial and the answer are the same."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(rig.runtime))
    payload = rig.tool("PreToolUse", "Write", {"file_path": str(root / "x"), "content": "y"}, tool_use_id="w")
    let_through = run(command("claude-code", "check"), payload, shell)
    assert (let_through.returncode, let_through.stdout, let_through.stderr) == (0, "", "")
    lost = run(command("claude-code", "check"), {**payload, "tool_input": 1}, shell)
    assert refusal(json.loads(lost.stdout))["error_type"] != "HOOK_FAILED"  # The hook's own words.

    for kind in WRECKS:
        wreck(kind)
        for host in HOOKED:
            expected = command_line.fallback(host, "check")
            assert run(command(host, "check"), payload, shell).stdout == expected
        assert "STALE" not in expected
        patched = run(command("codex", "shell"), shell_event(PATCH), shell)
        assert patched.stdout == command_line.fallback("codex", "shell")


@pytest.mark.parametrize("host", HOOKED)
def test_no_name_in_the_command_is_one_that_a_host_replaces(host: str) -> None:
    """finding H3: Gemini CLI and Qwen Code replace `$NAME` in settings by a variable of their environment."""
    for duty in ("check", "note", "shell"):
        line = command(host, duty)
        names = [part.partition('"')[0] for part in line.split("$")[1:]]
        assert all(name.startswith(("noclobber_", "1; shift", "(", "@")) for name in names), names
        assert is_ours({"command": line}, host)


def test_the_portable_command_denies_where_noclobber_is_not_on_the_path(tmp_path: Path) -> None:
    """finding H3, finding U4: a shared file, on the machine of a colleague who has not installed noclobber."""
    line = command("qwen", "check", portable=True)
    done = subprocess.run(
        ["/bin/sh", "-c", line], input="{}", capture_output=True, text=True, env={"PATH": str(tmp_path)}
    )
    assert done.returncode == 0
    assert refusal(json.loads(done.stdout))["error_type"] == "HOOK_FAILED"


@pytest.mark.parametrize(("duty", "denies"), [("check", True), ("note", False)])
def test_a_hook_that_hangs_ends_before_the_host_gives_up(
    duty: str, denies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H3: after its own time-out Copilot, Gemini CLI, Qwen Code and Codex let the write through."""
    package = tmp_path / "lib" / "noclobber"
    shutil.copytree(
        os.path.dirname(os.path.dirname(START)), package, ignore=shutil.ignore_patterns("__pycache__")
    )
    start = package / "hook" / "start.py"
    assert "MOST_S = 25\n" in start.read_text()
    start.write_text(start.read_text().replace("MOST_S = 25\n", "MOST_S = 1\n"))
    monkeypatch.setattr(command_line, "START", str(start))

    # The host never closes stdin, so the event never ends; and it ignores the alarm, as hooks would inherit.
    process = subprocess.Popen(
        ["/bin/sh", "-c", command("gemini", duty)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said = process.stdout.read()
    assert process.wait(timeout=60) == 0
    process.stdin.close()
    process.stdout.close()
    assert bool(said) == denies
    if denies:
        assert json.loads(said)["decision"] == "deny"


@pytest.mark.parametrize(("duty", "code"), [("check", 2), ("shell", 2), ("note", 0)])
def test_an_answer_that_cannot_be_printed_refuses_a_write_and_nothing_else(
    duty: str, code: int, wreck: Any
) -> None:
    """finding H3: the only exit code that is not 0, and never that of a note."""
    wreck("no interpreter")
    with open("/dev/full", "wb") as full:
        event = json.dumps(shell_event(PATCH)).encode()
        done = subprocess.run(
            ["/bin/sh", "-c", command("codex", duty)], input=event, stdout=full, stderr=subprocess.DEVNULL
        )
    assert done.returncode == code


def test_hooks_end_before_the_time_that_hosts_are_told_to_wait(root: Path) -> None:
    """finding H3: the two figures are in two files."""
    from noclobber.hook.start import MOST_S
    from noclobber.hosts.hook_entries import TIMEOUT_S

    assert MOST_S < TIMEOUT_S
    for host in HOOKED:
        for entry in hook_file(host, "project", str(root)).entries:
            hook = entry.value.get("hooks", [entry.value])[0]
            given = hook.get("timeout", hook.get("timeoutSec", TIMEOUT_S))
            assert given in (TIMEOUT_S, TIMEOUT_S * 1000) or entry.event == "SessionEnd", (host, entry.event)


def test_every_note_of_every_host_is_harmless_when_it_breaks(root: Path, wreck: Any) -> None:
    """finding H3: as installed: events that are not the check of a write never deny, and never fail."""
    wreck("the script is gone")
    for host in HOOKED:
        module = load(host)
        asks = set(module.CHECK_EVENT.values()) | {"preToolUse"}
        for entry in hook_file(host, "project", str(root)).entries:
            hook = entry.value.get("hooks", [entry.value])[0]
            line = hook.get("command", hook.get("bash"))
            if line.endswith(" auto"):
                continue
            done = run(line, {})
            assert done.returncode == 0, (host, entry.event)
            answer = json.loads(done.stdout or "{}")
            # A read of a lock file is asked about, and goes ahead.
            is_asked = entry.event in asks and " note" not in line
            is_of_a_write = is_asked and entry.value.get("matcher") not in ("Read", "view")
            assert is_denied(answer) == (is_of_a_write and not line.endswith(" shell"))
