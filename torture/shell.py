"""
Commands in the guarded shell, under everything that can go wrong: `python -m torture.shell`.

Agents change the same few files with commands: six ways to read, modify and write one file, six more on files
that outsiders of every kind save at the same time, commands over several files, commands that rename folders,
and git in ten forms (`torture.shell_commands`). Outsiders save in every way that there is, and a person
commits with plain git (`torture.shell_outsiders`). A part of the commands is killed with SIGKILL, at a
random moment or at a random step of the landing. Every change carries a token of its own, so that
afterwards each can be looked for:

- what a command with exit code 0 wrote is there, once;
- of a command that was refused nothing is there;
- of one that was killed all is there or nothing, in all of its files (never *mixed*);
- what outsiders wrote is there;
- git's HEAD, index and tree agree, its history has every commit that landed, and `git fsck` is clean.

Others have no token: counters, tickets, and operations that one of all may succeed with, such as `mkdir`
(`torture.colliding`). There the number of commands that landed must be what is found, exactly.

It goes in rounds. After each everybody has stopped, and everything is looked for.

The same commands by plain `sh -c` are the control in the same run: they must lose updates.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from noclobber.cli import run as guarded
from noclobber.core.project import OWED_FOLDER
from noclobber.disk import steps
from noclobber.shell.runs import NEW_PREFIX
from torture import colliding, compiled, shell_outsiders
from torture.next_version import NOT_WHOLE
from torture.shell_commands import FILES, GIT, GIT_OR_NOTHING, NEXT, ONE_FILE, SEVERAL, VERSIONED, Done, Tree

AGENTS = 8
COMMANDS_A_ROUND = 1500
LONGEST_COMMAND_S = 120
LONGEST_LIFE_S = 0.8
MOST_STEPS = (20, 40, 120)  # A git command has about a hundred.
WEIGHTS = {"one file": 6, "versioned": 8, "several": 2, "folders": 1, "git": 4, colliding.SORT: 8}


class Verdict(NamedTuple):
    """What was found afterwards."""

    commands: Counter[str]
    ways: Counter[str]
    """How many commands of each kind landed."""
    lost: int
    mixed: int
    ghosts: int
    """Tokens of refused commands that are there."""
    trouble: list[str]
    evidence: list[str]
    """What is behind the figures."""
    rounds: int = 0
    """Names that agents tried to win by an exclusive operation."""
    winners: int = 0
    """How many of those had exactly one winner."""

    @property
    def is_clean(self) -> bool:
        """True if no bar was missed."""
        is_won = self.winners == self.rounds
        return is_won and not (self.lost or self.mixed or self.ghosts or self.trouble)

    def plus(self, other: Verdict) -> Verdict:
        """Return both rounds together."""
        return Verdict(
            self.commands + other.commands,
            self.ways + other.ways,
            self.lost + other.lost,
            self.mixed + other.mixed,
            self.ghosts + other.ghosts,
            self.trouble + other.trouble,
            self.evidence + other.evidence,
            self.rounds + other.rounds,
            self.winners + other.winners,
        )


def prepare(root: Path) -> None:
    """Make the project that everybody works in."""
    (root / "sub").mkdir(parents=True)
    (root / "here").mkdir()
    for name in (*FILES, "left.txt", "sub/right.txt", "tracked.txt", "person.txt", "here/f"):
        (root / name).write_text("begin\n")
    git = "git init -q -b main . && git config user.email a@b && git config user.name a"
    git += " && git config gc.auto 0 && git config advice.detachedHead false"
    git += (
        " && git add tracked.txt person.txt && git commit -qm begin && git commit -q --allow-empty -m second"
    )
    subprocess.run(["sh", "-c", git], cwd=root, check=True)
    colliding.prepare(root)
    (root / ".noclobber").mkdir(mode=0o700)


def load() -> None:
    """Load what a landing needs, so that not every command of a forked agent does it again."""
    import noclobber.guard.command_turn
    import noclobber.guard.commands
    import noclobber.guard.git.others_work  # noqa: F401


class Work(NamedTuple):
    """What an agent is to do."""

    root: Path
    logs: Path
    kinds: tuple[str, ...]
    """Of outsiders."""
    seed: int
    kill: float
    plain: bool
    weights: Mapping[str, int]
    """How often commands of each sort are chosen."""


def agent(work: Work, number: int, until_s: float, most: int) -> None:
    """Run commands one after the other and write down how each ended."""
    rng = random.Random(f"{work.seed}/{number}")
    os.chdir(work.root)
    tried: Counter[str] = Counter()
    with (work.logs / str(number)).open("a") as log:
        for count in range(1, most + 1):
            if time.monotonic() > until_s:
                break
            token = f"t{number}x{count}x{rng.randrange(1 << 32):x}"
            sort = rng.choices(list(work.weights), list(work.weights.values()))[0]
            dies = rng.random() < work.kill
            life = (
                Life(rng.random() * LONGEST_LIFE_S, rng.choice((0, rng.randrange(1, rng.choice(MOST_STEPS)))))
                if dies
                else None
            )
            if sort == colliding.SORT:
                kind, text, file = colliding.chosen(rng, token, tried)
                how = _run(text, plain=work.plain, life=life)
                log.write(f"{kind}\t{token}\t{file}\t{how}\n")
            elif sort == "versioned" and work.kinds:
                kind, way = rng.choice(work.kinds), rng.choice(list(VERSIONED))
                how = _versioned(work, number, count, kind, way, token, life)
                log.write(f"versioned {way}\t{token}\t{kind}\t{how}\n")
            else:
                kind, text, file = _text(rng, sort, token)
                how = _run(text, plain=work.plain, life=life)
                log.write(f"{kind}\t{token}\t{file}\t{how}\n")
            log.flush()


class Life(NamedTuple):
    """When a command is killed: after some seconds, or at a step of its landing."""

    seconds: float
    steps: int


def _text(rng: random.Random, sort: str, token: str) -> tuple[str, str, str]:
    file = rng.choice(FILES)
    if sort == "git":
        way = rng.choice(list(GIT))
        return f"git {way}", GIT_OR_NOTHING.format(text=GIT[way].format(token=token)), file
    if sort in SEVERAL:
        return sort, SEVERAL[sort].format(token=token), file
    way = rng.choice(list(ONE_FILE))
    return way, ONE_FILE[way].format(token=token, file=file), file


def _versioned(
    work: Work, number: int, serial: int, kind: str, way: str, token: str, life: Life | None
) -> str:
    """Change a file that an outsider of one kind saves, and log it for the accounting of the demo."""
    file = shell_outsiders.path_of(Path(), kind)
    log = work.logs / kind / f"g{number}.log"
    makes = f"{NEXT} {file} g{number} {serial} {log}"
    how = _run(VERSIONED[way].format(next=makes, file=file, token=token), plain=work.plain, life=life)
    outcome = {"landed": f"C {serial} guarded", "refused": f"S {serial} -", "killed": "Q 1"}.get(how, "")
    if outcome and (how == "killed" or _has_begun(log, serial)):
        with log.open("a") as file_of_outcomes:
            file_of_outcomes.write(f"{outcome}\n")
    return how


def _has_begun(log: Path, serial: int) -> bool:
    return log.exists() and f"A {serial} " in log.read_text()


def _run(text: str, *, plain: bool, life: Life | None) -> str:
    """Run one command in a child of its own, which may be killed."""
    pid = os.fork()
    if pid == 0:
        nothing_fd = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing_fd, descriptor)
        code = 70
        try:
            if plain:
                os.execvp("sh", ["sh", "-c", text])
            if life is not None and life.steps:
                _die_at(life.steps)
            code = guarded.main(["--require", "--", "sh", "-c", text])
        finally:
            os._exit(code)
    lives_s = life.seconds if life is not None and not life.steps else LONGEST_COMMAND_S
    deadline_s, is_by_us = time.monotonic() + lives_s, False
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline_s:
            os.kill(pid, signal.SIGKILL)
            is_by_us = True
            break
        time.sleep(0.002)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        if not plain and (is_by_us or (life is not None and life.steps)):
            return "killed" if life is not None else "hung"
        # It ended itself (GIT_OR_NOTHING). Had it written nothing, `noclobber run` died of that signal, too.
        return "refused"
    code = os.WEXITSTATUS(status)
    other = "landed" if plain else "gap" if code == NOT_WHOLE else f"failed {code}"
    return {0: "landed", 75: "refused", 128 + signal.SIGKILL: "refused", 69: "unavailable"}.get(code, other)


def _die_at(step: int) -> None:
    """Kill this process when a landing has come that far."""
    left = step

    def observe(name: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.observer = observe


def judge(work: Work, done: list[Done]) -> Verdict:
    """Look for every token."""
    root = work.root
    lost = mixed = ghosts = 0
    trouble, evidence = list[str](), list[str]()
    kept_paths = [path for path in (root / ".noclobber/kept").glob("*") if path.is_file()]
    kept = "\n".join(path.read_text(errors="replace") for path in kept_paths)
    history = Counter(_told_by(root, "git", "log", "--format=%s").split("\n"))
    tree = Tree(root, history, Counter(_told_by(root, "git", "show", "HEAD:person.txt").split()))
    for each in done:
        if each.how not in ("landed", "refused", "killed", "gap"):
            trouble.append(f"{each.kind} {each.token}: {each.how}")
        elif not each.kind.startswith(("versioned", colliding.SORT)):
            found = tree.found(each)
            if len(set(found)) > 1 or max(found) > 1:
                mixed += 1
                evidence.append(f"mixed: {each} {found}")
            elif each.how == "landed" and found[0] == 0 and each.token not in kept:
                lost += 1
                evidence.append(f"lost: {each}")
            elif each.how == "refused" and found[0]:
                ghosts += 1
                evidence.append(f"there, although refused: {each}")
    ended = Counter(each.how.split()[0] for each in done if each.kind not in ("outsider", "person"))
    ways = Counter(each.kind for each in done if each.how == "landed")
    for kind in work.kinds:
        account = shell_outsiders.settle(root, work.logs, kind, [str(path) for path in kept_paths])
        lost, mixed = lost + account.lost, mixed + account.torn
        ended["outsiders"] += account.updates
        ended["old mappings"] += account.not_promised
        ways[f"beside {kind}"] += account.commits
        evidence += account.trouble
    collided = colliding.settle(root, done)
    lost, mixed, ghosts = lost + collided.lost, mixed + collided.mixed, ghosts + collided.ghosts
    evidence += collided.evidence
    ended["outsiders"] += sum(each.kind == "outsider" for each in done)
    ended["plain git"] = sum(each.kind == "person" for each in done)
    fsck = subprocess.run(["git", "fsck", "--strict"], cwd=root, capture_output=True, text=True)
    if fsck.returncode:
        trouble.append(f"git fsck: {fsck.stderr}")
    if (root / "here").exists() and (root / "there").exists():
        trouble.append("a folder that was moved to and fro is there twice")
    if apart := _told_by(root, "git", "status", "--porcelain", "-uno"):
        trouble.append(f"HEAD and tree are apart: {apart}")
    return Verdict(ended, ways, lost, mixed, ghosts, trouble, evidence, collided.rounds, collided.winners)


def _told_by(root: Path, *command: str) -> str:
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stdout


def play(
    root: Path,
    *,
    seconds: float,
    commands: int,
    agents: int,
    seed: int,
    kill: float,
    plain: bool = False,
    weights: Mapping[str, int] = WEIGHTS,
) -> Verdict:
    """Let everybody work, then look: one round."""
    logs = root.parent / f"{root.name}-logs"
    logs.mkdir(parents=True)
    load()
    prepare(root)
    kinds = shell_outsiders.chosen(root.parent / f"{root.name}-probe")
    shell_outsiders.prepare(root, logs, kinds)
    work = Work(root, logs, tuple(kinds), seed, kill, plain, weights)
    until_s = time.monotonic() + seconds
    outside = shell_outsiders.start(root, logs, kinds, seed=seed, until_s=until_s + 2 * LONGEST_COMMAND_S)
    pids = []
    for number in range(agents):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                agent(work, number, until_s, -(-commands // agents))
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    failed = [f"agent {number} failed" for number, pid in enumerate(pids) if os.waitpid(pid, 0)[1]]
    failed += shell_outsiders.stop(outside)
    if not plain:  # The next command cleans up after the killed ones.
        for name in ("sub/last", "last"):
            command = [sys.executable, "-m", "noclobber", "run", "--", "touch", name]
            subprocess.run(command, cwd=root, check=True)
    texts = [log.read_text() for log in logs.iterdir() if log.is_file()]
    rows = [line.split("\t") for text in texts for line in text.splitlines()]
    verdict = judge(work, [Done(*row) for row in rows if len(row) == 4])
    verdict.trouble.extend(failed)
    if not plain:
        verdict.trouble.extend(_left_over(root))
    return verdict


def _left_over(root: Path) -> list[str]:
    """What must not be there when all is over: folders of runs that were not refused, locks, mounts."""
    owed = root / ".noclobber" / OWED_FOLDER
    found = [
        f"left behind: {folder}"
        for folder in (root / ".noclobber/run").iterdir()
        # One that was killed while it made its folder left half of one, which is removed after a minute.
        if not (folder / "refused.json").exists()
        and not folder.name.startswith(NEW_PREFIX)
        and folder != owed
    ]
    found += [f"still owed: {path}" for path in owed.glob("*/*")]
    found += [f"left behind: {path}" for path in (root / ".git").rglob("*.lock")]
    with open("/proc/self/mountinfo") as mounts:
        found += [f"still mounted: {line}" for line in mounts if str(root) in line]
    return found


def main(argv: list[str] | None = None) -> int:
    """Return 0 if every bar was met."""
    parser = argparse.ArgumentParser(prog="python -m torture.shell", description=__doc__)
    parser.add_argument("--commands", type=int, default=int(os.environ.get("COMMANDS", "10000")))
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS", "3600")))
    parser.add_argument("--agents", type=int, default=int(os.environ.get("AGENTS", str(AGENTS))))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1 << 30)))
    parser.add_argument("--keep", action="store_true", help="leave a round that was not clean where it is")
    args = parser.parse_args(argv)
    print(f"torture.shell: seed {args.seed}, {args.agents} agents, {args.commands} commands", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="noclobber-torture-shell-"))
    if (why := compiled.compile_into(str(folder))) is not None:
        print(f"  without the outsiders in C: {why}", flush=True)
    ends_s = time.monotonic() + args.seconds
    total: Verdict | None = None
    number = 0
    is_kept = False
    while time.monotonic() < ends_s and (total is None or _ran(total) < args.commands):
        left = args.commands - (_ran(total) if total else 0)
        root = folder / f"round-{number}" / "project"
        verdict = play(
            root,
            seconds=ends_s - time.monotonic(),
            commands=min(left, COMMANDS_A_ROUND),
            agents=args.agents,
            seed=args.seed + number,
            kill=0.1,
        )
        _print(f"round {number}", verdict)
        total = verdict if total is None else total.plus(verdict)
        is_kept = is_kept or (args.keep and not verdict.is_clean)
        if verdict.is_clean or not args.keep:
            subprocess.run(["rm", "-rf", str(root.parent)], check=True)
        number += 1
    assert total is not None
    control = play(
        folder / "control" / "project",
        seconds=30.0,
        commands=min(1000, args.commands),
        agents=args.agents,
        seed=args.seed,
        kill=0.0,
        plain=True,
    )
    _print("plain sh -c, the control", control, most=2)
    _print("guarded, all rounds", total)
    print("  landed: " + ", ".join(f"{way} {count}" for way, count in sorted(total.ways.items())))
    if is_kept:
        print(f"  kept: {folder}")
    else:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
    has_lost = bool(control.lost or control.mixed)
    if not has_lost:
        print("  the control lost nothing: this run proves nothing")
    return 0 if total.is_clean and has_lost and _ran(total) >= args.commands else 1


def _ran(verdict: Verdict) -> int:
    others = sum(verdict.commands[name] for name in ("outsiders", "plain git", "old mappings"))
    return sum(verdict.commands.values()) - others


def _print(name: str, verdict: Verdict, most: int = 12) -> None:
    counts = ", ".join(f"{how} {count}" for how, count in sorted(verdict.commands.items()))
    print(f"{name}: {_ran(verdict)} commands: {counts}; lost {verdict.lost}, mixed {verdict.mixed},", end=" ")
    print(f"ghosts {verdict.ghosts}, winners {verdict.winners} of {verdict.rounds},", end=" ")
    print(f"trouble {len(verdict.trouble)}", flush=True)
    for line in (*verdict.trouble[:most], *verdict.evidence[:most]):
        print(f"  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
