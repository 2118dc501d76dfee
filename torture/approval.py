"""
A host that writes and an editor that saves, within a few milliseconds of each other: is any save lost?

One process plays a host: the check has let its call through, a process watches (`guard/approval`), it writes.
Another one plays an editor, which saves the same file at a random moment close to that write. Afterwards the
copies are judged as the event after the call judges them. The editor's line must be in the file or in `kept`.

| host | how it writes |
|---|---|
| rust | empties the file when it opens it, writes and closes, at once |
| node | the same, with a turn of its event loop between the steps |
| rename | writes another file, and renames it |

| editor | how it saves |
|---|---|
| append | adds its line at the end |
| truncate | empties the file, and writes all of it |
| slow | the same, with pauses |
| rename | writes another file, and renames it |

Each loss is named by what happened at the same time, from the two processes' own clocks. What can be lost and
why is in docs/decisions/approval-window.md: this run measures how often, and does not fail for it. It fails
if what the agent wrote is lost, or if something was kept that nobody has overwritten.

    python -m torture.approval        TRIALS=1000 SPREAD_MS=2 LOAD=0 HOSTS=rust,node EDITORS=append SEED=
"""

from __future__ import annotations

import collections
import fcntl
import os
import pickle
import random
import signal
import sys
import tempfile
import time
from typing import NamedTuple

from noclobber.core.actions import WRITE, Action
from noclobber.disk import hashing
from noclobber.disk.reading import look_at
from noclobber.guard import approval
from noclobber.guard.outcome import foresee
from noclobber.guard.overwritten import keep_overwritten

HOSTS = ("rust", "node", "rename")
EDITORS = ("append", "truncate", "slow", "rename")
LEAD_S = 0.004  # From the order to the host's write: both have to be awake by then.
APART_S = 0.0004  # A person does not save so close to a host's write.
STEP_S = 0.00005  # A turn of an event loop; a nap of it takes about a tenth of a millisecond.
BEFORE = b"".join(b"line %d of the file\n" % number for number in range(40))
THEIRS = b"what the editor saved\n"
MINE = b"what the agent wrote\n"


class Order(NamedTuple):
    """What a player has to do."""

    how: str
    path: str
    at_s: float
    data: bytes


class Moments(NamedTuple):
    """When a player asked for the file, had it, had written, and was done."""

    asked: int
    opened: int
    wrote: int
    done: int


class Trial(NamedTuple):
    """What came of one trial."""

    what: str
    """`file`, `kept`, `told` (something else was kept), or `lost`."""
    when: str
    host_line_lost: bool
    false_alarm: bool
    waited_s: float
    """How long the first of the two waited in `open()`."""
    gap_s: float
    """How long neither of them had the file, between the one and the other."""


class Player:
    """A process that writes a file when it is told to."""

    def __init__(self) -> None:
        orders_fd, self._orders_fd = os.pipe()
        self._answers_fd, answers_fd = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._orders_fd)
                while order := os.read(orders_fd, 1 << 20):
                    os.write(answers_fd, pickle.dumps(_play(pickle.loads(order))))
            finally:
                os._exit(0)
        os.close(orders_fd)
        os.close(answers_fd)

    def tell(self, order: Order) -> None:
        """Have it write."""
        os.write(self._orders_fd, pickle.dumps(order))

    def wait(self) -> Moments:
        """Return when it did what."""
        return Moments(*pickle.loads(os.read(self._answers_fd, 1 << 16)))

    def close(self) -> None:
        """End it."""
        os.close(self._orders_fd)
        os.close(self._answers_fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _play(order: Order) -> Moments:
    step_s = STEP_S if order.how in ("node", "slow") else 0.0
    time.sleep(max(0.0, order.at_s - time.monotonic()))
    asked = time.monotonic_ns()
    path = f"{order.path}.{os.getpid()}" if order.how == "rename" else order.path
    flags = os.O_APPEND if order.how == "append" else os.O_TRUNC | os.O_CREAT
    descriptor = os.open(path, os.O_WRONLY | flags, 0o644)
    opened = time.monotonic_ns()
    if step_s:
        time.sleep(step_s)
    os.write(descriptor, order.data)
    wrote = time.monotonic_ns()
    if step_s:
        time.sleep(step_s)
    os.close(descriptor)
    if order.how == "rename":
        os.rename(path, order.path)
    return Moments(asked, opened, wrote, time.monotonic_ns())


def _when(host: Moments, editor: Moments) -> str:
    if editor.done <= host.asked:
        return "editor done, then host opens"
    if host.done <= editor.asked:
        return "host done, then editor opens"
    if max(host.asked, editor.asked) < min(host.opened, editor.opened):
        if editor.wrote < host.opened:
            return "both in open(); saved, then emptied"
        return "both in open(); emptied, then saved, then overwritten"
    if editor.opened <= host.asked:
        return "host opens while editor has it"
    return "editor opens while host has it"


class Table:
    """The folder that they work in."""

    def __init__(self, folder: str) -> None:
        self.root = f"{folder}/project"
        self.path = f"{self.root}/shared.txt"
        self._mark = f"{folder}/mark"
        os.makedirs(f"{self.root}/.noclobber")
        self._count = 0
        self.host, self.editor = Player(), Player()

    def close(self) -> None:
        """End the players."""
        self.host.close()
        self.editor.close()

    def trial(self, host_how: str, editor_how: str, after_s: float) -> Trial:
        """Let both write, the editor so much later than the host, and see what is left."""
        self._count += 1
        with open(self.path, "wb") as file:
            file.write(BEFORE)
        with open(self._mark, "wb"):
            pass
        action = Action(WRITE, self.path, content=BEFORE + MINE)
        outcome = foresee(action, BEFORE, self.path)
        key = approval.key_of("host", str(self._count))
        one = watched_file(self.path, hashing.of_bytes(BEFORE), BEFORE + MINE)
        approval.start(approval.Watch(self.root, key, self._mark, self.host.pid, (one,)))
        at_s = time.monotonic() + LEAD_S
        self.host.tell(Order(host_how, self.path, at_s, BEFORE + MINE))
        whole = THEIRS if editor_how == "append" else BEFORE + THEIRS
        self.editor.tell(Order(editor_how, self.path, at_s + after_s, whole))
        host, editor = self.host.wait(), self.editor.wait()
        end_watch(self._mark)
        state = look_at(self.path, keep=True)
        lost = keep_overwritten(
            self.root, "host", str(self._count), action, state, outcome, was=BEFORE, made=outcome.data
        )
        now = state.content or b""
        kept = b"".join(_read(path) for path in lost.kept) if lost else b""
        is_there = THEIRS in now
        what = "file" if is_there else "kept" if THEIRS in kept else "told" if lost else "lost"
        # An editor that writes all that it has read, and its line, may overwrite the host: that is its doing.
        host_line_lost = MINE not in now and editor_how == "append"
        first = min(host, editor)
        false_alarm = is_there and THEIRS not in kept and lost is not None
        waited_s = (first.opened - first.asked) / 1e9
        gap_s = max(0, host.asked - editor.done, editor.asked - host.done) / 1e9
        return Trial(what, _when(host, editor), host_line_lost, false_alarm, waited_s, gap_s)


def watched_file(path: str, before: str, made: bytes) -> approval.WatchedFile:
    """Return what the check says of the one file."""
    return approval.WatchedFile(path, before, (hashing.of_bytes(made),))


def end_watch(mark: str) -> None:
    """Take the mark away, and wait until the process that looks on has ended."""
    descriptor = os.open(mark, os.O_RDONLY)
    os.unlink(mark)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class Tally(NamedTuple):
    """What came of many trials of one pair."""

    host: str
    editor: str
    trials: int
    kept: int
    told: int
    lost: int
    lost_apart: int
    """Lost although nobody had the file for `APART_S` between the two: so far apart a person may save."""
    apart: int
    host_lines_lost: int
    false_alarms: int
    wait_ms: tuple[float, float]
    """The median wait of the first who opened the file, and that of one in twenty."""
    lost_when: dict[str, int]
    trials_when: dict[str, int]

    def __str__(self) -> str:
        row = f"{self.host:>7} {self.editor:<9} {self.trials:>6} {self.kept:>6} {self.told:>5} {self.lost:>5}"
        row += f" {self.lost_apart:>5} of {self.apart:<5}"
        row += f" {self.host_lines_lost:>10} {self.false_alarms:>6}"
        row += f" {self.wait_ms[0]:>7.2f} {self.wait_ms[1]:>5.2f}"
        for when, lost in sorted(self.lost_when.items()):
            row += f"\n{'':17} {lost} of {self.trials_when[when]}: {when}"
        return row


def run(
    folder: str, hosts: list[str], editors: list[str], trials: int, spread_s: float, seed: int
) -> list[Tally]:
    """Run so many trials of each pair."""
    dice = random.Random(seed)
    tallies = []
    table = Table(folder)
    try:
        for host in hosts:
            for editor in editors:
                done = []
                for _ in range(trials):
                    done.append(table.trial(host, editor, dice.uniform(-spread_s, spread_s)))
                    _reap()
                tallies.append(_tally(host, editor, done))
    finally:
        table.close()
    return tallies


def _reap() -> None:
    """Take leave of the processes that looked on; they are children here, and orphans in a host."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _tally(host: str, editor: str, done: list[Trial]) -> Tally:
    waits_s = sorted(trial.waited_s for trial in done)
    what = collections.Counter(trial.what for trial in done)
    return Tally(
        host,
        editor,
        len(done),
        what["kept"],
        what["told"],
        what["lost"],
        sum(trial.what == "lost" and trial.gap_s > APART_S for trial in done),
        sum(trial.gap_s > APART_S for trial in done),
        sum(trial.host_line_lost for trial in done),
        sum(trial.false_alarm for trial in done),
        (1000 * waits_s[len(done) // 2], 1000 * waits_s[len(done) * 19 // 20]),
        dict(collections.Counter(trial.when for trial in done if trial.what == "lost")),
        dict(collections.Counter(trial.when for trial in done)),
    )


def main() -> int:
    """Run it, and print a table."""
    env = os.environ
    seed = int(env.get("SEED") or random.randrange(1 << 30))
    hosts = env.get("HOSTS", ",".join(HOSTS)).split(",")
    editors = env.get("EDITORS", ",".join(EDITORS)).split(",")
    spread_s = float(env.get("SPREAD_MS", "2")) / 1000
    trials = int(env.get("TRIALS", "1000"))
    print(f"seed {seed}, {trials} trials each, a save within {spread_s * 1000:g} ms of the write", flush=True)
    burners = [_burn() for _ in range(int(env.get("LOAD", "0")))]
    try:
        with tempfile.TemporaryDirectory() as folder:
            begin_s = time.monotonic()
            tallies = run(folder, hosts, editors, trials, spread_s, seed)
    finally:
        for pid in burners:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    print("   host editor    trials   kept  told  lost        apart host's lost  false wait ms  1/20")
    for tally in tallies:
        print(tally)
    lost, all_trials = sum(tally.lost for tally in tallies), sum(tally.trials for tally in tallies)
    lost_apart, apart = sum(tally.lost_apart for tally in tallies), sum(tally.apart for tally in tallies)
    print(f"{lost_apart} of {apart} lost with more than {APART_S * 1000:g} ms between the two")
    print(f"{lost} of {all_trials} lost, {time.monotonic() - begin_s:.0f} s")
    return 1 if any(tally.host_lines_lost or tally.false_alarms for tally in tallies) else 0


def _burn() -> int:
    pid = os.fork()
    while pid == 0:
        pass
    return pid


if __name__ == "__main__":
    sys.exit(main())
