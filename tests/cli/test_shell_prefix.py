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
from noclobber.core.values import WHOLE
from noclobber.hook.guarded_calls import leave
from noclobber.hook.session_memory import SessionMemory
from noclobber.hosts.event import Event
from noclobber.hosts.shell_prefix import START
from noclobber.shell.level import GUARDED, probe
from tests.rigs.hooks import HookRig, refusal
from tests.rigs.meanwhile import Meanwhile
from tests.rigs.trusting import trusted_options


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

    def resume(self) -> None:
        """Begin a session that the model remembers."""
        assert self._hook("note", self.rig.event("SessionStart", source="resume")) == {}

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
            "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
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


def test_a_text_in_a_command_is_merged_with_what_others_save_while_it_runs(
    shell: Shell, rig: HookRig, tmp_path: Path
) -> None:
    """N-merge, N-shell: the model hears of it, and may go on: the merged version is its own."""
    (rig.root / "noclobber.toml").write_text('on_stale = "merge"\n')
    lines = "".join(f"line {number}\n" for number in range(9))
    file = rig.root / "plan.md"
    file.write_text(lines)
    rig.read(file)
    then = Meanwhile(tmp_path / "pipes", lambda: file.write_text(lines.replace("line 7", "theirs 7")))
    text = lines.replace("line 2", "LINE 2")
    code, said = shell.run(f"cat > plan.md <<'EOF'\n{text}EOF\n{then.pause}")
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


def told(said: str) -> dict[str, Any]:
    """Return the object that a refused command printed."""
    value: dict[str, Any] = json.JSONDecoder().raw_decode(said)[0]
    return value


def test_a_text_in_a_command_is_refused_after_a_race_as_a_write_is(
    shell: Shell, rig: HookRig, file: Path
) -> None:
    """Finding E4: what the agent saw is not known any more, so neither way may write over a person's save."""
    rig.read(file)
    given = {"file_path": str(file), "content": "the agent's\n"}
    rig.ask("Write", given, tool_use_id="w")
    file.write_text("a person's\n")
    rig.told("Write", given, tool_use_id="w")
    assert "MUTATION_RACE" in rig.kinds()

    assert refusal(rig.write(file, "mine\n"))["error_type"] == "UNREAD_FILE"
    for command in ("cat > a.txt <<'E'\nmine\nE\n", "sed -i s/person/agent/ a.txt", "rm a.txt"):
        code, said = shell.run(command)
        assert (code, told(said)["error_type"]) == (75, "UNREAD_FILE"), command
    assert file.read_text() == "a person's\n"

    rig.read(file)
    assert shell.run("cat > a.txt <<'E'\nmine\nE\n")[0] == 0


def test_a_text_in_a_command_is_refused_after_a_resume_as_a_write_is(
    shell: Shell, rig: HookRig, file: Path
) -> None:
    """Finding E4: the model remembers files, and our memory of them is gone. git's own files count as none."""
    subprocess.run(["git", "init", "-q", str(rig.root)], check=True)
    subprocess.run(["git", "-C", str(rig.root), "add", "a.txt"], check=True)
    rig.session = "resumed"
    shell.resume()

    code, said = shell.run("cat > a.txt <<'E'\nmine\nE\n")
    assert (code, told(said)["error_type"]) == (75, "UNREAD_FILE")
    assert file.read_text() == "hello\nworld\n"
    assert shell.run("echo new > new.txt; git add new.txt") == (0, "")
    rig.read(file)
    assert shell.run("cat > a.txt <<'E'\nmine\nE\n") == (0, "")


def test_a_file_that_was_read_in_part_is_not_replaced_by_a_text_in_a_command(
    shell: Shell, rig: HookRig, file: Path
) -> None:
    """Finding E4, ruling 11: only where the text of the command replaces all of it."""
    (rig.root / "noclobber.toml").write_text('partial = "deny"\n')
    part = {"content": "hello\n", "startLine": 1, "numLines": 1, "totalLines": 2}
    given = {"file_path": str(file), "offset": 1, "limit": 1}
    rig.call("claude-code", rig.tool("PostToolUse", "Read", given, tool_response={"file": part}))

    code, said = shell.run("cat > a.txt <<'E'\nmine\nE\n")
    assert (code, told(said)["error_type"]) == (75, "PARTIAL_READ")
    assert file.read_text() == "hello\nworld\n"
    assert shell.run("sed -i s/hello/HELLO/ a.txt") == (0, "")


def test_what_was_seen_counts_however_many_files_there_are(shell: Shell, rig: HookRig, file: Path) -> None:
    """Finding E4: the list of what the agent had seen ended at 2 000 files."""
    rig.read(file)
    with SessionMemory("claude-code", rig.session, "main", root=str(rig.root)) as memory:
        for number in range(2_100):
            path = str(rig.root / f"many/{number}")
            snapshot, notes = memory.recall(path, path)
            snapshot.observe(path, path, sha256(""), None, WHOLE)
            memory.keep(snapshot, path, path, notes)
    file.write_text("a person's\n")

    code, said = shell.run("sed -i s/a/b/ a.txt")
    assert (code, told(said)["error_type"]) == (75, "STALE_FILE")


def test_what_a_command_brings_in_must_be_read_before_the_whole_file_is_written(
    shell: Shell, rig: HookRig, file: Path
) -> None:
    """Finding E5, ruling 30: the baseline stays. An edit and the next command need no reading."""
    rig.read(file)
    (rig.root / "bobs").write_text("bob's\n")
    assert shell.run("cp bobs a.txt") == (0, "")

    refused = refusal(rig.write(file, "mine\n"))
    assert refused["error_type"] == "STALE_FILE"
    assert refused["details"]["baseline_hash"] == sha256("hello\nworld\n")
    code, said = shell.run("cat > a.txt <<'E'\nmine\nE\n")
    assert (code, told(said)["error_type"]) == (75, "STALE_FILE")
    assert rig.edit(file, "bob", "alice") == {}
    assert shell.run("sed -i s/alice/carol/ a.txt") == (0, "")
    assert refusal(rig.write(file, "mine\n"))["error_type"] == "STALE_FILE"
    rig.read(file)
    assert rig.write(file, "mine\n") == {}


@pytest.mark.parametrize(
    ("command", "content"),
    [
        ("cat > a.txt <<'E'\nx\ny\nE\n", "x\ny\n"),
        ("echo x y > a.txt", "x y\n"),
        ("mkdir -p b && cd b && echo x >> ../a.txt", "hello\nworld\nx\n"),
        ("tee a.txt <<'E' > /dev/null\nx\nE\n", "x\n"),
        (": > a.txt", ""),
    ],
)
def test_what_is_in_the_text_of_a_command_is_the_agents_own(
    shell: Shell, rig: HookRig, file: Path, command: str, content: str
) -> None:
    """Finding E5, ruling 30: its bytes are the agent's own, so it need not be read."""
    rig.read(file)
    assert shell.run(command) == (0, "")
    assert file.read_text() == content
    assert rig.write(file, "mine\n") == {}


def test_a_subagent_is_held_to_what_its_parent_has_seen(guarded: None, rig: HookRig, file: Path) -> None:
    """Finding E4: as its tools are."""
    rig.read(file)
    file.write_text("a person's\n")
    command = "sed -i s/a/b/ a.txt"
    event = Event(
        *("claude-code", "pre"),
        session_id=rig.session,
        agent_id="sub",
        parent_agent_id="main",
        command=command,
    )
    leave(event, str(rig.root), is_plain=False)
    done = subprocess.run(
        [sys.executable, "-I", "-S", START, f"true && eval '{command}'"],
        cwd=rig.root,
        env={
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(rig.runtime),
            "CLAUDE_CODE_SESSION_ID": rig.session,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, told(done.stderr)["error_type"]) == (75, "STALE_FILE")


def test_a_removal_and_a_new_file_of_that_name(shell: Shell, rig: HookRig, file: Path) -> None:
    """N-shell, finding H5: as with the host's own tools."""
    rig.read(file)
    assert shell.run("rm a.txt") == (0, "")
    assert rig.write(file, "again") == {}


def test_a_shell_that_reads_our_file_first_is_guarded(guarded: None, rig: HookRig, file: Path) -> None:
    """N-shell: opencode's; the command lands as the agent's that the note names, and sees nothing of the way there."""
    event = Event("opencode", "pre", session_id="s", call_id="c", agent_id="sub", command="env > new.txt")
    leave(event, str(rig.root), is_plain=False)
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
    assert shell.run(f"{sys.prefix}/bin/noclobber status --json")[0] == 0
    assert shell.run("echo noclobber > new.txt; echo $NOCLOBBER_RUN")[1].strip() != ""


def test_the_options_say_how(shell: Shell, rig: HookRig, file: Path) -> None:
    """N-shell: `watched` and `off` run the command as it is."""
    for level, kinds in (("watched", ["MUTATION"]), ("off", ["MUTATION"])):
        trusted_options(rig.root, f'shell = "{level}"\n')
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
