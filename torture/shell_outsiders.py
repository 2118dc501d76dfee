"""
Everybody in `torture.shell` who uses no guarded shell: outsiders of every kind, and a person with plain git.

Each kind of `torture.outsiders` has a file of its own, `kinds/<kind>/shared`, which agents change with
commands at the same time. It saves every now and then, so that commands land in between. What was lost, the
accounting of the demo says.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from torture import accounting, colliding, outsiders
from torture.outside_writer import OutsideWriter
from torture.shell_commands import FILES, KINDS_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONGEST_PAUSE_S = 6.0
GIT_VERSIONS_S = 6.0  # So many seconds' worth of versions for `git checkout`; it makes one a second here.
# A command's write breaks a hard link, as an editor's does (docs/shell.md); `guards` is no outsider.
LEFT_OUT = ("guards", "hardlink")


# They write several times through one mapping. The kernel notes a new time for the first only, so one that
# was there before a command began and is gone before it ends is not noticed. Not promised (docs/shell.md).
WITH_OLD_MAPPINGS = ("mapped", "mapping")


class KindAccount(NamedTuple):
    """What became of the file of one kind of outsider."""

    updates: int
    commits: int
    lost: int
    torn: int
    not_promised: int
    """Updates through a mapping that was there before: see `WITH_OLD_MAPPINGS`."""
    trouble: tuple[str, ...]


def chosen(folder: Path) -> list[str]:
    """Return the kinds that can work on this machine."""
    folder.mkdir()
    kinds = [kind for kind in outsiders.KINDS if kind not in LEFT_OUT]
    return [kind for kind in kinds if outsiders.unavailable(kind, str(folder)) is None]


def path_of(root: Path, kind: str) -> Path:
    """Return the file that a kind shares with the agents."""
    return root / KINDS_FOLDER / kind / "shared"


def prepare(root: Path, logs: Path, kinds: list[str]) -> None:
    """Put everybody's file there."""
    for kind in kinds:
        path_of(root, kind).parent.mkdir(parents=True)
        (logs / kind).mkdir()
        outsiders.prepare(kind, str(path_of(root, kind)), GIT_VERSIONS_S)


def start(root: Path, logs: Path, kinds: list[str], *, seed: int, until_s: float) -> list[int]:
    """Start all of them, each in a process of its own; return their pids."""
    jobs: list[Callable[[], None]] = []
    for number, kind in enumerate(kinds):
        jobs.append(lambda kind=kind, number=number: _save(root, logs, kind, seed + number, until_s))  # type: ignore[misc]
    for number in (100, 101):
        jobs.append(lambda number=number: _append(root, number, until_s, logs / str(number)))  # type: ignore[misc]
    jobs.append(lambda: _commit(root, seed, until_s, logs / "person"))
    jobs.append(lambda: colliding.move(root, until_s, lambda: _is_over))
    pids = []
    for job in jobs:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.signal(signal.SIGTERM, _stop)
                job()
                code = 0
            except SystemExit:
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    return pids


_is_over = False


def _stop(number: int, frame: object) -> None:
    global _is_over
    _is_over = True


def stop(pids: list[int]) -> list[str]:
    """Let each finish the save that it is in; return who failed."""
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    ended = [os.waitpid(pid, 0)[1] for pid in pids]
    return [f"outsider {number} ended with {status}" for number, status in enumerate(ended) if status]


def _save(root: Path, logs: Path, kind: str, seed: int, until_s: float) -> None:
    path, log = str(path_of(root, kind)), str(logs / kind / "outsider.log")
    if outsiders.KINDS[kind].is_compiled:
        program = os.environ[outsiders.PROGRAM]
        words = [program, kind, path, log, str(seed), "0", str(until_s), str(int(LONGEST_PAUSE_S * 1e6))]
        os.execv(program, words)
    step = outsiders.KINDS[kind].step
    assert step is not None
    writer = OutsideWriter(path, log, seed, until_s)
    while time.monotonic() < until_s and not _is_over:
        step(writer)
        wakes_s = time.monotonic() + writer.chance.random() * LONGEST_PAUSE_S
        while time.monotonic() < wakes_s and not _is_over:
            time.sleep(0.1)


def _append(root: Path, number: int, until_s: float, log_path: Path) -> None:
    """Append to the files that agents change in six ways."""
    rng, count = random.Random(number), 0
    with log_path.open("a") as log:
        while time.monotonic() < until_s and not _is_over:
            count += 1
            token, file = f"o{number}x{count}", rng.choice(FILES)
            with open(root / file, "ab", buffering=0) as target:
                target.write(f"{token}\n".encode())
            log.write(f"outsider\t{token}\t{file}\tlanded\n")
            log.flush()
            time.sleep(rng.random() * 1.5)


def _commit(root: Path, seed: int, until_s: float, log_path: Path) -> None:
    """A person who commits a file of their own with plain git, beside the agents' commits."""
    rng, count = random.Random(seed), 0
    with log_path.open("a") as log:
        while time.monotonic() < until_s and not _is_over:
            count += 1
            token = f"p{count}"
            with open(root / "person.txt", "ab", buffering=0) as target:
                target.write(f"{token}\n".encode())
            how = "failed"
            for _ in range(400):  # Git says so if somebody else has the index; then a person tries again.
                words = ["git", "commit", "-qm", f"person {token}", "person.txt"]
                done = subprocess.run(words, cwd=root, capture_output=True, text=True, start_new_session=True)
                if done.returncode == 0 or "nothing" in done.stdout:  # Or `commit -a` has taken it along.
                    how = "landed"
                    break
                how = f"failed {done.stdout[-200:]}{done.stderr[-200:]}".replace("\n", " ")
                time.sleep(0.02)
            log.write(f"person\t{token}\tperson.txt\t{how}\n")
            log.flush()
            time.sleep(rng.random() * 2.5)


def settle(root: Path, logs: Path, kind: str, kept: list[str]) -> KindAccount:
    """Account for the file of one kind."""
    path = path_of(root, kind)
    inside = path / "index" if path.is_dir() else path
    final = inside.read_bytes() if inside.exists() else None
    account = accounting.settle(kind, str(logs / kind), final, kept)
    trouble = [f"{kind}: {text}" for text in (*account.faults, *account.evidence)]
    if not outsiders.KINDS[kind].changes_bytes:
        trouble = [text for text in trouble if "kept aside" not in text]
    not_promised = account.lost if kind in WITH_OLD_MAPPINGS else 0
    lost = account.lost - not_promised + account.lost_commits + account.withdrawn
    is_bad = lost or account.torn or account.faults
    return KindAccount(
        account.updates,
        account.commits,
        lost,
        account.torn,
        not_promised,
        tuple(trouble[:6]) if is_bad else (),
    )
