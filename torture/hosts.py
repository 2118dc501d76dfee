"""
One lock on several machines, under every fault at once: `python -m torture.hosts` (`make hosts`).

Three hosts are network namespaces with a cable each to a switch; the server is in a fourth. Their links are
cut, clients are killed, stopped for longer than a lease and let go on, sessions are ended from outside, the
server is stopped as by a crash and started again. The clients' clocks are off by a day.

The referee sees only what holders do: one line for each action, with the token that the holder believes to
have and the moment at which it last knew that it had it. It convicts

- an action of a lower token after one of a higher token, by a holder that still believed: two holders;
- a token that two acquisitions have, or that did not rise in the order of the record;
- a lock that nobody gets when the faults are over: stuck.

A control that acts without asking runs first and must be convicted, or the referee sees nothing.

Without root there are no namespaces: then the clients are processes on one machine, no link is cut, and the
report says so.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg

from noclobber.disk.processes import identify
from noclobber.errors import CoordinatorUnavailableError, LockLost, NoclobberError
from noclobber.lock.arbiter import Taker
from noclobber.postgres import schema
from noclobber.postgres.arbiter import PostgresArbiter, boot_time_s
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.ledger import PostgresLedger
from noclobber.postgres.workspace_name import VARIABLE as WORKSPACE
from torture.postgres_server import Server, programs

HOSTS = ("h1", "h2", "h3")
SERVER_IP = "10.77.0.5"
LEASE_S = 2
A_DAY_S = 86_400
CLIENTS = 6


class Action(NamedTuple):
    """What a holder did: with which token, when, and until when it believed."""

    token: int
    at_s: float
    valid_until_s: float
    client: str


class Verdict(NamedTuple):
    """What the referee found."""

    actions: int
    acquisitions: int
    double_holders: int
    tokens_not_rising: int
    is_stuck: bool
    takeovers: int

    @property
    def ok(self) -> bool:
        return not self.double_holders and not self.tokens_not_rising and not self.is_stuck


# -- the network ---------------------------------------------------------------------------------------------


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def network() -> Iterator[bool]:
    """Three hosts and a server around a switch; False if this user may not make them."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("setpriv") is None:
        yield False
        return
    _network_down()
    try:
        _ip("netns", "add", "nc-sw")
        _ip("-n", "nc-sw", "link", "add", "br0", "type", "bridge")
        _ip("-n", "nc-sw", "link", "set", "br0", "up")
        for number, name in enumerate((*HOSTS, "pg")):
            _ip("netns", "add", f"nc-{name}")
            _ip("-n", f"nc-{name}", "link", "set", "lo", "up")
            _ip(
                "-n",
                "nc-sw",
                "link",
                "add",
                f"v-{name}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                f"nc-{name}",
            )
            _ip("-n", "nc-sw", "link", "set", f"v-{name}", "master", "br0", "up")
            address = SERVER_IP if name == "pg" else f"10.77.0.{11 + number}"
            _ip("-n", f"nc-{name}", "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", f"nc-{name}", "link", "set", "eth0", "up")
    except subprocess.CalledProcessError as error:
        print(f"no network namespaces: {error.stderr.decode().strip()}")
        _network_down()
        yield False
        return
    try:
        yield True
    finally:
        _network_down()


def _network_down() -> None:
    for name in (*HOSTS, "pg", "sw"):
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "del", f"nc-{name}")


def _certificate(folder: str, user_id: int) -> str:
    """Make the server's own certificate, as `verify-full` wants one; return what clients check it against."""
    key, certificate = f"{folder}/server.key", f"{folder}/server.crt"
    subprocess.run(
        ["openssl", "req", "-new", "-x509", "-days", "2", "-nodes", "-subj", "/CN=server", "-addext",
         f"subjectAltName=IP:{SERVER_IP}", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    for path in (key, certificate):
        os.chown(path, user_id, -1)
    os.chmod(key, 0o600)
    return certificate


# -- a client ------------------------------------------------------------------------------------------------


def client(name: str, address: str, folder: str, log: str, seed: int, *, asks: bool) -> None:
    """Take the lock, act, let go, for ever. The control does not ask (`asks`): it believes what it heard."""
    real_time = time.time
    ahead_s = A_DAY_S if seed % 2 else -A_DAY_S
    time.time = lambda: real_time() + ahead_s  # Its clock is wrong by a day.
    chance = random.Random(seed)
    arbiter = PostgresArbiter(ServerConnection(address, patience_s=0.5))
    taker = Taker(name, name, LEASE_S, identify(), lease_only=False)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    while True:
        held: list[object] = []
        try:
            if arbiter.take(folder, taker, held.append) is not None:
                arbiter.wait(folder, 0.05)
                continue
            holding = held[0]
            for _ in range(chance.randrange(1, 40) if asks else 400):
                if asks:
                    left_s = arbiter.check(holding)  # type: ignore[arg-type]
                    if left_s < LEASE_S * 2 / 3:
                        holding = arbiter.renew(holding, LEASE_S)  # type: ignore[arg-type]
                now_s = boot_time_s()
                valid_until_s = holding.valid_until_s  # type: ignore[attr-defined]
                if asks and now_s >= valid_until_s:
                    raise LockLost(folder, "its lease has ended by its own clock")
                until_s = valid_until_s if asks else now_s + 1
                line = f"{holding.fencing_token} {now_s:.6f} {until_s:.6f} {name}\n"  # type: ignore[attr-defined]
                os.write(descriptor, line.encode())
                time.sleep(chance.random() * 0.02)
            arbiter.give_up(holding, lambda _: None)  # type: ignore[arg-type]
        except (LockLost, CoordinatorUnavailableError, NoclobberError):
            time.sleep(0.01)


# -- the run -------------------------------------------------------------------------------------------------


class Arena:
    """Clients on hosts, and what can happen to them."""

    def __init__(
        self, server: Server, address: str, folder: Path, seed: int, *, on_hosts: bool, asks: bool
    ) -> None:
        self.server, self.address, self.folder, self.on_hosts = server, address, folder, on_hosts
        self.chance, self._asks, self._number = random.Random(seed), asks, 0
        self.log = folder / "actions"
        self.log.touch()
        self.clients: dict[int, subprocess.Popen[bytes]] = {}
        self.stopped: dict[int, float] = {}
        self.cut: dict[str, float] = {}
        self.faults: dict[str, int] = {}

    def start_client(self, slot: int) -> None:
        """Start one, on its host."""
        self._number += 1
        name = f"c{self._number}"
        command = [
            sys.executable, "-m", "torture.hosts", "--client", name, "--address", self.address,
            "--folder", str(self.folder / "report"), "--log", str(self.log), "--seed", str(self._number),
        ]  # fmt: skip
        if not self._asks:
            command.append("--control")
        if self.on_hosts:
            command = ["ip", "netns", "exec", f"nc-{HOSTS[slot % len(HOSTS)]}", *command]
        self.clients[slot] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def happen(self, now_s: float) -> None:
        """Let one fault happen, and end those whose time has come."""
        for slot, until_s in list(self.stopped.items()):
            if now_s >= until_s:
                del self.stopped[slot]
                self.clients[slot].send_signal(signal.SIGCONT)
        for host, until_s in list(self.cut.items()):
            if now_s >= until_s:
                self._join(host)
        kinds = ["kill", "stop", "stop", "end sessions", "restart"] + ["cut", "cut"] * self.on_hosts
        kind, slot = self.chance.choice(kinds), self.chance.randrange(CLIENTS)
        self.faults[kind] = self.faults.get(kind, 0) + 1
        if kind == "kill":
            self.stopped.pop(slot, None)
            self.clients[slot].kill()
            self.clients[slot].wait()
            self.start_client(slot)
        elif kind == "stop":
            self.clients[slot].send_signal(signal.SIGSTOP)
            self.stopped[slot] = now_s + self.chance.uniform(0.2, LEASE_S * 2)
        elif kind == "cut":
            host = self.chance.choice(HOSTS)
            _ip("-n", "nc-sw", "link", "set", f"v-{host}", "down")
            self.cut[host] = now_s + self.chance.uniform(0.2, LEASE_S * 2)
        elif kind == "end sessions":
            with suppress(psycopg.Error), psycopg.connect(self.server.address(), connect_timeout=2) as link:
                link.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'noclobber' AND random() < 0.5"
                )
        elif self.chance.random() < 0.3:  # The dearest fault, and the others need a server.
            self.server.stop()
            self.server.start_again()

    def _join(self, host: str) -> None:
        self.cut.pop(host, None)
        _ip("-n", "nc-sw", "link", "set", f"v-{host}", "up")

    def end(self) -> None:
        """Let everything go on, and then stop it."""
        for host in list(self.cut):
            self._join(host)
        for process in self.clients.values():
            process.kill()
        for process in self.clients.values():
            process.wait()

    def actions(self) -> list[Action]:
        """What the referee saw, in order. The last line of a killed client is whole: it is one write."""
        found = []
        for line in self.log.read_text().splitlines():
            token, at_s, valid_until_s, name = line.split()
            found.append(Action(int(token), float(at_s), float(valid_until_s), name))
        return found


def judge(actions: list[Action], tokens_on_record: list[int], *, is_stuck: bool, takeovers: int) -> Verdict:
    """The referee. Pure: from what holders did, and the order of acquisitions on record."""
    double, highest = 0, 0
    began: dict[int, float] = {}
    for action in actions:
        began.setdefault(action.token, action.at_s)
        highest_began_s = began.get(highest, float("inf"))
        # Late because it was stopped between its look at the clock and its action: then it looked before.
        if action.token < highest and highest_began_s < action.at_s < action.valid_until_s:
            double += 1
        highest = max(highest, action.token)
    not_rising = sum(after <= before for before, after in itertools.pairwise(tokens_on_record))
    owners: dict[int, set[str]] = {}
    for action in actions:
        owners.setdefault(action.token, set()).add(action.client)
    not_rising += sum(len(names) > 1 for names in owners.values())
    return Verdict(len(actions), len(tokens_on_record), double, not_rising, is_stuck, takeovers)


def chaos(seconds: float, seed: int, *, asks: bool = True, wants_hosts: bool = True) -> tuple[Verdict, Arena]:
    """Run clients and faults for a while; return what the referee says."""
    folder = programs()
    if folder is None:
        raise SystemExit("no PostgreSQL on this machine: install postgresql, or `make .venv/.ready`")
    before = os.environ.get(WORKSPACE)
    os.environ[WORKSPACE] = f"chaos-{os.urandom(4).hex()}"
    try:
        return _chaos(folder, seconds, seed, asks=asks, wants_hosts=wants_hosts)
    finally:
        if before is None:
            del os.environ[WORKSPACE]
        else:
            os.environ[WORKSPACE] = before


def _chaos(folder: str, seconds: float, seed: int, *, asks: bool, wants_hosts: bool) -> tuple[Verdict, Arena]:
    with network() if wants_hosts else _no_network() as on_hosts, tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        prefix = ("ip", "netns", "exec", "nc-pg") if on_hosts else ()
        server = Server(folder, prefix=prefix, settings=_settings(on_hosts))
        try:
            address = _prepare(server, on_hosts=on_hosts)
            root = Path(place)
            (root / ".noclobber").mkdir()
            (root / "report").mkdir()
            arena = Arena(server, address, root, seed, on_hosts=on_hosts, asks=asks)
            return _run(arena, seconds), arena
        finally:
            server.remove()


@contextmanager
def _no_network() -> Iterator[bool]:
    yield False


def _settings(on_hosts: bool) -> str:
    # With fsync: what it answered is on its disk when it is stopped as by a crash.
    return f"-c listen_addresses={SERVER_IP} -c ssl=on" if on_hosts else "-c synchronous_commit=on"


def _prepare(server: Server, *, on_hosts: bool) -> str:
    if not on_hosts:
        server.start()
        schema.install(server.address())
        return server.address()
    root_certificate = _certificate(server.data, server.user_id)
    with open(f"{server.data}/pg_hba.conf", "a") as rules:
        rules.write("hostssl all all 10.77.0.0/24 trust\n")
    server.start()
    schema.install(server.address())
    return f"host={SERVER_IP} user=owner dbname=postgres sslmode=verify-full sslrootcert={root_certificate}"


def _run(arena: Arena, seconds: float) -> Verdict:
    try:
        for slot in range(CLIENTS):
            arena.start_client(slot)
        deadline_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < deadline_s:
            arena.happen(now_s)
            time.sleep(arena.chance.uniform(0.05, 0.4))
    finally:
        arena.end()
    arena.server.start_again()
    connection = ServerConnection(arena.server.address())
    arbiter = PostgresArbiter(connection)
    newcomer = Taker("last", "last", LEASE_S, identify())
    deadline_s = time.monotonic() + LEASE_S + 150  # A killed writer's intent, at most.
    folder = str(arena.folder / "report")
    is_stuck = True
    while is_stuck and time.monotonic() < deadline_s:
        is_stuck = arbiter.take(folder, newcomer, lambda _: None) is not None
        time.sleep(0.05)
    ledger = PostgresLedger(connection, os.environ[WORKSPACE])
    ledger.verify()
    events = list(ledger.events())
    tokens = [
        event["payload"]["fencing_token"] for event in events if event["action_type"] == "LOCK_ACQUIRED"
    ]
    takeovers = sum(event["action_type"] == "LOCK_RECOVERED" for event in events)
    connection.close()
    return judge(arena.actions(), tokens, is_stuck=is_stuck, takeovers=takeovers)


def main(argv: list[str] | None = None) -> int:
    """Return 0 if nobody was convicted but the control."""
    parser = argparse.ArgumentParser(
        prog="python -m torture.hosts", description=(__doc__ or "").split("\n")[1]
    )
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS") or 900))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 20261116))
    for name in ("client", "address", "folder", "log"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--control", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.client:
        client(args.client, args.address, args.folder, args.log, args.seed, asks=not args.control)
    control, _ = chaos(min(60.0, args.seconds / 4), args.seed, asks=False)
    print(f"control, which acts without asking: {control.double_holders} actions as a second holder")
    verdict, arena = chaos(args.seconds, args.seed)
    where = (
        "three network namespaces and a server" if arena.on_hosts else "processes; no link was cut: not root"
    )
    print(f"{where}; faults: {', '.join(f'{count} {kind}' for kind, count in sorted(arena.faults.items()))}")
    print(
        f"{verdict.actions} actions of {verdict.acquisitions} holders, {verdict.takeovers} take-overs: "
        f"{verdict.double_holders} as a second holder, {verdict.tokens_not_rising} tokens that did not rise, "
        f"{'STUCK' if verdict.is_stuck else 'not stuck'}"
    )
    ok = verdict.ok and control.double_holders > 0
    print("every bar was met" if ok else f"BARS WERE MISSED; the failing seed is {args.seed}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
