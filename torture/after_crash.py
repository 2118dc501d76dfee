"""
Guards that are killed, and people who save afterwards: what was saved after the crash stays as it is.

Each trial: a guard writes, creates, deletes, moves or changes several files, at any level, and is killed with
SIGKILL at one of its named steps, or at a random moment. In every other trial somebody had saved just before
the exchange, so that it dies while it takes its own version back. Then an outsider saves over whatever the
crash left, in one of six ways. Then comes the next guarded call, which finishes or undoes what was cut off.

Afterwards the outsider's file must have exactly the bytes that it was given, in the same inode; and where
nobody saved, one whole version: of somebody who saved before the crash, theirs.

A trial follows from its seed: `attempt(folder, Trial.of(seed))` repeats one whose kill was at a step.
"""

from __future__ import annotations

import ctypes  # noqa: F401 - needed by every process that is forked here, and slow to load
import json
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import hashing, steps
from noclobber.disk.commit.rows import Change
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import ABSENT, NoclobberError
from torture import bars
from torture.arena import AnHourLater

if TYPE_CHECKING:
    import argparse

    from noclobber.core.values import Level

DEFAULT_KILLS = 10_000
WORKERS = 2
TRIALS_A_FOLDER = 100
MOST_STEPS = 24  # More than any commit here has; a guard that gets that far is killed when it is done.
LONGEST_LIFE_S = 0.004
OPERATIONS = ("write", "linked", "several", "delete", "create", "move")
LEVELS: tuple[Level, ...] = ("lease+exchange", "lease+exchange", "exchange", "plain")
SAVES = ("truncate", "append", "patch", "rename", "delete and create", "nothing")
SAVED_AT = ("noted", "before-exchange", "exchanged")
LEFT = "files left behind"
A, B, MOVED = "one/a", "two/b", "two/a"


class Trial(NamedTuple):
    """What happens, all of it decided beforehand."""

    operation: str
    level: Level
    durable: bool
    dies_at_step: int  # 0: at a moment instead.
    lives_s: float
    saved_at: str  # Somebody saves at this step of the guard, just before or after its exchange; or "".
    save: str
    recovery: str
    size: int

    @classmethod
    def of(cls, seed: int) -> Trial:
        """Draw one."""
        chance = random.Random(seed)
        return cls(
            chance.choice(OPERATIONS),
            chance.choice(LEVELS),
            chance.random() < 0.3,
            chance.randrange(1, MOST_STEPS) if chance.random() < 0.8 else 0,
            chance.random() * LONGEST_LIFE_S,
            chance.choice(SAVED_AT) if chance.random() < 0.5 else "",
            chance.choice(SAVES),
            chance.choice(("read", "write", "sweep")),
            chance.choice((20, 500, 9_000, 200_000)),
        )


def _text(word: str, size: int) -> bytes:
    line = f"{word} {'.' * 40}\n".encode()
    return line * (size // len(line) + 1)


def _put(path: str, content: bytes) -> None:
    """Save by rename."""
    with open(f"{path}.new", "wb") as file:
        file.write(content)
    os.rename(f"{path}.new", path)


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _guard_until_killed(root: str, trial: Trial, told: int) -> None:
    """The guard's process: one operation, and death. Tells through a pipe when somebody saved meanwhile."""
    target = f"{root}/{A}"
    count = 0

    def at(step: str) -> None:
        nonlocal count
        count += 1
        if step == trial.saved_at:
            _put(target, _text("meanwhile", trial.size))
            os.write(told, b"s")
        if count == trial.dies_at_step:
            os.kill(os.getpid(), signal.SIGKILL)

    guard = FileGuard(root, wait_s=0.2, durable=trial.durable, ceiling=trial.level)
    old, new = hashing.of_bytes(_text("old", trial.size)), _text("new", trial.size)
    os.write(told, b"r")
    steps.observer = at
    with suppress(NoclobberError):
        if trial.operation in ("write", "linked"):
            guard.write(A, new, expected=old)
        elif trial.operation == "several":
            guard.commit([Change(A, new, old), Change(B, new, old)])
        elif trial.operation == "delete":
            guard.delete(A, expected=old)
        elif trial.operation == "create":
            guard.write(A, new, expected=ABSENT)
        else:
            guard.move(A, MOVED, expected=old)
    os.kill(os.getpid(), signal.SIGKILL)


def _save(path: str, how: str, size: int) -> None:
    theirs = _text("theirs", size)
    if how == "truncate":
        with open(path, "wb") as file:
            file.write(theirs)
    elif how == "append":
        with open(path, "ab") as file:
            file.write(b"theirs\n")
    elif how == "patch":
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(descriptor, b"THEIRS", 0)
        os.close(descriptor)
    elif how == "rename":
        _put(path, theirs)
    elif how == "delete and create":
        with suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "xb") as file:
            file.write(theirs)


def _recover(root: str, how: str, name: str) -> None:
    guard = FileGuard(root, wait_s=0.2, clock=AnHourLater())
    with suppress(NoclobberError):
        if how == "read":
            guard.read(name)
        elif how == "write":
            guard.write(f"{os.path.dirname(name)}/probe", b"probe\n", expected=None)
    for folder in ("one", "two"):  # Wherever something was cut off, it is finished now.
        guard.write(f"{folder}/probe", b"again\n", expected=None)
    guard.sweep()


def _in_child(act: object, *words: object) -> None:
    child = os.fork()
    if child == 0:
        try:
            act(*words)  # type: ignore[operator]
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"a process ended with status {status}")


def attempt(folder: str, trial: Trial) -> list[str]:
    """Run one trial in a folder; return what is wrong."""
    root = f"{folder}/project"
    for name in ("one", "two"):
        shutil.rmtree(f"{root}/{name}", ignore_errors=True)
        os.makedirs(f"{root}/{name}")
    for name in (A, B):
        if not (trial.operation == "create" and name == A):
            _put(f"{root}/{name}", _text("old", trial.size))
    if trial.operation == "linked":
        os.link(f"{root}/{A}", f"{root}/{A}2")
    hears, told = os.pipe()
    guard = os.fork()
    if guard == 0:
        os.close(hears)
        try:
            _guard_until_killed(root, trial, told)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(told)
    os.read(hears, 1)
    if not trial.dies_at_step:
        time.sleep(trial.lives_s)
        with suppress(ProcessLookupError):
            os.kill(guard, signal.SIGKILL)
    _, status = os.waitpid(guard, 0)
    was_saved_before = b"s" in os.read(hears, 64)
    os.close(hears)
    wrong = [] if os.WIFSIGNALED(status) else ["the guard failed"]
    name = MOVED if trial.operation == "move" and _content(f"{root}/{A}") is None else A
    _save(f"{root}/{name}", trial.save, trial.size)
    saved = _content(f"{root}/{name}")
    inode = None if saved is None else os.stat(f"{root}/{name}").st_ino
    _in_child(_recover, root, trial.recovery, name)
    return wrong + _judge(root, trial, name, saved, inode, was_saved_before)


def _judge(
    root: str, trial: Trial, name: str, saved: bytes | None, inode: int | None, was_saved_before: bool
) -> list[str]:
    wrong = []
    now = _content(f"{root}/{name}")
    old, new, meanwhile = (_text(word, trial.size) for word in ("old", "new", "meanwhile"))
    if trial.save != "nothing":
        if now != saved:
            wrong.append(
                f"what was saved after the crash is not there: {_look(now)} instead of {_look(saved)}"
            )
        elif os.stat(f"{root}/{name}").st_ino != inode:
            wrong.append("what was saved after the crash is in another inode")
    else:
        there = [_content(f"{root}/{each}") for each in (A, MOVED)]
        right: tuple[bytes | None, ...] = (old, new)
        if was_saved_before:  # At `plain` it may have come in the moment that is not covered.
            right = (meanwhile,) if trial.level != "plain" else (old, new, meanwhile)
        elif trial.operation in ("delete", "create"):
            right = (*((old,) if trial.operation == "delete" else (new,)), None)
        if now not in right and not (trial.operation == "move" and there[1] in right):
            wrong.append(f"after the recovery there is {_look(now)}")
        if trial.operation == "several" and not was_saved_before and now != _content(f"{root}/{B}"):
            wrong.append("half of a commit was left")
    if trial.operation == "several" and _content(f"{root}/{B}") not in (old, new):
        wrong.append(f"the second file is {_look(_content(f'{root}/{B}'))}")
    state = f"{root}/.noclobber"
    if left := os.listdir(f"{state}/swap"):
        wrong.append(f"{len(left)} {LEFT}, such as {left[0]}")
    return wrong


def _look(content: bytes | None) -> str:
    return "nothing" if content is None else f"{len(content)} bytes beginning {content[:12]!r}"


def _worker(folder: str, first_seed: int, trials: int, out: int) -> None:
    wrong: list[str] = []
    for number in range(trials):
        own = f"{folder}/{number // TRIALS_A_FOLDER}"
        if number % TRIALS_A_FOLDER == 0:
            shutil.rmtree(f"{folder}/{number // TRIALS_A_FOLDER - 1}", ignore_errors=True)
            os.mkdir(own)
        trial = Trial.of(first_seed + number)
        wrong += [f"{text} (seed {first_seed + number}: {trial})" for text in attempt(own, trial)]
        if len(wrong) > 20:
            break
    with os.fdopen(out, "w") as file:
        json.dump([number + 1, wrong], file)


def crash_often(folder: str, seed: int, kills: int, workers: int = WORKERS) -> tuple[int, list[str]]:
    """Run so many trials, several at a time; return how many, and what was wrong."""
    pipes = []
    for worker in range(workers):
        hears, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(hears)
            own = f"{folder}/{worker}"
            os.mkdir(own)
            try:
                _worker(own, seed * 10_000_000 + worker * 1_000_000, -(-kills // workers), tells)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(tells)
        pipes.append((pid, hears))
    done = 0
    wrong: list[str] = []
    for pid, hears in pipes:
        with os.fdopen(hears) as file:
            text = file.read()
        os.waitpid(pid, 0)
        count, complaints = json.loads(text) if text else (0, ["a worker failed"])
        done, wrong = done + count, wrong + complaints
    return done, wrong


def run(args: argparse.Namespace) -> bool:
    """Run it on the folder's filesystem, print a line, return whether all was well."""
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="noclobber-crash-", dir=args.folder) as folder:
        done, wrong = crash_often(folder, args.seed, args.kills)
    took_s = time.monotonic() - begun_s
    print(f"\n{done} kills with saves afterwards: {len(wrong)} wrong ({took_s:.0f} s)", flush=True)
    for text in wrong[:20]:
        print(f"    MISSED: {text}", flush=True)
    left = sum(LEFT in text for text in wrong)
    bars.note(args.figures, "crash", kills=done, moved=len(wrong) - left, left=left)
    return not wrong
