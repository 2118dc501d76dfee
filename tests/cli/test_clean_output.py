"""Whatever others wrote into names, locks, ledgers and files: on a terminal it is text."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber import DeliverableLock, StaleFileError, Workspace
from noclobber.cli import COMMANDS
from noclobber.cli.clean_output import CleanOutput, cleaned
from tests.rigs.commands import Terminal, run

EVIL = "e\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\u202eliv"
STYLE = re.compile(r"\x1b\[(?:[0-4]|2[2-4]|3[1-6]|39|9[1-6])(?:;(?:[0-4]|3[1-6]|9[1-6]))*m")
BAR = re.compile(r"\r[█░]+ [ \d]+ %  [\d,]+ [a-z ]+|\r\x1b\[K")
# What `watch` moves the cursor with, and how a bar clears its line.
CURSOR = re.compile(r"\x1b\[(?:\?25[lh]|H|J|K|2J|0?m)")


def uncleaned(text: str) -> list[str]:
    """Return every character that could control a terminal."""
    text = STYLE.sub("", BAR.sub("", text)).replace("\r\n", "\n")
    return [letter for letter in text if not letter.isprintable() and letter not in "\n\t"]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project in which everything that can have a hostile name, or hold hostile text, has one."""
    root = tmp_path / EVIL
    root.mkdir()
    (root / ".noclobber").mkdir()
    (root / ".claude").mkdir()
    (root / ".claude" / "settings.json").write_text(json.dumps({EVIL: EVIL}, ensure_ascii=False))
    (root / EVIL).write_text(f"{EVIL}\n")
    part = root / f"part-{EVIL}"
    part.mkdir()
    with Workspace(root) as workspace:
        with workspace.turn(agent_id=EVIL, session_id=EVIL) as turn:
            turn.read_file(EVIL)
            turn.write_file(EVIL, f"{EVIL} two\n".encode())
            (root / EVIL).write_text(f"theirs {EVIL}\n")
            with pytest.raises(StaleFileError):
                turn.write_file(EVIL, b"mine\n")
        with DeliverableLock(part, holder=EVIL, deliverable_id=EVIL):
            yield root


def commands(root: Path) -> list[tuple[str, ...]]:
    """Every command, with every hostile thing that it can be given."""
    here, file, part = str(root), str(root / EVIL), str(root / f"part-{EVIL}")
    return [
        ("status", "--root", here),
        ("status", "--root", here, "--json"),
        ("watch", "--root", here, "--json", "--changes", "1"),
        ("view", "--root", f"{here}/none"),
        ("view", "--port", EVIL),
        ("diff", file),
        ("diff", file, "--json"),
        ("diff", f"{file}-missing"),
        ("doctor", here),
        ("doctor", here, "--json"),
        ("config", "show", "--root", here),
        ("install", "claude-code", "--root", here, "--dry-run"),
        ("install", "claude-code", "--root", here),
        ("install", "claude-code", "--root", here),
        ("install", "claude-code", "--root", here, "--uninstall"),
        ("install", "--root", f"{here}/{EVIL}"),
        ("install", EVIL),
        ("trust", here),
        ("trust", here, "--json"),
        ("trust", f"{here}/{EVIL}"),
        ("trust", "--list"),
        ("mcp", f"{here}/none"),
        ("lock", "status", part),
        ("lock", "status", part, "--json"),
        ("lock", "list", here),
        ("lock", "acquire", part),
        ("lock", "acquire", part, "--json"),
        ("lock", "acquire", f"{here}/none"),
        ("lock", "run", part, "--", "true"),
        ("lock", "run", here, "--", f"no-{EVIL}"),
        ("lock", "renew", part, "--id", EVIL),
        ("lock", "release", part, "--id", EVIL),
        ("lock", "retire", part),
        ("lock", "recover", part),
        ("ledger", "show", "--root", here),
        ("ledger", "show", "--root", here, "--json"),
        ("ledger", "show", "--root", here, "--locks", "--jsonl"),
        ("ledger", "show", "--root", here, "--kind", EVIL),
        ("ledger", "tail", "--root", here),
        ("ledger", "tail", "--root", here, "--agent", EVIL),
        ("ledger", "verify", "--root", here),
        ("ledger", "verify", "--root", here, "--head", EVIL),
        ("ledger", "verify", file),
        *(
            ("ledger", "export", "--root", here, "--format", how)
            for how in ("jsonl", "csv", "agent-trace", "otlp")
        ),
        ("hash", file, f"{file}-missing"),
        ("hash", file, "--json"),
        ("write", file, "--expect", EVIL, "--from", file),
        ("write", file, "--any", "--from", file, "--agent", EVIL, "--session", EVIL),
        ("kept", "list", "--root", here),
        ("kept", "show", EVIL, "--root", here),
        ("kept", "restore", EVIL, file, "--root", here),
        ("kept", "drop", EVIL, "--root", here),
        ("blame", file),
        ("blame", file, "--json"),
        ("blame", f"{file}-missing"),
        ("undo", "--root", here, "--agent", EVIL, "--dry-run"),
        ("undo", "--root", here, "--agent", EVIL),
        ("undo", "--root", here, "--session", f"no-{EVIL}"),
        ("versions", "list", "--root", here),
        ("versions", "list", file),
        ("versions", "show", file),
        ("versions", "show", EVIL),
        ("coordinator", EVIL),
        ("commit", "--mine", "--root", here, "--agent", EVIL, "-m", EVIL),
        ("run", "--root", here, "show", EVIL),
        ("run", "--root", here, "list"),
        ("start", EVIL),
        ("start", "gemini", "--program", f"{here}/{EVIL}"),
        ("completion", EVIL),
        ("demo", EVIL),
        ("hook", EVIL),
        (EVIL,),
        (f"--{EVIL}",),
        ("status", f"--{EVIL}"),
        ("help", EVIL),
    ]


def test_on_a_terminal_no_command_passes_a_control_character_on(project: Path) -> None:
    """finding S18: names, agents, holders, file content, diffs, errors and usage; in every format."""
    seen = {}
    for words in commands(project):
        with Terminal(*words, cwd="/") as terminal:
            seen[words] = terminal.read_all()

    assert {words[0] for words in seen} >= set(COMMANDS)
    assert {words: bad for words, text in seen.items() if (bad := uncleaned(text))} == {}
    assert sum("x1b" in text for text in seen.values()) > 20, "the hostile text was hardly shown at all"


def test_in_a_pipe_what_people_read_is_clean_as_well(project: Path) -> None:
    """finding S18: `noclobber status | less`. What programs read is as exact as its format allows."""
    exact = {"--json", "export", "diff", "--jsonl"}
    for words in commands(project):
        done = run(*words, cwd="/")
        assert uncleaned(done.err) == [], words
        if not exact & set(words):
            assert uncleaned(done.out) == [], words
        for line in done.out.splitlines() if any(word.startswith("--json") for word in words) else ():
            assert json.loads(line) is not None


def test_a_live_view_moves_the_cursor_and_names_do_not(project: Path) -> None:
    """finding S18: `watch` draws over its old lines, so its own sequences must pass and no others."""
    with Terminal("watch", "--root", str(project), "--changes", "1", cwd="/") as terminal:
        seen = terminal.read_all()

    assert "\x1b[H" in seen
    assert uncleaned(CURSOR.sub("", seen)) == []
    assert "x1b" in seen
    assert "owned\x07" not in seen


def test_a_patch_in_a_pipe_is_exact_and_on_a_terminal_it_is_text(tmp_path: Path) -> None:
    """finding S18: `noclobber diff FILE | patch` must find every byte."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    file = tmp_path / "a.txt"
    file.write_text("old \x1b[2J\n")
    with Workspace(tmp_path) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        turn.write_file("a.txt", b"mine \x1b[2J\n")
    subprocess.run(["git", "-C", str(tmp_path), "add", "a.txt"], check=True)
    file.write_text("theirs \x1b[2J\n")

    assert "-mine \x1b[2J\n+theirs \x1b[2J\n" in run("diff", str(file)).out
    with Terminal("diff", str(file)) as terminal:
        seen = terminal.read_all()
    assert uncleaned(seen) == []
    assert "theirs \\x1b[2J" in seen


def test_a_table_for_spreadsheets_has_no_control_character(project: Path) -> None:
    """finding S18: CSV is looked at with `cat`; a cell may have lines."""
    out = run("ledger", "export", "--root", str(project), "--format", "csv").out

    rows = list(csv.DictReader(io.StringIO(out)))
    assert uncleaned(out) == []
    assert {row["agent_id"] for row in rows} == {repr(EVIL)[1:-1]}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("\x1b[1;32mgood\x1b[0m", "\x1b[1;32mgood\x1b[0m"),
        ("\x1b[8mhidden", "\\x1b[8mhidden"),
        ("\x1b[30;40mhidden", "\\x1b[30;40mhidden"),
        ("\x1b[32", "\\x1b[32"),
        ("\x1b[m", "\\x1b[m"),
        ("\x1b", "\\x1b"),
        ("\x1b\x1b[32m", "\\x1b\x1b[32m"),
        ("\x1b[32\x1b[2Jm", "\\x1b[32\\x1b[2Jm"),
        ("\x1bP1$r\x1b\\", "\\x1bP1$r\\x1b\\"),
        ("a\tb\nc", "a\tb\nc"),
        ("a\rb\x00\x7f", "a\\rb\\x00\\x7f"),
    ],
)
def test_only_colours_that_can_be_read_pass(given: str, shown: str) -> None:
    """finding S18: hidden text, half a sequence, one inside another, a terminal's questions."""
    assert cleaned(given, with_styles=True) == shown
    assert "\x1b" not in cleaned(given)


@given(st.lists(st.text(alphabet="\x1b[;0m31]2JHab\x9b\r\n\x07"), max_size=5))
def test_no_text_in_any_pieces_gets_a_control_through(pieces: list[str]) -> None:
    """finding S18, N-fuzz: a sequence that is split over two writes is no sequence either way."""
    out = io.StringIO()
    stream = CleanOutput(out)
    stream.writelines(pieces)
    assert not {"\x1b", "\x9b", "\r", "\x07"} & set(out.getvalue())
    assert uncleaned(cleaned("".join(pieces), with_styles=True)) == []


def test_the_streams_are_as_before_when_a_command_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """N-cli: a program may call `main()`."""
    import sys

    from noclobber.cli import main

    before = sys.stdout, sys.stderr
    assert main([EVIL]) == 2
    assert (sys.stdout, sys.stderr) == before
    assert uncleaned(capsys.readouterr().err) == []
