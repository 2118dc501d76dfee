"""Shell commands that may write, at the level `watched`: hooks before and after them."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber.hook.commands import only_runs_us
from tests.rigs.clones import IDENTITY
from tests.rigs.hooks import HookRig, beside, is_denied, refusal
from tests.rigs.trusting import trusted_options


def git(rig: HookRig, *words: str) -> str:
    """Run git as a person does; return what it printed."""
    return subprocess.run(["git", *words], cwd=rig.root, capture_output=True, text=True, check=True).stdout


def run(rig: HookRig, command: str, then: str | None = None, **members: Any) -> list[dict[str, Any]]:
    """Ask, run a command for real if that is let through, tell; return the answers that are not empty."""
    given = {"command": command, **members}
    number = rig.next_id()
    asked = rig.call("claude-code", rig.tool("PreToolUse", "Bash", given, tool_use_id=number), "shell")[0]
    if is_denied(asked):
        return [asked]
    done = subprocess.run(["sh", "-c", then or command], cwd=rig.root, capture_output=True, text=True)
    name = "PostToolUse" if done.returncode == 0 else "PostToolUseFailure"
    said: dict[str, Any] = {"tool_response": {"stdout": done.stdout, "stderr": done.stderr}}
    told = rig.call("claude-code", rig.tool(name, "Bash", given, tool_use_id=number, **said), "note")[0]
    return [answer for answer in (asked, told) if answer]


def sha256(text: str) -> str:
    """Return the hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(autouse=True)
def at_this_level(root: Path) -> None:
    trusted_options(root, 'shell = "watched"\n')


@pytest.mark.parametrize(
    "command",
    [
        "sed -i 's/hello/HELLO/' a.txt",
        "cat > a.txt <<'EOF'\nmine\nEOF",
        "echo mine > a.txt",
        "cd . && git checkout -- a.txt",
        "rm a.txt",
        "mv a.txt b.txt",
        "ruff format a.txt",
    ],
)
def test_a_command_that_would_write_a_stale_file_is_refused_beforehand(
    rig: HookRig, file: Path, command: str
) -> None:
    """N-shell: the exact object, one conflict on record, and the person's bytes are still there."""
    rig.read(file)
    file.write_text("a person's\n")

    [answer] = run(rig, command)

    assert refusal(answer)["details"] == {
        "path": str(file),
        "baseline_hash": sha256("hello\nworld\n"),
        "current_disk_hash": sha256("a person's\n"),
    }
    assert file.read_text() == "a person's\n"
    assert rig.kinds() == ["MUTATION_CONFLICT"]


def test_a_script_that_writes_over_a_stale_file_is_told_and_the_version_is_kept(
    rig: HookRig, file: Path
) -> None:
    """N-shell: nobody can tell what a script writes; what it wrote over is not lost."""
    rig.read(file)
    file.write_text("a person's\n")
    (rig.root / "fix.py").write_text("open('a.txt', 'w').write('mine')\n")

    [answer] = run(rig, "python3 fix.py")

    assert refusal(answer)["error_type"] == "MUTATION_RACE"
    assert "-a person's" in beside(answer)
    [kept] = (rig.root / ".noclobber" / "kept").iterdir()
    assert kept.read_text() == "a person's\n"
    [event] = [event for event in rig.ledger() if event["action_type"] == "MUTATION_RACE"]
    assert event["payload"]["overwritten_hash"] == f"sha256:{sha256('a person' + chr(39) + 's' + chr(10))}"


def test_what_a_command_changed_is_on_record_as_its_own(rig: HookRig, file: Path) -> None:
    """
    N-shell, N-who, finding H19: level `watched`, and who; the agent must read the file before it writes it.

    A person may have saved it while the command ran, so the agent is not told that it wrote all of that itself.
    """
    rig.read(file)
    assert run(rig, "python3 -c \"open('a.txt','a').write('x'); open('new.txt','w').write('y')\"") == []

    events = {event["payload"]["target_file"]: event for event in rig.ledger()}
    assert set(events) == {"a.txt", "new.txt"}
    assert {event["payload"]["level"] for event in events.values()} == {"watched"}
    assert (
        events["a.txt"]["payload"]["before_hash"] == f"sha256:{sha256('hello' + chr(10) + 'world' + chr(10))}"
    )
    assert events["a.txt"]["identity"]["session_id"] == rig.session
    answer = rig.edit(file, "hello", "HELLO")
    assert refusal(answer)["error_type"] == "STALE_FILE"
    assert "while your own command ran" in beside(answer)
    assert "yourself" not in beside(answer)


def test_what_a_heredoc_wrote_is_the_agents_own(rig: HookRig, file: Path) -> None:
    """N-shell, finding H6: it is known what the agent wrote, so nothing has to be read again."""
    rig.read(file)
    assert run(rig, "cat > a.txt <<'EOF'\nmine\nEOF") == []
    assert rig.edit(file, "mine", "still mine") == {}
    assert [event["payload"]["level"] for event in rig.ledger()] == ["watched", "hook"]


def test_a_removal_is_the_agents_own_and_the_file_may_be_made_again(rig: HookRig, file: Path) -> None:
    """N-shell, finding H5: as with a host's own tool."""
    rig.read(file)
    assert run(rig, "rm a.txt") == []
    assert rig.write(file, "again") == {}
    assert rig.kinds() == ["MUTATION", "MUTATION"]


def test_a_command_that_failed_or_did_otherwise_is_no_race(rig: HookRig, file: Path) -> None:
    """N-shell: a command may do anything, so what was foreseen and did not come is no alarm."""
    rig.read(file)
    command = "cat > a.txt <<'EOF'\nmine\nEOF"
    assert run(rig, command, then="exit 1") == []
    assert rig.edit(file, "hello", "HELLO") == {}
    assert run(rig, command, then="echo other > a.txt") == []
    assert rig.kinds() == ["MUTATION", "MUTATION"]


def test_somebody_elses_guarded_write_while_a_command_runs_stays_theirs(rig: HookRig, file: Path) -> None:
    """N-who: it is on record already, and is not taken for the command's."""
    from noclobber import Workspace

    rig.read(file)
    given = {"command": "make"}
    rig.call("claude-code", rig.tool("PreToolUse", "Bash", given, tool_use_id="t"), "shell")
    with Workspace(rig.root) as workspace, workspace.turn(agent_id="other") as turn:
        turn.write_file(rig.root / "theirs.txt", b"theirs")
    told = rig.tool("PostToolUse", "Bash", given, tool_use_id="t", tool_response={})
    assert rig.call("claude-code", told, "note")[0] == {}
    assert [event["identity"]["agent_id"] for event in rig.ledger()] == ["other"]


@pytest.mark.parametrize(
    ("command", "members"),
    [("ls; cat a.txt", {}), ("echo x > a.txt", {"run_in_background": True})],
)
def test_what_only_reads_and_what_runs_in_the_background_passes(
    rig: HookRig, file: Path, command: str, members: dict[str, Any]
) -> None:
    """N-shell: nothing is judged and nothing is noted."""
    rig.read(file)
    file.write_text("a person's\n")
    assert not any(is_denied(answer) for answer in run(rig, command, then="true", **members))
    assert rig.kinds() == []


def test_the_option_switches_it_off(rig: HookRig, file: Path) -> None:
    """N-shell: as before this level existed."""
    trusted_options(rig.root, 'shell = "off"\n')
    rig.read(file)
    file.write_text("a person's\n")
    assert run(rig, "echo mine > a.txt") == []
    assert rig.kinds() == []


@pytest.mark.parametrize("host", ["gemini", "copilot", "qwen", "codex", "cursor", "opencode", "cline"])
def test_every_host_refuses_a_stale_target(rig: HookRig, file: Path, host: str) -> None:
    """N-shell: whatever a host calls its shell."""
    read = "cat a.txt"
    old = file.read_text()

    def payload(command: str, after: str | None) -> dict[str, Any]:
        given: dict[str, Any] = {"command": command}
        if host in ("opencode", "cline"):
            tool = "bash" if host == "opencode" else "run_commands"
            given = given if host == "opencode" else {"commands": [command]}
            about = {"tool": tool, "sessionID": "s", "callID": command, "args": given}
            said: Any = {"output": after} if host == "opencode" else [{"result": after, "success": True}]
            ended = {"output": said} if after is not None else {"output": {"args": given}}
            name = "before" if after is None else "after"
            return {"ev": name, "input": about, "directory": str(rig.root), **ended}
        if host == "copilot":
            ended = (
                {} if after is None else {"toolResult": {"resultType": "success", "textResultForLlm": after}}
            )
            return {
                "sessionId": "s",
                "cwd": str(rig.root),
                "toolName": "bash",
                "toolArgs": given,
                "timestamp": 1,
                **ended,
            }
        names = {"gemini": ("BeforeTool", "AfterTool"), "cursor": ("preToolUse", "postToolUse")}
        before_name, after_name = names.get(host, ("PreToolUse", "PostToolUse"))
        tool = {"gemini": "run_shell_command", "qwen": "run_shell_command", "cursor": "Shell"}.get(
            host, "Bash"
        )
        more: dict[str, Any] = {"tool_use_id": command}
        if after is not None:
            said = after if host == "codex" else {"llmContent": after, "output": after}
            more |= {"tool_response": said, "tool_output": after}
        return rig.tool(before_name if after is None else after_name, tool, given, **more) | {
            "conversation_id": "s"
        }

    rig.call(host, payload(read, old), "note")
    file.write_text("a person's\n")
    answer = rig.call(host, payload("sed -i s/a/b/ a.txt", None), "shell")[0]
    assert refusal(answer)["details"]["baseline_hash"] == sha256(old)
    assert json.dumps(answer).count("STALE_FILE") >= 1


@pytest.fixture
def clone(rig: HookRig, file: Path) -> Path:
    """A repository in which another agent has changed a file that is not committed."""
    from noclobber import Workspace

    for words in (["init", "-q"], ["add", "a.txt"], ["commit", "-qm", "first"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *words], cwd=rig.root, check=True)
    with Workspace(rig.root) as workspace, workspace.turn(agent_id="rival", session_id="r") as turn:
        turn.read_file(file)
        turn.write_file(file, b"the rival's\n")
    return file


@pytest.mark.parametrize(
    "command",
    ["git stash", "git reset --hard", "git checkout -- .", "git add -A", "git commit -am mine"],
)
def test_git_that_takes_or_sweeps_up_anothers_work_is_refused_beforehand(
    rig: HookRig, clone: Path, command: str
) -> None:
    """N-shell: without a private view, too; the files and their owners are told, and nothing ran."""
    [answer] = run(rig, command)
    assert refusal(answer)["error_type"] == "OTHERS_WORK"
    assert "a.txt" in json.dumps(answer)
    assert "rival" in json.dumps(answer)
    assert clone.read_text() == "the rival's\n"
    assert rig.kinds() == ["MUTATION", "MUTATION_REFUSED"]


def test_git_that_reaches_only_the_agents_own_work_passes(rig: HookRig, clone: Path) -> None:
    """N-shell: what it has written or read is no stranger's, and git commands that take nothing are not asked."""
    assert run(rig, "git stash list > /dev/null; touch x") == []
    rig.read(clone)
    assert rig.edit(clone, "the rival's", "ours") == {}
    assert run(rig, "git checkout -- a.txt") == []
    assert clone.read_text() == "hello\nworld\n"


def test_what_a_subagent_wrote_is_its_main_agents_own(rig: HookRig, clone: Path) -> None:
    """finding H18: the main agent could not commit it. A subagent does not commit the main agent's work."""
    mine, subs = rig.root / "mine.txt", rig.root / "of-the-subagent.txt"
    assert rig.write(mine, "mine\n") == {}
    assert rig.write(subs, "its\n", agent_id="sub-1") == {}
    rig.read(clone)
    answer = rig.ask("Bash", {"command": "git add a.txt mine.txt of-the-subagent.txt"}, agent_id="sub-1")
    assert refusal(answer)["details"]["files"] == "a.txt, mine.txt"
    assert run(rig, "git add a.txt mine.txt of-the-subagent.txt") == []


def test_the_ways_out_that_a_refusal_of_git_names_work_as_printed(
    rig: HookRig, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H18: `noclobber commit --mine` ended with exit code 2, and files that were named were refused."""
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    git(rig, "commit", "-qm", "of the rival", "a.txt")
    for name in ("data.bin", "gone.txt"):
        (rig.root / name).write_bytes(b"\0 first\n")
    git(rig, "add", ".")
    git(rig, "commit", "-qm", "more")
    rig.write(rig.root / "mine.txt", "mine\n")
    (rig.root / "data.bin").write_bytes(b"\0 by a script, or by a person\n")
    (rig.root / "gone.txt").unlink()

    [answer] = run(rig, "git add -A && git commit -qm everything")

    told = refusal(answer)
    assert told["details"]["files"] == "data.bin, gone.txt"
    mine, rest = re.findall("`(.*?)`", told["message"])
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(mine)], cwd=rig.root, capture_output=True, check=False
    )
    assert (done.returncode, git(rig, "show", "--format=", "--name-only")) == (0, "mine.txt\n"), done.stderr
    assert run(rig, rest) == []
    assert git(rig, "show", "--format=", "--name-only") == "data.bin\ngone.txt\n"


def test_naming_a_file_does_not_commit_anothers_recorded_work(rig: HookRig, clone: Path) -> None:
    """N-shell, finding H18: also if somebody unknown has changed the file since."""
    rig.write(rig.root / "b.txt", "b\n")
    clone.write_text(clone.read_text() + "a person's\n")
    [answer] = run(rig, "git commit -qm mine a.txt")
    assert "rival" in refusal(answer)["details"]["owners"]


def test_a_refused_git_command_leaves_no_claim(rig: HookRig, clone: Path) -> None:
    """N-shell: its target was let through before git's rule refused it, and others may still write it."""
    from noclobber import Workspace

    [answer] = run(rig, "git stash && echo x > new.txt")
    assert refusal(answer)["error_type"] == "OTHERS_WORK"
    with Workspace(rig.root) as workspace, workspace.turn(agent_id="rival") as turn:
        turn.write_file(rig.root / "new.txt", b"theirs")


@pytest.mark.parametrize("level", ["guarded", "watched"])
def test_the_agent_is_told_once_that_a_command_in_the_background_is_not_guarded(
    rig: HookRig, file: Path, level: str
) -> None:
    """N-shell: with the result of the first one of a session, and in every session."""
    trusted_options(rig.root, f'shell = "{level}"\n')
    [told] = run(rig, "make > log", then="true", run_in_background=True)
    assert "is not guarded" in told["hookSpecificOutput"]["additionalContext"]
    assert run(rig, "make > log", then="true", run_in_background=True) == []
    assert run(rig, "make > log", then="true") == []
    rig.session = "another"
    assert len(run(rig, "make > log", then="true", run_in_background=True)) == 1


def test_nothing_is_said_of_the_background_where_the_shell_is_switched_off(rig: HookRig, file: Path) -> None:
    """N-shell: there no command is guarded, and the user has said so."""
    trusted_options(rig.root, 'shell = "off"\n')
    assert run(rig, "make > log", then="true", run_in_background=True) == []


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("noclobber run -- true", True),
        ("cd x && /usr/bin/noclobber status", True),
        ("python -m noclobber doctor", True),
        ("(noclobber hash a)", True),
        ("sed -i s/a/b/ /home/me/noclobber/src/a.py", False),
        ("echo x >> noclobber.toml", False),
        ("rm -r noclobber-demo my_noclobber .noclobber", False),
        ("noclobber status | head -n 3", True),
        ("uv run noclobber commit --mine -m x", True),
        ("sed -i s/a/b/ noclobber/a.py; noclobber status", False),
        ("echo x > a # noclobber", False),
        ("echo noclobber > a", False),
        ("noclobber diff > a", False),
        ("PATH=.:$PATH noclobber status", False),
        ("./noclobber status", False),
        ("noclobber status & echo x > a", False),
    ],
)
def test_only_a_command_that_runs_noclobber_alone_is_not_guarded(text: str, may: bool) -> None:
    """N-shell, finding S27: a path, a comment or a word took the guard away from the whole command."""
    assert only_runs_us(text) is may
