"""
One lock on several machines, under every fault at once: `python -m torture.hosts` (`make hosts`).

Three hosts are network namespaces with a cable each to a switch; the server and its synchronous standby are
in two more. Links are cut, answers are dropped while questions arrive, clients are killed, stopped for longer
than a lease and let go on, sessions are ended from outside, the server is stopped as by a crash and started
again, or lost for good: then its standby takes its place, and a new standby is made. The clients' clocks are
off by a day.

The referee sees only what holders do: one line for each action, with the token that the holder believes to
have and the moment at which it last knew that it had it. It convicts

- an action of a lower token after one of a higher token, by a holder that still believed: two holders;
- a token that two acquisitions have, or that did not rise in the order of the record;
- a holder whose lock is not on record in the end: what was answered was forgotten at a failover;
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
from noclobber.lock.file_arbiter import FileHolding, boot_time_s
from noclobber.postgres import schema
from noclobber.postgres.arbiter import PostgresArbiter
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.ledger import PostgresLedger
from noclobber.postgres.workspace_name import VARIABLE as WORKSPACE
from torture.failover import Pair
from torture.postgres_server import programs

HOSTS = ("h1", "h2", "h3")
SERVERS = ("pg1", "pg2")
ADDRESSES = {
    "h1": "10.77.0.11",
    "h2": "10.77.0.12",
    "h3": "10.77.0.13",
    "pg1": "10.77.0.5",
    "pg2": "10.77.0.6",
}
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
    forgotten: int = 0

    @property
    def ok(self) -> bool:
        """True if nobody is convicted, and there was something to see."""
        wrong = self.double_holders or self.tokens_not_rising or self.forgotten
        return self.actions > 0 and not wrong and not self.is_stuck


# -- the network ---------------------------------------------------------------------------------------------


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def network() -> Iterator[bool]:
    """Three hosts and two servers around a switch; False if this user may not make them."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("setpriv") is None:
        yield False
        return
    _network_down()
    try:
        _ip("netns", "add", "nc-sw")
        _ip("-n", "nc-sw", "link", "add", "br0", "type", "bridge")
        _ip("-n", "nc-sw", "link", "set", "br0", "up")
        for name, address in ADDRESSES.items():
            _ip("netns", "add", f"nc-{name}")
            _ip("-n", f"nc-{name}", "link", "set", "lo", "up")
            cable = ("type", "veth", "peer", "name", "eth0", "netns", f"nc-{name}")
            _ip("-n", "nc-sw", "link", "add", f"v-{name}", *cable)
            _ip("-n", "nc-sw", "link", "set", f"v-{name}", "master", "br0", "up")
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
    for name in (*ADDRESSES, "sw"):
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "del", f"nc-{name}")


def _certificate(pair: Pair) -> str:
    """Make the servers' own certificate, as `verify-full` wants one; return what clients check it against."""
    key, certificate = f"{pair.primary.data}/server.key", f"{pair.primary.data}/server.crt"
    names = ",".join(f"IP:{ADDRESSES[name]}" for name in SERVERS)
    subprocess.run(
        ["openssl", "req", "-new", "-x509", "-days", "2", "-nodes", "-subj", "/CN=server", "-addext",
         f"subjectAltName={names}", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    for path in (key, certificate):
        os.chown(path, pair.primary.user_id, -1)
    os.chmod(key, 0o600)
    # Beside the data: that of a server which was lost is made anew.
    shown = f"{pair.primary.folder}/root.crt"
    shutil.copy(certificate, shown)
    os.chmod(pair.primary.folder, 0o755)
    return shown


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
        held: list[FileHolding] = []
        try:
            if arbiter.take(folder, taker, held.append) is not None:
                arbiter.wait(folder, 0.05)
                continue
            holding = held[0]
            for _ in range(chance.randrange(1, 40) if asks else 400):
                if asks:
                    left_s = arbiter.check(holding)
                    if left_s < LEASE_S * 2 / 3:
                        holding = arbiter.renew(holding, LEASE_S)
                now_s = boot_time_s()
                assert holding.row is not None
                valid_until_s = holding.row.valid_until_s
                if asks and now_s >= valid_until_s:
                    raise LockLost(folder, "its lease has ended by its own clock")
                until_s = valid_until_s if asks else now_s + 1
                line = f"{holding.fencing_token} {now_s:.6f} {until_s:.6f} {name}\n"
                os.write(descriptor, line.encode())
                time.sleep(chance.random() * 0.02)
            arbiter.give_up(holding, lambda _: None)
        except (LockLost, CoordinatorUnavailableError, NoclobberError):
            time.sleep(0.01)


# -- the run -------------------------------------------------------------------------------------------------


class Arena:
    """Clients on hosts, and what can happen to them."""

    def __init__(
        self, server: Pair, address: str, folder: Path, seed: int, *, on_hosts: bool, asks: bool
    ) -> None:
        self.server, self.address, self.folder, self.on_hosts = server, address, folder, on_hosts
        self.chance, self._asks, self._number = random.Random(seed), asks, 0
        self.log = folder / "actions"
        self.log.touch()
        self.clients: dict[int, subprocess.Popen[bytes]] = {}
        self.stopped: dict[int, float] = {}
        self.cut: dict[str, float] = {}
        self.deaf: dict[str, float] = {}
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

    def happen(self, now_s: float, wanted: str | None = None) -> None:
        """Let one fault happen, the wanted one or any, and end those whose time has come."""
        for slot, until_s in list(self.stopped.items()):
            if now_s >= until_s:
                del self.stopped[slot]
                self.clients[slot].send_signal(signal.SIGCONT)
        for host, until_s in list(self.cut.items()):
            if now_s >= until_s:
                self._join(host)
        for host, until_s in list(self.deaf.items()):
            if now_s >= until_s:
                self._hear(host)
        kinds = ["kill", "stop", "stop", "end sessions", "restart", "fail over"]
        kinds += ["cut", "cut", "drop answers"] * self.on_hosts
        kind, slot = wanted or self.chance.choice(kinds), self.chance.randrange(CLIENTS)
        # The dearest faults, and the others need a server.
        if wanted is None and self.chance.random() >= {"restart": 0.3, "fail over": 0.1}.get(kind, 1.0):
            return
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
        elif kind == "drop answers" and len(self.deaf) < len(HOSTS):
            host = self.chance.choice([host for host in HOSTS if host not in self.deaf])
            for server in SERVERS:  # Questions arrive there and are carried out.
                _ip("-n", f"nc-{server}", "route", "add", "blackhole", f"{ADDRESSES[host]}/32")
            self.deaf[host] = now_s + self.chance.uniform(0.2, LEASE_S * 2)
        elif kind == "end sessions":
            with suppress(psycopg.Error), psycopg.connect(self.server.address(), connect_timeout=2) as link:
                link.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'noclobber' AND random() < 0.5"
                )
        elif kind == "restart":
            self.server.stop()
            self.server.start_again()
        elif kind == "fail over":
            self.server.fail_over()
            self.server.rebuild()

    def _join(self, host: str) -> None:
        self.cut.pop(host, None)
        _ip("-n", "nc-sw", "link", "set", f"v-{host}", "up")

    def _hear(self, host: str) -> None:
        del self.deaf[host]
        for server in SERVERS:
            _ip("-n", f"nc-{server}", "route", "del", "blackhole", f"{ADDRESSES[host]}/32")

    def end(self) -> None:
        """Let everything go on, and then stop it."""
        for host in list(self.deaf):
            self._hear(host)
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
    forgotten = len(owners.keys() - set(tokens_on_record))
    return Verdict(len(actions), len(tokens_on_record), double, not_rising, is_stuck, takeovers, forgotten)


def chaos(
    seconds: float, seed: int, *, asks: bool = True, wants_hosts: bool = True, at_least: int = 0
) -> tuple[Verdict, Arena]:
    """
    Run clients and faults for a while; return what the referee says.

    So many failovers happen at least, the first of them in the middle.
    """
    folder = programs()
    if folder is None:
        raise SystemExit("no PostgreSQL on this machine: install postgresql, or `make .venv/.ready`")
    before = os.environ.get(WORKSPACE)
    os.environ[WORKSPACE] = f"chaos-{os.urandom(4).hex()}"
    try:
        return _chaos(folder, seconds, seed, asks=asks, wants_hosts=wants_hosts, at_least=at_least)
    finally:
        if before is None:
            del os.environ[WORKSPACE]
        else:
            os.environ[WORKSPACE] = before


def _chaos(
    folder: str, seconds: float, seed: int, *, asks: bool, wants_hosts: bool, at_least: int
) -> tuple[Verdict, Arena]:
    with network() if wants_hosts else _no_network() as on_hosts, tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        prefixes = [("ip", "netns", "exec", f"nc-{name}") if on_hosts else () for name in SERVERS]
        # With fsync: what it answered is on its disk when it is stopped as by a crash.
        settings = "-c listen_addresses=* -c ssl=on" if on_hosts else "-c listen_addresses="
        server = Pair(folder, settings, prefixes)
        try:
            address = _prepare(server, on_hosts=on_hosts)
            root = Path(place)
            (root / ".noclobber").mkdir()
            (root / "report").mkdir()
            arena = Arena(server, address, root, seed, on_hosts=on_hosts, asks=asks)
            return _run(arena, seconds, at_least), arena
        finally:
            server.remove()


@contextmanager
def _no_network() -> Iterator[bool]:
    yield False


def _prepare(server: Pair, *, on_hosts: bool) -> str:
    address = server.both()
    if on_hosts:
        root_certificate = _certificate(server)
        with open(f"{server.primary.data}/pg_hba.conf", "a") as rules:
            rules.write("hostssl all all 10.77.0.0/24 trust\n")
        hosts = ",".join(ADDRESSES[name] for name in SERVERS)
        address = (
            f"host={hosts} user=owner dbname=postgres sslmode=verify-full sslrootcert={root_certificate}"
        )
    server.start()
    schema.install(server.address())
    server.be_synchronous()
    return address


def _run(arena: Arena, seconds: float, at_least: int) -> Verdict:
    try:
        for slot in range(CLIENTS):
            arena.start_client(slot)
        began_s = time.monotonic()
        while (passed_s := (now_s := time.monotonic()) - began_s) < seconds:
            done = arena.faults.get("fail over", 0)
            arena.happen(now_s, "fail over" if passed_s > seconds * (done + 1) / (at_least + 1) else None)
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
    verdict, arena = chaos(args.seconds, args.seed, at_least=1)
    where = (
        "three hosts, a server and its standby, as network namespaces"
        if arena.on_hosts
        else "processes; no link was cut: not root"
    )
    print(f"{where}; faults: {', '.join(f'{count} {kind}' for kind, count in sorted(arena.faults.items()))}")
    print(
        f"{verdict.actions} actions of {verdict.acquisitions} holders, {verdict.takeovers} take-overs: "
        f"{verdict.double_holders} as a second holder, {verdict.tokens_not_rising} tokens that did not rise, "
        f"{verdict.forgotten} holders forgotten at a failover, "
        f"{'STUCK' if verdict.is_stuck else 'not stuck'}"
    )
    ok = verdict.ok and control.double_holders > 0
    print("every bar was met" if ok else f"BARS WERE MISSED; the failing seed is {args.seed}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
