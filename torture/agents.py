"""
Processes that read, change and write through a guard, and one that only reads.

An agent reads the file, adds one to its own counter, keeps everything else it read, and asks the guard
to write that if the file is still what it read. Its log has a line before the attempt and one after,
so that an agent that was killed between the two is known to have been in the middle:

    A 5 o:17 1 <sha256>   attempt 5, on top of version o:17, which was whole (1), whose hash is …
    C 5 lease+exchange     it was committed, at this level
    S 5 <sha256>           refused as stale, because of …
    F 5                    …and that was wrong: the next read found the very bytes that 5 was based on
    B 5 / E 5 CODE         busy / refused for another reason;  R CODE: the read was refused
    H g1:3                 what was read was version g1:3, in part
    K path                 something was kept aside here
    X text                 an unexpected error

`F` is exact because no version ever comes back (see `versions`): if the next read finds the same bytes,
they were there all along.

The watcher opens and reads the file as fast as it can and logs every change of what it saw:

    W g0:5 1 123.456       version g0:5, whole, at that time
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING

from noclobber.errors import ABSENT, FileBusyError, MissingFileError, NoclobberError, StaleFileError
from torture import versions, weaker_guards

if TYPE_CHECKING:
    from torture.weaker_guards import GuardLike

PADDINGS_BYTES = (0, 0, 40, 700, 5_000, 20_000)
WAIT_S = 0.25
THINKING_S = (0, 0, 0.0005, 0.002)


class Notebook:
    """An append-only log; one write a line, so that it survives `kill -9` of its writer."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def line(self, text: str) -> None:
        os.write(self._descriptor, f"{text}\n".encode())


class Agent:
    """One guard's user. `serial` numbers its attempts, across restarts."""

    def __init__(self, name: str, path: str, guard: GuardLike, log: Notebook, chance: random.Random) -> None:
        self.name, self.path, self.guard, self.log, self.chance = name, path, guard, log, chance
        self.serial = 0
        self._refused: tuple[int, str] | None = None

    def attempt(self, think_s: float) -> None:
        """Read, think, write."""
        try:
            seen = self.guard.read(self.path)
            content, expected = seen.content, seen.sha256
        except MissingFileError:
            content, expected = b"", ABSENT
        except NoclobberError as refusal:
            self.log.line(f"R {refusal.code}")
            time.sleep(0.0002)
            return
        base = versions.parse(content)
        self._look_back(base, expected)
        if think_s:
            time.sleep(think_s * self.chance.random())
        self.serial += 1
        data = self._next_version(base, expected)
        parent = base.id if base.is_whole else versions.ABSENT_ID if expected == ABSENT else versions.HALF_ID
        if not base.is_whole and base.id != versions.NO_ID:
            self.log.line(f"H {base.id}")
        self.log.line(f"A {self.serial} {parent} {base.is_whole:d} {expected}")
        self._write(data, expected, base)

    def _write(self, data: bytes, expected: str, base: versions.Version) -> None:
        try:
            commit = self.guard.write(self.path, data, expected=expected)
        except StaleFileError as refusal:
            self.log.line(f"S {self.serial} {refusal.actual}")
            if base.is_whole:
                self._refused = (self.serial, expected)
        except FileBusyError:
            self.log.line(f"B {self.serial}")
        except NoclobberError as refusal:
            self.log.line(f"E {self.serial} {refusal.code}")
        else:
            self.log.line(f"C {self.serial} {commit.level}")
            for kept in commit.kept:
                self.log.line(f"K {kept}")

    def _look_back(self, base: versions.Version, sha256: str) -> None:
        if self._refused and self._refused[1] == sha256:
            self.log.line(f"F {self._refused[0]}")
        self._refused = None

    def _next_version(self, base: versions.Version, expected: str) -> bytes:
        counters = dict(base.counters)
        counters[self.name] = self.serial
        parent = base.id if base.is_whole else versions.ABSENT_ID if expected == ABSENT else versions.HALF_ID
        return versions.render(
            f"{self.name}:{self.serial}",
            parent,
            base.tags,
            slot=base.slot,
            counters=counters,
            padding_bytes=self.chance.choice(PADDINGS_BYTES),
        )


def work(
    guard_name: str,
    root: str,
    paths: list[str],
    name: str,
    log_paths: list[str],
    *,
    seed: int,
    until_s: float,
    serial: int = 0,
) -> None:
    """Visit the files in turn, with one guard, until the time is over."""
    chance = random.Random(seed * 7919 + serial)
    logs = [Notebook(log_path) for log_path in log_paths]
    try:
        guard = weaker_guards.guard_named(guard_name, root, wait_s=WAIT_S)
        agents = [Agent(name, path, guard, log, chance) for path, log in zip(paths, logs, strict=True)]
        for agent in agents:
            agent.serial = serial
        while time.monotonic() < until_s:
            for agent in agents:
                agent.attempt(chance.choice(THINKING_S))
    except Exception:
        logs[0].line("X " + traceback.format_exc().strip().replace("\n", " | "))


def work_under_fire(
    guard_names: list[str],
    root: str,
    path: str,
    names: list[str],
    log_paths: list[str],
    *,
    seed: int,
    until_s: float,
) -> None:
    """
    Start agents, kill each with SIGKILL at random moments, start it again.

    Forked, not started afresh: a new interpreter takes longer than an agent gets to live here. This
    process itself never touches the guard, so that its children inherit no lock and no lease.
    """
    weaker_guards.guard_named(guard_names[0], root, wait_s=WAIT_S)  # Imports, once.
    chance = random.Random(seed)
    dies_at_s: dict[int, tuple[float, int]] = {}
    kills = 0

    def start(slot: int) -> None:
        serial = last_attempt(log_paths[slot])
        child = os.fork()
        if child == 0:
            guard_name, name, log_path = guard_names[slot], names[slot], log_paths[slot]
            work(guard_name, root, [path], name, [log_path], seed=seed + slot, until_s=until_s, serial=serial)
            os._exit(0)
        dies_at_s[child] = (time.monotonic() + chance.choice((0.004, 0.02, 0.08)) * chance.random(), slot)

    try:
        for slot in range(len(names)):
            start(slot)
        while time.monotonic() < until_s:
            child, (death_s, slot) = min(dies_at_s.items(), key=lambda each: each[1][0])
            time.sleep(max(0.0, min(death_s, until_s) - time.monotonic()))
            if death_s > until_s:
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            del dies_at_s[child]
            kills += 1
            start(slot)
    finally:
        for child in dies_at_s:
            os.waitpid(child, 0)  # They end by themselves at `until_s`.
    Notebook(log_paths[0]).line(f"Q {kills}")


def last_attempt(log_path: str) -> int:
    """Return the number of the last attempt in a log, so that no number is ever used twice."""
    for tail_bytes in (4096, 1 << 62):
        try:
            with open(log_path, "rb") as file:
                start = max(0, os.fstat(file.fileno()).st_size - tail_bytes)
                file.seek(start)
                # The last part is what a killed agent had not finished; the first, if we began in the
                # middle, is a fragment, too.
                lines = file.read().split(b"\n")[1 if start else 0 : -1]
        except FileNotFoundError:
            return 0
        for line in reversed(lines):
            if line.startswith(b"A "):
                return int(line.split()[1])
    return 0


def watch(path: str, log_path: str, until_s: float) -> None:
    """Read the file again and again, as any reader would."""
    log = Notebook(log_path)
    last: tuple[str, bool] | None = None
    looks = 0
    while time.monotonic() < until_s:
        looks += 1
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            version = versions.parse(os.read(descriptor, 1 << 20))
        except OSError:
            continue  # A directory.
        finally:
            os.close(descriptor)
        if (version.id, version.is_whole) != last:
            last = (version.id, version.is_whole)
            log.line(f"W {version.id} {version.is_whole:d} {time.monotonic():.6f}")
        if looks % 8 == 0:
            time.sleep(0.0003)
    log.line(f"Z {looks}")


def main(argv: list[str]) -> None:
    """Entry point of the process: the role, then its arguments."""
    role, *words = argv
    if role == "watch":
        path, log_path, start_s, until_s = words
        time.sleep(max(0.0, float(start_s) - time.monotonic()))
        watch(path, log_path, float(until_s))
        return
    guard_name, root, path, names, log_paths, seed, start_s, until_s = words
    time.sleep(max(0.0, float(start_s) - time.monotonic()))
    if role == "under-fire":
        guards, who, logs = guard_name.split(";"), names.split(","), log_paths.split(",")
        work_under_fire(guards, root, path, who, logs, seed=int(seed), until_s=float(until_s))
    else:
        paths, logs = path.split(","), log_paths.split(",")
        work(guard_name, root, paths, names, logs, seed=int(seed), until_s=float(until_s))


if __name__ == "__main__":
    main(sys.argv[1:])
