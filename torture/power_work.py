"""
What is written to the disk before the cut, and what must be there after it.

`work()` runs guarded operations of every kind in one project for each mode, and notes of each at which record
of the disk it began and ended. `check()` looks at the projects on a disk that was cut at some record: each
file is one whole version of itself, files that were written together have the same version, and what a
durable project had acknowledged is there.

A version's bytes follow from the file's name and the version's number, so that nothing but the notes is
needed to recognise it.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

import noclobber
from noclobber.disk.commit.change_set import expected_of
from noclobber.disk.commit.rows import TreeRow
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import ABSENT, NoclobberError
from noclobber.ledger.lost_versions import LostVersion, find_lost_versions

SIZES = (0, 1 << 10, 100 << 10, 1 << 20)
SIZE_WEIGHTS = (1, 6, 2, 1)
SINGLE, GROUP = ("one/a", "one/b", "two/c"), ("one/g", "two/g", "three/g", "g")
WIDE = ("one/l", "two/l", "three/l", "l")  # In every folder.
# What a command does: files that change, one that is there in every second version, with a folder that is
# there in the others, a link, and permissions.
TREE, TREE_COMING, TREE_FOLDER = ("one/t", "two/t"), "three/t", "three/f"
TREE_LINK, TREE_MODE = "one/tl", "two/tm"
MOVING, COMING, LINKED = ("one/m", "two/m"), "two/d", ("one/h", "three/h")
COMMANDED = "three/c"  # What a command changes, and nothing else: a tree of one row.
MAY_BE_EMPTY = "one/b"
LOCKED = "locked"
LEDGER = "ledger"  # In what `check()` says of events.
REBOOT_S = 10.0
MOST_VERSIONS = 10_000
FOLDERS = ("one", "two", "three", LOCKED)
IDLE_S = 1.2  # A filesystem that commits every second has committed by then.


class Mode(NamedTuple):
    """One project: how its guard writes."""

    name: str
    durable: bool
    level: str


MODES = (
    Mode("default", False, "lease+exchange"),
    Mode("durable", True, "lease+exchange"),
    Mode("exchange", False, "exchange"),
    Mode("plain", False, "plain"),
)


class Done(NamedTuple):
    """One operation: which version of which files, and the disk's records when it began and ended."""

    mode: str
    kind: str
    names: tuple[str, ...]
    version: int  # 0: the file is not there.
    began: int
    ended: int | None  # None: never acknowledged.


def content(name: str, version: int, seed: int) -> bytes:
    """Return the bytes of one version of a file. Only one file has empty ones: elsewhere, empty is lost."""
    chance = random.Random(f"{seed}/{name}/{version}")
    size = chance.choices(SIZES, SIZE_WEIGHTS)[0] if name == MAY_BE_EMPTY else _size(chance)
    head = f"{name} {version}\n".encode()
    if not size:
        return b""
    line = sha256(head).hexdigest().encode() + b"\n"
    return (head + line * (size // len(line) + 1))[:size]


def _size(chance: random.Random) -> int:
    return chance.choices(SIZES[1:], SIZE_WEIGHTS[1:])[0]


class Worker:
    """Runs the operations of one mode."""

    def __init__(self, mode: Mode, root: str, seed: int, position: Callable[[], int]) -> None:
        self.mode, self.root, self.seed, self.position = mode, root, seed, position
        self.chance = random.Random(f"{seed}/{mode.name}")
        for folder in FOLDERS:
            os.makedirs(f"{root}/{folder}", exist_ok=True)
        os.environ["NOCLOBBER_LEVEL"] = mode.level
        self.workspace = noclobber.Workspace(root, durable=mode.durable)
        self.guard = FileGuard(root, durable=mode.durable)
        self.versions: dict[str, int] = {}
        self.moving_at = 0
        self.held: noclobber.DeliverableLock | None = None

    def set_up(self) -> None:
        """Make what must be there before the first cut."""
        for name in (*SINGLE, *GROUP, *WIDE, COMMANDED, MOVING[0], LINKED[0]):
            self.versions[name] = 1
            with open(f"{self.root}/{name}", "wb") as file:
                file.write(content(_named(name), 1, self.seed))
        os.link(f"{self.root}/{LINKED[0]}", f"{self.root}/{LINKED[1]}")
        self.versions[COMING] = 0
        self._set_up_tree()

    def _set_up_tree(self) -> None:
        for name in (*TREE, TREE_COMING):
            self.versions[name] = 1
            with open(f"{self.root}/{name}", "wb") as file:
                file.write(content(name, 1, self.seed))
        os.symlink("1", f"{self.root}/{TREE_LINK}")
        with open(f"{self.root}/{TREE_MODE}", "wb") as file:
            file.write(content(TREE_MODE, 1, self.seed))
        os.chmod(f"{self.root}/{TREE_MODE}", tree_mode(1))

    def step(self) -> Done:
        """Run one operation."""
        kind = self.chance.choices(
            ("write", "group", "wide", "tree", "command", "move", "come-and-go", "linked", "lock"),
            (8, 4, 3, 4, 4, 2, 3, 1, 1),
        )[0]
        return getattr(self, "_" + kind.replace("-", "_"))()  # type: ignore[no-any-return]

    def _run(
        self, kind: str, names: tuple[str, ...], version: int, act: Callable[[noclobber.Turn], object]
    ) -> Done:
        began = self.position()
        with self.workspace.turn(agent_id="power") as turn:
            act(turn)
        return Done(self.mode.name, kind, names, version, began, self.position())

    def _write(self) -> Done:
        return self._new_version("write", self.chance.choice(SINGLE))

    def _linked(self) -> Done:
        if self.mode.level != "lease+exchange":
            return self._write()  # A file with two names needs leases.
        return self._new_version("linked", LINKED[0])

    def _new_version(self, kind: str, name: str) -> Done:
        version = self.versions[name] = self.versions[name] + 1
        data = content(_named(name), version, self.seed)

        def act(turn: noclobber.Turn) -> None:
            turn.read_file(name)
            turn.write_file(name, data)

        return self._run(kind, (name,), version, act)

    def _group(self) -> Done:
        return self._together("group", GROUP)

    def _wide(self) -> Done:
        return self._together("wide", WIDE)

    def _together(self, kind: str, names: tuple[str, ...]) -> Done:
        version = self.versions[names[0]] + 1
        if self.mode.level == "plain":
            return self._write()  # Several files at once need an exchange.
        self.versions.update(dict.fromkeys(names, version))
        files = {name: content(name, version, self.seed) for name in names}

        def act(turn: noclobber.Turn) -> None:
            for name in names:
                turn.read_file(name)
            turn.write_files(files)

        return self._run(kind, names, version, act)

    def _tree(self) -> Done:
        if self.mode.level == "plain":
            return self._write()  # This needs an exchange, too.
        version = self.versions[TREE[0]] + 1
        upper = f"{self.root}/.noclobber/run/{version}/upper"
        os.makedirs(f"{upper}/folder/deep")
        for name in (*TREE, TREE_COMING):
            self.versions[name] = version
            with open(f"{upper}/{name.replace('/', '-')}", "wb") as file:
                file.write(content(name, version, self.seed))
        with open(f"{upper}/folder/deep/f", "wb") as file:
            file.write(content(TREE_FOLDER, version, self.seed))
        os.symlink(f"{version}", f"{upper}/link")
        at = [f"{self.root}/{name}" for name in (*TREE, TREE_COMING, TREE_FOLDER, TREE_LINK, TREE_MODE)]
        is_there = version % 2
        rows = [TreeRow("write", "file", at[0], expected_of(at[0]), f"{upper}/one-t")]
        rows += [
            TreeRow("create", "file", at[2], None, f"{upper}/three-t")
            if is_there
            else TreeRow("delete", "file", at[2], expected_of(at[2])),
            TreeRow("delete", "link", at[4], expected_of(at[4])),
            TreeRow("create", "link", at[4], None, f"{upper}/link"),
        ]
        if not is_there:
            rows.append(TreeRow("create", "folder", at[3], None, f"{upper}/folder"))
        elif version > 1:
            rows.append(TreeRow("delete", "folder", at[3], expected_of(at[3])))
        modes = tree_mode(version), tree_mode(version - 1)
        rows += [
            TreeRow("mode", "file", at[5], expected_of(at[5]), "", *modes),
            TreeRow("write", "file", at[1], expected_of(at[1]), f"{upper}/two-t"),
        ]
        began = self.position()
        self.guard.commit(rows)
        return Done(self.mode.name, "tree", TREE, version, began, self.position())

    def _command(self) -> Done:
        if self.mode.level == "plain":
            return self._write()
        version = self.versions[COMMANDED] = self.versions[COMMANDED] + 1
        staged, path = f"{self.root}/.noclobber/run/c{version}", f"{self.root}/{COMMANDED}"
        os.makedirs(os.path.dirname(staged), exist_ok=True)
        with open(staged, "wb") as file:
            file.write(content(COMMANDED, version, self.seed))
        began = self.position()
        self.guard.commit([TreeRow("write", "file", path, expected_of(path), staged)])
        return Done(self.mode.name, "command", (COMMANDED,), version, began, self.position())

    def _move(self) -> Done:
        source, goal = MOVING[self.moving_at], MOVING[1 - self.moving_at]
        self.moving_at = 1 - self.moving_at

        def act(turn: noclobber.Turn) -> None:
            turn.read_file(source)
            turn.move_file(source, goal)

        return self._run("move", (goal,), 1, act)

    def _come_and_go(self) -> Done:
        before = self.versions[COMING]
        # Versions are odd while it is there, and even while it is not.
        version = self.versions[COMING] = before + 1
        if before % 2:

            def act(turn: noclobber.Turn) -> None:
                turn.read_file(COMING)
                turn.delete_file(COMING)
        else:

            def act(turn: noclobber.Turn) -> None:
                turn.write_file(COMING, content(COMING, version, self.seed), expected_hash=ABSENT)

        return self._run("come-and-go", (COMING,), version, act)

    def _lock_step(self) -> None:
        if self.held is None:
            self.held = noclobber.DeliverableLock(f"{self.root}/{LOCKED}", holder="power")
            self.held.acquire()
        elif self.chance.random() < 0.5:
            self.held.renew()
        else:
            self.held.release()
            self.held = None

    def _lock(self) -> Done:
        began = self.position()
        self._lock_step()
        return Done(self.mode.name, "lock", (LOCKED,), 0, began, self.position())


def tree_mode(version: int) -> int:
    """Return the permissions of a file that gets others with each version."""
    return 0o600 + version % 0o100


def _named(name: str) -> str:
    return {MOVING[1]: MOVING[0], LINKED[1]: LINKED[0]}.get(name, name)


def work(mount: str, position_path: str, notes: str, seed: int, seconds: float) -> None:
    """Run operations in every mode, in turn, and note each; the last line says that all was well."""
    with open(position_path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 8)

    def position() -> int:
        return int.from_bytes(memory[:8], "little")

    workers = [Worker(mode, f"{mount}/{mode.name}", seed, position) for mode in MODES]
    for worker in workers:
        worker.set_up()
    os.sync()
    chance = random.Random(seed)
    with open(notes, "w", buffering=1) as out:
        print(json.dumps({"begun": position(), "seed": seed}), file=out)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for _ in range(chance.choice((1, 3, 10, 40))):
                print(json.dumps(chance.choice(workers).step()), file=out)
            what = chance.random()
            if what < 0.2:
                time.sleep(IDLE_S)
            elif what < 0.4:
                _flush_something_else(mount)
            elif what < 0.6:
                _flush_ledger(f"{mount}/{chance.choice(MODES).name}")
    os._exit(0)  # No tidying at the end: a power cut does not wait for it.


def _flush_something_else(mount: str) -> None:
    """Another program flushes its own file, and with it whatever the filesystem's journal holds."""
    with open(f"{mount}/noise", "ab") as file:
        file.write(b"noise\n")
        os.fsync(file.fileno())


def _flush_ledger(root: str) -> None:
    """A backup flushes a ledger, and not the files: its events may last longer than the versions."""
    with suppress(FileNotFoundError), open(f"{root}/.noclobber/agent_trace.jsonl", "rb") as file:
        os.fsync(file.fileno())


# After the cut.


def check(mount: str, notes: str, at: int) -> tuple[list[str], int]:
    """
    Look at a disk that was cut after record `at`, once each folder was written to.

    Return what is wrong, and how many events were named because their version was lost.
    """
    with open(notes) as file:
        seed = json.loads(next(file))["seed"]
        done = [_row(line) for line in file if line.endswith("\n")]
    wrong: list[str] = []
    named = 0
    for mode in MODES:
        mine = [each for each in done if each.mode == mode.name]
        try:
            wrong += [
                f"{mode.name}: {text}"
                for text in _check_project(f"{mount}/{mode.name}", mode, mine, at, seed)
            ]
            named += len(_lost_versions(f"{mount}/{mode.name}"))
        except (NoclobberError, OSError) as error:
            wrong.append(f"{mode.name}: {type(error).__name__}: {error}")
    return wrong, named


def _row(line: str) -> Done:
    mode, kind, names, version, began, ended = json.loads(line)
    return Done(mode, kind, tuple(names), version, began, ended)


def _check_project(root: str, mode: Mode, done: list[Done], at: int, seed: int) -> Iterator[str]:
    os.environ["NOCLOBBER_LEVEL"] = mode.level
    begun = [each for each in done if each.began <= at]
    if os.path.exists(left := f"{root}/{LOCKED}/.lock"):
        # A machine takes longer to start again than a damaged lock counts as "being written" (ruling 25).
        os.utime(left, (at_start := os.stat(left).st_mtime - REBOOT_S, at_start))
    with noclobber.Workspace(root, durable=mode.durable) as workspace:
        for folder in ("", *FOLDERS):
            with workspace.turn(agent_id="after") as turn:
                turn.write_file(os.path.join(folder, "probe"), f"{at}\n", expected_hash=ABSENT)
        yield from _check_files(root, mode, begun, at, seed)
        workspace.ledger.verify()
        yield from _check_ledger(root, list(workspace.ledger.events()), seed)
    lock = noclobber.DeliverableLock(f"{root}/{LOCKED}", holder="after")
    lock.acquire()  # Raises if what the cut left of the lock keeps everyone out.
    lock.release()


def _lost_versions(root: str) -> list[LostVersion]:
    """Return those of files whose bytes say which version they are; a move to and fro says nothing."""
    with noclobber.Workspace(root) as workspace:
        lost = find_lost_versions(workspace.ledger.events(), root)
    return [each for each in lost if each.path in (*SINGLE, *GROUP, *WIDE, LINKED[0])]


def _check_ledger(root: str, events: list[dict[str, Any]], seed: int) -> Iterator[str]:
    """
    No event vouches for a version that the cut took away: `doctor` and `ledger verify --files` name it.

    Events may be missing from the end, so a file may be newer than its last event. If it is older, that event
    must be named, and otherwise not. Asked of the files whose bytes say which version they are.
    """
    named = {lost.path: lost.seq for lost in find_lost_versions(events, root)}
    last: dict[str, tuple[int, str]] = {}
    for event in events:
        payload = event["payload"]
        if event["action_type"] == "COMMIT_RECOVERED":
            last.pop(payload["target_file"], None)
        elif event["action_type"] == "MUTATION":
            last[payload["target_file"]] = (event["seq"], payload["after_hash"].removeprefix("sha256:"))
    for name in (*SINGLE, *GROUP, *WIDE, LINKED[0]):
        version = _version(root, name, 0, seed)
        if name not in last or not version:
            continue
        seq, after = last[name]
        recorded = _version_of(after, name, seed)
        if (version < recorded) != (named.get(name) == seq):
            said = "is named" if name in named else "is not named"
            yield f"{LEDGER}: event {seq} has version {recorded} of {name}, which has {version}; it {said}"


def _version_of(sha: str, name: str, seed: int) -> int:
    """Return which version of a file has a hash; 0 for none, and for the empty ones, which are all alike."""
    numbers = range(1, MOST_VERSIONS)
    found = (number for number in numbers if sha256(content(name, number, seed)).hexdigest() == sha)
    return 0 if sha == sha256(b"").hexdigest() else next(found, 0)


def _check_files(root: str, mode: Mode, begun: list[Done], at: int, seed: int) -> Iterator[str]:
    found: dict[str, int | None] = {}
    for name in (*SINGLE, *GROUP, *WIDE, *TREE, *LINKED, COMMANDED, COMING):
        newest = max((each.version for each in begun if _named(name) in each.names), default=1)
        oldest = 0
        if mode.durable:
            kept = (e.version for e in begun if _named(name) in e.names and (e.ended or at + 1) <= at)
            oldest = max(kept, default=0)
        version = found[name] = _version(root, name, newest, seed)
        if version is None:
            yield f"{name} is no version of itself: {_look(root, name)}"
        elif version == 0 and name != COMING:
            yield f"{name} is missing"
        elif version > newest or (version < oldest and not (name == COMING and version == 0)):
            yield f"{name} has version {version}, not {oldest} to {newest}"
        elif name == COMING and mode.durable and version == 0 and oldest == newest and oldest % 2:
            yield f"{name} is missing, and its creation was acknowledged"
    if mode.level != "plain":
        yield from _check_tree(root, found, seed)
    for group in (GROUP, WIDE, TREE):
        if len({found[name] for name in group}) > 1:
            yield f"files that were written together differ: {[found[name] for name in group]}"
    there = [name for name in MOVING if os.path.exists(f"{root}/{name}")]
    if len(there) != 1:
        yield f"the moved file is at {there}"
    elif _version(root, there[0], 1, seed) != 1:
        yield f"the moved file is no version of itself: {_look(root, there[0])}"


def _check_tree(root: str, found: dict[str, int | None], seed: int) -> Iterator[str]:
    """All that a command did is of one version."""
    version = found[TREE[0]] or 0
    coming, link = _version(root, TREE_COMING, 0, seed), os.readlink(f"{root}/{TREE_LINK}")
    inner = f"{TREE_FOLDER}/deep/f"
    folder = None
    if os.path.exists(f"{root}/{TREE_FOLDER}"):
        try:
            with open(f"{root}/{inner}", "rb") as file:
                data = file.read()
            folder = version if data == content(TREE_FOLDER, version, seed) else -1
        except FileNotFoundError:
            folder = -1
    mode = os.stat(f"{root}/{TREE_MODE}").st_mode & 0o777
    is_there = version % 2
    wanted = (version if is_there else 0, str(version), None if is_there else version, tree_mode(version))
    if (coming, link, folder, mode) != wanted:
        yield f"a command's changes differ: {(coming, link, folder, mode)}, and {wanted} was expected"


def _version(root: str, name: str, newest: int, seed: int) -> int | None:
    try:
        with open(f"{root}/{name}", "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return 0
    if data:
        words = data.split(b"\n", 1)[0].split()
        number = int(words[1]) if len(words) == 2 and words[1].isdigit() else 0
        return number if number and content(_named(name), number, seed) == data else None
    empty = [number for number in range(newest, 0, -1) if not content(_named(name), number, seed)]
    return empty[0] if empty else None


def _look(root: str, name: str) -> str:
    with open(f"{root}/{name}", "rb") as file:
        data = file.read()
    return f"{len(data)} bytes, beginning {data[:40]!r}, {data.count(0)} of them zero"
