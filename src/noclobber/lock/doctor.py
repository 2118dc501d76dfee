"""
Try everything a lock and a guarded write rest on, for real, on one filesystem (X-002).

Every primitive is used in a scratch folder inside the folder that was asked about, with a second process
where two are needed; then a complete lock cycle: acquire, contention from another process, renew,
recovery of an orphan whose holder was killed, release. Nothing is concluded from the filesystem's name
but what cannot be tried from one machine. The scratch folder is removed.

Calling sequence: `check(folder)`; print the findings; healthy if all are `ok`. A finding that is only a
limit of the filesystem, and not a fault, is `ok` with a remedy that says what is not promised.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

from noclobber.core.findings import Finding, remedy_of
from noclobber.core.own_python import own_code
from noclobber.disk import filesystems
from noclobber.disk.filesystems import KEEPS_INODES, NETWORK, filesystem_type
from noclobber.errors import LockContention, NoclobberError
from noclobber.lock.names import SCRATCH_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

MUST_WORK = "keep deliverables on a local filesystem (ext4, xfs, btrfs, tmpfs, APFS)"
CHILD_PATIENCE_S = 20


def check(folder: str) -> list[Finding]:
    """Try every primitive and a whole lock cycle in a scratch folder inside `folder`."""
    findings = [_kind_of_filesystem(folder)]
    try:
        scratch = tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=folder)
    except OSError as error:
        remedy = "run as a user who may write here, or name another folder"
        return [*findings, Finding("scratch folder", False, f"cannot create one: {error.strerror}", remedy)]
    try:
        for name, attempt in _ATTEMPTS:
            findings.append(_tried(name, attempt, scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return findings


def _tried(name: str, attempt: Callable[[str], Finding], scratch: str) -> Finding:
    """A primitive that fails in a way nobody thought of is a finding, not a traceback."""
    try:
        return attempt(scratch)
    except (OSError, NoclobberError, ValueError, subprocess.SubprocessError) as error:
        return Finding(name, False, f"failed: {error}", remedy_of(error, MUST_WORK))


def _kind_of_filesystem(folder: str) -> Finding:
    kind = filesystem_type(folder)
    if kind in NETWORK:
        limit = (
            "not promised on network filesystems: that a mutex excludes other machines, so recovery and "
            "renewal are arbitrated by link() alone, without fencing; and clocks must agree to a second"
        )
    elif kind.startswith("fuse"):
        limit = (
            "not promised on FUSE: that flock excludes anybody (tried below), or that inode numbers last, so "
            "copied folders are told from originals only when their lease ends"
        )
    elif kind == "overlay":
        limit = (
            "not promised on overlay: that two containers with different layers exclude each other, or that "
            "copied folders are told from originals before their lease ends; use a volume for deliverables"
        )
    elif kind not in KEEPS_INODES:
        limit = "not known here: a copied folder counts as locked until the copied lease ends"
    else:
        limit = ""
    return Finding("filesystem", True, kind, limit)


# Primitives


def _flock(scratch: str) -> Finding:
    """Between two processes: this is the call that succeeds on FUSE and NFS and excludes nobody."""
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        code = (
            "import fcntl, os, sys\n"
            "d = os.open(sys.argv[1], os.O_RDONLY)\n"
            "try: fcntl.flock(d, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
            "except BlockingIOError: print('excluded')\n"
            "else: print('not excluded')\n"
        )
        answer = _python(code, scratch)
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
    if answer == "excluded":
        return Finding("flock", True, "a folder's mutex excludes another process")
    remedy = (
        "guarded writes of two processes are not kept apart here, and fencing is not promised; " + MUST_WORK
    )
    return Finding("flock", False, "the call succeeds and excludes nobody", remedy)


def _link(scratch: str) -> Finding:
    source, target = f"{scratch}/link-a", f"{scratch}/link-b"
    _write(source, b"complete")
    try:
        os.link(source, target)
        os.link(source, target)
    except FileExistsError:
        return Finding("link", True, "publishes a complete file, and refuses a name that is taken")
    except OSError as error:
        return Finding(
            "link", False, f"no hard links ({error.strerror}): locks cannot be published", MUST_WORK
        )
    return Finding("link", False, "a second link() to the same name succeeded", MUST_WORK)


def _exchange(scratch: str) -> Finding:
    from noclobber.disk import renames

    _write(f"{scratch}/x", b"one")
    _write(f"{scratch}/y", b"two")
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        renames.exchange(descriptor, "x", descriptor, "y")
    except OSError as error:
        remedy = "guarded writes fall to the level `plain`: an outsider's save in the same moment can be lost"
        return Finding("exchange-rename", True, f"not here ({error.strerror})", remedy)
    finally:
        os.close(descriptor)
    with open(f"{scratch}/x", "rb") as file:
        swapped = file.read() == b"two"
    detail = "swaps two names in one step" if swapped else "succeeded, and swapped nothing"
    return Finding("exchange-rename", swapped, detail, "" if swapped else MUST_WORK)


def _leases(scratch: str) -> Finding:
    if not hasattr(fcntl, "F_SETLEASE"):
        remedy = (
            "guarded writes reach the level `exchange`: what an outsider loses is kept aside and reported"
        )
        return Finding("leases", True, "this system has none", remedy)
    path = f"{scratch}/lease"
    _write(path, b"")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not filesystems.sees_writers(kind := filesystems.kind_of(descriptor)):
            detail = f"not used here ({kind}): they do not see who writes on the other side"
            return Finding("leases", True, detail, "guarded writes fall to the level `exchange` or `plain`")
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        writer = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return Finding("leases", True, "the kernel tells when somebody has a file open for writing")
            raise
        finally:
            os.close(writer)
        return Finding("leases", False, "granted although the file was open for writing", MUST_WORK)
    except OSError as error:
        remedy = (
            "guarded writes reach the level `exchange`: what an outsider loses is kept aside and reported"
        )
        return Finding("leases", True, f"not here ({error.strerror})", remedy)
    finally:
        os.close(descriptor)


def _xattrs(scratch: str) -> Finding:
    path = f"{scratch}/xattr"
    _write(path, b"")
    if not hasattr(os, "setxattr"):
        return Finding("xattrs", True, "not looked at on this system")
    try:
        os.setxattr(path, "user.noclobber", b"1")
        kept = os.getxattr(path, "user.noclobber") == b"1"
    except OSError as error:
        return Finding("xattrs", True, f"not here ({error.strerror})", "there are none to be kept")
    return Finding(
        "xattrs", kept, "are kept" if kept else "are taken and forgotten", "" if kept else MUST_WORK
    )


def _fsync(scratch: str) -> Finding:
    path = f"{scratch}/fsync"
    _write(path, b"x")
    for name in (path, scratch):
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            remedy = "`durable` writes may not survive a power cut here"
            return Finding("fsync", False, f"failed for {os.path.basename(name)}: {error.strerror}", remedy)
        finally:
            os.close(descriptor)
    return Finding("fsync", True, "of files and folders works")


def _clock(scratch: str) -> Finding:
    """Leases are judged by the clock, and a file server may have one of its own."""
    import time

    path = f"{scratch}/clock"
    _write(path, b"")
    off_s = abs(os.stat(path).st_mtime - time.time())
    if off_s < 5:
        return Finding("clock", True, f"the filesystem's and ours agree to {off_s:.1f} s")
    remedy = "let machines that share this folder keep time (NTP): leases are judged by the clock"
    return Finding("clock", False, f"the filesystem's and ours differ by {off_s:.0f} s", remedy)


# The lock itself

_CONTENDER = """
import json, sys
from noclobber.errors import LockContention
from noclobber.lock.lock import DeliverableLock
try: DeliverableLock(sys.argv[1], holder="doctor, second process").acquire()
except LockContention as error: print(json.dumps(error.to_report()))
else: print("{}")
"""

_VICTIM = """
import os, signal, sys
from noclobber.lock.lock import DeliverableLock
DeliverableLock(sys.argv[1], holder="doctor, killed process").acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""


def _cycle(scratch: str) -> Finding:
    """Acquire, contend from another process, renew, release."""
    from noclobber.lock.lock import DeliverableLock

    folder = f"{scratch}/cycle"
    os.mkdir(folder)
    with DeliverableLock(folder, holder="doctor") as lock:
        report = json.loads(_python(_CONTENDER, folder))
        if report.get("holder") != "doctor":
            return Finding("lock cycle", False, f"a second process was not refused: {report}", MUST_WORK)
        lock.renew()
        lock.assert_held()
    if lock.status().state != "free":
        return Finding("lock cycle", False, "the folder is not free after release", MUST_WORK)
    return Finding("lock cycle", True, "acquired, second process refused, renewed, released")


def _orphan(scratch: str) -> Finding:
    """A holder is killed; the next one gets in at once, and it is recorded."""
    from noclobber.lock.lock import DeliverableLock

    folder = f"{scratch}/orphan"
    os.mkdir(folder)
    _python(_VICTIM, folder)
    lock = DeliverableLock(folder, holder="doctor")
    before = lock.status()
    try:
        lock.acquire()
    except LockContention as error:
        remedy = "processes cannot be told apart here (no /proc, or hidden): orphans wait for their lease"
        return Finding("recovery", True, f"the orphan is judged by its lease only: {error.message}", remedy)
    lock.release()
    events = _events(folder)
    if before.state != "dead" or events.count("LOCK_RECOVERED") != 1:
        return Finding("recovery", False, f"the orphan was {before.state}; recorded: {events}", MUST_WORK)
    return Finding("recovery", True, "the lock of a killed process was taken over at once, and recorded once")


def _events(folder: str) -> list[str]:
    """What was recorded of a folder's lock: in the folder, or on the coordinator's server."""
    from noclobber.ledger import AgentTraceLedger
    from noclobber.ledger.chosen import is_on_server, ledger_of
    from noclobber.lock.names import LEDGER_NAME

    if not is_on_server():
        return [event["action_type"] for event in AgentTraceLedger(f"{folder}/{LEDGER_NAME}").events()]
    events = [json.loads(line) for line in ledger_of(folder).last_lines(_LAST_EVENTS)]
    return [event["action_type"] for event in events if event.get("payload", {}).get("folder") == folder]


_LAST_EVENTS = 1000  # Others record on a server meanwhile.

_ATTEMPTS: tuple[tuple[str, Callable[[str], Finding]], ...] = (
    ("flock", _flock),
    ("link", _link),
    ("exchange-rename", _exchange),
    ("leases", _leases),
    ("xattrs", _xattrs),
    ("fsync", _fsync),
    ("clock", _clock),
    ("lock cycle", _cycle),
    ("recovery", _orphan),
)


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _python(code: str, *arguments: str) -> str:
    """Run a few lines in a second process, with this very package; return what it printed."""
    return subprocess.run(
        own_code(code, *map(os.path.abspath, arguments)),
        capture_output=True, text=True, timeout=CHILD_PATIENCE_S, check=False, cwd="/",
    ).stdout.strip()  # fmt: skip
