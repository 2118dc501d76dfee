"""
Guarded writers on two mounts of one folder, without a coordinator: a part of `make torture`.

A folder is mounted twice with FUSE (bindfs), so that the mutex and the leases of one mount are not seen by
the other. Agents on both read a file, add a line at its end and write it back. They are killed with `kill
-9` at a step, and stopped for a moment. Nothing is promised there but this: it is never worse than a
program that writes a copy and renames it into place. Such programs run first, as the control, on the same
mounts.

The referee looks at the folder below the mounts. It convicts

- a share of acknowledged lines that are not in the file which is larger than the control's;
- a name that is gone at the end: the control never loses it;
- a line that nobody wrote, or half of one;
- a record that does not verify.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from noclobber import AgentTraceLedger, Workspace
from noclobber.core.project import ledger_path
from noclobber.disk import steps
from noclobber.errors import NoclobberError
from torture import bars
from torture.mounts import MEMORY, NAMESPACES, Mount, unavailable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

# With two steps for a rename over an open file (libfuse's own way), and with one.
WAYS = tuple(
    Mount(name, f"mkdir -p one two && {mount} back one && {mount} back two", ("bindfs",))
    for name, mount in (("bindfs", "bindfs"), ("bindfs, hard_remove", "bindfs -o hard_remove"))
)
AGENTS = 4
FILE, END = "f", "end"
LEAST, BUSY_S = 40, 60.0  # Lines, for which a busy machine may take so much longer.


class TwoMounts(NamedTuple):
    """What the referee found."""

    acknowledged: int
    lost: int
    foreign: int
    killed: int
    is_there: bool
    is_chained: bool

    def is_not_worse_than(self, control: TwoMounts) -> bool:
        """True if this is what a guard may do there."""
        is_share_less = self.lost * control.acknowledged <= control.lost * self.acknowledged
        return is_share_less and self.is_there and self.is_chained and not self.foreign


def run(args: argparse.Namespace) -> bool:
    """Run every way that can be mounted here; True if none is worse than its control."""
    met = [_run_on(way, args.seed, min(20.0, args.seconds / 10)) for way in WAYS]
    bars.note(args.figures, "two mounts", is_met=all(met))
    return all(met)


def _run_on(way: Mount, seed: int, seconds: float) -> bool:
    found = judged(way, seed, seconds)
    if isinstance(found, str):
        print(f"\ntwo mounts of one folder, {way.name}: skipped: {found}", flush=True)
        return True
    control, guarded = found
    is_met = guarded.is_not_worse_than(control)
    print(f"\ntwo mounts of one folder, {way.name}: {'met' if is_met else 'MISSED'}", flush=True)
    print(f"  copy and rename: {control}\n  guarded:         {guarded}", flush=True)
    return is_met


def judged(way: Mount, seed: int, seconds: float) -> tuple[TwoMounts, TwoMounts] | str:
    """Return the verdicts on the control and on guarded writers; or why it cannot be done here."""
    found = []
    for is_guarded in (False, True):
        with tempfile.TemporaryDirectory(
            prefix="torture-two-", dir=MEMORY if os.path.isdir(MEMORY) else None
        ) as folder:
            if reason := unavailable(way, folder):
                return reason
            words = ("arena", folder, str(int(is_guarded)), str(seed), str(seconds))
            inner = [sys.executable, "-m", "torture.two_mounts", *words]
            command = f'cd "$0" && {way.command} && cd "$1" && shift && exec "$@"'
            done = subprocess.run(
                [*NAMESPACES, "sh", "-c", command, folder, os.getcwd(), *inner],
                stdout=subprocess.PIPE,
                check=True,
                timeout=seconds + BUSY_S + 60,
            )
            found.append(TwoMounts(*json.loads(done.stdout.splitlines()[-1])))
    return found[0], found[1]


def _arena(folder: str, is_guarded: bool, seed: int, seconds: float) -> TwoMounts:
    chance, until_s = random.Random(seed), time.monotonic() + seconds
    with open(f"{folder}/back/{FILE}", "wb"):
        pass
    started = killed = 0

    def start(slot: int) -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        mount, log = f"{folder}/{('one', 'two')[slot % 2]}", f"{folder}/{started}.log"
        words = (mount, log, f"w{started}", str(int(is_guarded)), str(chance.getrandbits(32)))
        return subprocess.Popen([sys.executable, "-m", "torture.two_mounts", "agent", *words])

    agents = [start(slot) for slot in range(AGENTS)]
    while time.monotonic() < until_s or (time.monotonic() < until_s + BUSY_S and _done(folder) < LEAST):
        time.sleep(0.05)
        for slot, agent in enumerate(agents):
            if agent.poll() is not None:
                killed += 1
                agents[slot] = start(slot)
            elif chance.random() < 0.02:
                os.kill(agent.pid, signal.SIGSTOP)
                time.sleep(0.1 * chance.random())
                os.kill(agent.pid, signal.SIGCONT)
    with open(f"{folder}/{END}", "wb"):
        pass
    for agent in agents:
        agent.wait()
    return _verdict(folder, is_guarded, killed)


def _said(folder: str) -> list[str]:
    said: list[str] = []
    for name in os.listdir(folder):
        if name.endswith(".log"):
            with open(f"{folder}/{name}", encoding="utf-8") as log:
                said += log.read().splitlines()
    return said


def _done(folder: str) -> int:
    return sum(line.startswith("C ") for line in _said(folder))


def _verdict(folder: str, is_guarded: bool, killed: int) -> TwoMounts:
    said = _said(folder)
    tried = {line[2:] for line in said if line.startswith("T ")}
    done = {line[2:] for line in said if line.startswith("C ")}
    is_there = os.path.exists(f"{folder}/back/{FILE}")
    lines: list[str] = []
    if is_there:
        with open(f"{folder}/back/{FILE}", encoding="utf-8") as file:
            lines = file.read().splitlines()
    foreign = len(lines) - len(set(lines)) + len(set(lines) - tried)
    is_chained = True
    if is_guarded:
        try:
            AgentTraceLedger(ledger_path(f"{folder}/back")).verify()
        except NoclobberError as error:
            print(error, file=sys.stderr)
            is_chained = False
    return TwoMounts(len(done), len(done - set(lines)), foreign, killed, is_there, is_chained)


def _agent(mount: str, log: str, name: str, is_guarded: bool, seed: int) -> None:
    """Add lines until the end, or until killed. Each is in the log before it is tried, and when it landed."""
    chance, number = random.Random(seed), 0

    def at_step(_: str) -> None:
        if chance.random() < 0.002:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.observer = at_step
    write = _guarded(mount, name) if is_guarded else _copy_and_rename(mount, name)
    with open(log, "a", buffering=1, encoding="utf-8") as out:
        while not os.path.exists(f"{os.path.dirname(log)}/{END}"):
            number += 1
            line = f"{name}-{number}"
            out.write(f"T {line}\n")
            # Of the plain program: FUSE by path lets a name vanish for a moment.
            with suppress(NoclobberError, FileNotFoundError):
                write(f"{line}\n".encode())
                out.write(f"C {line}\n")


def _guarded(mount: str, name: str) -> Callable[[bytes], None]:
    workspace = Workspace(mount)

    def write(line: bytes) -> None:
        with workspace.turn(agent_id=name) as turn:
            turn.write_file(FILE, turn.read_file(FILE).content + line)

    return write


def _copy_and_rename(mount: str, name: str) -> Callable[[bytes], None]:
    def write(line: bytes) -> None:
        with open(f"{mount}/{FILE}", "rb") as file:
            content = file.read()
        with open(f"{mount}/.{name}", "wb") as copy:
            copy.write(content + line)
        os.replace(f"{mount}/.{name}", f"{mount}/{FILE}")

    return write


def main(argv: list[str]) -> None:
    """Entry point of the processes inside the mounts."""
    role, *words = argv
    if role == "agent":
        mount, log, name, is_guarded, seed = words
        _agent(mount, log, name, is_guarded == "1", int(seed))
    else:
        folder, is_guarded, seed, seconds = words
        print(json.dumps(_arena(folder, is_guarded == "1", int(seed), float(seconds))))


if __name__ == "__main__":
    main(sys.argv[1:])
