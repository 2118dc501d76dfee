"""
Two machines on one NFS volume with a coordinator: `python -m torture.nfs_sections`, a part of `make nfs`.

Four kernels (`kernels.py`): a file server, a database server, and two machines that have the volume mounted.
Agents on both add lines to shared files, one file or two in a write. They are killed and stopped for longer
than a section may take, at every step. The machines are cut off from the file server, from the database
server or from both, for up to longer than the NFS lease. The database server crashes. The referee
(`sections`) reads the file server's own disk.

Then the case that revocation is for, step by step: a machine is cut off from the file server at its rename,
which the switch sees and drops. It hangs in that machine's kernel. Another machine finds the write overdue,
and writes. When the cable is back, the kernel sends the rename after all: it must change nothing, and its
writer must hear that. If another program on that machine has the file open, the rename is two steps, of which
only the second can be revoked (`second_names`). As controls the same without revocation, and without second
names: there the late rename takes the other's update away.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from torture import kernels
from torture.postgres_server import programs
from torture.sections import FILES, attempts, weigh

CLIENTS = ("one", "two")
AGENTS_EACH = 3
REVOCATION, SECOND_NAMES = "revocation", "second names"
SECTION_S = 2.0
LEASE_S = 10  # Of the file server: for so long it keeps what a machine has that it does not hear of.
HOME = str(Path(__file__).parent.parent)
WORKSPACE = "nfs-proof"


class NfsSectionVerdict(NamedTuple):
    """What the referee found."""

    acknowledged: int
    landed: int
    lost: int
    broken: int
    mixed: int
    killed: int
    stopped: int
    cut: dict[str, int]
    crashes: int
    a_second: float

    @property
    def ok(self) -> bool:
        """True if nothing is wrong, and something was done."""
        return not (self.lost or self.broken or self.mixed) and self.acknowledged > 0


class LateRename(NamedTuple):
    """What came of a rename that arrived after somebody else had gone on."""

    first_heard: str
    """What the writer was told that had been cut off."""
    content: str
    """The file in the end, on the server's disk."""

    @property
    def changed_nothing(self) -> bool:
        """True if the other's update is there, and the late one is not, and was not acknowledged."""
        return self.content == "base\nsecond\n" and self.first_heard != "landed"


# -- programs on the machines --------------------------------------------------------------------------------

SERVE_DATABASE = """
import os, subprocess, sys
sys.path.insert(0, home)
from torture.postgres_server import Server
from noclobber.postgres import schema
small = "-c wal_buffers=1MB -c min_wal_size=32MB -c max_wal_size=64MB -c fsync=off"
guest.server = Server(programs, settings=f"-c listen_addresses={guest.SETTINGS['address']} -c ssl=on {small}")
data = guest.server.data
for name in ("server.key", "server.crt"):
    with open(f"{folder}/{name}", "rb") as source, open(f"{data}/{name}", "wb") as target:
        target.write(source.read())
    os.chmod(f"{data}/{name}", 0o600)
    os.chown(f"{data}/{name}", guest.server.user_id, -1)
with open(f"{data}/pg_hba.conf", "a") as rules:
    rules.write("hostssl all all 10.78.0.0/24 trust\\n")
guest.server.start()
schema.install(guest.server.address())
"""

CRASH_DATABASE = "guest.server.stop(); guest.server.start()"

START = """
import os, subprocess, sys
os.makedirs("/run/logs", exist_ok=True)
program = [sys.executable, "-B", "-m", "torture.nfs_sections", *words]
guest.children.append(subprocess.Popen(program, cwd=home, env={**os.environ, **environment}, stdin=-3,
                                     stdout=-3, stderr=open(f"/run/logs/{name}.err", "wb")))
answer = guest.children[-1].pid
"""

# How many work, how many have ended, and which are stopped.
LOOK = """
ended = [process for process in guest.children if process.poll() is not None]
guest.children = [process for process in guest.children if process not in ended]
states = {}
for process in guest.children:
    with open(f"/proc/{process.pid}/stat") as file:
        states[process.pid] = file.read().rpartition(")")[2].split()[0]
answer = [states, [process.returncode for process in ended]]
"""

SIGNAL = "import os; os.kill(pid, number)"
END_ALL = """
for process in guest.children:
    process.kill()
answer = [process.wait() for process in guest.children]
guest.children = []
"""
LOGS = """
import os
os.makedirs("/run/logs", exist_ok=True)
answer = {name: open(f"/run/logs/{name}", errors="replace").read() for name in os.listdir("/run/logs")}
"""


def one_write(line: str, log: str, section_s: float, *, without: str) -> None:
    """Add one line, and say what came of it. `without`: what a control leaves out."""
    from noclobber import Workspace
    from noclobber.errors import NoclobberError
    from noclobber.postgres import second_names, sections
    from torture.sections import leave_out_revocation

    sections.SECTION_S = section_s
    if without == REVOCATION:
        leave_out_revocation()
    if without == SECOND_NAMES:
        second_names.SecondNames.give = lambda *_: None  # type: ignore[method-assign]

    with Workspace("/mnt/work") as workspace, workspace.turn(agent_id=line.strip()) as turn:
        old = turn.read_file(FILES[0]).content
        try:
            turn.write_file(FILES[0], old + line.encode())
            said = "landed"
        except NoclobberError as error:
            said = error.code
            print(error, file=sys.stderr)
    Path(log).write_text(said)


# -- the arena -----------------------------------------------------------------------------------------------


class NfsSectionArena:
    """A file server, a database server and two machines, which are up as long as this is open."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.machines = kernels.Machines(folder, ("server", *CLIENTS, "db"))

    def __enter__(self) -> NfsSectionArena:
        self.machines.__enter__()
        try:
            self._serve()
        except BaseException:
            self.machines.__exit__()
            raise
        return self

    def _serve(self) -> None:
        addresses = [self.machines[name].address for name in CLIENTS]
        server, database = self.machines["server"], self.machines["db"]
        server.run("guest.serve(addresses, lease_s=lease_s)", addresses=addresses, lease_s=LEASE_S)
        for name in CLIENTS:
            self.machines[name].run("guest.use(server)", server=server.address)
        subprocess.run(
            ["openssl", "req", "-new", "-x509", "-days", "2", "-nodes", "-subj", "/CN=server", "-addext",
             f"subjectAltName=IP:{database.address}", "-keyout", f"{self._folder}/server.key", "-out",
             f"{self._folder}/server.crt"],
            check=True, capture_output=True,
        )  # fmt: skip
        database.run(SERVE_DATABASE, home=HOME, folder=self._folder, programs=programs(), timeout_s=300)
        certificate = f"sslmode=verify-full sslrootcert={self._folder}/server.crt"
        address = f"host={database.address} user=owner dbname=postgres {certificate}"
        self._environment = {"NOCLOBBER_COORDINATOR": address}

    def __exit__(self, *exc: object) -> None:
        self.machines.__exit__(*exc)

    def fresh(self, content: str = "") -> None:
        """Begin with files of their own, made on the server's own disk, and a workspace of its own."""
        self._environment["NOCLOBBER_WORKSPACE"] = f"{WORKSPACE}-{os.urandom(4).hex()}"
        self.machines["server"].run(
            "import os, shutil\n"
            "shutil.rmtree('/run/volume/work', ignore_errors=True)\n"
            "os.makedirs('/run/volume/work/.noclobber')\n"
            "[open(f'/run/volume/work/{file}', 'w').write(content) for file in files]\n",
            files=FILES,
            content=content,
        )

    def start(self, machine: str, name: str, *words: str) -> int:
        """Start an agent on a machine; return its number there."""
        values: dict[str, Any] = {"name": name, "words": words, "environment": self._environment}
        pid: int = self.machines[machine].run(START, home=HOME, **values)
        return pid

    def states(self, machine: str) -> tuple[dict[str, str], list[int]]:
        """How the agents of a machine are, and how those ended that did since the last look."""
        states, ended = self.machines[machine].run(LOOK)
        return states, ended

    def content(self) -> dict[str, bytes]:
        """The files, on the server's own disk."""
        found: dict[str, str] = self.machines["server"].run(
            "import os\n"
            "paths = {file: f'/run/volume/work/{file}' for file in files}\n"
            "there = {file: path for file, path in paths.items() if os.path.exists(path)}\n"
            "answer = {file: open(there[file]).read() if file in there else '' for file in files}",
            files=FILES,
        )
        return {file: text.encode() for file, text in found.items()}

    def logs(self) -> dict[str, str]:
        """What agents have written down, of all machines."""
        return {name: text for machine in CLIENTS for name, text in self.machines[machine].run(LOGS).items()}

    # -- everything at once --------------------------------------------------------------------------------

    def chaos(self, seconds: float, wanted: int, seed: int) -> NfsSectionVerdict:
        """Let things happen for so long, and until so many writes were acknowledged; judge them."""
        self.fresh()
        happening = _Chaos(self, seed)
        began_s = time.monotonic()
        while time.monotonic() - began_s < seconds or happening.acknowledged() < wanted:
            happening.happen()
            time.sleep(0.1)
        took_s = time.monotonic() - began_s
        happening.end()
        return happening.judge(took_s)

    # -- the late rename -----------------------------------------------------------------------------------

    def late_rename(
        self, *, cut_for_s: float, is_open: bool, is_killed: bool, without: str = ""
    ) -> LateRename:
        """
        Cut a machine off before its rename, let the other write, and let the rename come.

        `is_open`: another program there has the file open, so that the rename is two steps.
        `is_killed`: the writer is killed while its rename hangs in the kernel, which sends it all the same.
        """
        self.fresh("base\n")
        reader = self.start("one", "reader", "open") if is_open else None
        if reader is not None:
            self._wait_for("one", reader, "T")
        number = os.urandom(3).hex()
        words = [str(SECTION_S), without]
        # At the very call: the first of two steps if the file is open there, else the rename itself.
        self.machines.cut_at("one", "server", FILES[0].encode(), b".nfs" if is_open else b".0")
        first = self.start("one", "first", "write", "first\n", f"/run/logs/first.{number}", *words)
        if not self.machines.was_cut.wait(60):
            raise RuntimeError(f"the rename was never sent: {self.logs()}")
        began_s = time.monotonic()
        second = self.start("two", "second", "write", "second\n", f"/run/logs/second.{number}", *words)
        self._wait_for("two", second, None)
        heard = self.logs().get(f"second.{number}")
        if heard != "landed":
            raise RuntimeError(f"the second writer did not land: {heard} {self.logs().get('second.err')}")
        if is_killed:
            self.machines["one"].run(SIGNAL, pid=first, number=int(signal.SIGKILL))
        time.sleep(max(0.0, cut_for_s - (time.monotonic() - began_s)))
        self.machines.join("one")
        self._wait_for("one", first, None)
        # What the kernel of that machine still had to send has arrived when this has its answer.
        self._wait_for("one", self.start("one", "ping", "ping"), None)
        if reader is not None:
            self.machines["one"].run(SIGNAL, pid=reader, number=int(signal.SIGKILL))
            self._wait_for("one", reader, None)
        # Whoever reads it next sees what there is; until then a name may be missing that a late step took.
        self._wait_for("two", self.start("two", "third", "read"), None)
        return LateRename(self.logs().get(f"first.{number}", "nothing"), self.content()[FILES[0]].decode())

    def _wait_for(self, machine: str, pid: int, state: str | None) -> None:
        deadline_s = time.monotonic() + 120
        while (found := self.states(machine)[0].get(str(pid))) != state:
            if found is None or time.monotonic() > deadline_s:
                raise RuntimeError(f"an agent never came to {state}: {found} {self.logs()}")
            time.sleep(0.05)


class _Chaos:
    """What happens to agents, machines and the database server."""

    def __init__(self, arena: NfsSectionArena, seed: int) -> None:
        self._arena, self._chance = arena, random.Random(seed)
        self._started = self._killed = self._stopped = self._crashes = 0
        self._cuts: dict[str, int] = {}
        self._cut_until_s: dict[str, float] = {}
        self._asleep: dict[tuple[str, str], float] = {}
        self._next_crash_s = time.monotonic() + 20
        self._next_cut_s = time.monotonic() + 5
        self._next_count_s, self._count = 0.0, 0

    def happen(self) -> None:
        """One look at everything."""
        now_s = time.monotonic()
        for machine in CLIENTS:
            self._look_after(machine, now_s)
        for machine, until_s in list(self._cut_until_s.items()):
            if now_s >= until_s:
                self._arena.machines.join(machine)
                del self._cut_until_s[machine]
        if now_s > self._next_cut_s:
            self._cut(now_s)
        if now_s > self._next_crash_s:
            self._crashes += 1
            self._arena.machines["db"].run(CRASH_DATABASE)
            self._next_crash_s = now_s + self._chance.uniform(20, 60)

    def _look_after(self, machine: str, now_s: float) -> None:
        states, ended = self._arena.states(machine)
        for code in ended:
            if code != -signal.SIGKILL:
                errors = [text for name, text in self._arena.logs().items() if name.endswith(".err")]
                raise RuntimeError(f"an agent ended with {code}: {''.join(errors)[-3000:]}")
        self._killed += len(ended)
        for pid, state in states.items():
            if state not in "Tt":
                continue
            since_s = self._asleep.setdefault((machine, pid), now_s)
            if now_s - since_s > SECTION_S * self._chance.uniform(0.3, 3):
                self._stopped += 1
                del self._asleep[machine, pid]
                self._arena.machines[machine].run(SIGNAL, pid=int(pid), number=int(signal.SIGCONT))
        for _ in range(AGENTS_EACH - len(states)):
            self._started += 1
            name = f"{machine}.{self._started}"
            seed = str(self._chance.getrandbits(32))
            self._arena.start(machine, name, "agent", name, f"/run/logs/{name}.log", seed, str(SECTION_S))

    def _cut(self, now_s: float) -> None:
        machine = self._chance.choice(CLIENTS)
        other = self._chance.choice(("server", "db", None))
        kind = {"server": "from the files", "db": "from the database", None: "from both"}[other]
        self._cuts[kind] = self._cuts.get(kind, 0) + 1
        self._arena.machines.cut(machine, other)
        # Now and then for longer than the file server waits for a machine that it does not hear of.
        longest_s = 1.5 * LEASE_S if self._chance.random() < 0.2 else 2 * SECTION_S
        self._cut_until_s[machine] = now_s + self._chance.uniform(0.5, longest_s)
        self._next_cut_s = now_s + self._chance.uniform(4, 16)

    def acknowledged(self) -> int:
        """How many writes so far; asked now and then."""
        if time.monotonic() > self._next_count_s:
            self._count = len(attempts(self._arena.logs().values())[1])
            self._next_count_s = time.monotonic() + 5
        return self._count

    def end(self) -> None:
        """Let everything go on, end the agents, and let recovery finish."""
        for machine in CLIENTS:
            self._arena.machines.join(machine)
        for machine in CLIENTS:
            self._arena.machines[machine].run(END_ALL)
        time.sleep(2 * SECTION_S)
        self._arena.start("one", "finish", "finish")
        deadline_s = time.monotonic() + 120
        while True:
            states, ended = self._arena.states("one")
            if ended and ended != [0]:
                raise RuntimeError(self._arena.logs().get("finish.err"))
            if not states:
                return
            if time.monotonic() > deadline_s:
                raise RuntimeError("recovery does not end")
            time.sleep(0.1)

    def judge(self, took_s: float) -> NfsSectionVerdict:
        """The referee of `sections`, on the file server's own disk."""
        content = self._arena.content()
        tried, done = attempts(self._arena.logs().values())
        lost, broken, mixed = weigh(tried, done, content)
        landed = sum(text.count(b"\n") for text in content.values())
        faults = (self._killed, self._stopped, self._cuts, self._crashes)
        return NfsSectionVerdict(
            len(done), landed, lost, broken, mixed, *faults, round(len(done) / took_s, 1)
        )


def why_not() -> str | None:
    """Why this cannot be run here; None if it can."""
    if programs() is None:
        return "there is no PostgreSQL: install postgresql, or run `make .venv/.ready`"
    if shutil.which("openssl") is None:
        return "there is no openssl: apt install openssl"
    return kernels.why_not()


def _be_told(words: list[str]) -> bool:
    """Be an agent on one of the machines, if the words say so."""
    if words[:1] == ["agent"]:
        from torture.sections import agent

        agent(words[1], "/mnt/work", words[2], int(words[3]), revokes=True, section_s=float(words[4]))
    elif words[:1] == ["write"]:
        one_write(words[1], words[2], float(words[3]), without=words[4])
    elif words[:1] == ["open"]:
        with open(f"/mnt/work/{FILES[0]}"):
            os.kill(os.getpid(), signal.SIGSTOP)
    elif words[:1] == ["ping"]:
        Path("/mnt/work/ping").write_text("there\n")
    elif words[:1] == ["read"]:
        from noclobber import Workspace

        with Workspace("/mnt/work") as workspace, workspace.turn(agent_id="third") as turn:
            print(turn.read_file(FILES[0]).content, file=sys.stderr)
    elif words[:1] == ["finish"]:
        from noclobber import Workspace

        Workspace("/mnt/work").guard._sections.recover_overdue()  # type: ignore[attr-defined]
    else:
        return False
    return True


def tell_late_renames(arena: NfsSectionArena) -> bool:
    """The late rename, for shorter and longer than the NFS lease, and in two steps; True if all is well."""
    is_well = True
    for without in (REVOCATION, SECOND_NAMES):
        is_open = without == SECOND_NAMES
        found = arena.late_rename(cut_for_s=2 * SECTION_S, without=without, is_open=is_open, is_killed=False)
        is_well = is_well and not found.changed_nothing
        verdict = "NOT CONVICTED" if found.changed_nothing else "convicted"
        print(f"control, a late rename without {without}: {verdict} {found}", flush=True)
    for cut_for_s, is_open, is_killed in (
        (2 * SECTION_S, False, False),
        (1.5 * LEASE_S, False, False),
        (2 * SECTION_S, True, False),
        (1.5 * LEASE_S, True, True),
    ):
        told = f"cut off for {cut_for_s:.0f} s (the NFS lease is {LEASE_S} s)"
        told += ", another program there has the file open" * is_open + ", its writer is killed" * is_killed
        found = arena.late_rename(cut_for_s=cut_for_s, is_open=is_open, is_killed=is_killed)
        is_well = is_well and found.changed_nothing
        verdict = "changed nothing" if found.changed_nothing else "FAILED"
        print(f"late rename, {told}: {verdict} {found}", flush=True)
    return is_well


def main(argv: list[str] | None = None) -> int:
    """Run the stories, their controls and the chaos, or be an agent."""
    words = sys.argv[1:] if argv is None else argv
    if _be_told(words):
        return 0
    parser = argparse.ArgumentParser(prog="python -m torture.nfs_sections")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS", 60)))
    parser.add_argument("--writes", type=int, default=int(os.environ.get("WRITES", 1000)))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", time.time_ns() % 10**9)))
    args = parser.parse_args(words)
    if (reason := why_not()) is not None:
        print(f"nfs with a coordinator: skipped, {reason}")
        return 0
    print(f"nfs with a coordinator: seed {args.seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="nc-nfs-")
    is_well = True
    try:
        with NfsSectionArena(folder) as arena:
            is_well = tell_late_renames(arena)
            chaos = arena.chaos(args.seconds, args.writes, args.seed)
            print(f"nfs with a coordinator: {'every bar met' if chaos.ok else 'FAILED'} {chaos}")
            return int(not (is_well and chaos.ok))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
