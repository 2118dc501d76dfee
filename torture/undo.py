"""
Random histories of commands, and an undo of one agent: what is lost of others, and what stays of the agent.

Three agents run commands in the guarded shell, each in a folder of its own, on one file that all share, and
with git; a person does the same without a guard. Then everything of one agent is taken back. What others have
must be as it was, byte by byte, the repository must be sound, and the agent's own folder must be as it was at
the beginning, with links and modes. Then the undo is taken back, and contents must be as they were before it.

    python -m torture.undo        HISTORIES=100 SEED=1
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from noclobber import CannotUndoError, NoclobberError, Workspace
from noclobber.guard.commands import run_command
from noclobber.guard.undo import AGENT_ID

AGENTS = ("ana", "bob", "bot")
COMMANDS = (
    "echo {n} >> {a}/f && git commit -qm c{n} -- {a}/f",
    "echo {n} >> {a}/f && git add {a}/f",
    "echo '{a} {n}' >> shared.md",
    "git branch b{n}",
    "git tag t{n}",
    "git commit -q --allow-empty -m e{n}",
    "git gc -q --prune=now",
    "git pack-refs --all",
    "git branch -f {a} HEAD",
    "git checkout -q -b of-{a}-{n}",
    "rm -rf {a}/d",
    "mkdir -p {a}/d/x && echo {n} > {a}/d/x/y && echo {n} > {a}/d/z",
    "mv {a}/d {a}/e{n}",
    "rm -rf {a}/e*",
    "cp -r {a}/d {a}/c{n}",
    "ln -sfn f {a}/l{n} && ln -sfn d {a}/link",
    "rm -f {a}/link {a}/l*",
    "chmod 7{m}5 {a}/f",
    "seq {n} 1400 > {a}/big",
    "git init -q {a}/nested{n} && git -C {a}/nested{n} commit -q --allow-empty -m n",
)
IDENTITY = {
    **{
        f"GIT_{who}_{what}": "ada@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


class Tally(NamedTuple):
    """What came of some histories."""

    histories: int = 0
    commands: int = 0
    refused: int = 0
    """Undos that named an obstacle and changed nothing."""
    lost: int = 0
    """Histories after which something of others was not as it was."""
    broken: int = 0
    """Repositories that `git fsck` finds fault with."""
    left: int = 0
    """Folders of the agent that were not as at the beginning."""
    not_back: int = 0
    """Undos that could not be taken back."""


def history(root: str, seed: int, commands: int = 14) -> Tally:
    """Let them work, undo one, and look."""
    os.environ.update(IDENTITY)
    chance = random.Random(seed)
    _sh(root, "git init -q -b main && touch noclobber.toml shared.md")
    for name in (*AGENTS, "person"):
        _sh(root, f"mkdir -p {name}/d && seq 1 1000 > {name}/big && echo 0 | tee {name}/f > {name}/d/z")
    _sh(root, "git add -A && git commit -qm first")
    first = _things(f"{root}/bot")
    done = 0
    for number in range(commands):
        who = chance.choice((*AGENTS, "bot", "person"))
        text = chance.choice(COMMANDS).format(a=who, n=number, m=chance.choice("045"))
        if who == "person":
            _sh(root, text, check=False)
            continue
        try:
            with Workspace(root) as workspace, workspace.turn(agent_id=who) as turn:
                done += run_command(turn, text).exit_code == 0
        except NoclobberError:
            pass  # A refusal is an answer. What counts is what is left.
    before = _others(root)
    contents = _contents(f"{root}/bot")
    tally = Tally(histories=1, commands=done)
    with Workspace(root) as workspace:
        try:
            workspace.undo(agent_id="bot")
        except CannotUndoError:
            tally = tally._replace(refused=1)
        tally = tally._replace(
            lost=int(_others(root) != before),
            broken=_broken(root),
            left=int(not tally.refused and _things(f"{root}/bot") != first),
        )
        if not tally.refused:
            try:
                workspace.undo(agent_id=AGENT_ID)
                tally = tally._replace(not_back=int(_contents(f"{root}/bot") != contents))
            except CannotUndoError:
                tally = tally._replace(not_back=1)
    return tally._replace(broken=max(tally.broken, _broken(root)))


def _others(root: str) -> object:
    lines = Path(root, "shared.md").read_bytes().splitlines()
    shared = [line for line in lines if not line.startswith(b"bot ")]
    return shared, [_things(f"{root}/{name}") for name in (*AGENTS[:2], "person")]


def _things(folder: str) -> dict[str, tuple[int, bytes]]:
    """Every file, link and folder but what is git's, with its mode and what is in it."""
    found = {}
    for path in Path(folder).rglob("*"):
        if not any(part.startswith("nested") for part in path.parts):
            mode = path.lstat().st_mode
            content = os.readlink(path).encode() if path.is_symlink() else b""
            found[str(path)] = (mode, path.read_bytes() if not content and path.is_file() else content)
    return found


def _contents(folder: str) -> dict[str, bytes]:
    return {name: content for name, (_, content) in _things(folder).items() if content}


def _broken(root: str) -> int:
    found = [str(path.parent) for path in Path(root).rglob(".git") if path.is_dir()]
    return sum(
        bool(_sh(each, "git fsck --strict --no-dangling && git status", check=False)) for each in found
    )


def _sh(root: str, text: str, *, check: bool = True) -> int:
    return subprocess.run(["sh", "-c", text], cwd=root, check=check, capture_output=True).returncode


def main() -> int:
    """Return 1 if anything was lost, broken or left."""
    histories, seed = int(os.environ.get("HISTORIES", "100")), int(os.environ.get("SEED", "1"))
    tallies = []
    for number in range(seed, seed + histories):
        with tempfile.TemporaryDirectory(prefix="noclobber-undo-") as root:
            tally = history(os.path.realpath(root), number)
        if tally.lost or tally.broken or tally.left or tally.not_back:
            print(f"seed {number}: {tally}", flush=True)
        tallies.append(tally)
    total = Tally(*map(sum, zip(*tallies, strict=True)))
    print(total)
    return int(bool(total.lost or total.broken or total.left or total.not_back))


if __name__ == "__main__":
    sys.exit(main())
