"""The documentation: every page is in the menu, every link resolves, every snippet runs, everything has a paragraph."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import noclobber
from noclobber import errors
from noclobber.cli import COMMANDS
from noclobber.ledger.kinds import KINDS
from tests.rigs.parsers import nodes

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OWN = [PROJECT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
MADE = {f"reference/{name}.md" for name in ("parser", "schemas", "python")}
# Steps that need another program, a server, or somebody else's machine; their words are checked all the same.
NOT_RUN = (
    "uv tool install",
    "pipx install",
    "pip install",
    "make demo",
    "eval ",
    "my-agent",
    "tail -n 1",
    "sh\n",
)


def menu() -> list[str]:
    """The pages in the site's menu."""
    return re.findall(r"^ +- ([\w/.-]+\.md)$", (PROJECT / "mkdocs.yml").read_text(), re.M)


def blocks(page: Path, *languages: str) -> list[str]:
    """The snippets of a page in these languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.S | re.M)
    return [text for language, text in found if language in languages]


def test_every_page_is_in_the_menu_and_every_entry_is_a_page() -> None:
    """N-documented: once, and contributors' pages apart from users' pages."""
    listed = menu()
    assert len(listed) == len(set(listed))
    pages = {str(page.relative_to(DOCS)) for page in PAGES}
    own = {f"project/{page.name}" for page in [*OWN[1:], PROJECT / "CHANGELOG.md"]}
    assert set(listed) == pages | MADE | own
    users, _, contributors = (PROJECT / "mkdocs.yml").read_text().partition("  - Contribute:")
    assert "decisions/" not in users
    assert "tutorial.md" not in contributors


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", [*PAGES, *OWN], ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_link_resolves_with_its_anchor(page: Path) -> None:
    """N-documented: in the repository; `make docs` checks the same in the site."""
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name}: {target}#{anchor}"


# -- what the pages say ---------------------------------------------------------------------------------------


def calls(page: Path) -> Iterator[list[str]]:
    """Every call of noclobber in a page's shell snippets."""
    for text in blocks(page, "sh", "console"):
        for line in text.replace("\\\n", " ").splitlines():
            line = re.sub(r"(^|\s)#.*", "", line.removeprefix("$ "))
            for part in re.split(r"\|\||&&|[|;(){}]|\bdo\b|\bdone\b", line):
                words = part.split()
                if "noclobber" in words and (words[0] == "noclobber" or "=" in words[0]):
                    yield words[words.index("noclobber") + 1 :]


@pytest.mark.parametrize("page", [*PAGES, *OWN], ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_command_and_option_that_a_page_names_exists(page: Path) -> None:
    """N-documented: an unknown option fails, in snippets and in sentences."""
    known = {node.path: {flag for option in node.options for flag in option.flags} for node in nodes()}
    every = set().union(*known.values())
    for words in calls(page):
        if not words:
            continue
        own = words[: words.index("--")] if "--" in words else words
        assert own[0] in COMMANDS or own[0].startswith("-"), f"{page.name}: noclobber {' '.join(words)}"
        path = tuple(own[:2]) if tuple(own[:2]) in known else tuple(own[:1])
        flags = known.get(path, every) | {"--help", "-h"}
        for word in own:
            if re.fullmatch(r"--[a-z][\w-]*", word):
                assert word in flags, f"{page.name}: noclobber {' '.join(words)}: {word}"
    for name in re.findall(r"`noclobber ([a-z]+)(?![\w.])", page.read_text()):
        assert name in COMMANDS or name in ("demo", "lost"), f"{page.name}: noclobber {name}"


def test_everything_has_its_paragraph() -> None:
    """N-documented: every command, error code and kind of event; options are checked with the options."""
    cli, ledger, codes = ((DOCS / name).read_text() for name in ("cli.md", "ledger.md", "errors.md"))
    assert [name for name in COMMANDS if f"## noclobber {name}\n" not in cli] == []
    assert [kind for kind in KINDS if f"`{kind}`" not in ledger] == []
    known = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    assert [code for code in known - {"NOCLOBBER_ERROR"} if f"`{code}`" not in codes] == []


def test_the_kinds_of_events_are_those_that_the_code_writes() -> None:
    """N-documented: in one list, which completion and the documentation use."""
    written = set()
    for path in (PROJECT / "src/noclobber").rglob("*.py"):
        if path.name != "kinds.py":
            text = path.read_text()
            written |= set(re.findall(r'"action_type": "([A-Z_]+)"', text))
            written |= set(
                re.findall(r'"(LOCK_(?:ACQUIRED|RENEWED|RELEASED|RECOVERED|CONTENTION|RETIRED))"', text)
            )
            written |= set(re.findall(r'"(MUTATION(?:_[A-Z]+)?|COMMIT_RECOVERED|VERSION_KEPT)"', text))
    assert written == set(KINDS)


# -- snippets -------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a reader who has just installed noclobber."""
    folder = _programs(tmp_path / "bin")
    home = tmp_path / "home"
    home.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("NOCLOBBER", "GIT_"))}
    return {
        **kept,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(PROJECT / "src"),
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }


def _programs(folder: Path) -> Path:
    """A folder for the PATH with this noclobber, and this Python."""
    folder.mkdir()
    for name, words in (("noclobber", "-m noclobber"), ("python3", "")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        program.chmod(0o755)
    return folder


def test_the_tutorial_works_step_by_step(tmp_path: Path, shell: dict[str, str]) -> None:
    """N-documented: every step is run, in order, in one shell, and prints what the page shows, all of it."""
    text = (DOCS / "tutorial.md").read_text()
    steps = re.findall(r"^```sh\n(.*?)^```$(?:\n```text\n(.*?)^```$)?", text, re.S | re.M)
    assert len(steps) >= 9
    script = "exec 2>&1\n" + "".join(f"echo '@@{number}'\n{step}" for number, (step, _) in enumerate(steps))
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=work, env=shell, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout
    shown = re.split(r"^@@\d+\n", done.stdout, flags=re.M)[1:]
    for (step, expected), found in zip(steps, shown, strict=True):
        assert _without_what_varies(found.replace(str(work), "/home/ana")) == _without_what_varies(
            expected
        ), step


def _without_what_varies(shown: str) -> str:
    """An output without times, hashes and ids."""
    shown = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+", "TIME", shown)
    # Where there are no namespaces, `run` says that it only watches.
    shown = re.sub(r"^noclobber: run: there is no guarded shell here .*\n", "", shown, flags=re.M)
    return re.sub(r"[0-9a-f]{16,}|\d+(?= s unless renewed| lines added)", "#", shown)


HOW_TO = sorted((DOCS / "howto").glob("*.md"))


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.name)
def test_the_steps_of_a_how_to_work(page: Path, tmp_path: Path, shell: dict[str, str]) -> None:
    """N-documented: shell and Python."""
    work = tmp_path / "work"
    work.mkdir()
    for step in blocks(page, "sh"):
        done = subprocess.run(
            ["bash", "-e", "-c", step], cwd=work, env=shell, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"
    for step in blocks(page, "python"):
        subprocess.run([sys.executable, "-c", step], cwd=work, env=shell, timeout=120, check=True)


RUN_ELSEWHERE = {"howto", "frameworks"}
FRAGMENTS = [
    page for page in PAGES if page.parent.name not in RUN_ELSEWHERE and blocks(page, "python")
]  # The README's code is run by its own test, and that of frameworks by `make frameworks`.


@pytest.mark.parametrize("page", FRAGMENTS, ids=lambda page: page.name)
def test_code_on_any_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-documented: with what such a page takes for granted: a project, a workspace, a turn that has read a file."""
    for folder in ("path/to/project", "reports/q3", "src"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "plan.md").write_text("# Plan\n- one\n")
    (tmp_path / "src" / "a.py").write_text("old\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{_programs(tmp_path / 'bin')}:{os.environ['PATH']}")
    told: list[object] = []
    with noclobber.Workspace(".", on_stale="merge") as workspace, workspace.turn(agent_id="reader") as turn:
        text = turn.read_file("plan.md").text + "- two\n"
        (tmp_path / "plan.md").write_text("# The plan\n- one\n")
        granted = {"noclobber": noclobber, "workspace": workspace, "turn": turn, "text": text}
        granted |= {"folder": "reports/q3", "agent_id": "builder-1", "report": told.append}
        for number, step in enumerate(blocks(page, "python")):
            fresh = {**granted, "work": lambda: told.append("worked"), "__name__": "__main__"}
            exec(compile(step, f"{page.name}, snippet {number}", "exec"), fresh)


@pytest.mark.parametrize(
    "page", [page for page in [*PAGES, *OWN] if "```" in page.read_text()], ids=lambda page: page.name
)
def test_every_snippet_can_be_read_by_its_program(page: Path) -> None:
    """N-documented: shell, Python, JSON and TOML; what is run whole is run by other tests."""
    for text in blocks(page, "sh"):
        done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True)
        assert done.returncode == 0, f"{text}\n{done.stderr}"
    for text in blocks(page, "python"):
        compile(text, page.name, "exec")
    for text in blocks(page, "json"):
        json.loads(text)
    for text in blocks(page, "toml"):
        tomllib.loads(text)


FOR_CONTRIBUTORS = {
    "requirements.md",
    "promises.md",
    "proofs.md",
    "mutants.md",
    "guarantees.md",
    "releasing.md",
    "tests.md",
}


def test_pages_for_users_have_no_numbers_of_requirements() -> None:
    """N-documented: "the 009 object" says nothing to somebody who has never seen our register."""
    numbers = re.compile(r"\b0(?:09|10|11)\b(?![.:])|\b(?:FR|SC)-\d{3}\b")
    found = {
        f"{page.name}: {line}"
        for page in PAGES
        if page.name not in FOR_CONTRIBUTORS and page.parent.name != "decisions"
        for line in page.read_text().splitlines()
        if numbers.search(line)
    }
    assert found == set()


# -- the README -----------------------------------------------------------------------------------------------


def test_the_recording_is_of_this_demo_and_its_number_is_the_readmes(tmp_path: Path) -> None:
    """N-readme: docs/demo.svg is what `noclobber demo --record` draws now, but for hashes and numbers."""
    from noclobber.demo import story
    from noclobber.demo.recording import COLUMNS, Paragraph, svg
    from noclobber.text.visible import fold

    picture = (DOCS / "demo.svg").read_text()
    scratch = str(tmp_path)
    os.mkdir(f"{scratch}/story")
    said: list[str] = []
    story.tell(f"{scratch}/story", said.append)
    fresh = svg(
        [
            Paragraph(tuple(fold(text.replace(scratch, "/tmp/demo"), COLUMNS).split("\n")))
            for text in ["$ noclobber demo\n", "== The story ==\n", *said]
        ],
        "title",
    )
    assert _words(fresh) == _words(picture)[: len(_words(fresh))]
    assert "<script" not in picture
    assert picture.count("http") == 1, "nothing from the network but the name of the format"

    lost, made = re.search(
        r"<title>Plain writes lost (\d+) of (\d+); noclobber 0\.</title>", picture
    ).groups()
    readme = re.sub(r"(?<=\d)\u202f(?=\d)| (?=\d{3}\b)", "", (PROJECT / "README.md").read_text())
    assert f"Plain writes lost {lost} of {made} updates" in readme


def test_the_scoreboard_in_the_readme_is_what_make_score_wrote() -> None:
    """N-readme: its sentence, its date, and nothing lost with noclobber."""
    board = json.loads((DOCS / "score.json").read_text())
    assert not any(score["lost"] for score in board["scores"] if score["with_noclobber"])
    told = re.search(
        r"Alone, (\d+ of \d+ updates by others were lost; with noclobber \d+ of \d+)",
        (DOCS / "score.md").read_text(),
    )
    assert told
    readme = " ".join((PROJECT / "README.md").read_text().split())
    assert f"[{board['date']}](docs/score.md)): alone, {told[1]}." in readme


def test_what_the_readme_shows_of_status_is_what_status_prints() -> None:
    """N-readme: the sample is of a real session, and laid out as the program does it."""
    from noclobber.cli.status import page
    from noclobber.view.workspace_state import WorkspaceView

    root, time, session = "/home/ana/project", "2026-11-16T22:39:01Z", "01a1e683-8431-7970-9063-722bf87bd07b"
    agent = {"agent_id": "main", "session_id": session}
    refusal = {"error_type": "STALE_FILE", "path": f"{root}/plan.md", "time": time, **agent}
    state = WorkspaceView(
        root=root,
        time=time,
        turns=[],
        sessions=[{"host": "codex", "file_count": 1, "last_event": time, **agent}],
        claims=[],
        locks=[],
        refusals=[{**refusal, "written_by": f"an outsider, at {time}"}],
        kept=[],
        runs=[],
        leftovers={},
        ledger={"exists": True},
        troubles=[],
    )
    assert f"$ noclobber status\n{page(state)}```" in (PROJECT / "README.md").read_text()


def _words(picture: str) -> list[str]:
    """The lines of a recording, without what differs from run to run."""
    lines = re.findall(r"<text class=\"l\d+[^>]*?(?:/>|>(.*?)</text>)", picture)
    return [re.sub(r"[0-9a-f]{6,}|\d+", "#", line) for line in lines]


def test_the_readme_answers_in_the_order_of_a_new_user() -> None:
    """N-readme: a sentence, a picture, the number, install, ways in, promises, why not, where proven, questions."""
    text = (PROJECT / "README.md").read_text()
    order = [
        "**An agent's write lands",
        "docs/demo.svg",
        "**The number.**",
        "make demo",
        "## Install",
        "uv tool",
    ]
    order += [
        "pipx install",
        "pip install",
        "## Three ways in",
        "## What is guaranteed",
        "## Why not",
        "worktrees",
    ]
    order += ["## What you see", "## Where it was proven", "## Questions", "## Read on"]
    places = [text.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)
    assert len(text.split()) < 1700, "for somebody who has two minutes"


def test_the_site_installs_as_the_readme_does() -> None:
    """N-documented: it named a package that no registry has, so what was installed could have been anybody's."""
    index, readme = ((PROJECT / name).read_text() for name in ("docs/index.md", "README.md"))
    commands = re.findall(r"(?:uv tool|pipx|pip) install [^`\n]+", index)
    assert commands
    assert [each for each in commands if each not in readme] == []


def test_words_of_shell_snippets_are_quoted_as_shells_need_it() -> None:
    """N-readme: every line of the README's snippets splits into words."""
    for text in blocks(PROJECT / "README.md", "sh"):
        for line in text.splitlines():
            shlex.split(line, comments=True)


def test_no_page_has_the_marks_of_a_conflict() -> None:
    """N-documented: git leaves them where two changes met."""
    pages = [*PAGES, *OWN, PROJECT / "CHANGELOG.md", PROJECT / "mkdocs.yml"]
    marks = re.compile(r"^(<<<<<<<|>>>>>>>|=======$)", re.M)
    assert [str(page) for page in pages if marks.search(page.read_text())] == []
