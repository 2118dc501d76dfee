"""The real Claude Code, with our hooks as `noclobber install` writes them, and a scripted model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import sha256
from tests.e2e.model import ScriptedModel, Step, Use
from tests.e2e.project import Project

FIRST = "hello\nworld\n"
THEIRS = "hello\nworld\na person's line\n"


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a host; return its last words."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, (out, err)
    return out


def refusal_in(told: str) -> Any:
    """Return the 009 object that the model was given; the host puts a few words of its own before it."""
    refusal, _ = json.JSONDecoder().raw_decode(told[told.index("{") :])  # Sentences for the model follow it.
    return refusal


@pytest.fixture
def file(project: Project) -> Path:
    """A file that the agent will read."""
    path = project.root / "a.txt"
    path.write_text(FIRST)
    return path


def read(file: Path) -> Use:
    return Use("Read", {"file_path": str(file)})


def edit(file: Path, old: str, new: str) -> Use:
    return Use("Edit", {"file_path": str(file), "old_string": old, "new_string": new})


def write(file: Path, content: str) -> Use:
    return Use("Write", {"file_path": str(file), "content": content})


def after(action: Callable[[], object], use: Use) -> Callable[[], Use]:
    """A step before which something else happens."""

    def step() -> Use:
        action()
        return use

    return step


def test_the_host_alone_applies_a_stale_edit(
    file: Path, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """R-hook: this is what our hook is for. If this test fails, the host has learnt to refuse by itself."""
    stale = after(lambda: file.write_text(THEIRS), edit(file, "hello", "HELLO"))
    with ScriptedModel(one=[read(file), stale]) as model:
        finish(run_claude(model.url, "script:one"))

    assert file.read_text() == THEIRS.replace("hello", "HELLO")


def test_a_stale_edit_is_refused_and_goes_through_after_a_new_read(
    file: Path, project: Project, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """009-FR-004, 009-FR-006, 009-FR-007, 011-SC-004: their line survives; one event; then a re-read helps."""
    project.install("claude-code")
    stale = after(lambda: file.write_text(THEIRS), edit(file, "hello", "HELLO"))
    with ScriptedModel(one=[read(file), stale, read(file), edit(file, "hello", "HELLO")]) as model:
        finish(run_claude(model.url, "script:one"))

    refusal = refusal_in(model.told["one"][1])
    assert refusal == {
        "error_type": "STALE_FILE",
        "message": "File modified by another actor. Re-read required.",
        "details": {
            "path": str(file),
            "baseline_hash": sha256(FIRST.encode()),
            "current_disk_hash": sha256(THEIRS.encode()),
        },
        "recovery_hint": "Perform a new 'read_file' to see the latest changes before attempting to write again.",
    }
    assert file.read_text() == THEIRS.replace("hello", "HELLO")
    assert [event["action_type"] for event in project.ledger()] == ["MUTATION_CONFLICT", "MUTATION"]


def rewrite_keeping_its_date(file: Path) -> None:
    """Change a file as `rsync -t`, `git` on a coarse clock or a careless tool does: with the old date."""
    dates = file.stat()
    file.write_text(THEIRS)
    os.utime(file, ns=(dates.st_atime_ns, dates.st_mtime_ns))


def test_a_stale_write_is_refused(
    file: Path, project: Project, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """009-FR-005: a whole-file write over somebody else's line does not happen, whoever refuses it first."""
    project.install("claude-code")
    stale = after(lambda: file.write_text(THEIRS), write(file, "mine\n"))
    with ScriptedModel(one=[read(file), stale]) as model:
        finish(run_claude(model.url, "script:one"))

    assert len(model.told["one"]) == 2
    assert file.read_text() == THEIRS


@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_stale_write_that_the_host_cannot_see_is_refused_by_us(
    is_guarded: bool, file: Path, project: Project, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """009-FR-003: the host goes by dates and overwrites; we go by content."""
    if is_guarded:
        project.install("claude-code")
    stale = after(lambda: rewrite_keeping_its_date(file), write(file, "mine\n"))
    with ScriptedModel(one=[read(file), stale]) as model:
        finish(run_claude(model.url, "script:one"))

    if not is_guarded:
        assert file.read_text() == "mine\n"
        return
    assert refusal_in(model.told["one"][1])["details"]["current_disk_hash"] == sha256(THEIRS.encode())
    assert file.read_text() == THEIRS


def test_own_writes_need_no_new_read(
    file: Path, project: Project, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """009-SC-002, ruling 10: read, edit, edit, write, and a new file: nothing is refused."""
    project.install("claude-code")
    new = file.with_name("new.txt")
    steps: list[Step] = [
        read(file),
        edit(file, "hello", "HELLO"),
        edit(file, "world", "WORLD"),
        write(file, "all mine\n"),
        write(new, "n\n"),
        edit(new, "n", "N"),
    ]
    with ScriptedModel(one=steps) as model:
        finish(run_claude(model.url, "script:one"))

    assert not [told for told in model.told["one"] if "STALE" in told]
    assert (file.read_text(), new.read_text()) == ("all mine\n", "N\n")
    assert [event["action_type"] for event in project.ledger()] == ["MUTATION"] * 5


class Adders:
    """Agents that read the file and write it back with one more line, until each has added its lines."""

    def __init__(self, words: Iterable[str], file: Path, rounds: int) -> None:
        self.file = file
        self.rounds = rounds
        self._has_read = {word: threading.Event() for word in words}

    def script(self, word: str) -> Callable[[list[str]], Use | None]:
        """What this agent does next, by what it was told so far."""

        def next_use(told: list[str]) -> Use | None:
            added = sum("successfully" in one for one in told)
            if added >= self.rounds or len(told) > 60:
                return None
            last = told[-1] if told else ""
            if not re.match(r"\s*1\t", last):
                return read(self.file)
            self._wait_for_all(word)
            seen = [line.split("\t", 1)[1] for line in last.split("\n") if "\t" in line]
            return write(self.file, "\n".join([*filter(None, seen), f"{word}{added}"]) + "\n")

        return next_use

    def _wait_for_all(self, word: str) -> None:
        """No first write before every agent has read: one host may be done before the other has started."""
        self._has_read[word].set()
        for event in self._has_read.values():
            assert event.wait(timeout=100), "an agent never read the file"


def is_refused_write(told: str) -> bool:
    """Whether a write was refused, by us or (where the dates differ and it looked late) by the host itself."""
    return any(word in told for word in ("STALE_FILE", "FILE_BUSY", "modified since read"))


def test_two_sessions_that_race_on_one_file_lose_nothing(
    file: Path, project: Project, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """009-SC-001: every line that a session was told had been written is there at the end."""
    project.install("claude-code")
    rounds = 4
    words = ("left", "right")
    adders = Adders(words, file, rounds)
    with ScriptedModel(**{word: adders.script(word) for word in words}) as model:
        for process in [run_claude(model.url, f"script:{word}") for word in words]:
            finish(process)

    lines = file.read_text().splitlines()
    assert lines[:2] == ["hello", "world"]
    assert sorted(lines[2:]) == sorted(f"{word}{at}" for word in words for at in range(rounds))
    refused = [told for word in words for told in model.told[word] if is_refused_write(told)]
    assert refused, "the sessions never met, so this run proves nothing"


def test_a_subagent_has_a_picture_of_its_own(
    file: Path, project: Project, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """R-turn: what a subagent writes, the main agent has not seen."""
    project.install("claude-code")
    task = {"description": "d", "prompt": "script:sub go", "subagent_type": "general-purpose"}
    steps: list[Step] = [
        read(file),
        Use("Agent", {**task, "run_in_background": False}),
        edit(file, "world", "WORLD"),
        read(file),
        edit(file, "world", "WORLD"),
    ]
    with ScriptedModel(main=steps, sub=[read(file), edit(file, "hello", "HELLO")]) as model:
        finish(run_claude(model.url, "script:main"))

    assert len(model.told["sub"]) == 2, model.tools
    assert "STALE_FILE" in model.told["main"][2]
    assert file.read_text() == "HELLO\nWORLD\n"
    agents = {event["identity"]["agent_id"] for event in project.ledger()}
    assert len(agents) == 2
    assert "main" in agents


@pytest.mark.parametrize("crash", ["exit 1", "exit 127", "kill -9 $$", "echo nonsense; exit 3"])
def test_a_hook_that_crashes_lets_no_write_through(
    crash: str, file: Path, project: Project, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """N-hook: the host's fail-open switch is closed, and reads are not held up."""
    project.install("claude-code")
    settings = project.root / ".claude" / "settings.local.json"
    configuration = json.loads(settings.read_text())
    for groups in configuration["hooks"].values():
        for group in groups:
            for hook in group["hooks"]:
                hook["command"] = crash
    settings.write_text(json.dumps(configuration))

    with ScriptedModel(one=[read(file), edit(file, "hello", "HELLO"), write(file, "mine\n")]) as model:
        finish(run_claude(model.url, "script:one"))

    assert "hello" in model.told["one"][0]
    assert file.read_text() == FIRST


def test_a_read_of_a_lock_file_is_refused_and_other_reads_start_no_check(
    file: Path, project: Project, run_claude: Callable[..., subprocess.Popen[str]]
) -> None:
    """finding D7, REQ-LOCK-010: by the hook's `if`, in the project and outside it."""
    project.install("claude-code")
    outside = project.home / "deliverable"
    for folder in (project.root / "deep" / "er", outside):
        folder.mkdir(parents=True)
        (folder / ".lock").write_text("secret")
    locks = [read(project.root / "deep" / "er" / ".lock"), read(outside / ".lock")]
    with ScriptedModel(one=[*locks, read(file)]) as model:
        finish(run_claude(model.url, "script:one"))

    assert ["RESERVED_FILE" in told for told in model.told["one"]] == [True, True, False]
    assert "secret" not in str(model.told["one"])
