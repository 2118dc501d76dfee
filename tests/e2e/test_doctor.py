"""What `noclobber doctor` says about hooks, against what the real hosts do with them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from noclobber.hosts import installations, loading
from tests.e2e.calls import Act, Edit, Read, after
from tests.e2e.conftest import driver_or_skip
from tests.e2e.model import ScriptedModel
from tests.e2e.project import REPOSITORY, Project

FIRST, THEIRS = "hello\nworld\n", "hello\nworld\na person's line\n"


def doctor_says(project: Project, host: str) -> list[dict[str, Any]]:
    """Return the findings about a host's hooks."""
    said = subprocess.run(
        [sys.executable, "-m", "noclobber", "doctor", "--json"],
        cwd=project.root,
        env={**project.environment(), "PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    found: list[dict[str, Any]] = json.loads(said.stdout)["findings"]
    return [finding for finding in found if finding["name"] == f"hooks of {host}"]


@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize("host", ["codex", "copilot", "gemini", "qwen"])
def test_the_doctor_says_that_hooks_are_not_loaded_where_the_host_does_not_load_them(
    host: str, is_trusted: bool, project: Project
) -> None:
    """finding H11: protected if and only if the doctor is content."""
    driver = driver_or_skip(host)
    project.install(host)
    file = project.file("a.txt", FIRST)
    acts: list[Act] = [Read(file), after(lambda: file.write_text(THEIRS), Edit(file, "hello", "HELLO"))]
    with ScriptedModel(one=driver.script(acts)) as model:
        driver.run(project, model.url, "script:one", is_trusted=is_trusted)
    is_protected = "STALE_FILE" in model.told["one"][1]
    assert is_protected == is_trusted

    if host == "codex" and is_trusted:
        trust_as_codex_does(project)  # Tests run it with a switch that skips the question.
    is_content = all(finding["ok"] for finding in doctor_says(project, host))
    assert is_content == is_protected, doctor_says(project, host)


def hooks_as_codex_lists_them(project: Project) -> list[dict[str, Any]]:
    """Ask Codex itself which hooks there are, with their hashes."""
    program = driver_or_skip("codex").locate()
    server = subprocess.Popen(
        [program.path, "app-server"],
        cwd=project.root,
        env=project.environment(**program.environment()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    client = {"clientInfo": {"name": "noclobber-tests", "version": "1"}}
    try:
        for message in (
            {"id": 1, "method": "initialize", "params": client},
            {"method": "initialized"},
            {"id": 2, "method": "hooks/list", "params": {"cwds": [str(project.root)]}},
        ):
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
        for line in server.stdout:
            answer = json.loads(line)
            if answer.get("id") == 2:
                [about] = answer["result"]["data"]
                assert about["warnings"] == []
                found: list[dict[str, Any]] = about["hooks"]
                return found
        raise AssertionError("Codex ended without an answer")
    finally:
        server.kill()
        server.communicate()


def trust_as_codex_does(project: Project) -> None:
    """Write the hashes that Codex computes into its configuration, as its dialogue does."""
    config = project.home / ".codex" / "config.toml"
    states = [
        f'[hooks.state."{hook["key"]}"]\ntrusted_hash = "{hook["currentHash"]}"\n'
        for hook in hooks_as_codex_lists_them(project)
    ]
    config.write_text(config.read_text() + "".join(states))


def test_the_hashes_of_hooks_are_those_that_codex_computes(project: Project) -> None:
    """finding H11: Codex warns about none of our hooks, and trusts each by the hash that the doctor expects."""
    driver_or_skip("codex").configure(project, "http://127.0.0.1:9", is_trusted=True)
    project.install("codex")
    [one] = installations.find("codex", str(project.root))
    listed = hooks_as_codex_lists_them(project)
    assert {hook["trustStatus"] for hook in listed} == {"untrusted"}
    assert sorted(hook["currentHash"] for hook in listed) == sorted(
        found for _, found in loading._hashes(one)
    )
    trust_as_codex_does(project)
    assert {hook["trustStatus"] for hook in hooks_as_codex_lists_them(project)} == {"trusted"}
    assert all(finding["ok"] for finding in doctor_says(project, "codex"))
