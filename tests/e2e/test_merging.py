"""Stale writes that merge, and notices, in the real hosts: `on_stale = "merge"`, `notices = "diff"`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from noclobber.hosts import load
from noclobber.hosts.event import Event
from tests.e2e.calls import Edit, Read, Shell, Write
from tests.e2e.conftest import driver_or_skip
from tests.e2e.driver import HostDriver
from tests.e2e.drivers import DRIVERS
from tests.e2e.model import ScriptedModel
from tests.e2e.project import Project
from tests.e2e.scenarios import save_keeping_its_date
from tests.e2e.story import LANDED, REFUSED, Stage, Story, Telling, demand, tell_attended
from tests.rigs.meanwhile import Meanwhile

Outcomes = Mapping[str, BaseException | None]
SEEN = "one\ntwo\nthree\nfour\nfive\nsix\n"
THEIRS = SEEN.replace("two", "TWO")
OURS = SEEN.replace("five", "FIVE")
BOTH = THEIRS.replace("five", "FIVE")
TAKES_OTHER_CONTENT = ("claude-code", "gemini", "opencode")
CHECKS_BY_ITSELF = ("qwen",)  # After us, by date and size: what we let through it refuses.
GUARDS_COMMANDS = ("claude-code", "opencode")
REPLACES_NO_FILE = ("cline", "copilot")  # They have no tool for that.


class Hearing:
    """What the model has heard so far, wherever in the conversation its host puts it."""

    def __init__(self) -> None:
        self.model: ScriptedModel | None = None

    def __call__(self) -> str:
        assert self.model is not None
        return "\n".join(self.model.heard["one"])


def merged_edit(stage: Stage, heard: Hearing) -> Story:
    """N-merge: both changes are in the file, and the model is told what the other one was."""
    file = stage.file(SEEN)
    yield Read(file)
    file.write_text(THEIRS)
    told = yield Edit(file, "five", "FIVE")
    if stage.driver.name in CHECKS_BY_ITSELF:
        assert file.read_text() == THEIRS, told
        return
    assert file.read_text() == BOTH, told
    assert f"{file} had been changed by an outsider" in heard() + told
    assert "+TWO" in heard() + told
    stage.assert_record(file, LANDED)
    assert "merged" in stage.events(file)[0]["payload"]
    yield Edit(file, "six", "SIX")
    assert file.read_text() == BOTH.replace("six", "SIX")


def merged_write(stage: Stage, heard: Hearing) -> Story:
    """N-merge: the host writes the merged content, or the model is given it to send."""
    file = stage.file(SEEN)
    yield Read(file)
    save_keeping_its_date(file, THEIRS)
    told = yield Write(file, OURS)
    if stage.driver.name in TAKES_OTHER_CONTENT:
        assert file.read_text() == BOTH, told
        assert "Your write was merged with that" in heard() + told
        stage.assert_record(file, LANDED)
        assert "merged" in stage.events(file)[0]["payload"]
        return
    refusal = stage.assert_refused(told, file, SEEN, THEIRS)
    found = re.search(r"<<<begin (\w+)>>>\n(.*)<<<end \1>>>", refusal.beside, re.S)
    assert found, refusal
    assert found[2] == BOTH
    yield Write(file, found[2])
    assert file.read_text() == BOTH
    stage.assert_record(file, REFUSED, LANDED)


def conflict(stage: Stage, heard: Hearing) -> Story:
    """N-merge: the same line; refused with the exact object, and the reason beside it."""
    file = stage.file(SEEN)
    yield Read(file)
    save_keeping_its_date(file, SEEN.replace("five", "5555"))
    told = yield Write(file, OURS)
    refusal = stage.assert_refused(told, file, SEEN, SEEN.replace("five", "5555"))
    assert "It was not merged: Both changed the same lines: 4-5 of the current file." in refusal.beside
    assert file.read_text() == SEEN.replace("five", "5555")


def notice(stage: Stage, heard: Hearing) -> Story:
    """N-notice: the model hears of a change before its next write, once."""
    file, other = stage.file(SEEN), stage.file("quiet\n", ".other.txt")
    yield Read(file)
    yield Read(other)
    assert file.name not in heard().split("quiet")[-1]
    file.write_text(THEIRS)
    told = yield Read(other)
    assert f"- {file.name}, by an outsider, at " in heard() + told
    assert "-two\n+TWO" in (heard() + told).replace("\\n", "\n")
    yield Read(other)
    assert heard().count(f"- {file.name}, by ") == 1
    yield Read(file)
    yield Edit(file, "five", "FIVE")
    assert file.read_text() == BOTH


def notice_after_a_write(stage: Stage, heard: Hearing) -> Story:
    """N-notice: also if the agent is busy with another file, and reads nothing."""
    file, other = stage.file(SEEN), stage.file("quiet\n", ".other.txt")
    yield Read(file)
    yield Read(other)
    assert f"- {file.name}, by " not in heard()
    file.write_text(THEIRS)
    told = yield Edit(other, "quiet", "QUIET")
    assert other.read_text() == "QUIET\n", told
    assert f"- {file.name}, by an outsider, at " in heard() + told
    yield Edit(other, "QUIET", "still")
    assert heard().count(f"- {file.name}, by ") == 1


def merged_command(stage: Stage, heard: Hearing) -> Story:
    """N-merge, N-shell: somebody saves while a command with a text runs; both changes land, and the model is shown theirs."""
    file, pipes = stage.file(SEEN), stage.file("", ".pipes")
    yield Read(file)
    then = Meanwhile(pipes.parent.parent / f"{pipes.name}.folder", lambda: file.write_text(THEIRS))
    told = yield Shell(f"cat > {file} <<'EOF'\n{OURS}EOF\n{then.pause}")
    assert file.read_text() == BOTH, told
    assert "was changed by an outsider while the command ran" in told
    assert "-two\n+TWO" in told.replace("\\n", "\n")
    stage.assert_record(file, LANDED)
    assert "merged" in stage.events(file)[0]["payload"]
    yield Shell(f"cat > {file} <<'EOF'\n{BOTH.replace('six', 'SIX')}EOF")
    assert file.read_text() == BOTH.replace("six", "SIX")


SCENARIOS = (merged_edit, merged_write, conflict, notice, notice_after_a_write, merged_command)


def left_out(host: str) -> set[str]:
    """Return the scenarios that a host has no tool for."""
    commands = set() if host in GUARDS_COMMANDS else {"merged_command"}
    return commands | ({"merged_write", "conflict"} if host in REPLACES_NO_FILE else set())


def tell(driver: HostDriver, project: Project) -> Outcomes:
    """Run a host through the scenarios, and return how each ended."""
    hearing = Hearing()
    wanted: dict[str, Callable[[Stage], Story]] = {
        one.__name__: partial(one, heard=hearing)
        for one in SCENARIOS
        if one.__name__ not in left_out(driver.name)
    }
    telling = Telling(driver, project, wanted)
    with ScriptedModel(one=driver.script(telling)) as model:
        hearing.model = model
        done = driver.start(project, model.url, "script:one").wait()
    ended = AssertionError(f"the host ended before: {done.out[-500:]} {done.err[-500:]}")
    return {name: telling.outcomes.get(name, ended) for name in wanted}


def merging_project(folder: Path, host: str) -> Project:
    """Return a project that merges, with our hooks."""
    project = Project.below(folder)
    project.install(host)
    (project.root / "noclobber.toml").write_text('on_stale = "merge"\n')
    return project


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcomes]:
    """How the scenarios ended in a host: one run of it, at the first call."""
    known: dict[str, Outcomes] = {}

    def of(host: str) -> Outcomes:
        driver = driver_or_skip(host)
        if host not in known:
            known[host] = tell(driver, merging_project(tmp_path_factory.mktemp(f"{host}-merging"), host))
        return known[host]

    return of


@pytest.mark.parametrize(
    ("host", "scenario"),
    [
        pytest.param(
            host,
            scenario.__name__,
            id=f"{host}-{scenario.__name__}",
            marks=pytest.mark.xdist_group(f"merging-{host}"),
        )
        for host in DRIVERS
        for scenario in SCENARIOS
        if scenario.__name__ not in left_out(host)
    ],
)
def test_both_changes_land_and_the_model_is_told(
    host: str, scenario: str, told: Callable[[str], Outcomes]
) -> None:
    """N-merge, N-notice: in the real program."""
    demand(told(host)[scenario])


# -- who is asked, and when a turn starts -------------------------------------------------------------


def declined_merge(stage: Stage) -> Story:
    """N-merge: other content is no permission. A person is asked about it, and may say no."""
    file = stage.file(SEEN)
    yield Read(file)
    save_keeping_its_date(file, THEIRS)
    asked = []

    def decide() -> bool:
        asked.append(True)
        return False

    stage.person.decide = decide
    told = yield Write(file, OURS)
    assert asked, "the write was carried out, or refused, without a question"
    assert told is None or not stage.driver.is_success(told), told
    assert file.read_text() == THEIRS


@pytest.mark.parametrize("host", TAKES_OTHER_CONTENT)
def test_other_content_grants_no_permission(host: str, tmp_path: Path) -> None:
    """N-merge: in the hosts that take other content in place of what the model sent."""
    driver = driver_or_skip(host)
    project = merging_project(tmp_path, host)
    demand(tell_attended(driver, project, {"declined_merge": declined_merge})["declined_merge"])


def saved_between(file: Path) -> Iterator[str]:
    """Yield what the user says in two turns; somebody saves the file between them."""
    yield "script:one please"
    file.write_text(THEIRS)
    yield "script:two please"


@pytest.mark.parametrize("host", DRIVERS)
def test_a_change_is_told_at_the_start_of_the_next_turn(host: str, tmp_path: Path) -> None:
    """N-notice: once, and before the write, with two messages of the user in one session."""
    driver = driver_or_skip(host)
    project = merging_project(tmp_path, host)
    file = project.file("plan.txt", SEEN)
    with ScriptedModel(
        one=driver.script([Read(file)]), two=driver.script([Edit(file, "five", "FIVE")])
    ) as model:
        driver.attend(project, model.url, saved_between(file), lambda: True)

    heard = "\n".join(model.heard["two"]).replace("\\n", "\n")
    assert heard.count("- plan.txt, by an outsider, at ") == 1
    assert "-two\n+TWO" in heard
    if host in CHECKS_BY_ITSELF:
        assert file.read_text() == THEIRS
        return
    assert heard.index("- plan.txt, by an outsider") < heard.index("had been changed by")
    assert file.read_text() == BOTH


PROMPTS = {
    "codex": (".codex/hooks.json", "UserPromptSubmit"),
    "copilot": (".github/hooks/user.json", "userPromptSubmitted"),
    "gemini": (".gemini/settings.json", "BeforeAgent"),
    "qwen": (".qwen/settings.json", "UserPromptSubmit"),
}


@pytest.mark.parametrize("host", PROMPTS)
def test_the_host_takes_context_beside_what_the_user_said(host: str, tmp_path: Path) -> None:
    """N-notice: what our answer at the start of a turn relies on, with a hook that says one word."""
    driver = driver_or_skip(host)
    project = Project.below(tmp_path)
    file, event = PROMPTS[host]
    answer = load(host).tell(Event(host, "prompt", event), "a word from the hook").stdout
    command = f"cat > /dev/null; printf %s {shlex.quote(answer)}"
    groups: dict[str, Any] = {event: [{"hooks": [{"type": "command", "command": command}]}]}
    if host == "copilot":
        groups = {event: [{"type": "command", "bash": command, "timeoutSec": 30}]}
    project.file(
        file, json.dumps({"version": 1, "hooks": groups} if host == "copilot" else {"hooks": groups})
    )
    seen = project.file("a.txt", SEEN)
    with ScriptedModel(one=driver.script([Read(seen)])) as model:
        driver.run(project, model.url, "script:one")

    assert "a word from the hook" in "\n".join(model.heard["one"])
