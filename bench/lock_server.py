"""
Locks and writes that a server orders: against etcd and Redis, a lock by file, and a durable local write.

Everything runs on this machine, with every answer on the disk: PostgreSQL with `fsync` on, Redis with
`appendfsync always`, etcd as it comes. Clients are processes with a connection each and a lock each: what is
measured is what the server decides, not who gets in first. etcd is asked through its own HTTP gateway, over
one connection that is kept open; its command line would be a process for each call. Where a program is not
installed, its rows are left out.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from torture.postgres_server import Server, programs

from bench import Row, in_turns, spelled
from noclobber import DeliverableLock, Workspace
from noclobber.core.project import COORDINATOR
from noclobber.postgres import schema, shared_volume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLIENTS = (1, 4, 16)
SECONDS = 0.7
ROUNDS = 3


def rows() -> Iterator[Row]:
    """Measure, and compare with the bars."""
    folder = programs()
    if folder is None:
        return
    base = tempfile.mkdtemp(prefix="noclobber-bench-", dir=os.environ.get("BENCH_FOLDER", "."))
    server = Server(folder, settings="-c synchronous_commit=on")
    try:
        server.start()
        schema.install(server.address())
        os.makedirs(f"{base}/.noclobber")
        with _environment(server.address()):
            yield from _cycles(base)
        yield from _writes(base, server.address())
        yield _hand_over(base, server.address())
    finally:
        server.remove()
        shutil.rmtree(base)


@contextmanager
def _environment(address: str) -> Iterator[None]:
    os.environ[COORDINATOR] = address
    try:
        yield
    finally:
        del os.environ[COORDINATOR]


# -- acquire and release -------------------------------------------------------------------------------------


def _cycles(base: str) -> Iterator[Row]:
    def ours(number: int) -> Callable[[], object]:
        deliverable = f"{base}/d{number}"
        os.makedirs(deliverable, exist_ok=True)
        lock = DeliverableLock(deliverable, holder=f"bench-{number}", heartbeat=False)

        def cycle() -> None:
            lock.acquire()
            lock.release()

        return cycle

    for clients in CLIENTS:
        with ExitStack() as stack:
            peers = [
                ("etcd", stack.enter_context(_etcd()), 1.0),
                ("Redis", stack.enter_context(_redis()), None),
            ]
            for name, peer, bar in peers:
                if peer is None:
                    continue
                our_rates, their_rates, ratios = [], [], []
                for _ in range(ROUNDS):
                    mine, theirs = _rate(ours, clients), _rate(peer, clients)
                    our_rates.append(mine)
                    their_rates.append(theirs)
                    ratios.append(mine / theirs)
                mine, theirs, ratio = (sorted(each)[ROUNDS // 2] for each in (our_rates, their_rates, ratios))
                detail = f"{mine:.0f}/s against {theirs:.0f}/s"
                what = f"lock on a server: acquire + release, {clients} clients"
                words = "reported" if bar is None else f"≥ {bar:g} × the rate"
                yield Row(what, name, ratio, words, bar is None or ratio >= bar, detail)
        if clients == 1:
            rate = _rate(ours, 1)
            yield Row(
                "lock on a server: acquire + release, 1 client",
                "a second",
                rate,
                "≥ 1000/s",
                rate >= 1000,
                "",
            )


def _rate(make: Callable[[int], Callable[[], object]], clients: int) -> float:
    """Let processes work for a second; return the cycles of all of them in a second."""
    context = get_context("fork")
    gate, done = context.Barrier(clients), context.Queue()

    def work(number: int) -> None:
        cycle = make(number)
        cycle()
        gate.wait()
        began_s, count = time.perf_counter(), 0
        while time.perf_counter() - began_s < SECONDS:
            cycle()
            count += 1
        done.put(count / (time.perf_counter() - began_s))

    workers = [context.Process(target=work, args=(number,)) for number in range(clients)]
    for worker in workers:
        worker.start()
    total = sum(done.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    return float(total)


@contextmanager
def _started(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def _etcd() -> Iterator[Callable[[int], Callable[[], object]] | None]:
    if shutil.which("etcd") is None:
        yield None
        return
    port, other = _free_port(), _free_port()
    with tempfile.TemporaryDirectory(prefix="noclobber-etcd-", dir=".") as data:
        mine, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{other}"
        command = [
            *("etcd", "--data-dir", data, "--listen-client-urls", mine, "--advertise-client-urls", mine),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        ]
        with _started(command, port):
            yield lambda number: _etcd_cycle(port, number)


def _etcd_cycle(port: int, number: int) -> Callable[[], object]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.connect()
    assert link.sock is not None
    link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(what: str, **given: Any) -> dict[str, Any]:
        link.request("POST", f"/v3/{what}", json.dumps(given))
        found: dict[str, Any] = json.loads(link.getresponse().read())
        return found

    while "ID" not in (lease := ask("lease/grant", TTL=60)):
        time.sleep(0.05)  # No leader yet.
    name = base64.b64encode(f"deliverable-{number}".encode()).decode()

    def cycle() -> None:
        held = ask("lock/lock", name=name, lease=lease["ID"])
        ask("lock/unlock", key=held["key"])

    return cycle


@contextmanager
def _redis() -> Iterator[Callable[[int], Callable[[], object]] | None]:
    if shutil.which("redis-server") is None:
        yield None
        return
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="noclobber-redis-", dir=".") as data:
        command = [
            "redis-server",
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            os.path.realpath(data),
        ]
        with _started([*command, "--appendonly", "yes", "--appendfsync", "always", "--save", ""], port):
            yield lambda number: _redis_cycle(port, number)


UNLOCK = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"


def _redis_cycle(port: int, number: int) -> Callable[[], object]:
    """The usual lock on one server: set if it is not there, with an end; deleted if it is still ours."""
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(*words: str) -> bytes:
        parts = [f"*{len(words)}\r\n", *(f"${len(word.encode())}\r\n{word}\r\n" for word in words)]
        link.sendall("".join(parts).encode())
        return link.recv(4096)

    def cycle() -> None:
        secret = os.urandom(16).hex()
        assert ask("SET", f"deliverable-{number}", secret, "NX", "PX", "60000").startswith(b"+OK")
        assert ask("EVAL", UNLOCK, "1", f"deliverable-{number}", secret).startswith(b":1")

    return cycle


# -- writes, and hand-over -----------------------------------------------------------------------------------


def _writes(base: str, address: str) -> Iterator[Row]:
    for size in (1 << 10, 1 << 20):
        local, shared = f"{base}/local-{size}", f"{base}/shared-{size}"
        for folder in (local, shared):
            os.makedirs(f"{folder}/.noclobber")
        original, shared_volume.is_shared_volume = shared_volume.is_shared_volume, lambda root: True
        try:
            with ExitStack() as stack:
                durable = _writer(stack, local, size, durable=True)
                with _environment(address):
                    section = _writer(stack, shared, size)

                def on_server(section: Callable[[], object] = section) -> None:
                    with _environment(address):
                        section()

                our_s, their_s, ratio = in_turns(on_server, durable, rounds=9, batch=20)
        finally:
            shared_volume.is_shared_volume = original
        detail = f"{spelled(our_s)} against {spelled(their_s)}"
        what = f"guarded write at section, {size >> 10} KiB"
        yield Row(what, "durable, on a local disk", ratio, "≤ 1.5 × the time", ratio <= 1.5, detail)


def _writer(stack: ExitStack, folder: str, size: int, **options: Any) -> Callable[[], object]:
    workspace = stack.enter_context(Workspace(folder, versions="off", **options))
    turn = stack.enter_context(workspace.turn(agent_id="bench"))
    numbers = iter(range(1 << 30))

    def write() -> None:
        turn.write_file("plan.md", f"{next(numbers):020}".encode() * (size // 20))

    write()
    return write


def _hand_over(base: str, address: str) -> Row:
    folder = f"{base}/handed"
    os.makedirs(folder)

    def by_file() -> None:
        _handed_over(folder)

    def by_server() -> None:
        with _environment(address):
            _handed_over(folder)

    ours, theirs = [], []
    for _ in range(15):
        ours.append(_timed(by_server))
        theirs.append(_timed(by_file))
    our_s, their_s = sorted(ours)[7], sorted(theirs)[7]
    detail = f"{spelled(our_s)} against {spelled(their_s)}"
    ratio = our_s / their_s
    return Row(
        "lock on a server: hand-over to a waiter",
        "a lock by file",
        ratio,
        "≤ 2 × the time",
        ratio <= 2,
        detail,
    )


def _timed(hand_over: Callable[[], None]) -> float:
    hand_over()
    return _HANDED[-1]


_HANDED: list[float] = []


def _handed_over(folder: str) -> None:
    """A process waits for a while; measured is the time from the release to its lock."""
    context = get_context("fork")
    waits, got = context.Event(), context.Queue()

    def wait() -> None:
        waits.set()
        with DeliverableLock(folder, holder="waiter", heartbeat=False).acquire(timeout_s=60):
            got.put(time.perf_counter())

    lock = DeliverableLock(folder, holder="holder", heartbeat=False).acquire()
    waiter = context.Process(target=wait)
    waiter.start()
    waits.wait()
    time.sleep(0.5)  # It has asked by now, and naps as long as it ever does.
    began_s = time.perf_counter()
    lock.release()
    _HANDED.append(got.get(timeout=60) - began_s)
    waiter.join()
