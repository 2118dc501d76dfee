"""`noclobber completion`: the scripts, run by the shells that they are for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.cli import COMMANDS
from noclobber.cli.completion import nodes
from tests.rigs.commands import Terminal, environment, run


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
        return path

    return write


def in_shell(words: list[str], cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.stderr == ""
    return done.stdout


CASES = [
    ("noclobber sta", {"status", "start"}),
    ("noclobber ledger ", {"show", "tail", "verify", "export"}),
    ("noclobber ledger export --format ", {"jsonl", "csv", "agent-trace", "otlp"}),
    ("noclobber ledger show --s", {"--since"}),
    ("noclobber --root x ledger ver", {"verify"}),
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
    ask = (
        f'source "{script("bash")}"; COMP_WORDS=({line.rstrip()}); [[ "{line}" == *" " ]] && COMP_WORDS+=(""); '
        'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _noclobber; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    found = set(in_shell(["bash", "-c", ask], tmp_path).split())
    assert wanted <= found
    assert not {name for name in found - wanted if not name.startswith("-")}


@needs("fish")
@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_fish_completes(script: Callable[[str], Path], tmp_path: Path, line: str, wanted: set[str]) -> None:
    """N-cli: the same, by fish's own account."""
    answer = in_shell(
        ["fish", "--no-config", "-c", f"source {script('fish')}; complete -C '{line}'"], tmp_path
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
    with Terminal(command=["zsh", "-f", "-i"], cwd=tmp_path) as terminal:
        for setting in ZSH.format(folder=tmp_path).strip().splitlines():
            terminal.type(setting + "\n")
        terminal.read_until("ready>")
        terminal.type("\x15" + line + "\t\x14")
        with open(tmp_path / "told") as told:
            assert told.read().strip() == wanted


def test_the_scripts_know_every_command_and_option() -> None:
    """N-cli: made from the parsers, so nothing is left out."""
    for shell in ("bash", "zsh", "fish"):
        text = run("completion", shell).out
        for node in nodes():
            for option in node.options:
                for flag in option.flags:
                    spelled = (
                        flag
                        if shell != "fish"
                        else f"-{'l' if flag.startswith('--') else 's'} {flag.lstrip('-')}"
                    )
                    assert spelled in text, (shell, flag)
        assert all(name in text for name in COMMANDS)


def test_words_of_the_project_are_plain_and_complete(root: Path, script: Callable[[str], Path]) -> None:
    """finding U11: agents, sessions, versions; and a name that a shell would expand is never offered."""
    (root / "plan.md").write_text("one\n")
    with Workspace(root) as workspace:
        for agent in ("builder-1", "$(touch owned)", "`touch owned`", "a b", "-x", "é\x1b"):
            with workspace.turn(agent_id=agent, session_id=f"session-of-{agent}") as turn:
                turn.read_file("plan.md")
                turn.write_file("plan.md", f"{agent}\n".encode())
    assert run("completion", "--values", "agents", cwd=root).out.split() == ["builder-1"]
    assert "session-of-builder-1" in run("completion", "--values", "sessions", cwd=root).out.split()
    assert len(run("completion", "--values", "versions", cwd=root).out.split()) >= 6
    assert run("completion", "--values", "runs", cwd="/").out == ""
    assert run("completion").code == 2

    source = script("bash")
    program = root.parent / "noclobber"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m noclobber "$@"\n')
    program.chmod(0o755)
    ask = (
        f'PATH="{root.parent}:$PATH"; source "{source}"; COMP_WORDS=(noclobber undo --agent ""); COMP_CWORD=3; '
        '_noclobber; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert in_shell(["bash", "-c", ask], root).split() == ["builder-1"]
    assert not (root / "owned").exists()
