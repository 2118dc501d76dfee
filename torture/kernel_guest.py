"""
What runs as the first process of a kernel that `kernels.py` started: set up, then run what is asked.

Only the standard library, and no tools of the system: modules are loaded, the network is configured and NFS
is served and mounted by system calls and by files of the kernel. So nothing but the kernel must be installed.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import sys
import traceback
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
FINIT_MODULE = 313  # x86-64.
SIOCSIFADDR, SIOCSIFNETMASK, SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8916, 0x891C, 0x8913, 0x8914
IFF_UP = 1
MS_BIND = 4096
FOR_EVER = 2_000_000_000
DOMAIN = "machines"
NFSEXP = 0x0400 | 0x2000  # No check of the folders above, and a number of its own; root is root.
EXPORT = "/run/volume"
MOUNT = "/mnt"


def mount(source: str, target: str, kind: str, options: str = "", flags: int = 0) -> None:
    """The system call; a server may need a moment, so it is for the caller to try again."""
    os.makedirs(target, exist_ok=True)
    if LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()):
        code = ctypes.get_errno()
        raise OSError(code, f"cannot mount {source} on {target}: {os.strerror(code)}")


def bind(source: str, target: str) -> None:
    """Show a file under another name as well."""
    if LIBC.mount(source.encode(), target.encode(), b"", MS_BIND, b""):
        raise OSError(ctypes.get_errno(), f"cannot show {source} at {target}")


def load(module: str, folder: str) -> None:
    """Load a module after those that it needs."""
    release = os.uname().release
    wanted = {path.stem.replace("-", "_"): path for path in Path(folder, release).rglob("*.ko")}
    _load(module, wanted, set())


def _load(module: str, wanted: dict[str, Path], done: set[str]) -> None:
    path = wanted.get(module.replace("-", "_"))
    if path is None or path.stem in done:
        return  # Built in.
    done.add(path.stem)
    needs = re.search(rb"\0depends=([^\0]*)\0", b"\0" + path.read_bytes())
    for each in needs[1].decode().split(",") if needs and needs[1] else []:
        _load(each, wanted, done)
    descriptor = os.open(path, os.O_RDONLY)
    if LIBC.syscall(FINIT_MODULE, descriptor, b"", 0) and ctypes.get_errno() != 17:
        raise OSError(ctypes.get_errno(), f"cannot load {module}")
    os.close(descriptor)


def network(device: str, address: str) -> None:
    """Give a device its address, and switch it on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = device.encode().ljust(16, b"\0")
        for request, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.0")):
            where = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(any_socket, request, name + where)
        flags = struct.unpack("16sH", fcntl.ioctl(any_socket, SIOCGIFFLAGS, name + bytes(16))[:18])[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", name, flags | IFF_UP))


def serve(clients: list[str], *, lease_s: int = 10) -> None:
    """Serve `EXPORT` by NFSv4: what `rpc.nfsd` and `rpc.mountd` would write is written here."""
    load("nfsd", SETTINGS["modules"])
    mount("nfsd", "/proc/fs/nfsd", "nfsd")
    control = Path("/proc/fs/nfsd")
    os.mkdir("/run/clients")
    (control / "nfsv4recoverydir").write_text("/run/clients\n")
    (control / "nfsv4gracetime").write_text(f"{lease_s}\n")
    (control / "nfsv4leasetime").write_text(f"{lease_s}\n")
    (control / "versions").write_text("-2 -3 +4 +4.1 +4.2\n")
    for client in clients:
        _tell("auth.unix.ip", f"nfsd {client} {FOR_EVER} {DOMAIN}")
    _tell("nfsd.export", f"{DOMAIN} {EXPORT} {FOR_EVER} {NFSEXP} 65534 65534 0")
    _tell("nfsd.fh", f"{DOMAIN} 1 \\x00000000 {FOR_EVER} {EXPORT}")
    (control / "threads").write_text("8\n")
    (control / "v4_end_grace").write_text("Y\n")


def _tell(cache: str, line: str) -> None:
    Path(f"/proc/net/rpc/{cache}/channel").write_text(line + "\n")


def use(server: str, options: str = "") -> None:
    """Mount what a server exports."""
    load("nfsv4", SETTINGS["modules"])
    words = f"vers=4.2,addr={server},clientaddr={SETTINGS['address']},sec=sys,proto=tcp,timeo=50"
    mount(f"{server}:/", MOUNT, "nfs4", f"{words},{options}" if options else words)


def set_up() -> None:
    """What a first process does."""
    mount("proc", "/proc", "proc")
    mount("sysfs", "/sys", "sysfs")
    mount("run", "/run", "tmpfs")
    mount("shm", "/dev/shm", "tmpfs") if os.path.isdir("/dev/shm") else None
    mount("mnt", "/mnt", "tmpfs")
    network("lo", "127.0.0.1")
    network("vec0", SETTINGS["address"])
    socket.sethostname(SETTINGS["name"])
    os.environ.update(HOME="/run", PATH="/usr/sbin:/usr/bin:/sbin:/bin", TMPDIR="/run", LANG="C.UTF-8")
    # Machines that share a volume have ids of their own; these would all have the host's.
    Path("/run/machine-id").write_text(f"{os.urandom(16).hex()}\n")
    if os.path.exists("/etc/machine-id"):
        bind("/run/machine-id", "/etc/machine-id")
    if SETTINGS["disk"]:
        mount("/dev/ubda", EXPORT, "ext4")


def answer_to(line: str) -> dict[str, object]:
    """Run what is asked, and return what it leaves in `answer`."""
    asked = json.loads(line)
    names: dict[str, object] = {"guest": sys.modules[__name__], "answer": None, **asked["values"]}
    try:
        exec(compile(asked["program"], "asked", "exec"), names)
        return {"answer": names["answer"]}
    except BaseException:
        return {"error": traceback.format_exc()}


def main() -> None:
    """Set up, and answer for ever: the kernel ends with its first process."""
    import termios
    import tty

    tty.setraw(0)
    settings = termios.tcgetattr(0)
    termios.tcsetattr(0, termios.TCSANOW, settings)
    set_up()
    sys.path[:] = [*SETTINGS["path"], *sys.path]
    os.write(1, b"\nUP\n")
    source = os.fdopen(0, "rb")
    while True:
        line = source.readline()
        if line.strip():
            os.write(1, b"\n" + json.dumps(answer_to(line.decode())).encode() + b"\n")


children: list[Any] = []  # What the caller has started here, for the caller.
SETTINGS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}

if __name__ == "__main__":
    main()
