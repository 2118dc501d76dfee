"""`noclobber completion`: the scripts, run by the shells that they are for."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.cli import COMMANDS, completion
from tests.rigs.commands import Terminal, environment, run
from tests.rigs.parsers import nodes


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(shell: str) -> Path:
        done = run("completion", shell)
        assert (done.code, done.err) == (0, "")
        assert json.loads(run("completion", shell, "--json").out)["script"] == done.out
        path = tmp_path / ("_noclobber" if shell == "zsh" else f"noclobber.{shell}")
        path.write_text(done.out)
        program = tmp_path / "bin" / "noclobber"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m noclobber "$@"\n')
        program.chmod(0o755)
        return path

    return write


def in_shell(words: list[str], cwd: Path, programs: Path) -> str:
    path = f"{programs / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, env=environment(PATH=path), timeout=60
    )
    assert done.stderr == ""
    return done.stdout


def in_bash(source: Path, line: str, cwd: Path) -> set[str]:
    """What bash would offer at the end of a line."""
    ask = (
        f'source "{source}"; COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}; '
        '_python_argcomplete noclobber; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(in_shell(["bash", "-c", ask], cwd, source.parent).split())


CASES = [
    ("noclobber sta", {"status", "start"}),
    ("noclobber ledger ", {"show", "tail", "verify", "export"}),
    ("noclobber ledger export --format ", {"jsonl", "csv", "agent-trace", "otlp"}),
    ("noclobber ledger show --s", {"--since"}),
    ("noclobber completion z", {"zsh"}),
    ("noclobber watch --ch", {"--changes"}),
    ("noclobber config ", {"show"}),
    ("noclobber install clau", {"claude-code"}),
    ("noclobber ledger show --kind LOCK_RET", {"LOCK_RETIRED"}),
]


@needs("bash")
@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_bash_completes(script: Callable[[str], Path], tmp_path: Path, line: str, wanted: set[str]) -> None:
    """N-cli: commands, subcommands, options, values."""
    found = in_bash(script("bash"), line, tmp_path)
    assert wanted <= found
    assert not {name for name in found - wanted if not name.startswith("-")}


@needs("fish")
@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_fish_completes(script: Callable[[str], Path], tmp_path: Path, line: str, wanted: set[str]) -> None:
    """N-cli: the same, by fish's own account."""
    answer = in_shell(
        ["fish", "--no-config", "-c", f"source {script('fish')}; complete -C '{line}'"],
        tmp_path,
        tmp_path,
    )
    assert wanted <= {row.split("\t")[0] for row in answer.splitlines()}


@needs("fish")
def test_fish_offers_no_files_where_a_word_is_wanted(script: Callable[[str], Path], tmp_path: Path) -> None:
    """N-cli: a format is not a file."""
    (tmp_path / "jazz.txt").touch()
    answer = in_shell(
        [
            "fish",
            "--no-config",
            "-c",
            f"cd {tmp_path}; source {script('fish')}; complete -C 'noclobber ledger export --format '",
        ],
        tmp_path,
        tmp_path,
    )
    assert "jazz" not in answer


ZSH = """
PROMPT='rea''dy>'; fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D
tell() {{ print -r -- $BUFFER > {folder}/told }}; zle -N tell; bindkey '^T' tell
"""


@needs("zsh")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("noclobber stat", "noclobber status"),
        ("noclobber ledger ver", "noclobber ledger verify"),
        ("noclobber ledger export --format agent", "noclobber ledger export --format agent-trace"),
        ("noclobber ledger show --sin", "noclobber ledger show --since"),
        ("noclobber completion ba", "noclobber completion bash"),
        ("noclobber config show --root fol", "noclobber config show --root folder/"),
    ],
)
def test_zsh_completes(script: Callable[[str], Path], tmp_path: Path, line: str, wanted: str) -> None:
    """N-cli: typed into an interactive zsh, with a tab; then zsh is asked what stands on its line."""
    script("zsh")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folly").touch()
    os.mkfifo(tmp_path / "told")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    with Terminal(command=["zsh", "-f", "-i"], cwd=tmp_path, PATH=path) as terminal:
        for setting in ZSH.format(folder=tmp_path).strip().splitlines():
            terminal.type(setting + "\n")
        terminal.read_until("ready>")
        terminal.type("\x15" + line + "\t\x14")
        with open(tmp_path / "told") as told:
            assert told.read().strip() == wanted


def offered(line: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What the program itself answers, in this process."""
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    monkeypatch.setattr("argcomplete.CompletionFinder._init_debug_stream", lambda self: None)
    out = io.StringIO()
    completion.answer(output_stream=out, exit_method=lambda code: None)
    return set(out.getvalue().split("\013"))


def test_every_command_and_option_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-cli: made from the parsers, so nothing is left out."""
    assert set(COMMANDS) <= offered("noclobber ", monkeypatch)
    for node in nodes():
        flags = {flag for option in node.options for flag in option.flags}
        found = offered(" ".join(("noclobber", *node.path, "-")), monkeypatch)
        assert flags <= {each.strip() for each in found}, node.path


def test_words_of_the_project_are_plain_and_complete(root: Path, script: Callable[[str], Path]) -> None:
    """finding U11: agents, sessions, versions; and a name that a shell would expand is never offered."""
    (root / "plan.md").write_text("one\n")
    with Workspace(root) as workspace:
        for agent in ("builder-1", "$(touch owned)", "`touch owned`", "a b", "-x", "é\x1b"):
            with workspace.turn(agent_id=agent, session_id=f"session-of-{agent}") as turn:
                turn.read_file("plan.md")
                turn.write_file("plan.md", f"{agent}\n".encode())
    source = script("bash")
    assert in_bash(source, "noclobber undo --agent ", root) == {"builder-1"}
    assert "session-of-builder-1" in in_bash(source, "noclobber undo --session ", root)
    versions = {word for word in in_bash(source, "noclobber versions show ", root) if word[0] != "-"}
    assert len(versions) >= 6
    assert {"show", "rerun"} <= in_bash(source, "noclobber run ", root)
    assert in_bash(source, "noclobber run show ", root) & versions == set()
    assert not (root / "owned").exists()


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-dependencies: and a script that was printed before stays silent at a tab."""
    hidden = "import sys; sys.modules['argcomplete'] = None; from noclobber.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", hidden, "completion", "bash"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 2
    assert "noclobber[completion]" in done.stderr
    tab = environment(_ARGCOMPLETE="1", COMP_LINE="noclobber ", COMP_POINT="10")
    done = subprocess.run(words[:3], capture_output=True, text=True, env=tab, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
