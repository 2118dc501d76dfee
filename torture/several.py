"""
Writes of several files at once, moves and deletes, with an outsider that appends all the while.

| round | agents | the outsider | must hold |
|---|---|---|---|
| several | add one to a number in two files, in one commit | appends to the second | the numbers agree |
| move | move a file to and fro between two folders | appends to wherever it is | it is in one place |
| delete | delete the file they have read | appends, and creates it if it is gone | what is deleted was read |

And in each of them: every line that the outsider appended is in the file, or was read by the agent that
deleted it, or is kept aside. With kill -9 the same, after the next call has recovered.

`Naive` is a guard that checks and then acts. The tests run it here, too, and require that losses are found.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
import traceback
from contextlib import suppress
from typing import Any, NamedTuple

from noclobber.disk import hashing
from noclobber.disk.commit.rows import Change
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import FileExistsAlreadyError, MissingFileError, NoclobberError, StaleFileError
from torture.agents import Notebook
from torture.arena import AnHourLater
from torture.weaker_guards import Seen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

AGENTS, WAIT_S, GRACE_S = 3, 0.25, 30.0
LATER_S = 0.002  # About the outsider's own pace, so that it is found out in any round, not only in most.
LIVES_S = (0.004, 0.02, 0.08)
FIRST, SECOND = "one/file.txt", "two/file.txt"


class Naive:
    """What a careful program does without us: it looks, and acts a little later on what it saw."""

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, path: str) -> Seen:
        try:
            with open(f"{self.root}/{path}", "rb") as file:
                content = file.read()
        except FileNotFoundError:
            raise MissingFileError(path, "gone") from None
        return Seen(path, content, hashing.of_bytes(content))

    def _check(self, path: str, expected: str | None) -> None:
        if (actual := self.read(path).sha256) != expected:
            raise StaleFileError(path, expected or "", actual)

    def commit(self, changes: list[Change]) -> None:
        for change in changes:
            self._check(change.path, change.expected)
        for change in changes:
            staged = f"{self.root}/{change.path}.{os.getpid()}"
            with open(staged, "wb") as file:
                file.write(change.data or b"")
            os.replace(staged, f"{self.root}/{change.path}")

    def move(self, source: str, destination: str, *, expected: str | None) -> None:
        self._check(source, expected)
        content = self.read(source).content
        time.sleep(LATER_S)
        with open(f"{self.root}/{destination}", "wb") as file:
            file.write(content)
        with suppress(FileNotFoundError):
            os.unlink(f"{self.root}/{source}")

    def delete(self, path: str, *, expected: str | None) -> None:
        self._check(path, expected)
        time.sleep(LATER_S)
        with suppress(FileNotFoundError):
            os.unlink(f"{self.root}/{path}")


class Account(NamedTuple):
    """What became of a round."""

    updates: int
    lost: int
    kept: int
    mixed: int
    """Seen, or left: numbers that do not agree, a file in both places or in none."""
    undone: int
    """Numbers that did not agree for a moment, after an agent was killed between two exchanges."""
    commits: int
    refused: int
    kills: int
    faults: tuple[str, ...] = ()

    def missed(self) -> list[str]:
        """Say which bars were missed."""
        out = [f"{self.lost} outside updates lost"] if self.lost else []
        out += [f"{self.mixed} times half of it"] if self.mixed else []
        out += [] if self.commits and self.updates else ["nothing happened, so nothing was proved"]
        return [*out, *self.faults]


# The agents. A line before each attempt (A, with what a delete would take along), one after it: C, or S.


def add_one(guard: Any, log: Notebook) -> None:
    """Both files in one commit."""
    first, second = guard.read(FIRST), guard.read(SECOND)
    number, second_number = _number(first.content), _number(second.content)
    if number > second_number:  # Read later, so never older.
        log.line(f"M {number} {second_number}")
    if number != second_number:
        return
    tags = second.content.split(b"\n", 1)[1]
    changes = [
        Change(FIRST, b"%d\n" % (number + 1), first.sha256),
        Change(SECOND, b"%d\n%b" % (number + 1, tags), second.sha256),
    ]
    _attempt(log, "", lambda: guard.commit(changes))


def move_over(guard: Any, log: Notebook) -> None:
    """From wherever it is to where it is not."""
    for source, destination in ((FIRST, SECOND), (SECOND, FIRST)):
        try:
            seen = guard.read(source)
        except MissingFileError:
            continue
        _attempt(log, "", lambda: guard.move(source, destination, expected=seen.sha256))  # noqa: B023
        return


def take_away(guard: Any, log: Notebook) -> None:
    """Read it, and delete what was read."""
    try:
        seen = guard.read(SECOND)
    except MissingFileError:
        return
    tags = ",".join(seen.content.decode().split())
    _attempt(log, tags, lambda: guard.delete(SECOND, expected=seen.sha256))


def _attempt(log: Notebook, taken: str, act: Callable[[], object]) -> None:
    log.line(f"A {taken}")
    try:
        act()
    except (StaleFileError, FileExistsAlreadyError, MissingFileError) as refusal:
        log.line(f"S {refusal.code}")
    except NoclobberError as refusal:
        log.line(f"S {refusal.code}")
        time.sleep(0.0005)
    else:
        log.line("C")


def _number(content: bytes) -> int:
    return int(content.split(b"\n", 1)[0])


class Kind(NamedTuple):
    """A round."""

    name: str
    act: Callable[[Any, Notebook], None]
    places: tuple[str, ...]
    """Where the outsider looks for the file that it appends to."""
    creates: bool = False


KINDS = (
    Kind("several files, append", add_one, (SECOND,)),
    Kind("move, append", move_over, (FIRST, SECOND)),
    Kind("delete, append", take_away, (SECOND,), creates=True),
)


# The processes.


def _outsider(root: str, kind: Kind, log: Notebook, chance: random.Random, until_s: float) -> None:
    serial = 0
    flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT if kind.creates else 0)
    while time.monotonic() < until_s:
        for place in kind.places:
            try:
                descriptor = os.open(f"{root}/{place}", flags, 0o644)
            except FileNotFoundError:
                continue
            serial += 1
            os.write(descriptor, b"o%d\n" % serial)
            os.close(descriptor)
            log.line(f"U o{serial}")
            break
        if chance.random() < 0.5:
            time.sleep(chance.random() * 0.002)


def _agent(root: str, kind: Kind, log: Notebook, guard: Any, until_s: float) -> None:
    while time.monotonic() < until_s:
        with suppress(NoclobberError):
            kind.act(guard, log)


def _child(work: Callable[[], None], log: Notebook) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:
        log.line("X " + traceback.format_exc().replace("\n", " | "))
        os._exit(1)


def run_round(
    folder: str, kind: Kind, *, seconds: float, seed: int, under_fire: bool, naive: bool = False
) -> Account:
    """Run one round in an empty folder."""
    root = os.path.realpath(folder) + "/workspace"
    for place in (FIRST, SECOND):
        os.makedirs(os.path.dirname(f"{root}/{place}"))
    for place in kind.places[:1] if kind.act is not add_one else (FIRST, SECOND):
        with open(f"{root}/{place}", "wb") as file:
            file.write(b"0\n" if kind.act is add_one else b"")
    chance = random.Random(seed)
    logs = [f"{folder}/log-{number}" for number in range(AGENTS + 1)]
    until_s = time.monotonic() + seconds

    def start(number: int) -> int:
        log = Notebook(logs[number])

        def work() -> None:
            # Every other one flushes, which stages its bytes in another way.
            guard = Naive(root) if naive else FileGuard(root, wait_s=WAIT_S, durable=number % 2 == 1)
            _agent(root, kind, log, guard, until_s)

        return _child(work, log)

    log = Notebook(logs[AGENTS])
    outsider = _child(lambda: _outsider(root, kind, log, random.Random(seed + 1), until_s), log)
    agents = {start(number): number for number in range(AGENTS)}
    kills = 0
    try:
        while under_fire and time.monotonic() < until_s:
            time.sleep(chance.choice(LIVES_S) * chance.random() / AGENTS)
            victim = chance.choice(list(agents))
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            number = agents.pop(victim)
            agents[start(number)] = number
            kills += 1
    finally:
        faults = _wait([outsider, *agents], until_s)
    return _settle(root, kind, logs, kills, faults, is_real=not naive)


def _wait(children: list[int], until_s: float) -> list[str]:
    faults = []
    for child in children:
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > until_s + GRACE_S:
                faults.append("a process hung")
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
            time.sleep(0.01)
        if done and status:
            faults.append(f"a process ended with {os.waitstatus_to_exitcode(status)}")
    return faults


def _settle(
    root: str, kind: Kind, logs: list[str], kills: int, faults: list[str], *, is_real: bool
) -> Account:
    """Account for the round."""
    kept_tags: set[str] = set()
    if is_real:
        faults += _recover(root)
        kept = f"{root}/.noclobber/kept"
        for name in os.listdir(kept):
            with open(f"{kept}/{name}", "rb") as file:
                kept_tags.update(file.read().decode(errors="replace").split())
    there = {place: _content(f"{root}/{place}") for place in (FIRST, SECOND)}
    updates, taken, commits, refused, seen_mixed, unknown = set(), set(), 0, 0, 0, 0
    for path in logs:
        with open(path, "rb") as file:
            lines = file.read().decode().split("\n")
        attempt: str | None = None
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "U":
                updates.add(rest)
            elif word == "A":
                if attempt is not None:  # Killed in the middle: it may have landed.
                    taken.update(attempt.split(","))
                    unknown += 1
                attempt = rest
            elif word == "C":
                taken.update((attempt or "").split(","))
                commits, attempt = commits + 1, None
            elif word == "S":
                refused, attempt = refused + 1, None
            elif word == "M":
                seen_mixed += 1
            elif word == "X":
                faults.append(rest[-400:])
        if attempt is not None:
            taken.update(attempt.split(","))
            unknown += 1
    present = {tag for content in there.values() if content for tag in content.decode().split()}
    missing = updates - present - (taken if kind.creates else set())
    mixed = 0 if kills else seen_mixed
    if kind.act is add_one:
        numbers = [_number(content or b"0\n") for content in there.values()]
        mixed += numbers[0] != numbers[1]
        if not commits <= numbers[0] <= commits + unknown:
            faults.append(f"{commits} commits, {unknown} cut off, and the number is {numbers[0]}")
    elif kind.act is move_over:
        mixed += sum(content is not None for content in there.values()) != 1
    return Account(
        len(updates), len(missing - kept_tags), len(missing & kept_tags), mixed,
        seen_mixed if kills else 0, commits, refused, kills, tuple(faults),
    )  # fmt: skip


def _recover(root: str) -> list[str]:
    try:
        for _ in range(2):  # The first finishes what was left, the second sweeps what that displaced.
            guard = FileGuard(root, clock=AnHourLater())
            for place in (FIRST, SECOND):
                guard.write(f"{os.path.dirname(place)}/after.txt", b"over\n", expected=None)
            guard.sweep()
    except Exception as error:
        return [f"recovery failed: {type(error).__name__}: {error}"]
    state = f"{root}/.noclobber"
    left = os.listdir(f"{state}/swap") + [name for name in os.listdir(f"{state}/notes") if "book" in name]
    return [f"{len(left)} files left behind: {' '.join(sorted(left)[:3])}"] if left else []


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def run(args: argparse.Namespace) -> bool:
    """Run every round, print a line for each; True if every bar was met."""
    print(
        f"\n{'several files, move, delete':<34}{'updates':>8}{'lost':>6}{'kept':>5}{'mixed':>6}"
        f"{'undone':>7}{'commits':>9}{'refused':>8}{'kills':>6}"
    )
    ok = True
    for kind in KINDS:
        for under_fire in (False, True):
            with tempfile.TemporaryDirectory(prefix="noclobber-several-", dir=args.folder) as folder:
                seconds = max(1.0, args.seconds / 40)
                account = run_round(folder, kind, seconds=seconds, seed=args.seed, under_fire=under_fire)
            name = kind.name + (", kill -9" if under_fire else "")
            print(
                f"{name:<34}{account.updates:>8}{account.lost:>6}{account.kept:>5}{account.mixed:>6}"
                f"{account.undone:>7}{account.commits:>9}{account.refused:>8}{account.kills:>6}",
                flush=True,
            )
            for complaint in account.missed():
                print(f"MISSED: {name}: {complaint}")
                ok = False
    return ok
