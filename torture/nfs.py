"""
Guarded writers on an NFS volume and two machines, with no coordinator: `python -m torture.nfs` (`make nfs`).

Three kernels (`kernels.py`): one serves a folder by NFSv4.2, two have it mounted. Agents on both read a file,
add a line at its end and write it back, as fast as they can; some are killed with `kill -9` at any step.
Because every write adds one line, the referee can tell from the last version on the server's own disk

- a write that was acknowledged, and whose line is not there, or twice: lost;
- two lines that follow each other without a write that said so by its hashes: the chain is broken;
- a new file that two agents believe to have made, or that is not what its maker wrote;
- a ledger of both machines whose chain is broken.

Controls run first, and must be convicted, or the referee sees nothing: one with the mutex of folders alone,
which an NFS client keeps to itself; one with the mutex of files, but no look past the client's caches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torture import kernels

CLIENTS = ("one", "two")
FILES = ("a.txt", "sub/b.txt")
AGENTS_EACH = 2
MOST_CONTROLS = 3  # Rounds of a control: two machines may be lucky once.
CONTROLS = ("folders-only", "old-caches")
HOME = str(Path(__file__).parent.parent)


class NfsVerdict(NamedTuple):
    """What the referee found."""

    acknowledged: int
    landed: int
    lost: int
    broken: int
    made_twice: int
    broken_ledgers: int
    killed: int
    refused: dict[str, int]
    a_second: float

    @property
    def ok(self) -> bool:
        """True if nothing is wrong, and something was done."""
        wrong = self.lost or self.broken or self.made_twice or self.broken_ledgers
        return not wrong and self.acknowledged > 0


# -- an agent, on one of the machines ----------------------------------------------------------------------


def agent(name: str, root: str, log: str, seed: int, seconds: float, kills: float, control: str) -> None:
    """Add lines until the time is over. Each write is in the log before it is tried, and when it is done."""
    from noclobber import Workspace
    from noclobber.disk import steps
    from noclobber.errors import ABSENT, NoclobberError

    chance = random.Random(seed)
    _weaken(control)

    def at_step(_: str) -> None:
        if chance.random() < kills:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.observer = at_step
    end_s, number = time.monotonic() + seconds, 0
    with Workspace(root) as workspace, open(log, "a", buffering=1, encoding="utf-8") as out:
        while time.monotonic() < end_s:
            number += 1
            line = f"{name}-{number}\n"
            try:
                if chance.random() < 0.15:  # Agents of both machines come to these names at about one time.
                    slot = f"slot-{number // 3}"
                    workspace.guard.write(slot, line.encode(), expected=ABSENT)
                    out.write(json.dumps({"line": line, "made": slot}) + "\n")
                    continue
                file = chance.choice(FILES)
                with workspace.turn(agent_id=name) as turn:
                    old = turn.read_file(file).content
                    new = old + line.encode()
                    row = {"line": line, "file": file, "tried": [_sha256(old), _sha256(new)]}
                    out.write(json.dumps(row) + "\n")
                    turn.write_file(file, new)
                out.write(json.dumps({"line": line, "done": True}) + "\n")
            except NoclobberError as error:
                out.write(json.dumps({"refused": error.code, "said": str(error)}) + "\n")


def _weaken(control: str) -> None:
    """Leave out what a control leaves out."""
    from noclobber.disk import filesystems
    from noclobber.disk.commit.section import Section

    if control == "folders-only":
        Section._take_volume_mutexes = lambda self: None  # type: ignore[method-assign]
    if control == "old-caches":
        filesystems.ask_anew = filesystems.forget_cached = _look_at_nothing


def _look_at_nothing(descriptor: int) -> None:
    """The control: what this machine remembers is believed."""


# -- the arena ---------------------------------------------------------------------------------------------

START = """
import os, subprocess, sys
environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
os.makedirs("/run/logs", exist_ok=True)
words = [sys.executable, "-m", "torture.nfs", "agent", name, "/mnt/work", f"/run/logs/{name}", *rest]
guest.children.append(subprocess.Popen(words, cwd=home, env=environment, stdin=-3, stdout=-3,
                                     stderr=open(f"/run/logs/{name}.err", "wb")))
"""

ENDED = """
ended = [process for process in guest.children if process.poll() is not None]
guest.children = [process for process in guest.children if process not in ended]
answer = [len(guest.children), [process.returncode for process in ended]]
"""

LOGS = """
import os
answer = {}
for name in sorted(os.listdir("/run/logs")):
    with open(f"/run/logs/{name}", errors="replace") as file:
        answer[name] = file.read()
    os.unlink(f"/run/logs/{name}")
"""


VERIFY = """
import subprocess, sys
words = [sys.executable, "-B", "-m", "noclobber", "ledger", "verify", "--root", "/run/volume/work"]
done = subprocess.run(words, cwd=home, capture_output=True, text=True)
answer = "" if done.returncode == 0 else done.stdout[-1500:] + done.stderr[-1500:]
"""


class NfsArena:
    """A server and two clients, which are up as long as this is open."""

    def __init__(self, folder: str, options: str = "") -> None:
        self._options = options
        self._machines = kernels.Machines(folder, ("server", *CLIENTS))

    def __enter__(self) -> NfsArena:
        self._machines.__enter__()
        addresses = [self._machines[name].address for name in CLIENTS]
        self._machines["server"].run("guest.serve(addresses)", addresses=addresses)
        for name in CLIENTS:
            server = self._machines["server"].address
            self._machines[name].run("guest.use(server, options)", server=server, options=self._options)
        return self

    def __exit__(self, *exc: object) -> None:
        self._machines.__exit__(*exc)

    def __getitem__(self, name: str) -> kernels.Machine:
        return self._machines[name]

    def fresh(self) -> None:
        """Begin with empty files, made on the server's own disk."""
        self._machines["server"].run(
            "import os, shutil\n"
            "shutil.rmtree('/run/volume/work', ignore_errors=True)\n"
            "os.makedirs('/run/volume/work/.noclobber'); os.mkdir('/run/volume/work/sub')\n"
            "[open(f'/run/volume/work/{file}', 'w').close() for file in files]\n",
            files=FILES,
        )

    def round(self, seconds: float, seed: int, *, kills: float = 0.0, control: str = "") -> NfsVerdict:
        """Let agents work on both machines, and judge what they did."""
        self.fresh()
        chance, killed, began_s = random.Random(seed), 0, time.monotonic()
        started = 0
        while True:
            left_s = seconds - (time.monotonic() - began_s)
            working = 0
            for machine in CLIENTS:
                there, ended = self._machines[machine].run(ENDED)
                killed += ended.count(-signal.SIGKILL)
                for code in ended:
                    if code not in (0, -signal.SIGKILL):
                        raise RuntimeError(f"an agent ended with {code}: {self._errors(machine)}")
                while left_s > 1 and there < AGENTS_EACH:
                    started, there = started + 1, there + 1
                    rest = [str(chance.getrandbits(32)), str(left_s), str(kills), control]
                    self._machines[machine].run(START, name=f"{machine}.{started}", rest=rest, home=HOME)
                working += there
            if not working:
                return self._judge(killed, time.monotonic() - began_s)
            time.sleep(0.1)

    def _errors(self, machine: str) -> str:
        found: dict[str, str] = self._machines[machine].run(LOGS)
        return "".join(text for name, text in found.items() if name.endswith(".err"))[-3000:]

    def _judge(self, killed: int, took_s: float) -> NfsVerdict:
        tried: dict[str, dict[str, Any]] = {}
        made: dict[str, list[str]] = {}
        done: set[str] = set()
        refused: Counter[str] = Counter()
        said: Counter[str] = Counter()
        for machine in CLIENTS:
            for text in self._machines[machine].run(LOGS).values():
                for row in text.splitlines():
                    with suppress(ValueError):  # Its writer was killed in the middle of it.
                        found = json.loads(row)
                        if "tried" in found:
                            tried[found["line"]] = found
                        elif "made" in found:
                            made.setdefault(found["made"], []).append(found["line"])
                        elif "done" in found:
                            done.add(found["line"])
                        else:
                            refused[found["refused"]] += 1
                            if found["refused"] != "STALE_FILE":
                                said[found["said"]] += 1
        for text, times in said.most_common(5):
            print(f"refused {times} times: {text}")
        content: dict[str, str] = self._machines["server"].run(
            "answer = {file: open(f'/run/volume/work/{file}').read() for file in files}",
            files=[*FILES, *made],
        )
        lost, broken, made_twice = weigh(tried, done, made, content)
        landed = sum(content[file].count("\n") for file in FILES)
        a_second = round(len(done) / took_s, 1)
        return NfsVerdict(
            len(done),
            landed,
            lost,
            broken,
            made_twice,
            self._broken_ledgers(),
            killed,
            dict(refused),
            a_second,
        )

    def _broken_ledgers(self) -> int:
        """One chain of events for both machines; 1 if it is broken, on the server's own disk."""
        found: str = self._machines["server"].run(VERIFY, home=HOME)
        if found:
            print(found)
        return int(bool(found))


def weigh(
    tried: dict[str, dict[str, Any]], done: set[str], made: dict[str, list[str]], content: dict[str, str]
) -> tuple[int, int, int]:
    """The referee: how many lines are lost, do not follow from the one before, and files were made twice."""
    lines = {file: content[file].splitlines(keepends=True) for file in FILES}
    lost = sum(lines[tried[line]["file"]].count(line) != 1 for line in done)
    made_twice = sum([content[slot]] != makers for slot, makers in made.items())
    broken = 0
    for file in FILES:
        so_far, before = "", _sha256(b"")
        for line in lines[file]:
            so_far += line
            after = _sha256(so_far.encode())
            broken += tried.get(line, {}).get("tried") != [before, after]
            before = after
    return lost, broken, made_twice


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(argv: list[str] | None = None) -> int:
    """Run the controls and the proof, or be one of their agents."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["agent"]:
        name, root, log, seed, seconds, kills, control = words[1:]
        agent(name, root, log, int(seed), float(seconds), float(kills), control)
        return 0
    parser = argparse.ArgumentParser(prog="python -m torture.nfs")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS", 60)))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", time.time_ns() % 10**9)))
    args = parser.parse_args(words)
    if (reason := kernels.why_not()) is not None:
        print(f"nfs: skipped, {reason}")
        return 0
    print(f"nfs: seed {args.seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="nc-nfs-")
    try:
        with NfsArena(folder) as arena:
            said = arena["one"].run("from noclobber.disk.reach import reach_of; answer = reach_of('/mnt')")
            print(f"whom a write excludes: {said}", flush=True)
            convicted = said == "volume"
            for control in CONTROLS:
                for again in range(MOST_CONTROLS):
                    found = arena.round(min(args.seconds, 15), args.seed + again, control=control)
                    if not found.ok:
                        break
                convicted = convicted and not found.ok
                print(
                    f"control {control}: {'NOT CONVICTED' if found.ok else 'convicted'} {found}", flush=True
                )
            found = arena.round(args.seconds, args.seed, kills=0.002)
            print(f"nfs: {'every bar met' if found.ok else 'FAILED'} {found}")
            return int(not found.ok or not convicted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
