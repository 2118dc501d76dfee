"""What Claude Code runs in the place of its shell."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber import Workspace
from noclobber.cli.shell_prefix import command_in
from noclobber.hook.guarded_calls import leave
from noclobber.hosts.event import Event
from noclobber.hosts.shell_prefix import START
from noclobber.shell.level import GUARDED, probe
from tests.rigs.hooks import HookRig, refusal
from tests.rigs.meanwhile import Meanwhile


@pytest.fixture
def guarded(root: Path) -> None:
    with Workspace(root) as workspace:
        workspace.recorder.prepare()
    level = probe(str(root))
    if level.name != GUARDED:
        pytest.skip(f"no guarded shell here: {level.why}")


class Shell:
    """Claude Code's Bash tool: the hook before, the text in the place of its shell, the hook after."""

    def __init__(self, rig: HookRig) -> None:
        self.rig = rig
        self._file = rig.runtime / "sessionstart-hook-0.sh"
        start = {"hook_event_name": "SessionStart", "session_id": rig.session, "cwd": str(rig.root)}
        assert self._hook("note", {**start, "source": "startup"}) == {}

    def run(self, command: str, **given: Any) -> tuple[int, str]:
        """Run a command; return its exit code and what it printed, errors last."""
        number = self.rig.next_id()
        values = {"command": command, **given}
        asked = self.rig.tool("PreToolUse", "Bash", values, tool_use_id=number)
        assert self._hook("shell", asked) == {}
        line = self._file.read_text()
        text = f"source /dev/null || true && {line}: && eval {shlex.quote(command)} < /dev/null && pwd -P >| /dev/null"
        done = subprocess.run(
            ["/bin/bash", "-c", text],
            cwd=self.rig.root,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        name = "PostToolUse" if done.returncode == 0 else "PostToolUseFailure"
        told = self.rig.tool(name, "Bash", values, tool_use_id=number, tool_response={"stdout": done.stdout})
        said = self._hook("note", told)
        assert bool(said) == bool(given.get("run_in_background")), said  # Told once a session, and only then.
        return done.returncode, done.stdout + done.stderr

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "SHELL": "/bin/bash",
            "XDG_RUNTIME_DIR": str(self.rig.runtime),
            "CLAUDE_CODE_SESSION_ID": self.rig.session,
            "CLAUDE_ENV_FILE": str(self._file),
        }

    def _hook(self, duty: str, payload: dict[str, Any]) -> dict[str, Any]:
        from noclobber.hosts.hook_entries import START as HOOK

        done = subprocess.run(
            [sys.executable, "-I", "-S", HOOK, "claude-code", duty],
            input=json.dumps(payload).encode(),
            env=self._environment(),
            capture_output=True,
            timeout=60,
        )
        answer: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        return answer


@pytest.fixture
def shell(rig: HookRig, guarded: None) -> Shell:
    return Shell(rig)


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "a.txt"
    path.write_text("hello\nworld\n")
    return path


def sha256(text: str) -> str:
    """Return the hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def test_what_a_command_changed_is_the_agents_own_version(shell: Shell, rig: HookRig, file: Path) -> None:
    """N-shell, finding H6: seen before the command, so known after it; no refusal, and who is on record."""
    rig.read(file)
    assert shell.run("sed -i s/hello/HELLO/ a.txt && echo done") == (0, "done\n")
    assert file.read_text() == "HELLO\nworld\n"
    assert rig.edit(file, "world", "WORLD") == {}
    first, second = rig.ledger()
    assert first["payload"]["tool_name"] == "run_command"
    assert first["identity"]["session_id"] == second["identity"]["session_id"] == rig.session
    assert first["identity"]["host"] == "claude-code"


def test_a_stale_file_refuses_the_whole_command_with_the_exact_object(
    shell: Shell, rig: HookRig, file: Path
) -> None:
    """N-shell: a script, so nobody could tell beforehand; its other file does not land either."""
    rig.read(file)
    file.write_text("a person's\n")
    code, said = shell.run("python3 -c \"open('a.txt','w').write('x'); open('new.txt','w').write('y')\"")
    assert code == 75
    value, _ = json.JSONDecoder().raw_decode(said)
    assert value["details"] == {
        "path": str(file),
        "baseline_hash": sha256("hello\nworld\n"),
        "current_disk_hash": sha256("a person's\n"),
    }
    assert file.read_text() == "a person's\n"
    assert not (rig.root / "new.txt").exists()
    assert rig.kinds() == ["MUTATION_CONFLICT"]
    rig.read(file)
    assert shell.run("echo more >> a.txt") == (0, "")


def test_a_command_is_merged_with_what_others_save_while_it_runs(
    shell: Shell, rig: HookRig, tmp_path: Path
) -> None:
    """N-merge, N-shell: the model hears of it, and may go on: the merged version is its own."""
    (rig.root / "noclobber.toml").write_text('on_stale = "merge"\n')
    lines = "".join(f"line {number}\n" for number in range(9))
    file = rig.root / "plan.md"
    file.write_text(lines)
    rig.read(file)
    then = Meanwhile(tmp_path / "pipes", lambda: file.write_text(lines.replace("line 7", "theirs 7")))
    code, said = shell.run(f"sed -i 's/line 2/LINE 2/' plan.md; {then.pause}")
    assert code == 0, said
    assert "was changed by an outsider while the command ran" in said
    assert "+theirs 7" in said
    both = lines.replace("line 7", "theirs 7").replace("line 2", "LINE 2")
    assert file.read_text() == both
    file.write_text(both.replace("line 0", "theirs 0"))
    code, said = shell.run(f"cat > plan.md <<'EOF'\n{both.replace('line 4', 'LINE 4')}EOF\n")
    assert code == 0, said
    assert file.read_text() == both.replace("line 0", "theirs 0").replace("line 4", "LINE 4")
    assert rig.kinds() == ["MUTATION", "MUTATION"]
    file.write_text("theirs before it began\n")
    assert shell.run("sed -i 1d plan.md")[0] == 75


def test_a_text_in_a_command_is_refused_over_a_file_that_was_read_in_part(
    shell: Shell, rig: HookRig, file: Path
) -> None:
    """N-merge, ruling 17: the session knows which part of the file its model has seen."""
    (rig.root / "noclobber.toml").write_text('on_stale = "merge"\n')
    lines = "".join(f"line {number}\n" for number in range(9))
    file.write_text(lines)
    part = {"content": "line 0\nline 1\nline 2\n", "startLine": 1, "numLines": 3, "totalLines": 9}
    given = {"file_path": str(file), "offset": 1, "limit": 3}
    rig.call("claude-code", rig.tool("PostToolUse", "Read", given, tool_response={"file": part}))
    file.write_text(lines.replace("line 7", "theirs 7"))
    code, said = shell.run(f"cat > a.txt <<'EOF'\n{lines.replace('line 2', 'LINE 2')}EOF\n")
    assert code == 75, said
    assert "It was not merged: You have read only part of the file." in said
    assert file.read_text() == lines.replace("line 7", "theirs 7")


def test_a_file_that_was_never_read_must_be_read_after_a_command_changed_it(
    shell: Shell, rig: HookRig, file: Path
) -> None:
    """N-shell: nobody knows what the agent thinks is in it. What the command created is its own."""
    assert shell.run("echo more >> a.txt; echo mine > new.txt") == (0, "")
    assert refusal(rig.write(file, "x"))["error_type"] == "UNREAD_FILE"
    assert rig.edit(rig.root / "new.txt", "mine", "still mine") == {}


def test_a_removal_and_a_new_file_of_that_name(shell: Shell, rig: HookRig, file: Path) -> None:
    """N-shell, finding H5: as with the host's own tools."""
    rig.read(file)
    assert shell.run("rm a.txt") == (0, "")
    assert rig.write(file, "again") == {}


def test_a_shell_that_reads_our_file_first_is_guarded(guarded: None, rig: HookRig, file: Path) -> None:
    """N-shell: opencode's; the command lands as the agent's that the note names, and sees nothing of the way there."""
    event = Event("opencode", "pre", session_id="s", call_id="c", agent_id="sub", command="env > new.txt")
    leave(event, str(rig.root), "session", is_plain=False)
    folder = f"{Path(START).parents[1]}/hosts/shell_env"
    mine = {"HOST": "opencode", "SESSION": "s", "FOLDER": folder, "PYTHON": sys.executable, "START": START}
    subprocess.run(
        ["bash", "-c", event.command],
        cwd=rig.root,
        env={
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(rig.runtime),
            "BASH_ENV": f"{folder}/bash_env.sh",
            "ZDOTDIR": folder,
            **{f"NOCLOBBER_SHELL_{name}": value for name, value in mine.items()},
        },
        check=True,
        timeout=60,
    )
    [entry] = rig.ledger()
    assert (entry["identity"]["agent_id"], entry["identity"]["host"]) == ("sub", "opencode")
    seen = (rig.root / "new.txt").read_text()
    assert "NOCLOBBER_SHELL" not in seen
    assert "BASH_ENV" not in seen
    assert "NOCLOBBER_RUN=" in seen


def test_what_runs_in_the_background_or_only_looks_is_not_guarded(
    shell: Shell, rig: HookRig, file: Path
) -> None:
    """N-shell: it sees the real tree, and a file of the run would be there if it were guarded."""
    look = "ls -d .noclobber/run/*/upper 2>/dev/null | wc -l; echo $NOCLOBBER_RUN"
    assert shell.run("echo x > new.txt; echo $NOCLOBBER_RUN", run_in_background=True)[1].strip() == ""
    assert shell.run(look)[1].split()[-1:] == ["0"]
    assert shell.run("echo x > new.txt; echo $NOCLOBBER_RUN")[1].strip() != ""
    assert [event["payload"]["target_file"] for event in rig.ledger()] == ["new.txt"] or not rig.ledger()


def test_a_command_of_noclobbers_own_is_not_guarded(shell: Shell, rig: HookRig) -> None:
    """N-shell: its state is read-only inside a guarded command."""
    assert shell.run("echo noclobber > new.txt; echo $NOCLOBBER_RUN")[1].strip() == ""


def test_the_options_say_how(shell: Shell, rig: HookRig, file: Path) -> None:
    """N-shell: `watched` and `off` run the command as it is."""
    for level, kinds in (("watched", ["MUTATION"]), ("off", ["MUTATION"])):
        (rig.root / "noclobber.toml").write_text(f'shell = "{level}"\n')
        rig.read(file)
        assert shell.run(f"echo {level} > a.txt; echo $NOCLOBBER_RUN")[1].strip() == ""
        assert rig.kinds() == kinds


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        'it\'s "quoted"',
        "a\nb\n",
        "cat <<'EOF'\n$x `y` \\z\nEOF\n",
        "",
        "a && eval 'b'",
        "a < b | c > d",
    ],
)
def test_the_command_is_found_in_the_text(command: str) -> None:
    """N-shell: as the host quotes it."""
    text = f"source /x.sh 2>/dev/null || true && eval {shlex.quote(command)} < /dev/null && pwd -P >| /y"
    assert command_in(text) == command


@pytest.mark.parametrize("text", ["", "ls", "eval 'x'", "a && eval 'unclosed", 'a && eval "$(x)"'])
def test_a_text_of_another_shape_has_no_command(text: str) -> None:
    """N-shell: then it runs as it is."""
    assert command_in(text) is None
