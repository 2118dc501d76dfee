"""
The approval window: watch a file from the check to the host's write, and keep what others save in between.

A hook's check comes before the host's permission dialogue. Somebody may save the file while the dialogue is
open, and the host then writes over it. Nothing can stop that, so a small process looks on: it is forked when
a write is let through, costs the hook a fork, and copies every version that is neither the one that was
checked nor what the call must leave. The event after the call finds the copies: if the host wrote over one,
it goes to `kept`, the race is on record, and the agent is told. Otherwise the copies go.

Copies are in `.noclobber/kept`, with a name that begins with a dot until it is known that they are needed.
A mark in the user's runtime folder says that somebody still wants to know; it goes with the call's next
event, or with the session.

The process ends by itself: when the host has written, when the mark is gone, when the host has ended, and
after half an hour in any case. It holds nothing open, no file and no folder, so it is in the way of no
unmount and of no deletion. It looks at the file's status every millisecond at first, then less and less
often: a host that need not ask writes at once, and a person who saves takes a while to come back.

Not promised: a save that the host overwrites within the same moment (a millisecond at first, a fifth of a
second in a dialogue that is open for minutes) is not seen. Files above 64 MiB are not copied.
"""

from __future__ import annotations

import os
import time

from noclobber.core.project import KEPT_FOLDER, STATE_FOLDER
from noclobber.disk import hashing
from noclobber.disk.reading import look_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from noclobber.core.light.named_tuples import NamedTuple

LIFE_S = 1800.0
# Until how long after the start, and how long it naps between two looks.
NAPS_S = ((0.1, 0.001), (2.0, 0.005), (60.0, 0.02), (LIFE_S, 0.2))
HOST_CHECK_S = 1.0
MOST_COPIES = 32
MOST_SHELLS = 8  # Hosts run hooks by a shell, and our command line has another one in it.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class WatchedFile(NamedTuple):
    """One file of a call: what was checked, and what the call may leave."""

    path: str
    before: str
    own: tuple[str, ...]


class Watch(NamedTuple):
    """One call that was let through."""

    root: str
    key: str
    """Names the call: part of the copies' names."""
    mark: str
    """The file whose end is the end of the watch."""
    host_pid: int
    files: tuple[WatchedFile, ...]


class Copy(NamedTuple):
    """A version that somebody saved meanwhile."""

    file: str
    sha256: str


def key_of(owner: str, call: str) -> str:
    """Return the part of a copy's name that says whose it is: the agent first, then the call."""
    return f"{_short(owner)}-{_short(call)}"


def _short(text: str) -> str:
    return hashing.of_bytes(text.encode("utf-8", "surrogatepass"))[:16]


# -- the process -----------------------------------------------------------------------------------------


def start(watch: Watch) -> None:
    """Fork the process that looks on. Returns in the parent only; never raises."""
    try:
        child = os.fork()
    except OSError:
        return  # No process to be had: as without a watch.
    if child:
        return
    try:
        _detach()
        run(watch)
    except BaseException:  # noqa: S110 - nobody is there to be told
        pass
    finally:
        os._exit(0)


def _detach() -> None:
    """Leave everything of the host's: it waits for the end of our output, and may end its whole group."""
    for descriptor in (0, 1, 2):
        try:
            os.close(descriptor)
        except OSError:
            pass
    os.closerange(3, 256)
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)
    os.setsid()
    os.chdir("/")


def run(watch: Watch) -> None:
    """Look on until the host has written, or nobody wants to know any more."""
    start_s = time.monotonic()
    looks = dict.fromkeys(watch.files, "")  # The status at the last look; empty: none yet.
    checked_s = start_s
    copies = 0
    while looks:
        for file in list(looks):
            status = _status(file.path)
            if status == looks[file]:
                continue
            looks[file] = status
            state = look_at(file.path, keep=True)
            if state.sha256 in file.own:
                del looks[file]  # The host has written.
            elif state.sha256 != file.before and state.content and copies < MOST_COPIES:
                copies += 1
                name = _copy(watch, file, state.content)
                if name and not os.path.exists(watch.mark):  # Settled meanwhile: nobody would find it.
                    os.unlink(name)
        age_s = time.monotonic() - start_s
        if age_s > LIFE_S or not os.path.exists(watch.mark):
            return
        if age_s - (checked_s - start_s) > HOST_CHECK_S:
            checked_s = time.monotonic()
            if not _runs(watch.host_pid):
                return
        time.sleep(next(nap_s for until_s, nap_s in NAPS_S if age_s <= until_s))


def _status(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "-"
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def _runs(pid: int) -> bool:
    """True unless a process is known to be gone."""
    if pid <= 1:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _copy(watch: Watch, file: WatchedFile, data: bytes) -> str:
    folder = f"{watch.root}/{STATE_FOLDER}/{KEPT_FOLDER}"
    name = f"{folder}/.watch-{watch.key}-{_short(file.path)}-{hashing.of_bytes(data)}"
    try:
        os.mkdir(folder, 0o700)
    except OSError:
        pass
    if os.path.islink(folder):
        return ""  # It may have come with the project, and lead anywhere.
    try:
        descriptor = os.open(f"{name}~", _NEW, 0o600)
    except OSError:
        return ""
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)
    os.rename(f"{name}~", name)  # Whole, or not there.
    return name


def host_of(parent_pid: int) -> int:
    """Return the process that a hook answers: the first above it that is no shell; 0: unknown."""
    pid = parent_pid
    for _ in range(MOST_SHELLS):
        name, above = _name_and_parent(pid)
        if not above:
            return 0
        if name not in ("sh", "bash", "dash", "zsh", "ash", "ksh", "fish"):
            return pid
        pid = above
    return 0


def _name_and_parent(pid: int) -> tuple[str, int]:
    """Return a process's name and its parent, 0 if that cannot be told."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return "", 0
    try:
        text = os.read(descriptor, 1024).decode("ascii", "replace")
    except OSError:
        return "", 0
    finally:
        os.close(descriptor)
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0


# -- the copies ------------------------------------------------------------------------------------------


def copies_of(root: str, key: str, path: str | None = None) -> list[Copy]:
    """Return the versions that somebody saved while a call waited, the oldest first."""
    folder = f"{root}/{STATE_FOLDER}/{KEPT_FOLDER}"
    prefix = f".watch-{key}-" + (f"{_short(path)}-" if path is not None else "")
    try:
        names = [name for name in os.listdir(folder) if name.startswith(prefix) and not name.endswith("~")]
    except OSError:
        return []
    found = []
    for name in names:
        try:
            found.append((os.stat(f"{folder}/{name}").st_mtime_ns, Copy(f"{folder}/{name}", name[-64:])))
        except OSError:
            continue
    return [copy for _, copy in sorted(found)]


def content_of(copy: Copy) -> bytes | None:
    """Return a copy's bytes, None if it is gone or damaged."""
    try:
        # Without blocking: somebody may have put a FIFO there.
        descriptor = os.open(copy.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 20):
            pieces.append(piece)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    data = b"".join(pieces)
    return data if hashing.of_bytes(data) == copy.sha256 else None


def drop(copies: list[Copy]) -> None:
    """Remove copies that are not needed."""
    for copy in copies:
        try:
            os.unlink(copy.file)
        except OSError:
            pass


def keep(copy: Copy, path: str) -> str:
    """Give a copy the name of a kept version; return where it is."""
    folder = copy.file.rpartition("/")[0]
    name = path.rpartition("/")[2].encode("utf-8", "surrogateescape")[:120].decode("utf-8", "ignore")
    number = hashing.of_bytes(copy.file.encode("utf-8", "surrogateescape"))[:16]
    kept = f"{folder}/kept-{number}-{copy.sha256}~{name}"
    os.rename(copy.file, kept)
    return kept
