"""
Linux kernels as processes (user-mode Linux), with a cable from each to one switch.

Each is a machine of its own for a file system: its own caches, its own locks, its own NFS client. Their root
is this machine's, read-only, so they run this very Python and this very source. No network device is needed
and no image: the switch is a thread here, and a cable is a pair of sockets.

Calling sequence: `why_not()`; `with Machines(folder, ("server", "one", "two")) as machines`; then
`machines["one"].run("…Python…")`. `machines.cut("one")` pulls a cable, `machines.cut("one", "server")` lets
these two no longer hear each other, and `machines.join("one")` ends both.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PROGRAM = "linux.uml"
MODULES = "/usr/lib/uml/modules"
MEMORY = "256M"
BOOT_S = 60.0
GUEST = Path(__file__).with_name("kernel_guest.py")
LARGEST_FRAME = 65_536


def why_not() -> str | None:
    """Why no kernel can be started here; None if one can."""
    if sys.platform != "linux":
        return "user-mode Linux needs Linux"
    if program() is None or not os.path.isdir(modules()):
        return "there is no user-mode Linux: apt install user-mode-linux"
    if shutil.which("mkfs.ext4") is None and not os.path.exists("/usr/sbin/mkfs.ext4"):
        return "there is no mkfs.ext4: apt install e2fsprogs"
    return None


def program() -> str | None:
    """The kernel; `NOCLOBBER_UML` names the folder of one that was unpacked and not installed."""
    own = os.environ.get("NOCLOBBER_UML")
    found = f"{own}/usr/bin/{PROGRAM}" if own else shutil.which(PROGRAM)
    return found if found and os.access(found, os.X_OK) else None


def modules() -> str:
    """The folder of its modules."""
    return os.environ.get("NOCLOBBER_UML", "") + MODULES


class Machine:
    """One kernel. What it is asked to run is Python, in a process of its own there."""

    def __init__(self, name: str, address: str, folder: str, cable: socket.socket, disk: str = "") -> None:
        self.name, self.address = name, address
        self._folder = folder
        kernel = program()
        assert kernel is not None
        start = Path(folder, f"{name}.init")
        settings = {
            "name": name,
            "address": address,
            "modules": modules(),
            "path": sys.path,
            "disk": bool(disk),
        }
        start.write_text(
            f"#!/bin/sh\nexec {sys.executable} -B {GUEST} '{json.dumps(settings)}' </dev/ttyS0 >/dev/ttyS0\n"
        )
        start.chmod(0o755)
        self._ours, theirs = socket.socketpair()
        self._log = open(f"{folder}/{name}.console", "wb")  # noqa: SIM115 - Open as long as the machine runs.
        words = [
            kernel, f"mem={MEMORY}", "rootfstype=hostfs", "rootflags=/", "ro", f"init={start}", "quiet",
            "panic=1", "con=null", "con0=null,fd:2", "ssl=null",
            f"ssl0=fd:{theirs.fileno()},fd:{theirs.fileno()}",
            f"umid=nc-{os.getpid()}-{name}", f"uml_dir={folder}/",
            f"vec0:transport=fd,fd={cable.fileno()},depth=64,gro=0",
            *([f"ubd0={disk}"] if disk else []),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            pass_fds=(cable.fileno(), theirs.fileno()), start_new_session=True, cwd=folder,
        )  # fmt: skip
        theirs.close()
        self._reader = self._ours.makefile("rb")
        self._lock = threading.Lock()

    def wait_until_up(self) -> None:
        """Return when it answers; with its last words if it does not."""
        self._ours.settimeout(BOOT_S)
        try:
            while not (line := self._reader.readline()).startswith(b"UP"):
                if not line:
                    raise OSError("it ended")
        except OSError as error:
            raise RuntimeError(f"{self.name} did not start ({error}): {self.console()[-1500:]}") from None
        self._ours.settimeout(None)

    def console(self) -> str:
        """What its kernel printed."""
        return Path(self._folder, f"{self.name}.console").read_text(errors="replace")

    def run(self, program: str, *, timeout_s: float = 120.0, **values: Any) -> Any:
        """Run lines of Python there, which may use `values` and leave their answer in `answer`."""
        return self.ask(json.dumps({"program": program, "values": values}), timeout_s)

    def ask(self, line: str, timeout_s: float) -> Any:
        """Send one line, and return the answer to it."""
        with self._lock:
            self._ours.settimeout(timeout_s)
            self._ours.sendall(line.encode() + b"\n")
            while not (answer := self._reader.readline()).startswith(b"{"):
                if not answer:
                    raise RuntimeError(f"{self.name} is gone: {self.console()[-1500:]}")
        found = json.loads(answer)
        if "error" in found:
            raise RuntimeError(f"on {self.name}: {found['error']}")
        return found["answer"]

    def signal(self, number: int) -> None:
        """Stop the whole machine, or let it go on."""
        os.killpg(self._process.pid, number)

    def end(self) -> None:
        """End it, as by a power cut."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._ours.close()
        self._log.close()


class Machines:
    """Several kernels around one switch. The first of them has a disk."""

    def __init__(self, folder: str, names: tuple[str, ...], disk_mib: int = 256) -> None:
        self.folder, self._disk = folder, f"{folder}/disk"
        with open(self._disk, "wb") as file:
            file.truncate(disk_mib << 20)
        self._cables: dict[str, socket.socket] = {}
        self._is_cut: set[frozenset[str]] = set()
        self._by_name: dict[str, Machine] = {}
        self._names = names
        self._wake, self._woken = socket.socketpair()
        self._armed: dict[str, tuple[str, tuple[bytes, ...]]] = {}
        self.was_cut = threading.Event()

    def __enter__(self) -> Machines:
        environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
        # Journal and table are made now: a machine that is young should not write them in the background.
        options = ["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
        subprocess.run(["mkfs.ext4", *options, self._disk], check=True, env=environment)
        try:
            for number, name in enumerate(self._names):
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._cables[name] = ours
                self._by_name[name] = Machine(
                    name, f"10.78.0.{number + 1}", self.folder, theirs, "" if number else self._disk
                )
                theirs.close()
            threading.Thread(target=self._switch, daemon=True).start()
            for machine in self._by_name.values():
                machine.wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self._by_name.values():
            machine.end()
        self._wake.close()

    def __getitem__(self, name: str) -> Machine:
        return self._by_name[name]

    def cut(self, name: str, other: str | None = None) -> None:
        """Pull a machine's cable; with `other`, these two no longer hear each other."""
        others = self._names if other is None else (other,)
        self._is_cut = self._is_cut | {frozenset((name, each)) for each in others}

    def cut_at(self, name: str, other: str, *words: bytes) -> None:
        """
        Cut two machines apart when the first sends a frame with all these words: it never arrives.

        `was_cut` is set then. What is sent in the clear can so be cut off at one system call.
        """
        self.was_cut.clear()
        self._armed[name] = (other, words)

    def join(self, name: str) -> None:
        """Let a machine hear everybody again."""
        self._is_cut = {pair for pair in self._is_cut if name not in pair}

    def _switch(self) -> None:
        """Every frame goes to all others: with three machines a table would save nothing."""
        names = {cable.fileno(): name for name, cable in self._cables.items()}
        poll = select.poll()
        for descriptor in (*names, self._woken.fileno()):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor not in names:
                    return
                try:
                    frame = os.read(descriptor, LARGEST_FRAME)
                except OSError:
                    frame = b""
                if not frame:
                    poll.unregister(descriptor)
                    continue
                other, words = self._armed.get(names[descriptor], ("", ()))
                if words and all(word in frame for word in words):
                    del self._armed[names[descriptor]]
                    self.cut(names[descriptor], other)
                    self.was_cut.set()
                for name, cable in self._cables.items():
                    if name == names[descriptor] or {name, names[descriptor]} in self._is_cut:
                        continue
                    with suppress(OSError):  # Full, or gone: a network may lose a frame.
                        cable.send(frame, socket.MSG_DONTWAIT)


def _try() -> None:
    """Start three kernels, and say how long that took."""
    import tempfile

    began_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="nc-kernels-") as folder,
        Machines(folder, ("server", "one", "two")) as all_,
    ):
        print(f"up after {time.monotonic() - began_s:.1f} s")
        for name in ("server", "one", "two"):
            print(name, all_[name].run("import os; answer = list(os.uname())"))


if __name__ == "__main__":
    _try()
