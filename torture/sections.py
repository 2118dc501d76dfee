"""
Guarded writes on one volume that two mounts show: `python -m torture.sections`, a part of `make hosts`.

A folder is mounted twice with FUSE (bindfs), so that the two mounts know nothing of each other: mutexes and
leases of one are not seen by the other. Agents on both read a file, add a line at its end and write it back;
now and then they add one line to several files at once, in one write. They are killed with `kill -9` and
stopped for longer than a section may take, at a step or at any moment. The server is stopped as by a crash.

Because every write adds one line, the versions of a file are the beginnings of its last version. The referee
convicts

- a write that was acknowledged, and whose line is not there, or twice: lost;
- two lines that follow each other without a write that said so by its hashes: the chain is broken;
- a line that is in one file of a write of several, and not in the others: mixed.

A control runs first, with revocation left out: whoever finds an overdue section looks whether its staged file
is there, believes what it sees, and goes on. It must be convicted, or the referee sees nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from noclobber import Workspace
from noclobber.disk import steps
from noclobber.errors import NoclobberError
from noclobber.postgres import schema, sections, volume
from noclobber.postgres.workspace_name import VARIABLE as WORKSPACE
from torture.postgres_server import Server, programs

FILES = ("a.txt", "b.txt", "c.txt")
SECTION_S = 0.4
STOPPED_S = 3 * SECTION_S
AGENTS = 6
STEPS = (
    *("section-staged", "section-begun", "section-checked", "section-ready", "section-renamed"),
    *("section-decided", "section-one-renamed", "section-revoked"),
)


class SectionVerdict(NamedTuple):
    """What the referee found."""

    acknowledged: int
    landed: int
    lost: int
    broken: int
    mixed: int
    killed: int
    stopped: int
    restarts: int

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not (self.lost or self.broken or self.mixed)


# -- an agent ----------------------------------------------------------------------------------------------


def agent(name: str, root: str, log: str, seed: int, *, revokes: bool, section_s: float = SECTION_S) -> None:
    """Add lines until killed. A write is in the log before it is tried, and again when it is acknowledged."""
    chance = random.Random(seed)
    sections.SECTION_S = section_s
    if not revokes:
        leave_out_revocation()

    def at_step(step: str) -> None:
        if chance.random() < 0.004:
            os.kill(os.getpid(), signal.SIGKILL)
        # The control is stopped where it matters, so that a short run convicts it, too.
        is_decisive = step == "section-ready" and not revokes
        if chance.random() < (0.1 if is_decisive else 0.004):  # The arena lets us go on.
            os.kill(os.getpid(), signal.SIGSTOP)

    steps.observer = at_step
    number = 0
    with Workspace(root) as workspace, open(log, "a", buffering=1, encoding="utf-8") as out:
        while True:
            number += 1
            line = f"{name}-{number}\n"
            names = chance.sample(FILES, 1 if chance.random() < 0.85 else 2)
            with suppress(NoclobberError), workspace.turn(agent_id=name) as turn:
                old = {file: turn.read_file(file).content for file in names}
                new = {file: content + line.encode() for file, content in old.items()}
                hashes = {file: [_sha256(old[file]), _sha256(new[file])] for file in names}
                out.write(json.dumps({"line": line, "tried": hashes}) + "\n")
                if len(names) == 1:
                    turn.write_file(names[0], new[names[0]])
                else:
                    turn.write_files(new)
                out.write(json.dumps({"line": line, "done": True}) + "\n")


def leave_out_revocation() -> None:
    """Make the control of this process."""
    volume.Volume.revoke = _believe_what_is_there  # type: ignore[method-assign]
    volume.Volume.drop = _leave_it  # type: ignore[method-assign]


def _believe_what_is_there(self: volume.Volume, name: str) -> bool:
    """The control: nothing is taken away; a staged file that is there counts as one that never lands."""
    return os.path.lexists(f"{self.folder}/{name}")


def _leave_it(self: volume.Volume, name: str) -> None:
    """The control: what is not taken away may still land."""


# -- the arena ---------------------------------------------------------------------------------------------


class SectionArena:
    """Two mounts of one folder, a server, agents, and what happens to them."""

    def __init__(self, server: Server, folder: str, seed: int, *, revokes: bool) -> None:
        self.server, self.folder, self.revokes = server, folder, revokes
        self.chance = random.Random(seed)
        self.killed = self.stopped = self.restarts = self._started = 0
        self._agents: list[subprocess.Popen[bytes]] = []
        self._asleep: dict[int, float] = {}
        self.under, self.mounts = f"{folder}/under", (f"{folder}/one", f"{folder}/two")
        self.environment = {
            **os.environ,
            "NOCLOBBER_COORDINATOR": server.address(),
            WORKSPACE: f"torture-{os.urandom(4).hex()}",
        }
        for path in (self.under, *self.mounts, f"{self.under}/.noclobber"):
            os.mkdir(path)
        for file in FILES:
            Path(self.under, file).write_bytes(b"")

    def __enter__(self) -> SectionArena:
        for mount in self.mounts:
            # Without it libfuse renames an open target away first: two steps, and a file that may vanish.
            subprocess.run(["bindfs", "-o", "hard_remove", self.under, mount], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._agents:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
        for mount in self.mounts:
            subprocess.run(["fusermount3", "-u", "-z", mount], check=False)

    def run(self, seconds: float, wanted: int) -> None:
        """Let things happen for so long, and until so many writes were acknowledged."""
        end_s = time.monotonic() + seconds
        next_restart_s = time.monotonic() + 7
        self._agents = [self._start(slot) for slot in range(AGENTS)]
        while time.monotonic() < end_s or (wanted and self._acknowledged() < wanted):
            time.sleep(0.05)
            now_s = time.monotonic()
            for slot, process in enumerate(self._agents):
                if process.poll() is not None:
                    self.killed += 1
                    self._agents[slot] = self._start(slot)
                elif _is_stopped(process.pid):
                    since_s = self._asleep.setdefault(process.pid, now_s)
                    if now_s - since_s > STOPPED_S * self.chance.uniform(0.3, 1.5):
                        self.stopped += 1
                        del self._asleep[process.pid]
                        os.kill(process.pid, signal.SIGCONT)
                elif self.chance.random() < 0.004:
                    os.kill(process.pid, self.chance.choice((signal.SIGKILL, signal.SIGSTOP)))
            if now_s > next_restart_s and self.revokes:
                self.restarts += 1
                self.server.stop()
                self.server.start()
                next_restart_s = now_s + self.chance.uniform(5, 15)

    def judge(self) -> SectionVerdict:
        """End everything, let recovery finish, and look."""
        for process in self._agents:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
        self._finish()
        content = {file: Path(self.under, file).read_bytes() for file in FILES}
        tried, done = attempts(log.read_text() for log in Path(self.folder).glob("*.log"))
        lost, broken, mixed = weigh(tried, done, content)
        landed = sum(text.count(b"\n") for text in content.values())
        return SectionVerdict(
            len(done), landed, lost, broken, mixed, self.killed, self.stopped, self.restarts
        )

    # -- parts ---------------------------------------------------------------------------------------------

    def _start(self, slot: int) -> subprocess.Popen[bytes]:
        self._started += 1
        mount, name = self.mounts[slot % 2], f"w{slot}.{self._started}"
        words = ["agent", name, mount, f"{self.folder}/{name}.log", str(self.chance.getrandbits(32))]
        words += ["--revokes"] if self.revokes else []
        program = [sys.executable, "-m", "torture.sections", *words]
        return subprocess.Popen(
            program, env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _finish(self) -> None:
        """What dead agents have left is finished by the next write."""
        program = (
            "import os, sys, time\n"
            "from noclobber import Workspace\n"
            "from noclobber.postgres import sections\n"
            f"sections.SECTION_S = {SECTION_S}\n"
            f"time.sleep({2 * SECTION_S})\n"
            "Workspace(sys.argv[1]).guard._sections.recover_overdue()\n"
        )
        subprocess.run(
            [sys.executable, "-c", program, self.mounts[0]], env=self.environment, check=True, timeout=120
        )

    def _acknowledged(self) -> int:
        return len(attempts(log.read_text() for log in Path(self.folder).glob("*.log"))[1])


Attempts = dict[str, dict[str, list[str]]]


def attempts(logs: Iterable[str]) -> tuple[Attempts, set[str]]:
    """Return what agents have tried, and what was acknowledged."""
    tried: Attempts = {}
    done: set[str] = set()
    for log in logs:
        for text in log.splitlines():
            with suppress(ValueError):  # Its writer was killed in the middle of it.
                found: dict[str, Any] = json.loads(text)
                if "done" in found:
                    done.add(found["line"])
                elif "tried" in found:
                    tried[found["line"]] = found["tried"]
    return tried, done


def weigh(tried: Attempts, done: set[str], content: dict[str, bytes]) -> tuple[int, int, int]:
    """The referee: how many writes are lost, versions that follow from none, and halves of several files."""
    lines = {file: text.splitlines(keepends=True) for file, text in content.items()}
    lost = mixed = broken = 0
    for line, hashes in tried.items():
        counts = [lines[file].count(line.encode()) for file in hashes]
        is_lost = max(counts) > 1 or (line in done and min(counts) != 1)
        if is_lost:
            print(f"lost: {line.strip()} is there {dict(zip(hashes, counts, strict=True))} times")
        lost += is_lost
        mixed += len(set(counts)) > 1
    for file in content:
        so_far, before = b"", _sha256(b"")
        for line_bytes in lines[file]:
            so_far += line_bytes
            after = _sha256(so_far)
            broken += tried.get(line_bytes.decode(), {}).get(file) != [before, after]
            before = after
    return lost, broken, mixed


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def why_not() -> str | None:
    """Why this cannot be run here; None if it can."""
    if programs() is None:
        return "there is no PostgreSQL: install postgresql, or run `make .venv/.ready`"
    if not shutil.which("bindfs") or not shutil.which("fusermount3") or not os.path.exists("/dev/fuse"):
        return "two mounts of one folder need FUSE and bindfs: apt install bindfs fuse3"
    return None


def chaos(seconds: float, seed: int, *, revokes: bool = True, wanted: int = 0) -> SectionVerdict:
    """Run the arena, and return what the referee found."""
    folder_of_programs = programs()
    assert folder_of_programs is not None
    server = Server(folder_of_programs)
    folder = tempfile.mkdtemp(prefix="nc-sections-")
    try:
        server.start()
        schema.install(server.address())
        with SectionArena(server, folder, seed, revokes=revokes) as arena:
            arena.run(seconds, wanted)
            return arena.judge()
    finally:
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


def main(argv: list[str] | None = None) -> int:
    """Run the control and the proof, or be one of their agents."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["agent"]:
        agent(words[1], words[2], words[3], int(words[4]), revokes="--revokes" in words)
        return 0
    parser = argparse.ArgumentParser(prog="python -m torture.sections")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS", 60)))
    parser.add_argument("--writes", type=int, default=int(os.environ.get("WRITES", 5000)))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", time.time_ns() % 10**9)))
    args = parser.parse_args(words)
    if (reason := why_not()) is not None:
        print(f"sections: skipped, {reason}")
        return 0
    print(f"sections: seed {args.seed}")
    control = chaos(min(args.seconds, 30), args.seed, revokes=False)
    print(f"control without revocation: {'NOT CONVICTED' if control.ok else 'convicted'} {control}")
    found = chaos(args.seconds, args.seed, wanted=args.writes)
    print(f"sections: {'every bar met' if found.ok else 'FAILED'} {found}")
    return int(not found.ok or control.ok)


if __name__ == "__main__":
    sys.exit(main())
