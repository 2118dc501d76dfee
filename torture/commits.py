"""
Six agents on one clone, each committing what it wrote: whose lines are in which commit, and is any lost?

Every agent changes lines in shared files (its own lines and others', neighbouring ones, a change log that
all insert into), creates and deletes files, and commits with `commit_mine`. A person types in the same
files and commits and stages another file with plain git, so that HEAD and the index move under everybody.
Every line that is written is unique, and every agent writes down what it added and removed. But all count up
one number that they share, so that two want to write the same: at the end it is as high as they were told.

At the end, for every commit: each line that it added was written by its agent, and each line that it removed
was removed by its agent. Whatever could not be committed alone is committed together; then what differs from
HEAD may be the person's only. `git fsck` must be clean, and the index must have nothing staged but the
person's file.

    python -m torture.commits        COMMITS=1000 AGENTS=6 SEED=1
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from noclobber import CannotCommitError, NoclobberError, Workspace
from noclobber.guard.git.commit import AGENT_TRAILER, commit_mine
from noclobber.guard.git.mine import Mine

FILES = 2
COUNTER = "counter.md"
COUNTS = float(os.environ.get("COUNTS", "0.05"))
"""How often a change is one of the number that all share."""
LINES = 36
ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "gc.auto",
    "GIT_CONFIG_VALUE_0": "0",
}


class CommitTally(NamedTuple):
    """What came of one run."""

    commits: int
    refused: int
    writes: int
    foreign: int
    lost: int
    counted: int
    """Successes of counting up the shared number. What it differs by is in `lost`."""
    plain_commits: int
    trouble: tuple[str, ...]


def run(root: str, *, agents: int, commits: int, seed: int = 1) -> CommitTally:
    """Let them work until so many commits are made, then count."""
    os.environ.update(ENVIRONMENT)
    _git(root, "init", "--quiet", "--initial-branch=main")
    for number in range(FILES):
        text = "".join(f"line {at} of file {number}\n" for at in range(LINES))
        Path(root, f"shared-{number}.md").write_text(text, encoding="utf-8")
    Path(root, COUNTER).write_text("counted 0\n", encoding="utf-8")
    Path(root, "CHANGES.md").write_text("# Changes\n\n", encoding="utf-8")
    Path(root, "person.md").write_text("the person's own\n", encoding="utf-8")
    _git(root, "add", "-A")
    _git(root, "commit", "--quiet", "-m", "first")
    context = multiprocessing.get_context("spawn")
    made, refused, stop = context.Value("i", 0), context.Value("i", 0), context.Event()
    workers = [
        context.Process(target=_agent, args=(root, number, agents, commits, seed, made, refused))
        for number in range(agents)
    ]
    person = context.Process(target=_person, args=(root, seed, stop))
    for process in (*workers, person):
        process.start()
    for process in workers:
        process.join()
    stop.set()
    person.join()
    if any(process.exitcode for process in (*workers, person)):
        raise RuntimeError("a process failed; see above")
    names = [f"agent-{number}" for number in range(agents)]
    for name in names:  # First each alone, then what is in each other's way together.
        _commit(root, name)
    together = commit_mine(root, Mine(tuple(names)), "together")
    made.value += together.commit is not None
    return _counted(root, names, made.value, refused.value)


def _agent(root: str, me: int, agents: int, commits: int, seed: int, made: Any, refused: Any) -> None:
    os.environ.update(ENVIRONMENT)
    dice = random.Random(f"{seed} {me}")
    name = f"agent-{me}"
    with Workspace(root) as workspace, open(f"{root}/.git/log-of-{name}", "w", encoding="utf-8") as log:
        count = 0
        while made.value < commits:
            for _ in range(dice.randrange(1, 4)):
                count += _change(workspace, dice, name, count, agents, log)
            if dice.random() < 0.4:
                continue  # So that open changes of several meet in a file.
            if dice.random() < 0.2:
                _hold_back(made, min(made.value + agents, commits))
            try:
                is_made = commit_mine(root, Mine((name,)), f"{name} {count}").commit is not None
            except CannotCommitError as error:
                if "among uncommitted ones" not in error.message and "created by" not in error.message:
                    raise
                with refused.get_lock():
                    refused.value += 1
                if dice.random() < 0.1:  # Two whose changes are in each other's way commit together.
                    _commit(root, *(f"agent-{number}" for number in range(agents)))
                continue
            with made.get_lock():
                made.value += is_made


def _hold_back(made: Any, until: int) -> None:
    """
    Let others write next to what is open here, and commit first; if all hold back, not for ever.

    Without this each commits in the order in which it wrote, and nobody is ever in anybody's way.
    """
    deadline_s = time.monotonic() + 2.0
    while made.value < until and time.monotonic() < deadline_s:
        time.sleep(0.005)


def _commit(root: str, *names: str) -> None:
    try:
        commit_mine(root, Mine(names), "the rest")
    except CannotCommitError:
        pass


def _change(workspace: Workspace, dice: random.Random, name: str, count: int, agents: int, log: Any) -> int:
    """Make one change of one file; return how many were made."""
    if dice.random() < COUNTS:
        return _count(workspace, name, log)
    me = int(name.rpartition("-")[2])
    kind = dice.choice(["own", "own", "anywhere", "anywhere", "log", "file"])
    file = f"file-{name}-{count % 3}.md" if kind == "file" else f"shared-{dice.randrange(FILES)}.md"
    file = "CHANGES.md" if kind == "log" else file
    new = f"{name} wrote {count} in {file}\n".encode()
    with workspace.turn(agent_id=name, session_id=f"session-{name}") as turn:
        try:
            lines = turn.read_file(file).content.splitlines(keepends=True)
        except FileNotFoundError:
            lines = []
        if kind == "log":
            after = [*lines[:2], new, *lines[2:]]
        elif kind == "file" and len(lines) > 3:
            after = []
        elif kind == "file" or len(lines) < 4:
            after = [*lines, new]
        else:
            # Not next to the person's lines at the end: who never commits is in the way for ever.
            free = next((at for at, line in enumerate(lines) if line.startswith(b"person")), len(lines)) - 4
            # Without them, too, or a person who types much leaves nothing to choose from.
            portion = max(1, free // agents)
            at = dice.randrange(portion) + portion * me if kind == "own" else dice.randrange(max(1, free))
            at = max(0, min(at, free))
            gone = dice.choice([0, 1, 1, 2]) if free > LINES // 2 else 0
            after = [*lines[:at], new, *lines[at + gone :]]
        if dice.random() < 0.3:
            time.sleep(dice.random() * 0.002)  # Others get between the read and the write.
        try:
            if after:
                turn.write_file(file, b"".join(after))
            else:
                turn.delete_file(file)
        except NoclobberError:
            return 0
    removed = Counter(lines) - Counter(after)
    print(json.dumps([each.decode() for each in removed]), file=log, flush=True)
    return 1


def _count(workspace: Workspace, name: str, log: Any) -> int:
    """Count up the number that all share. Others get in between, and want to write the same."""
    with workspace.turn(agent_id=name, session_id=f"session-{name}") as turn:
        line = turn.read_file(COUNTER).text
        number = int(line.split()[1]) + 1
        time.sleep(0.002)
        try:
            turn.write_file(COUNTER, f"counted {number}\n")
        except NoclobberError:
            return 0
    print(json.dumps([line, number]), file=log, flush=True)
    return 1


def _person(root: str, seed: int, stop: Any) -> None:
    """Type in shared files, commit and stage a file with plain git."""
    os.environ.update(ENVIRONMENT)
    dice = random.Random(f"{seed} person")
    count = 0
    while not stop.wait(0.2):
        path = f"{root}/shared-{dice.randrange(FILES)}.md"
        with open(path, "ab", buffering=0) as file:
            file.write(b"person %d\n" % count)
        count += 1
        with open(f"{root}/person.md", "ab", buffering=0) as file:
            file.write(b"person %d\n" % count)
        words = ("add", "person.md") if count % 3 else ("commit", "--quiet", "-m", "person", "person.md")
        # Where somebody else has the index or HEAD, git says so, and a person tries again.
        subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)


# -- counting ----------------------------------------------------------------------------------------------


def _counted(root: str, names: list[str], made: int, refused: int) -> CommitTally:
    trouble: list[str] = []
    removed_by = {
        name: [set(json.loads(line)) for line in Path(root, f".git/log-of-{name}").read_text().splitlines()]
        for name in names
    }
    removed = {name: set().union(*writes) if writes else set() for name, writes in removed_by.items()}
    counts = {name: {each for each in all_of if isinstance(each, int)} for name, all_of in removed.items()}
    counted = sum(map(len, counts.values()))
    foreign = plain = 0
    for commit in _git(root, "rev-list", "--first-parent", "HEAD").split()[:-1]:
        agents = _git(
            root, "log", "-1", f"--format=%(trailers:key={AGENT_TRAILER},valueonly)", commit
        ).split()
        plain += not agents
        for line in _git(root, "show", "--format=", "--unified=0", "--no-renames", commit).splitlines():
            if line.startswith(("+++", "---")) or line[:1] not in "+-":
                continue
            text = f"{line[1:]}\n"
            is_own = (
                text.startswith("person") if not agents
                else any(_wrote(agent, text, counts[agent]) for agent in agents) if line[0] == "+"
                else any(text in removed[agent] for agent in agents)
            )  # fmt: skip
            if not is_own:
                foreign += 1
                trouble.append(f"{commit[:10]} of {agents or 'the person'} has: {line}")
    reached = int(Path(root, COUNTER).read_text().split()[1])
    lost = abs(counted - reached)
    if lost:
        trouble.append(f"counted {counted} times, and the number is {reached}")
    difference = _git(root, "diff", "--unified=0", "--no-renames", "HEAD")
    for line in difference.splitlines():
        if line[:1] in "+-" and not line.startswith(("+++", "---")) and not line[1:].startswith("person"):
            lost += 1
            trouble.append(f"not committed: {line}")
    for line in _git(root, "ls-files", "--others", "--exclude-standard").splitlines():
        lost += 1
        trouble.append(f"not committed: the file {line}")
    if staged := set(_git(root, "diff", "--cached", "--name-only").split()) - {"person.md"}:
        trouble.append(f"staged at the end: {sorted(staged)}")
    fsck = subprocess.run(["git", "fsck", "--no-dangling"], cwd=root, capture_output=True, check=False)
    if fsck.returncode or fsck.stdout.strip():
        trouble.append(f"git fsck: {fsck.stdout.decode()}{fsck.stderr.decode()}")
    left = [name for name in os.listdir(f"{root}/.git") if "noclobber" in name or name.endswith(".lock")]
    trouble += [f"left behind: {name}" for name in left]
    writes = sum(len(each) for each in removed_by.values())
    return CommitTally(made, refused, writes, foreign, lost, counted, plain, tuple(trouble))


def _wrote(agent: str, line: str, counts: set[int]) -> bool:
    """True for a line that an agent wrote, by its name or by the number that it counted to."""
    if line.startswith("counted "):
        return int(line.split()[1]) in counts
    return line.startswith(f"{agent} wrote ")


def _git(root: str, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {words}: {done.stderr.decode()}")
    return done.stdout.decode()


def main() -> int:
    """Run it and say what came of it."""
    agents, commits = int(os.environ.get("AGENTS", "6")), int(os.environ.get("COMMITS", "1000"))
    seed = int(os.environ.get("SEED", "1"))
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="noclobber-commits-") as root:
        tally = run(root, agents=agents, commits=commits, seed=seed)
    print(
        f"{agents} agents, {tally.writes} writes, {tally.commits} commits, {tally.plain_commits} by plain "
        f"git in between, {tally.refused} refused: {tally.foreign} foreign lines, {tally.lost} lost, "
        f"counted {tally.counted} "
        f"({time.monotonic() - began_s:.0f} s)"
    )
    for each in tally.trouble[:20]:
        print(f"    {each}")
    return 1 if tally.trouble or tally.commits < commits else 0


if __name__ == "__main__":
    sys.exit(main())
