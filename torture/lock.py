"""
The long proof of the deliverable lock: `python -m torture.lock` (or `python -m torture --lock`).

Each proof is a function that returns a line and whether its bar was met; `make test` runs the same functions
with fewer rounds. Peers (filelock, flufl.lock) run the same rounds where they have the same operation, so
that the comparison is of one machine and one run.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.errors import LockContention, LockLost
from noclobber.guard.fence import WriteFence
from noclobber.ledger import AgentTraceLedger
from noclobber.lock.lock import DeliverableLock
from torture import lock_arena as arena

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Proof(NamedTuple):
    """One line of the report."""

    what: str
    figure: str
    ok: bool


def races(base: Path, rounds: int, seed: int, *, racers: tuple[int, ...] = (2, 8, 32)) -> Iterator[Proof]:
    """REQ-LOCK-003: exactly one winner, however many ask at once."""
    for count in racers:
        folder = _fresh(base, f"race-{count}")
        wins = arena.race(folder, count, rounds, lambda _: None)
        bad = sum(1 for won in wins if won != 1)
        yield Proof(
            f"{count} racers for a free lock", f"{rounds} rounds, {bad} without exactly one winner", not bad
        )


def recoveries(base: Path, rounds: int, seed: int, *, trust_mutex: bool = True) -> Iterator[Proof]:
    """REQ-LOCK-006, X-005: 8 recoverers of one orphan; one wins, and it is recorded once."""
    for kind in arena.ORPHANS:
        share = max(1, rounds // len(arena.ORPHANS))
        folder = _fresh(base, f"recover-{kind}-{trust_mutex}".replace(" ", "-"))

        def put_orphan(_: int, folder: Path = folder, kind: str = kind) -> None:
            arena.put_orphan(folder, kind)

        wins = arena.race(folder, 8, share, put_orphan)
        recorded = _count_events(folder, "LOCK_RECOVERED")
        bad = sum(1 for won in wins if won != 1)
        where = "" if trust_mutex else ", flock excludes nobody"
        yield Proof(
            f"8 recoverers, {kind}{where}",
            f"{share} rounds, {bad} without exactly one winner, {recorded} recorded",
            not bad and recorded == share,
        )


def recoveries_without_mutex(base: Path, rounds: int, seed: int) -> Iterator[Proof]:
    """The same where `flock` succeeds and excludes nobody: bids alone arbitrate."""
    with arena.without_mutex():
        yield from recoveries(base, rounds, seed, trust_mutex=False)


def kills(base: Path, rounds: int, seed: int, *, contenders: int = 4) -> Iterator[Proof]:
    """Contenders killed at random moments: never two holders, never a lock that stays."""
    chance = random.Random(seed)
    folder, witness = _fresh(base, "kills"), base / "kills.witness"
    doubles = arena.FORK.Value("i", 0)

    def contend() -> None:
        descriptor = os.open(witness, os.O_RDWR | os.O_CREAT)
        while True:
            # 1 s: some are killed, some outlive their lease, and both roads to an orphan are taken.
            lock = DeliverableLock(folder, holder="contender", lease_duration_s=1)
            lock.acquire(timeout_s=30)
            if arena.two_inside(descriptor):
                doubles.value += 1
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            lock.release()

    pids = [arena.fork(contend) for _ in range(contenders)]
    stuck, killed_inside = 0, 0
    try:
        for _ in range(rounds):
            time.sleep(chance.uniform(0.001, 0.01))
            victim = chance.randrange(contenders)
            os.kill(pids[victim], signal.SIGKILL)
            os.waitpid(pids[victim], 0)
            killed_inside += (folder / ".lock").exists()
            pids[victim] = arena.fork(contend)
            if not _someone_gets_in(folder):
                stuck += 1
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    with DeliverableLock(folder, holder="last"):
        pass
    verified = AgentTraceLedger(folder / ".lock-ledger.jsonl").verify().event_count
    yield Proof(
        "contenders killed at random moments",
        f"{rounds} rounds, {doubles.value} times two holders, {stuck} stuck; "
        f"{killed_inside} kills while locked, {verified} events verify",
        not doubles.value and not stuck,
    )


def _someone_gets_in(folder: Path) -> bool:
    lock = DeliverableLock(folder, holder="checker", heartbeat=False)
    try:
        lock.acquire(timeout_s=20)
    except LockContention:
        return False
    return lock.release()


def kill_at_every_step(base: Path, rounds: int, seed: int) -> Iterator[Proof]:
    """`kill -9` before each call that touches the disk, in every operation: the next one gets in, alone."""
    for operation in (
        "acquire",
        "take over",
        "take over broken",
        "renew",
        "release",
        "release late",
        "recover",
    ):
        step, bad, leftovers = 0, [], 0
        while True:
            folder = _fresh(base, "step")
            code = _killed_at(folder, operation, step)
            if code == 0:
                break  # The operation ended before its step-th call: every step was tried.
            try:
                # At once: nobody has to wait for a lease when its holder was killed.
                with DeliverableLock(folder, holder="next"):
                    bids = [
                        name for name in os.listdir(folder) if name.startswith((".lock.take.", ".lock.new."))
                    ]
                    leftovers += bool(bids)
                recovered = _count_events(folder, "LOCK_RECOVERED")
                if operation.startswith("take over") and recovered != _orphans_made(folder, recovered):
                    bad.append(f"step {step}: {recovered} recoveries recorded")
                AgentTraceLedger(folder / ".lock-ledger.jsonl").verify()
            except LockContention as error:
                bad.append(f"step {step}: {error}")
            step += 1
        yield Proof(
            f"kill -9 at every step of {operation}",
            f"{step} steps, {len(bad)} bad {bad[:1]}; {leftovers} with something left over",
            not bad and step > 3,
        )


def _orphans_made(folder: Path, recorded: int) -> int:
    """Every record that was ever published and did not end with a release was recovered, once."""
    events = list(AgentTraceLedger(folder / ".lock-ledger.jsonl").events())
    previous = [e["payload"]["previous_lock_id"] for e in events if e["action_type"] == "LOCK_RECOVERED"]
    return len(set(previous)) if len(set(previous)) == recorded else -1


def _killed_at(folder: Path, operation: str, step: int) -> int:
    """Run one operation in a child that is killed before its step-th call; 0 if it came to its end."""

    def work() -> None:
        # "Late": less than the safe margin is left, so that release takes the careful way.
        lease_s = 1 if operation == "release late" else 60
        lock = DeliverableLock(folder, holder="victim", heartbeat=False, lease_duration_s=lease_s)
        if operation == "take over":
            arena.put_orphan(folder, "killed")
        elif operation in ("take over broken", "recover"):
            arena.put_orphan(folder, "directory" if operation == "recover" else "empty")
        elif operation != "acquire":
            lock.acquire()
        left = step

        def hook(event: str, _arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event in (
                "open",
                "os.link",
                "os.rename",
                "os.remove",
                "os.rmdir",
                "os.listdir",
                "fcntl.flock",
            ):
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1

        sys.addaudithook(hook)
        if operation in ("acquire", "take over", "take over broken"):
            lock.acquire()
        elif operation == "renew":
            lock.renew()
        elif operation == "recover":
            lock.recover()
        else:
            lock.release()
        os._exit(0)

    return os.waitpid(arena.fork(work), 0)[1]


def interrupts(base: Path, rounds: int, seed: int) -> Iterator[Proof]:
    """Ctrl-C at moments all over an operation, in a process that lives on: nobody stays locked out by it."""
    chance = random.Random(seed)
    for operation in ("acquire and release", "take over and release", "late release"):
        bad = hit = 0
        for _ in range(rounds):
            folder = _fresh(base, "interrupt")
            pid = _interrupted_after(folder, operation, chance.uniform(1e-6, 2e-3))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            hit += code == 0
            bad += code not in (0, 9)
        yield Proof(
            f"Ctrl-C in the middle of {operation}",
            f"{rounds} rounds, {hit} interrupted, {bad} left a lock",
            not bad and hit > rounds // 20,
        )


def _interrupted_after(folder: Path, operation: str, delay_s: float) -> int:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def work() -> None:
        if operation.startswith("take over"):
            arena.put_orphan(folder, "killed")
        lease_s = 1 if operation == "late release" else 1800
        lock = DeliverableLock(folder, holder="interrupted", heartbeat=False, lease_duration_s=lease_s)
        with DeliverableLock(_fresh(folder.parent, "warm"), holder="warms up", heartbeat=False):
            pass  # Otherwise the first cycle is mostly page faults of a new process.
        signal.signal(signal.SIGALRM, interrupt)
        code = 9
        try:
            signal.setitimer(signal.ITIMER_REAL, delay_s)
            with lock:
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            code = 0
        # As at the end of a process: a lock whose release was interrupted is let go there.
        lock.let_go()
        DeliverableLock(folder, holder="other", heartbeat=False).acquire(timeout_s=0.5)
        os._exit(code)

    return arena.fork(work)


def sleepers(base: Path, rounds: int, seed: int) -> Iterator[Proof]:
    """A holder stopped past its lease, continued, and made to write: refused, every time."""
    chance = random.Random(seed)
    refused = landed = inside = 0
    for _ in range(rounds):
        folder = _fresh(base, "sleeper")
        target = folder / "plan.md"
        target.write_text("before")
        ready_out, ready_in = os.pipe()

        def hold(folder: Path = folder, target: Path = target, ready_in: int = ready_in) -> None:
            lock = DeliverableLock(folder, holder="sleeper", lease_duration_s=1, heartbeat=False).acquire()
            os.write(ready_in, b".")
            while True:
                try:
                    with WriteFence(str(folder.parent), lock).guarding(str(target)):
                        target.write_text("by the sleeper")
                except LockLost:
                    os._exit(0)
                time.sleep(0.001)

        pid = arena.fork(hold)
        os.read(ready_out, 1)
        time.sleep(chance.uniform(0, 0.002))  # Stopped anywhere: before the check, in it, before the write.
        os.kill(pid, signal.SIGSTOP)
        successor = DeliverableLock(folder, holder="successor")
        while True:
            try:
                successor.acquire(timeout_s=4)  # A renewed lease of a second ends within two.
                break
            except LockContention:
                # Stopped in its critical section: nobody hangs, everybody is told. Let it go on, renewed.
                inside += 1
                os.kill(pid, signal.SIGCONT)
                time.sleep(chance.uniform(0, 0.01))
                os.kill(pid, signal.SIGSTOP)
        target.write_text("by the successor")
        os.kill(pid, signal.SIGCONT)
        refused += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        landed += target.read_text() != "by the successor"
        successor.release()
        os.close(ready_out)
        os.close(ready_in)
    yield Proof(
        "holder stopped past its lease, then writes",
        f"{rounds} rounds, refused {refused}, landed {landed}; stopped inside its section {inside} times",
        refused == rounds and not landed,
    )


def peers(base: Path, rounds: int, seed: int) -> Iterator[Proof]:
    """What the same kills do to locks that are in use elsewhere. No bar: it is for comparison."""
    try:
        from filelock import SoftFileLock, Timeout
        from flufl.lock import Lock
    except ImportError:
        yield Proof("peers", "filelock and flufl.lock are not installed: skipped", True)
        return
    rounds = min(rounds, 60)
    yield Proof("filelock, holders killed", f"{_peer_kills(base, rounds, seed, SoftFileLock, Timeout)}", True)
    yield Proof("flufl.lock, expiry races", f"{_peer_expiry(base, rounds, Lock)}", True)


def _peer_kills(
    base: Path, rounds: int, seed: int, kind: Callable[..., Any], timeout: type[Exception]
) -> str:
    chance, stuck = random.Random(seed), 0
    for index in range(rounds):
        path = base / f"peer-{index}.lock"

        def contend(path: Path = path) -> None:
            lock = kind(str(path))
            while True:
                lock.acquire()
                lock.release()

        pid = arena.fork(contend)
        time.sleep(0.02 + chance.uniform(0, 0.003))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        try:
            kind(str(path)).acquire(timeout=1)
        except timeout:
            stuck += 1
    return f"{rounds} rounds, {stuck} stuck for longer than a second"


def _peer_expiry(base: Path, rounds: int, kind: Callable[..., Any]) -> str:
    from datetime import timedelta

    doubles = arena.FORK.Value("i", 0)
    gate = arena.FORK.Barrier(4)

    def contend() -> None:
        witness = os.open(base / "flufl.witness", os.O_RDWR | os.O_CREAT)
        for index in range(rounds):
            gate.wait(60)
            try:
                lock = kind(str(base / f"flufl-{index}.lock"), lifetime=timedelta(seconds=1))
                lock.lock(timeout=timedelta(seconds=3))
            except Exception:
                continue
            if arena.two_inside(witness):
                doubles.value += 1
            time.sleep(0.01)
            fcntl.flock(witness, fcntl.LOCK_UN)
            try:
                lock.unlock()
            except Exception:
                continue

    for index in range(rounds):  # Every lock was left by somebody whose lease has run out.

        def leave(index: int = index) -> None:
            kind(str(base / f"flufl-{index}.lock"), lifetime=timedelta(seconds=1)).lock()

        arena.join([arena.fork(leave)])
    time.sleep(11.5)  # Its lifetime, and the slop that it allows for clocks.
    arena.join([arena.fork(contend) for _ in range(4)])
    return f"{rounds} rounds, two holders at once {doubles.value} times"


PROOFS: dict[str, tuple[Callable[[Path, int, int], Iterator[Proof]], int]] = {
    # name: (function, rounds at full size)
    "races": (races, 1000),
    "recoveries": (recoveries, 10_000),  # 1 000 of each kind of orphan
    "recoveries-without-mutex": (recoveries_without_mutex, 1000),
    "kills": (kills, 600),
    "steps": (kill_at_every_step, 1),
    "interrupts": (interrupts, 500),
    "sleepers": (sleepers, 20),
    "peers": (peers, 60),
}


def main(
    rounds: int | None = None, seed: int = 1, only: str | None = None, folder: str | None = None
) -> bool:
    """Run the proofs and print a line for each; True if every bar was met."""
    base = Path(tempfile.mkdtemp(prefix="noclobber-lock-", dir=folder))
    ok = True
    try:
        for name, (proof, full) in PROOFS.items():
            if only not in (None, name):
                continue
            begun_s = time.monotonic()
            for line in proof(base, full if rounds is None else min(rounds, full), seed):
                ok = ok and line.ok
                took_s = time.monotonic() - begun_s
                mark = "ok  " if line.ok else "MISS"
                print(f"{mark} {line.what:<48} {line.figure}  ({took_s:.0f} s)", flush=True)
                begun_s = time.monotonic()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return ok


def run(args: argparse.Namespace) -> bool:
    """What `python -m torture --lock` calls."""
    return main(seed=args.seed, folder=getattr(args, "folder", None))


def _fresh(base: Path, name: str) -> Path:
    folder = base / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _count_events(folder: Path, kind: str) -> int:
    events = AgentTraceLedger(folder / ".lock-ledger.jsonl").events()
    return sum(1 for event in events if event["action_type"] == kind)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m torture.lock", description=__doc__)
    parser.add_argument("--rounds", type=int, default=None, help="at most so many rounds of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(PROOFS))
    parser.add_argument("--folder", help="work below this folder, to try its filesystem")
    given = parser.parse_args()
    sys.exit(0 if main(given.rounds, given.seed, given.only, given.folder) else 1)
