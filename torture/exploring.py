"""
Who takes part in an exploration, and what must hold at the end, and at every moment in between.

Guarded writers all read the first version before anyone moves, so of those that change one file at most one
lands. Its effect is there, whole, and of the others nothing is. After a kill the next call decides: all of it
or nothing. What an editor (which saves by rename, without looking) saved last is what the file holds. Of
those that ask for a lock, one holds it at a time, inner and outer folders included; in the end one more gets
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk import steps
from noclobber.disk.commit.rows import Change, TreeRow
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import ABSENT, LockContention, LockLost, MissingFileError
from noclobber.ledger import AgentTraceLedger
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.record import read

FIRST = b"first\n"
X, Y = "a/x.md", "b/y.md"


class Part:
    """One process: what it does, and what is known of it."""

    name = ""

    def __init__(self, root: str, number: int) -> None:
        self.root, self.number = root, number
        self.tag = b"w%d\n" % number
        self.is_over = self.has_landed = self.was_killed = False

    def prepare(self) -> None:
        """Make what everybody works on."""
        for name in (X, Y):
            os.makedirs(os.path.dirname(f"{self.root}/{name}"), exist_ok=True)
            with open(f"{self.root}/{name}", "wb") as file:
                file.write(FIRST)
        FileGuard(self.root).write(
            "b/w.md", b"", expected=None
        )  # So that nobody has to make the state folder.

    def work(self, stop: Callable[[str], None]) -> None:
        """In a process of its own: raise a refusal, or return."""
        raise NotImplementedError

    def reached(self, step: str) -> None:
        """It has come to a step; "": it is over."""

    def look(self, parts: Sequence[Part]) -> None:
        """After each of its steps."""

    def has_effect(self) -> bool | None:
        """True if what it does is done; AssertionError if half of it is; None if nobody can tell."""
        raise NotImplementedError

    def _has(self, name: str, content: bytes | None) -> bool:
        try:
            with open(f"{self.root}/{name}", "rb") as file:
                return file.read() == content
        except FileNotFoundError:
            return content is None


class _Guarded(Part):
    """A guarded writer."""

    changes: tuple[str, ...] = (X,)

    def work(self, stop: Callable[[str], None]) -> None:
        guard = FileGuard(self.root)
        seen = {name: guard.read(name) for name in (X, Y)}
        hashes = {name: found.sha256 for name, found in seen.items()}
        steps.observer = stop
        stop("start")
        self._change(guard, hashes)
        steps.observer = None
        guard.sweep()

    def _change(self, guard: FileGuard, hashes: dict[str, str]) -> None:
        raise NotImplementedError


class Write(_Guarded):
    """Replaces one file."""

    name = "write"

    def _change(self, guard: FileGuard, hashes: dict[str, str]) -> None:
        guard.write(self.changes[0], FIRST + self.tag, expected=hashes[self.changes[0]])

    def has_effect(self) -> bool:
        return self._has(self.changes[0], FIRST + self.tag)


class WriteY(Write):
    """Replaces the other one: it meets a member's note, without the leader's mutex."""

    name, changes = "write y", (Y,)


class Many(_Guarded):
    """Replaces two files in two folders, and creates a third."""

    name, changes = "many", (X, Y)

    def _change(self, guard: FileGuard, hashes: dict[str, str]) -> None:
        changes = [Change(name, FIRST + self.tag, hashes[name]) for name in self.changes]
        guard.commit([*changes, Change(f"b/new{self.number}.md", self.tag, ABSENT)])

    def has_effect(self) -> bool | None:
        found = [self._has(name, FIRST + self.tag) for name in self.changes]
        found.append(self._has(f"b/new{self.number}.md", self.tag))
        if self._has(X, FIRST) or found[0]:  # Otherwise an editor has saved it.
            assert len(set(found)) == 1, f"half of a commit: {found}"
        else:
            assert len(set(found[1:])) == 1, f"half of a commit: {found}"
        return found[1]


class Patch(_Guarded):
    """Replaces a file, deletes another one, and creates a third."""

    name, changes = "patch", (X, Y)

    def _change(self, guard: FileGuard, hashes: dict[str, str]) -> None:
        new = f"b/new{self.number}.md"
        guard.commit(
            [
                Change(Y, None, hashes[Y]),
                Change(X, FIRST + self.tag, hashes[X]),
                Change(new, self.tag, ABSENT),
            ]
        )

    def has_effect(self) -> bool:
        is_new = self._has(f"b/new{self.number}.md", self.tag)
        if self._has(X, FIRST) or self._has(X, FIRST + self.tag):  # Otherwise somebody else has saved it.
            assert self._has(X, FIRST + self.tag) == is_new, "half of a commit"
        assert not (is_new and self._has(Y, FIRST)), "what it deleted is there"
        return is_new


class Tree(_Guarded):
    """Lands what a command did: one file written, one gone, a folder and a link come."""

    name, changes = "tree", (X, Y)

    def _change(self, guard: FileGuard, hashes: dict[str, str]) -> None:
        observer, steps.observer = steps.observer, None
        upper = f"{self.root}/.noclobber/run/{self.number}/upper"
        os.makedirs(f"{upper}/folder")
        for name, data in ((f"{upper}/x", FIRST + self.tag), (f"{upper}/folder/f", self.tag)):
            with open(name, "wb") as file:
                file.write(data)
        os.symlink(self.tag.decode().strip(), f"{upper}/link")
        steps.observer = observer
        guard.commit(
            [
                TreeRow("delete", "file", f"{self.root}/{Y}", hashes[Y]),
                TreeRow("create", "folder", f"{self.root}/b/folder{self.number}", None, f"{upper}/folder"),
                TreeRow("write", "file", f"{self.root}/{X}", hashes[X], f"{upper}/x"),
                TreeRow("create", "link", f"{self.root}/b/link{self.number}", None, f"{upper}/link"),
            ]
        )

    def has_effect(self) -> bool:
        found = [
            self._has(f"b/folder{self.number}/f", self.tag),
            os.path.islink(f"{self.root}/b/link{self.number}"),
        ]
        if self._has(X, FIRST) or self._has(X, FIRST + self.tag):  # Otherwise an editor has saved it.
            found.append(self._has(X, FIRST + self.tag))
        if found[0]:
            found.append(self._has(Y, None))
        assert len(set(found)) == 1, f"half of a commit: {found}"
        return found[0]


class Delete(_Guarded):
    """Deletes a file."""

    name = "delete"

    def _change(self, guard: FileGuard, hashes: dict[str, str]) -> None:
        guard.delete(X, expected=hashes[X])

    def has_effect(self) -> bool:
        is_moved = any(name.startswith("moved") for name in os.listdir(f"{self.root}/b"))
        return self._has(X, None) and not is_moved


class Move(_Guarded):
    """Moves a file to another folder."""

    name = "move"

    def _change(self, guard: FileGuard, hashes: dict[str, str]) -> None:
        guard.move(X, f"b/moved{self.number}.md", expected=hashes[X])

    def has_effect(self) -> bool:
        return self._has(f"b/moved{self.number}.md", FIRST)


class Create(_Guarded):
    """Creates a file that must not exist."""

    name, changes = "create", ("a/new.md",)

    def _change(self, guard: FileGuard, hashes: dict[str, str]) -> None:
        guard.write(self.changes[0], self.tag, expected=ABSENT)

    def has_effect(self) -> bool:
        return self._has(self.changes[0], self.tag)


class Editor(Part):
    """Another program: saves one file by rename, without looking."""

    name = "editor"
    saves = 0  # In which order they saved; the last one is what the file must hold.

    def work(self, stop: Callable[[str], None]) -> None:
        stop("start")
        with open(f"{self.root}/a/.e{self.number}", "wb") as file:
            file.write(b"e%d\n" % self.number)
        os.rename(f"{self.root}/a/.e{self.number}", f"{self.root}/{X}")

    def reached(self, step: str) -> None:
        if not step:
            Editor.saves += 1
            self.saved_as = Editor.saves


class _Ahead:
    """A clock that is ahead of everyone else's."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s

    def now_s(self) -> float:
        return SYSTEM_CLOCK.now_s() + self._ahead_s

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()

    def sleep(self, seconds: float) -> None:
        SYSTEM_CLOCK.sleep(seconds)


class Lock(Part):
    """Takes a folder's lock, renews it, writes under it, and releases it."""

    name, below, clock = "lock", "d", SYSTEM_CLOCK
    may_be_taken_over = False

    def __init__(self, root: str, number: int) -> None:
        super().__init__(root, number)
        self.folder, self.is_holding = f"{root}/{self.below}", False

    def prepare(self) -> None:
        os.makedirs(f"{self.root}/d/inner")

    def work(self, stop: Callable[[str], None]) -> None:
        clock = self.clock
        lock = DeliverableLock(self.folder, holder=self.tag.decode().strip(), heartbeat=False, clock=clock)
        steps.observer = stop
        stop("start")
        lock.acquire()
        stop("holding")
        lock.renew(120)
        self._is_ours(lock)
        stop("renewed")
        with lock.writing(()):
            self._is_ours(lock)
            stop("writing")
            self._is_ours(lock)
        stop("releasing")
        lock.release()
        steps.observer = None

    def _is_ours(self, lock: DeliverableLock) -> None:
        """What was confirmed is so: everybody else is stopped."""
        found = read(f"{self.folder}/.lock")
        assert found is not None
        assert found.record is not None
        assert found.record.holder == lock.holder, f"confirmed, and {found.record.holder} has it"

    def reached(self, step: str) -> None:
        if self.is_over or step == "releasing":
            self.is_holding = False
        elif step in ("holding", "renewed", "writing"):
            self.is_holding = True

    def look(self, parts: Sequence[Part]) -> None:
        holders = [part for part in parts if isinstance(part, Lock) and part.is_holding]
        certain = [part for part in holders if not part.may_be_taken_over]
        assert len(certain) <= 1, f"{len(certain)} holders at once: {[part.name for part in certain]}"

    def has_effect(self) -> None:
        return None


class Inner(Lock):
    """The same for a folder inside."""

    name, below = "inner", "d/inner"


class Outer(Lock):
    """The same, under another name: it meets `inner`."""

    name = "outer"


class Late(Lock):
    """A holder whose lease has run out by the others' clock: it goes on, or is told that its lock is lost."""

    name, may_be_taken_over = "late", True


class Taker(Lock):
    """Its clock is ahead: it takes over what has not been renewed for so long."""

    name, clock = "taker", _Ahead(100_000.0)


class Recover(Lock):
    """Clears an orphan by hand."""

    name = "recover"

    def work(self, stop: Callable[[str], None]) -> None:
        steps.observer = stop
        stop("start")
        DeliverableLock(self.folder, holder="hand", heartbeat=False).recover()
        steps.observer = None


PARTS: dict[str, type[Part]] = {
    part.name: part
    for part in (
        Write, WriteY, Many, Patch, Tree, Delete, Move, Create, Editor,
        Lock, Inner, Outer, Late, Taker, Recover,
    )
}  # fmt: skip


def check(root: str, parts: Sequence[Part]) -> None:
    """What must hold when everybody is done."""
    if isinstance(parts[0], Lock):
        _check_locks(root)
    else:
        _check_files(root, parts)


def _check_files(root: str, parts: Sequence[Part]) -> None:
    guard = FileGuard(root)
    for name in (X, Y, "a/new.md"):  # The next call recovers.
        try:
            guard.read(name)
        except MissingFileError:
            pass
    writers = [part for part in parts if isinstance(part, _Guarded)]
    editors = [part for part in parts if isinstance(part, Editor)]
    effects = {part: part.has_effect() for part in writers}
    if editors:
        last = max(editors, key=lambda part: part.saved_as)
        where = X
        if not os.path.exists(f"{root}/{X}"):
            # A move that is killed right after its rename has no note: what was saved in the last moment
            # before it is under the new name.
            movers = [part for part in parts if isinstance(part, Move) and part.was_killed]
            where = f"b/moved{movers[0].number}.md" if movers else X
        content = guard.read(where).content
        assert content == b"e%d\n" % last.number, f"editor {last.number} saved last, not {content!r}"
    for part, effect in effects.items():
        is_covered = bool(editors) and part.changes == (X,)
        if part.was_killed:
            continue
        if isinstance(part, Delete) and any(
            effects[other] and isinstance(other, Delete) and other.has_landed | other.was_killed
            for other in writers
            if other is not part
        ):
            continue  # It cannot be seen which of two deletes it was.
        if not part.has_landed:
            assert is_covered or not effect, f"{part.name} {part.number} was refused, and it is done"
        elif not is_covered:
            assert effect, f"{part.name} {part.number} landed, and it is lost"
    for name in (X, Y, "a/new.md"):
        done = [part for part in writers if name in part.changes and effects[part]]
        deletes = [part for part in done if isinstance(part, Delete)]
        done = [part for part in done if part not in deletes[1:]]
        if editors:
            done = [part for part in done if not part.was_killed]
        assert len(done) <= 1, f"{name} was changed twice"
    if not editors:
        changed = {name for part in writers if effects[part] for name in part.changes}
        untouched = [name for name in (X, Y) if name not in changed]
        for name in untouched:
            assert guard.read(name).content == FIRST, f"{name} is not as it was"
        if not any(part.was_killed for part in parts):
            assert any(part.has_landed for part in writers), "nobody landed"
    moved = [name for name in os.listdir(f"{root}/b") if name.startswith("moved")]
    assert len(moved) + (not editors and os.path.exists(f"{root}/{X}")) <= 1, "moved, and there still"
    for name in ("a/w.md", "b/w.md"):
        guard.write(name, b"x", expected=None)
    guard.sweep()
    if not any(part.was_killed for part in parts):
        left = os.listdir(f"{root}/.noclobber/swap")
        assert left == [], f"left behind: {left}"


def _check_locks(root: str) -> None:
    clock = _Ahead(200_000.0)
    for folder in (f"{root}/d/inner", f"{root}/d"):
        try:
            with DeliverableLock(folder, holder="last", heartbeat=False, clock=SYSTEM_CLOCK):
                pass
        except LockContention:
            # A taker's own clock is ahead, and its lease with it; everybody else has ended or was killed.
            with DeliverableLock(folder, holder="last", heartbeat=False, clock=clock):
                pass
        except LockLost as error:
            raise AssertionError(f"lost at once: {error}") from error
        with AgentTraceLedger(f"{folder}/.lock-ledger.jsonl") as ledger:
            ledger.verify()
