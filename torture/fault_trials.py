"""
What is tried while system calls fail: commits, recoveries, the ledger, locks; and what must hold afterwards.

Each trial prepares a scratch folder, acts once, and is checked when nothing fails any more. Whatever failed:
only documented errors come out, no descriptor, mutex or signal mask stays, and the next call finds everything
whole. A file is old or new, as the answer said. A ledger has the event or not, as the answer said. A lock has
one holder.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from noclobber import Workspace
from noclobber.disk import forks, steps
from noclobber.disk.commit import committer, open_stores, sweep
from noclobber.disk.commit.rows import Change
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.hashing import of_bytes
from noclobber.errors import (
    ABSENT,
    LedgerError,
    LockContention,
    MissingFileError,
    NoclobberError,
    StaleFileError,
)
from noclobber.ledger import AgentTraceLedger
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.lock_file import LockFile
from torture import tree_commits

OLD, NEW = b"old" * 10, b"new" * 7
# Something may be left behind if just its removal failed, or the mark that says that it may be removed:
# the next process to come adopts it, or a person looks.
REMOVALS = frozenset(("unlink", "utime"))


def _expected() -> str:
    return of_bytes(OLD)


COMMITS: dict[str, Callable[[FileGuard], object]] = {
    "replace": lambda guard: guard.write("a.md", NEW, expected=_expected()),
    "unchecked": lambda guard: guard.write("a.md", NEW, expected=None),
    "create": lambda guard: guard.write("c.md", NEW, expected=ABSENT),
    "delete": lambda guard: guard.delete("a.md", expected=_expected()),
    "move": lambda guard: guard.move("a.md", "sub/c.md", expected=_expected()),
    "linked": lambda guard: guard.write("linked.md", NEW, expected=_expected()),
    "again": lambda guard: guard.write("sub/again.md", NEW, expected=_expected()),
    "read": lambda guard: guard.read("a.md"),
    "alone": lambda guard: committer.replace_if_unchanged(f"{guard.root}/sub/b.md", _expected(), NEW),
    "many": lambda guard: guard.commit(_several()),
    "patch": lambda guard: guard.commit(_patch(guard.root)),
    "tree": tree_commits.land,
}
DURABLE = {
    f"{name}, durable": COMMITS[name]
    for name in ("again", "create", "delete", "move", "linked", "many", "patch", "tree")
}


def _several() -> list[Change]:
    return [
        Change("a.md", NEW, _expected()),
        Change("sub/b.md", NEW, _expected()),
        Change("c.md", NEW, ABSENT),
    ]


def _patch(root: str) -> list[Change]:
    return [
        Change("sub/b.md", None, _expected()),
        Change("a.md", NEW, _expected()),
        Change("c.md", NEW, ABSENT, like=f"{root}/sub/b.md"),
    ]


def open_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def prepared(root: Path, scenario: str = "") -> FileGuard:
    """Make a workspace in which every scenario can be carried out; return its guard."""
    (root / "sub").mkdir(parents=True)
    for name in ("a.md", "sub/b.md", "sub/again.md", "linked.md", "w.md", "sub/w.md"):
        (root / name).write_bytes(OLD)
    os.link(root / "linked.md", root / "other-name.md")
    if scenario.startswith("tree"):
        tree_commits.prepare(root, OLD, NEW)
    guard = FileGuard(root, wait_s=0.05, durable=scenario in DURABLE)
    guard.committer.mutex_wait_s = 0.2
    use(guard)
    if scenario == "again, durable":  # Then an old version waits for being written over.
        guard.write("sub/again.md", b"in between", expected=None)
        guard.write("sub/again.md", OLD, expected=None)
    return guard


def use(guard: FileGuard) -> None:
    """The next calls: they recover what is left, and sweep."""
    for name in ("w.md", "sub/w.md"):
        guard.write(name, b"used", expected=None)
    guard.sweep()
    open_stores.sweep_lingering()


def contents(root: Path) -> dict[str, bytes]:
    """Return what every file of a workspace holds, and what else there is."""
    return tree_commits.picture(root) | {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*.md")
        if not any(part.startswith(".noclobber") for part in path.parts)
        # Where there are no leases, a second name keeps the old bytes; `replace` says so.
        and path.name != "other-name.md"
    }


@cache
def before_and_after(scenario: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return what the files hold before a scenario, and after it when nothing fails."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(os.path.realpath(folder), "model")
        guard = prepared(root, scenario)
        before = contents(root)
        (COMMITS | DURABLE)[scenario](guard)
        after = contents(root)
        _close(guard)
        open_stores.sweep_lingering()
    return before, after


def _close(guard: FileGuard) -> None:
    if guard.committer.store_if_open is not None:
        guard.committer.store_if_open.close()


def _mutexes_are_free(folders: Sequence[Path]) -> None:
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)


class Trial:
    """One thing to try. `act()` runs while calls fail; `check()` when they do not any more."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "workspace"

    def act(self) -> None:
        """What is tried; may raise `NoclobberError` and nothing else."""
        raise NotImplementedError

    def check(self, error: NoclobberError | None, struck: Sequence[str]) -> None:
        """Raise AssertionError if something does not hold."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root)


class CommitTrial(Trial):
    """A commit in a workspace."""

    def __init__(self, folder: Path, scenario: str) -> None:
        super().__init__(folder)
        self._before, self._after = before_and_after(scenario)
        self.guard, self._run = prepared(self.root, scenario), (COMMITS | DURABLE)[scenario]
        gc.collect()  # What earlier trials dropped closes itself now, and not while we count.
        waiting = len(self.guard.committer.store_if_open.waiting)  # In the end they are swept.
        self._descriptors, self._tracked = open_descriptors() - waiting, len(forks._tracked) - waiting

    def act(self) -> None:
        self._run(self.guard)

    def check(self, error: NoclobberError | None, struck: Sequence[str]) -> None:
        landed = error is None or "landed" in getattr(error, "details", {})
        assert not isinstance(error, StaleFileError), f"nobody has changed anything, {error!r}"
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set(), "a signal mask stays"
        _mutexes_are_free([self.root, self.root / "sub"])
        if len(struck) < 2:  # With a second fault it may be the next call that finishes.
            assert contents(self.root) == (self._after if landed else self._before), "not as the answer says"
        use(self.guard)
        now = contents(self.root)
        assert now in (self._before, self._after), f"neither old nor new: {now}"
        assert now == (self._after if landed else self._before), f"not as the answer says, {error!r}"
        del error
        gc.collect()
        assert len(forks._tracked) == self._tracked, "a tracked descriptor stays"
        assert open_descriptors() == self._descriptors, "a descriptor stays"
        state, store = self.root / ".noclobber", self.guard.committer.store_if_open
        assert store is not None
        sweep.adopt_orphans(store, time.time())  # As the next process does.
        if not REMOVALS & set(struck):
            left = os.listdir(state / "swap") + os.listdir(state / "kept")
            left += [name for name in os.listdir(state / "notes") if "book" in name]
            assert left == [], f"left behind: {left}"

    def close(self) -> None:
        _close(self.guard)
        super().close()


STEPS = {
    "replace": ("noted", "before-exchange", "exchanged", "settled", "released"),
    "many": ("noted", "one-visible", "all-visible", "decided"),
    "patch": ("noted", "one-visible", "placeholder-away", "all-visible", "decided"),
    "delete": ("exchanged", "settled", "placeholder-away"),
    "move": ("noted", "move-linked", "moved", "decided"),
    "linked": ("inplace-begin", "inplace-written"),
    "create": ("creating", "created"),
    "tree": ("noted", "one-visible", "placeholder-away", "decided"),
}
RECOVERIES = {
    f"{scenario}, killed at {step}": (scenario, step) for scenario, found in STEPS.items() for step in found
}


def kill_at(step: str, work: Callable[[], object]) -> None:
    """Do some work in a child that is killed when it comes to a step; fail if it never does."""
    child = os.fork()
    if child == 0:

        def observe(reached: str) -> None:
            if reached == step:
                os.kill(os.getpid(), signal.SIGKILL)

        steps.observer = observe
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"it never came to {step}"


class RecoveryTrial(Trial):
    """The next call after a kill; it has to finish what the dead process began."""

    def __init__(self, folder: Path, scenario: str, step: str) -> None:
        super().__init__(folder)
        self._before, self._after = before_and_after(scenario)
        _close(prepared(self.root, scenario))
        guard = FileGuard(self.root, wait_s=0.05)
        kill_at(step, lambda: COMMITS[scenario](guard))
        self.guard = FileGuard(self.root, wait_s=0.05)
        self.guard.committer.mutex_wait_s = 0.2
        self.read: dict[str, bytes | None] = {}

    def act(self) -> None:
        for name in ("a.md", "linked.md", "c.md", "sub/b.md", "sub/c.md"):
            try:
                self.read[name] = self.guard.read(name).content
            except MissingFileError:
                self.read[name] = None

    def check(self, error: NoclobberError | None, struck: Sequence[str]) -> None:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set(), "a signal mask stays"
        _mutexes_are_free([self.root, self.root / "sub"])
        self.guard.sweep()
        _close(self.guard)  # What one process has open, another one leaves alone.
        again = FileGuard(self.root, wait_s=0.05)
        try:
            for name in ("a.md", "sub/b.md"):
                again.digest(name)
            use(again)
            now = contents(self.root)
            assert now in ({**self._before, "w.md": b"used", "sub/w.md": b"used"}, self._after), (
                f"neither old nor new: {now}"
            )
            for name, content in self.read.items():
                assert now.get(name) == content, f"{name} was read as {content!r}, and is {now.get(name)!r}"
            state, store = self.root / ".noclobber", again.committer.store_if_open
            assert store is not None
            sweep.adopt_orphans(store, time.time() + sweep.YOUNG_S + 1)
            if not REMOVALS & set(struck):
                left = os.listdir(state / "swap")
                assert left == [], f"left behind: {left}"
            for path in (state / "kept").iterdir():
                assert path.read_bytes() in (OLD, NEW, b""), f"{path.name} was kept, and is no whole version"
        finally:
            _close(again)

    def close(self) -> None:
        _close(self.guard)
        open_stores.sweep_lingering()
        super().close()


LEDGERS = ("new", "used", "grown", "torn", "durable", "prepare", "verify")


class LedgerTrial(Trial):
    """An append to a ledger that is new, was used, has grown meanwhile, or has a torn end."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(folder)
        self.root.mkdir()
        self.kind, self.path = kind, self.root / "ledger.jsonl"
        self._ledger = AgentTraceLedger(self.path, durable=kind == "durable", patience_s=0.2)
        self._events, self._recorded = 0, set[str]()
        if kind != "new":
            self._ledger.append({"action_type": "BEFORE"})
            self._events = 1
        if kind == "grown":
            with AgentTraceLedger(self.path) as other:
                other.append({"action_type": "BEFORE"})
            self._events = 2
        if kind == "torn":
            with open(self.path, "ab") as file:
                file.write(b'{"torn')
        gc.collect()
        self._descriptors = open_descriptors() + (kind == "new")

    def act(self) -> None:
        if self.kind == "prepare":
            self._ledger.prepare()
        elif self.kind == "verify":
            self._ledger.verify()
            list(self._ledger.events())
            self._ledger.last_lines(3)
        else:  # Three times: what a failed append leaves is found by the next one.
            for number in range(3):
                try:
                    self._ledger.append({"action_type": f"EVENT {number}"})
                    self._recorded.add(f"EVENT {number}")
                except LedgerError as error:
                    if error.details.get("recorded") == "yes":
                        self._recorded.add(f"EVENT {number}")

    def check(self, error: NoclobberError | None, struck: Sequence[str]) -> None:
        assert error is None or isinstance(error, LedgerError), f"{error!r}"
        with AgentTraceLedger(self.path, patience_s=0.2) as other:  # The mutex is free, and the end whole.
            other.append({"action_type": "AFTERWARDS"})
            report = other.verify()
            found = [event["action_type"] for event in other.events()]
        assert report.torn_bytes == 0
        for event in ("EVENT 0", "EVENT 1", "EVENT 2"):
            assert found.count(event) == int(event in self._recorded), f"not as the answer says: {found}"
        assert (found.count("BEFORE"), found.count("AFTERWARDS")) == (self._events, 1), found
        self._ledger.append({"action_type": "AGAIN"})
        assert self._ledger.verify().event_count == len(found) + 1, "its own next append breaks the chain"
        del error
        gc.collect()
        assert open_descriptors() <= self._descriptors, "a descriptor stays"

    def close(self) -> None:
        self._ledger.close()
        super().close()


LOCKS = ("acquire", "take over", "renew", "release", "recover", "retire", "inside own", "write", "bid")
REFUSED = ("held by them", "above theirs", "below theirs", "writing into theirs")


class LockTrial(Trial):
    """An operation on a folder's lock."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(folder)
        self.root.mkdir()
        self.kind, self.folder = kind, self.root / "d"
        self.folder.mkdir()
        self.outer: DeliverableLock | None = None
        held: tuple[str, ...] = ()
        if kind == "inside own":
            self.outer = DeliverableLock(self.root, holder="me", heartbeat=False).acquire()
            held = (self.outer.lock_id or "",)
        if kind in ("take over", "recover", "retire", "bid"):
            self._leave_an_orphan(has_bid=kind == "bid")
        self.lock = DeliverableLock(self.folder, holder="me", heartbeat=False, held_ids=held)
        if kind in ("renew", "release", "write"):
            self.lock.acquire()
        gc.collect()

    def _leave_an_orphan(self, *, has_bid: bool) -> None:
        def work() -> None:
            DeliverableLock(self.folder, holder="them", heartbeat=False).acquire()
            if has_bid:  # Killed in the middle of its release: the bid stays, too.
                os.link(self.folder / ".lock", self.folder / f".lock.take.{_lock_id(self.folder)}")
            os.kill(os.getpid(), signal.SIGKILL)

        kill_at("", work)

    def act(self) -> None:
        match self.kind:
            case "renew":
                self.lock.renew(60)
            case "release":
                self.lock.release()
            case "recover":
                self.lock.recover()
            case "retire":
                self.lock.retire()
            case "write":
                with self.lock.writing(()):
                    pass
                self.lock.assert_held()
            case _:
                self.lock.acquire()

    def check(self, error: NoclobberError | None, struck: Sequence[str]) -> None:
        _mutexes_are_free([self.root, self.folder])
        held = self.lock.held
        if error is None:
            assert held == (self.kind not in ("release", "recover", "retire")), "not as the answer says"
        elif self.kind in ("acquire", "take over", "bid", "inside own"):
            assert not held, "refused, and held"
        if held:
            self.lock.assert_held()
            self._is_refused()
            self.lock.release()
            held = False
        other = DeliverableLock(self.folder, holder="other", heartbeat=False, held_ids=self._outer_ids())
        try:
            other.acquire()
        except LockContention:
            # Two faults: what was published could not be taken back, or the release has not happened. It is
            # ours, and its lease ends. With one fault, or where nothing says so, the lock is stuck.
            assert len(struck) > 1 or REMOVALS & set(struck), "the lock is stuck"
        else:
            other.assert_held()
            other.release()
        with AgentTraceLedger(self.folder / ".lock-ledger.jsonl") as ledger:
            ledger.append({"action_type": "AFTERWARDS"})
            ledger.verify()
            events = [event["action_type"] for event in ledger.events()]
        if error is None and self.kind in ("acquire", "take over", "bid", "inside own"):
            assert events.count("LOCK_ACQUIRED") >= 1, events
        if error is None and self.kind in ("take over", "recover", "bid"):
            assert events.count("LOCK_RECOVERED") >= 1, events
        if error is None and self.kind == "renew":
            assert events.count("LOCK_RENEWED") >= 1, events

    def _outer_ids(self) -> tuple[str, ...]:
        return (self.outer.lock_id or "",) if self.outer is not None else ()

    def _is_refused(self) -> None:
        rival = DeliverableLock(self.folder, holder="rival", heartbeat=False, held_ids=self._outer_ids())
        try:
            rival.acquire()
        except LockContention:
            return
        rival.release()
        raise AssertionError("two holders")

    def close(self) -> None:
        for lock in (self.lock, self.outer):
            if lock is not None and lock.held:
                lock.release()
        super().close()


class RefusedTrial(Trial):
    """Somebody else has the lock: no error lets anyone in."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(folder)
        inner = self.root / "d" / "inner"
        inner.mkdir(parents=True)
        (inner / "a.md").write_bytes(OLD)
        self.kind = kind
        theirs, ours = {
            "above theirs": (inner, self.root / "d"),
            "below theirs": (self.root / "d", inner),
        }.get(kind, (inner, inner))
        self.theirs = DeliverableLock(theirs, holder="them", heartbeat=False).acquire()
        self.lock = DeliverableLock(ours, holder="me", heartbeat=False)
        self._workspace = Workspace(self.root)
        self._turn = self._workspace.turn()
        self._turn.read_file("d/inner/a.md")
        gc.collect()

    def act(self) -> None:
        if self.kind == "writing into theirs":
            self._turn.write_file("d/inner/a.md", NEW.decode())
        else:
            self.lock.acquire()

    def check(self, error: NoclobberError | None, struck: Sequence[str]) -> None:
        assert error is not None, "let in"
        assert not self.lock.held, "two holders"
        assert (self.root / "d" / "inner" / "a.md").read_bytes() == OLD, "an error let a write through"
        _mutexes_are_free([self.root, self.root / "d", self.root / "d" / "inner"])
        self.theirs.assert_held()
        self.theirs.release()
        self.lock.acquire()
        self.lock.release()

    def close(self) -> None:
        self._workspace.close()
        super().close()


def _lock_id(folder: Path) -> str:
    lock_file = LockFile(str(folder))
    try:
        found = lock_file.read()
        assert found is not None
        assert found.record is not None
        return found.record.lock_id
    finally:
        lock_file.close()


TRIALS: dict[str, Callable[[Path], Trial]] = {
    **{name: lambda folder, name=name: CommitTrial(folder, name) for name in COMMITS | DURABLE},  # type: ignore[misc]
    **{
        name: lambda folder, found=found: RecoveryTrial(folder, *found)  # type: ignore[misc]
        for name, found in RECOVERIES.items()
    },
    **{f"ledger {kind}": lambda folder, kind=kind: LedgerTrial(folder, kind) for kind in LEDGERS},  # type: ignore[misc]
    **{f"lock {kind}": lambda folder, kind=kind: LockTrial(folder, kind) for kind in LOCKS},  # type: ignore[misc]
    **{f"lock {kind}": lambda folder, kind=kind: RefusedTrial(folder, kind) for kind in REFUSED},  # type: ignore[misc]
}
