"""Hosts' own permission rules, with their shells going through noclobber: they judge the original command."""

from __future__ import annotations

import json

from tests.e2e.calls import Shell
from tests.e2e.conftest import driver_or_skip
from tests.e2e.model import ScriptedModel
from tests.e2e.project import Project

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
