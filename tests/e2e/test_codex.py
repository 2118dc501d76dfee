"""The real Codex from npm, with our hooks as `noclobber install` writes them, and a scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import sha256
from tests.e2e.conftest import driver_or_skip
from tests.e2e.driver import Finished
from tests.e2e.drivers.codex import patch
from tests.e2e.model import ScriptedResponses, Use
from tests.e2e.project import Project

FIRST = "hello\nworld\n"
THEIRS = "hello\nworld\na person's line\n"


@pytest.fixture
def file(project: Project) -> Path:
    """A file that the agent will read."""
    path = project.root / "a.txt"
    path.write_text(FIRST)
    return path


@pytest.fixture
def run_codex(project: Project) -> Callable[..., Finished]:
    """Run Codex with a prompt against a model endpoint, and wait for it."""
    driver = driver_or_skip("codex")

    def run(url: str, prompt: str, *, trusted: bool = True) -> Finished:
        return driver.run(project, url, prompt, is_trusted=trusted)

    return run


def shell(command: str) -> Use:
    return Use("exec_command", {"cmd": command})


def after(action: Callable[[], object], use: Use) -> Callable[[], Use]:
    """A step before which something else happens."""

    def step() -> Use:
        action()
        return use

    return step


CHANGE = ("*** Update File: a.txt", "@@", "-hello", "+HELLO")


@pytest.mark.parametrize("trusted", [True, False])
def test_a_stale_patch_is_refused_once_the_hooks_are_trusted(
    trusted: bool, file: Path, project: Project, run_codex: Callable[..., Finished]
) -> None:
    """009-FR-004: the host alone, or with hooks that nobody trusted yet, applies it over the person's line."""
    project.install("codex")
    stale = after(lambda: file.write_text(THEIRS), patch(*CHANGE))
    with ScriptedResponses(one=[shell("cat a.txt"), stale]) as model:
        run_codex(model.url, "script:one", trusted=trusted)

    if not trusted:
        assert file.read_text() == THEIRS.replace("hello", "HELLO")
        return
    told = model.told["one"][1]
    refusal, _ = json.JSONDecoder().raw_decode(told[told.index("{") :])
    assert refusal["error_type"] == "STALE_FILE"
    assert refusal["details"] == {
        "path": str(file),
        "baseline_hash": sha256(FIRST.encode()),
        "current_disk_hash": sha256(THEIRS.encode()),
    }
    assert file.read_text() == THEIRS
    assert [event["action_type"] for event in project.ledger()] == ["MUTATION_CONFLICT"]


def test_a_new_read_helps_and_own_patches_need_none(
    file: Path, project: Project, run_codex: Callable[..., Finished]
) -> None:
    """009-FR-007, 009-SC-002: refused, read, applied, applied again; add, move and delete on the way."""
    project.install("codex")
    with ScriptedResponses(
        one=[
            shell("cat a.txt"),
            after(lambda: file.write_text(THEIRS), patch(*CHANGE)),
            shell("cat a.txt"),
            patch(*CHANGE, "*** Add File: new.txt", "+n1", "+n2"),
            patch(
                "*** Update File: a.txt",
                "@@",
                "-world",
                "+WORLD",
                "*** Update File: new.txt",
                "@@",
                " n1",
                "-n2",
            ),
            patch("*** Update File: new.txt", "*** Move to: moved.txt", "@@", "-n1", "+N1"),
            patch("*** Delete File: moved.txt"),
        ]
    ) as model:
        run_codex(model.url, "script:one")

    assert "STALE_FILE" in model.told["one"][1]
    assert not [told for told in model.told["one"][2:] if "STALE" in told], model.told["one"]
    assert file.read_text() == "HELLO\nWORLD\na person's line\n"
    assert sorted(path.name for path in project.root.glob("*.txt")) == ["a.txt"]
    kinds = [event["action_type"] for event in project.ledger()]
    assert kinds[0] == "MUTATION_CONFLICT"
    assert set(kinds[1:]) == {"MUTATION"}


def test_one_stale_file_stops_the_whole_patch(
    file: Path, project: Project, run_codex: Callable[..., Finished]
) -> None:
    """011-FR-002: of a patch over several files, none is touched."""
    project.install("codex")
    other = project.root / "b.txt"
    other.write_text("b\n")
    stale = after(
        lambda: file.write_text(THEIRS),
        patch("*** Update File: b.txt", "@@", "-b", "+B", *CHANGE, "*** Add File: new.txt", "+n"),
    )
    with ScriptedResponses(one=[shell("cat a.txt b.txt"), stale]) as model:
        run_codex(model.url, "script:one")

    assert "STALE_FILE" in model.told["one"][1]
    assert (file.read_text(), other.read_text()) == (THEIRS, "b\n")
    assert not (project.root / "new.txt").exists()


def test_a_stale_patch_through_the_shell_is_refused(
    file: Path, project: Project, run_codex: Callable[..., Finished]
) -> None:
    """HOSTS: it arrives as a shell command, and no event follows it."""
    project.install("codex")
    heredoc = (
        "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+HELLO\n*** End Patch\nEOF"
    )
    stale = after(lambda: file.write_text(THEIRS), shell(heredoc))
    with ScriptedResponses(
        one=[shell("cat a.txt"), stale, shell("cat a.txt"), shell(heredoc), patch(*_WORLD)]
    ) as model:
        run_codex(model.url, "script:one")

    assert "STALE_FILE" in model.told["one"][1]
    assert "STALE_FILE" not in model.told["one"][4]
    assert file.read_text() == "HELLO\nWORLD\na person's line\n"


def test_a_stale_patch_from_a_script_is_refused(
    file: Path, project: Project, run_codex: Callable[..., Finished]
) -> None:
    """N-hosts: newer models run their tools from a script (`exec`); each of them is asked about all the same."""
    project.install("codex")
    given = json.dumps(f"*** Begin Patch\n{chr(10).join(CHANGE)}\n*** End Patch\n")
    read = Use("exec", {"script": "text(await tools.exec_command({cmd: 'cat a.txt'}))"})
    write = Use("exec", {"script": f"text(await tools.apply_patch({given})); text('it went on')"})
    with ScriptedResponses(one=[read, after(lambda: file.write_text(THEIRS), write), read, write]) as model:
        run_codex(model.url, "script:one")

    assert '"error_type":"STALE_FILE"' in model.told["one"][1]
    assert "it went on" not in model.told["one"][1]
    assert "it went on" in model.told["one"][3]
    assert file.read_text() == THEIRS.replace("hello", "HELLO")
    assert [event["action_type"] for event in project.ledger()] == ["MUTATION_CONFLICT", "MUTATION"]


_WORLD = ("*** Update File: a.txt", "@@", "-world", "+WORLD")
