"""Hosts' own permission rules, with their shells going through noclobber: they judge the original command."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.calls import Shell
from tests.e2e.conftest import driver_or_skip
from tests.e2e.driver import HostDriver, Running, add_group
from tests.e2e.model import ScriptedModel
from tests.e2e.project import REPOSITORY, Project

RULES = {
    "deny": ["Bash(rm:*)", "Bash(git push:*)"],
    "ask": ["Bash(mv:*)"],
}
ALLOWED = "Bash(echo:*),Bash(./write.sh:*),Bash(mv:*)"


def test_the_users_rules_judge_the_original_command(project: Project) -> None:
    """N-shell: denied stays denied, asked for is asked, what nobody allowed is not run, what is allowed is."""
    driver = driver_or_skip("claude-code")
    project.install("claude-code")
    settings = project.root / ".claude" / "settings.local.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "permissions": RULES}))
    for name in ("a.txt", "b.txt"):
        project.file(name, "x\n")
    project.file("write.sh", "#!/bin/sh\necho x > d.txt\n").chmod(0o755)
    commands = (
        "rm a.txt",
        "git push origin main",
        "mv a.txt c.txt",
        "touch evil.txt",
        "echo one > /dev/null && rm a.txt",
        "echo two",
        "./write.sh",
    )
    with ScriptedModel(one=driver.script([Shell(command) for command in commands])) as model:
        words = ["-p", "script:one", "--permission-mode", "default", "--output-format", "json"]
        words += ["--allowedTools", ALLOWED]
        driver.command = lambda prompt, *, is_trusted: words  # type: ignore[method-assign]
        try:
            driver.run(project, model.url, "script:one")
        finally:
            del driver.command
    denied, push, asked, unknown, hidden, allowed, written = model.told["one"]
    assert "denied" in denied, denied
    assert "denied" in push, push
    assert "denied" in hidden, hidden
    for told in (asked, unknown):
        assert "approval" in told or "requested permissions" in told, told
    assert allowed == "two"
    assert "completed" in written, written
    names = {path.name for path in project.root.iterdir()}
    assert {"a.txt", "b.txt", "d.txt"} <= names
    assert not names & {"c.txt", "evil.txt"}
    [event] = project.ledger()
    assert event["payload"]["target_file"] == "d.txt"
    assert event["identity"]["host"] == "claude-code"


def test_opencodes_rules_judge_the_original_command(project: Project) -> None:
    """N-shell: the command is left alone, so a rule about it counts; what is allowed runs as a transaction."""
    driver = driver_or_skip("opencode")
    project.install("opencode")
    rules = {"*": "deny", "./write.sh*": "allow", "mv *": "ask"}
    project.file("opencode.json", json.dumps({"permission": {"bash": rules}}))
    project.file("a.txt", "x\n")
    project.file("write.sh", "#!/bin/sh\necho x > d.txt\n").chmod(0o755)
    commands = ("rm a.txt", "touch evil.txt", "./write.sh && rm a.txt", "./write.sh", "mv a.txt c.txt")
    with ScriptedModel(one=driver.script([Shell(command) for command in commands])) as model:
        driver.start(project, model.url, "script:one").wait()
    told = model.told["one"]
    assert len(told) >= 4, told
    for refused in told[:3]:
        assert "rule" in refused or "rejected" in refused or "denied" in refused, refused
    assert told[3] in ("", "(no output)"), told[3]
    names = {path.name for path in project.root.iterdir()}
    assert {"a.txt", "d.txt"} <= names
    assert not names & {"c.txt", "evil.txt"}
    [event] = project.ledger()
    assert (event["payload"]["target_file"], event["payload"]["tool_name"]) == ("d.txt", "run_command")


# -- hosts that `noclobber start` brings to the guarded shell --------------------------------------------------

RULED = {
    # Words for a host in which one program may run, one may not, and nobody is there to ask about the others.
    "gemini": ["--approval-mode", "default", "--allowed-tools", "run_shell_command(./write.sh)", "-p"],
    "qwen": ["--approval-mode", "default", "--allowed-tools", "run_shell_command(./write.sh)", "-p"],
    "copilot": ["--allow-tool", "shell(./write.sh)", "--deny-tool", "shell(rm)", "-p"],
}
FIRST = {
    "gemini": ["-m", "gemini-2.5-flash"],
    "qwen": ["--auth-type", "openai", "-m", "scripted"],
    "copilot": [],
}
LAUNCHED = (*RULED, "cline")  # Cline has no rules.


def launch(driver: HostDriver, project: Project, url: str, words: list[str]) -> None:
    """Start a host with `noclobber start`, and wait until it has ended."""
    program = driver.locate()
    driver.configure(project, url, is_trusted=True)
    start = [sys.executable, "-m", "noclobber", "start", driver.name, "--program", program.path, "--", *words]
    environment = {**program.environment(), **driver.environment(url), "PYTHONPATH": str(REPOSITORY / "src")}
    Running(start, project, project.environment(**environment), subprocess.DEVNULL).wait()


@contextmanager
def person_who_saves(project: Project) -> Iterator[str]:
    """Somebody who saves plan.md whenever a command asks for it; yields what the command does to ask and wait."""
    asked, over = project.home / "asked", threading.Event()

    def save() -> None:
        count = 0
        while not over.wait(0.01):
            if asked.exists():
                count += 1
                (project.root / "plan.md").write_text(f"person {count}\n")
                asked.unlink()

    person = threading.Thread(target=save)
    person.start()
    try:
        yield f"touch {asked}; while [ -e {asked} ]; do sleep 0.02; done; "
    finally:
        over.set()
        person.join()


@pytest.mark.parametrize("host", LAUNCHED)
def test_stale_commands_are_refused_in_a_host_that_was_started_by_noclobber(
    project: Project, host: str
) -> None:
    """N-shell: sed, a heredoc, a script, git checkout, a formatter: the exact object, and nothing landed."""
    driver = driver_or_skip(host)
    project.install(host)
    project.file("plan.md", "one\n")
    project.file(
        "script.py", "open('plan.md', 'a').write('mine\\n'); open('other.md', 'w').write('mine\\n')\n"
    )
    project.file("format.sh", "#!/bin/sh\ntr -d ' ' < plan.md > t && mv t plan.md\n").chmod(0o755)
    git = "git init -q . && git add . && git -c user.name=a -c user.email=a@b.c commit -qm first"
    subprocess.run(["sh", "-c", git], cwd=project.root, check=True)
    with person_who_saves(project) as after_the_person:
        stale = [
            after_the_person + text
            for text in (
                "sed -i s/person/mine/ plan.md",
                "cat > plan.md <<EOF\nmine\nEOF",
                "python3 script.py",
                "git checkout -q -- plan.md",
                "./format.sh",
            )
        ]
        calls = [Shell(text) for text in (*stale, "echo mine >> plan.md")]
        with ScriptedModel(one=driver.script(calls)) as model:
            launch(driver, project, model.url, driver.command("script:one", is_trusted=True))
    *refused, landed = model.told["one"]
    assert len(refused) == 5, model.told
    for told in refused:
        exact = '{"error_type":"STALE_FILE","message":"File modified by another actor. Re-read required."'
        assert exact in told.replace('\\"', '"')  # Cline's model gets results as JSON.
        assert "nothing of this command landed" in told
    assert "STALE_FILE" not in landed
    assert (project.root / "plan.md").read_text() == "person 5\nmine\n"
    assert not (project.root / "other.md").exists()
    events = project.ledger()
    assert [event["action_type"] for event in events] == [*["MUTATION_CONFLICT"] * 5, "MUTATION"]
    assert {event["identity"]["host"] for event in events} == {host}
    assert {event["payload"]["tool_name"] for event in events} == {"run_command"}


@pytest.mark.parametrize("host", RULED)
def test_the_rules_of_a_started_host_judge_the_original_command(project: Project, host: str) -> None:
    """N-shell: denied stays denied, what nobody allowed is not run, what is allowed runs as a transaction."""
    driver = driver_or_skip(host)
    project.install(host)
    if host != "copilot":
        settings = project.root / f".{host}" / "settings.json"
        rules = {"tools": {"exclude": ["run_shell_command(rm)"]}}
        settings.write_text(json.dumps({**json.loads(settings.read_text()), **rules}))
    project.file("a.txt", "x\n")
    project.file("write.sh", "#!/bin/sh\necho x > d.txt\n").chmod(0o755)
    commands = ("rm a.txt", "touch evil.txt", "./write.sh && rm a.txt", "./write.sh")
    with ScriptedModel(one=driver.script([Shell(command) for command in commands])) as model:
        launch(driver, project, model.url, [*FIRST[host], *RULED[host], "script:one"])
    names = {path.name for path in project.root.iterdir()}
    assert {"a.txt", "d.txt"} <= names, model.told
    assert "evil.txt" not in names
    [event] = project.ledger()
    assert (event["payload"]["target_file"], event["payload"]["tool_name"]) == ("d.txt", "run_command")


@pytest.mark.parametrize(("host", "event"), [("gemini", "BeforeTool"), ("qwen", "PreToolUse")])
def test_hooks_of_the_users_own_are_left_alone_in_a_started_host(
    project: Project, host: str, event: str
) -> None:
    """N-shell: they run in bash as well; they take no command's note, and what they write is really there."""
    driver = driver_or_skip(host)
    project.install(host)
    hook = "cat > /dev/null; echo hook >> hooked.txt"
    add_group(project.root / f".{host}" / "settings.json", event, "^run_shell_command$", hook)
    calls = [Shell("echo mine > plan.md"), Shell("cat plan.md"), Shell("echo more >> plan.md")]
    with ScriptedModel(one=driver.script(calls)) as model:
        launch(driver, project, model.url, driver.command("script:one", is_trusted=True))
    assert (project.root / "plan.md").read_text() == "mine\nmore\n", model.told
    assert (project.root / "hooked.txt").read_text() == "hook\n" * 3
    written = [(each["payload"]["target_file"], each["payload"]["tool_name"]) for each in project.ledger()]
    assert written == [("plan.md", "run_command")] * 2
