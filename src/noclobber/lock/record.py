"""
The content of a lock file: how it is written, read and found broken.

Five members are the specification's and enough to judge a lock by (`holder`, `acquired`,
`lease_duration_s`, `pid`, `deliverable_id`); the lease ends at `acquired + lease_duration_s`, always.
The others are ours. `secret_sha256` is the hash of the id that the holder alone has: whoever shows that id
may renew and release. `lock_id` is public, the beginning of that hash: it is what every change compares.
`host`, `boot_id`, `pid_namespace`, `pid_started` and `time_namespace` say whose numbering `pid` belongs to.
`folder_device` and `folder_inode` tell a folder's own lock from one that came along in a copy. `renewal_s`
is for how long one renewal lasts; `lease_duration_s` grows with each, counting from `acquired`.
`workspace` and `path` name the row of a lock that a coordinator keeps, too.
`recovered_from` is present if the lock was taken over, so that a recovery is on record in the same step
in which it happens, even if the recoverer is killed before it reaches the ledger.

A lock file may come with a repository, so nothing in it is believed (finding S15). Whatever is at the
lock's name, reading it ends: links are not followed, FIFOs and devices are not waited for, and no more than
`MAX_RECORD_BYTES` are read. Every number has a bound, and every text a length, and it is Unicode that a
ledger can hold. What is not a record is `corrupt`, with the reason in words. What may not be read is an
error, and never "free" (X-003).

Bytes that cannot be parsed carry their age: another program may have created the file a moment ago, and be
about to write it (ruling 25). The age is by the filesystem's clock, which may be a server's.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from noclobber.core.json_text import spell
from noclobber.disk import small_file
from noclobber.disk.processes import ProcessIdentity
from noclobber.lock.limits import MAX_LEASE_S, MAX_RECORDED_LEASE_S, MAX_TEXT_CHARS
from noclobber.lock.names import STAGED_PREFIX

SCHEMA_VERSION = "1"
MAX_RECORD_BYTES = 64 * 1024
_USUAL_BYTES = 4096  # Asking for the bound every time would allocate it every time.

# A lock_id becomes part of a file name, so what another program wrote there is not taken on trust.
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{7,63}").fullmatch
CORRUPT_KEY = "corrupt"


class LockRecord(NamedTuple):
    """What a lock file says."""

    deliverable_id: str
    holder: str
    acquired: str
    lease_duration_s: int
    pid: int
    lock_id: str = ""
    host: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None
    pid_started: int | None = None
    """None together with the three above, or alone: judged by the lease only."""
    folder_device: int | None = None
    folder_inode: int | None = None
    renewal_s: int | None = None
    recovered_from: dict[str, Any] | None = None
    time_namespace: str | None = None
    secret_sha256: str | None = None
    """None for another program's lock: nobody can speak for it here."""
    schema_version: str = SCHEMA_VERSION
    workspace: str | None = None
    path: str | None = None
    """With a coordinator: the name of the lock's row there. A folder that is moved takes it along."""

    @property
    def acquired_s(self) -> float:
        """When it was acquired, in seconds since the epoch."""
        return parse_time_s(self.acquired)

    @property
    def expires_s(self) -> float:
        """The first moment at which the lease has run out."""
        return parse_time_s(self.acquired) + self.lease_duration_s

    @property
    def process(self) -> ProcessIdentity:
        """The holder's process, as far as it is named."""
        return ProcessIdentity(
            self.pid, self.pid_started, self.host or "", self.boot_id, self.pid_namespace, self.time_namespace
        )

    @property
    def names_no_machine(self) -> bool:
        """True if it does not say where its process runs; then that is here (ruling 25)."""
        return self.host is None and self.boot_id is None and self.pid_namespace is None

    def to_bytes(self) -> bytes:
        """Return the content of the lock file: JSON on one line, the five mandatory members first."""
        members = {
            "holder": self.holder,
            "acquired": self.acquired,
            "lease_duration_s": self.lease_duration_s,
            "pid": self.pid,
            "deliverable_id": self.deliverable_id,
            "schema_version": SCHEMA_VERSION,
            "lock_id": self.lock_id,
            "secret_sha256": self.secret_sha256,
            "host": self.host,
            "boot_id": self.boot_id,
            "pid_namespace": self.pid_namespace,
            "pid_started": self.pid_started,
            "time_namespace": self.time_namespace,
            "folder_device": self.folder_device,
            "folder_inode": self.folder_inode,
            "renewal_s": self.renewal_s,
        }
        if self.recovered_from is not None:
            members["recovered_from"] = self.recovered_from
        if self.workspace is not None:
            members["workspace"], members["path"] = self.workspace, self.path
        # A lone surrogate, from another program's lock, becomes \\udcxx, which is how JSON spells it.
        return spell(members).encode("utf-8", "backslashreplace") + b"\n"


def new_secret() -> str:
    """Return an id that no other acquisition has, and that nobody can guess: it is the right to release."""
    return os.urandom(16).hex()


def hash_of(secret: str) -> str:
    """Return what a lock file shows of a holder's id."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def public_id(secret_sha256: str) -> str:
    """Return the id that everybody may know: part of the hash, so that there is one thing to keep."""
    return secret_sha256[:32]


class LockContent(NamedTuple):
    """What was found at a lock's name: a record, or something broken. `key` is what a change compares."""

    key: str
    record: LockRecord | None
    corruption: str | None = None
    content: bytes = b""
    unparsed_age_s: float | None = None
    """How old the file is if its bytes cannot be parsed at all; None if they can, or it is no file."""

    @property
    def fingerprint(self) -> str:
        """What tells this very content from any other, for files that share a lock's id."""
        return sha256(self.content or repr(self.corruption).encode()).hexdigest()[:32]


@lru_cache(256)  # A record's time is asked for several times while it is judged.
def parse_time_s(text: str) -> float:
    """Read an ISO 8601 timestamp; one without an offset is UTC. `ValueError` if it is none."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def read(name: str, directory: int | None = None) -> LockContent | None:
    """Read what is at a name; None if there is nothing. `PermissionError` and the like go to the caller."""
    try:
        descriptor = os.open(name, small_file.READ, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            return _corrupt("it is a symbolic link")
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP):
            return _corrupt("it is a socket or a device")
        raise
    with small_file.closing(descriptor):
        status = os.fstat(descriptor)
        mode = status.st_mode
        if not stat.S_ISREG(mode):
            return _corrupt(f"it is a {_KINDS.get(stat.S_IFMT(mode), 'special file')}")
        content = os.read(descriptor, _USUAL_BYTES)
        if len(content) == _USUAL_BYTES:
            content += os.read(descriptor, MAX_RECORD_BYTES)
    found = parse(content)
    if found.record is None and found.unparsed_age_s is not None:
        return found._replace(unparsed_age_s=_filesystem_now_s(name, directory) - status.st_mtime)
    return found


def _filesystem_now_s(name: str, directory: int | None) -> float:
    """Ask the filesystem what time it is: a file that is made beside `name`, and is gone again."""
    folder = os.path.dirname(name) or "."
    if hasattr(os, "O_TMPFILE"):
        try:
            unnamed = os.O_WRONLY | os.O_CLOEXEC | os.O_TMPFILE
            return _mtime_s(os.open(folder, unnamed, 0o600, dir_fd=directory))
        except OSError:
            pass
    made = os.path.join(folder, STAGED_PREFIX + os.urandom(8).hex())
    try:
        now_s = _mtime_s(os.open(made, small_file.NEW, 0o600, dir_fd=directory))
        os.unlink(made, dir_fd=directory)
        return now_s
    except OSError:  # Not ours to write in: then this machine's clock has to do.
        return time.time()


def _mtime_s(descriptor: int) -> float:
    with small_file.closing(descriptor):
        return os.fstat(descriptor).st_mtime


_KINDS = {stat.S_IFDIR: "directory", stat.S_IFIFO: "FIFO", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def parse(content: bytes) -> LockContent:
    """Make a record of a lock file's bytes, or say why they are none."""
    if not content:
        return LockContent(CORRUPT_KEY, None, "it is empty", content, 0.0)
    if len(content) > MAX_RECORD_BYTES:
        return _corrupt(f"it is larger than {MAX_RECORD_BYTES} bytes", content)
    try:
        members = json.loads(content)
    except (ValueError, RecursionError):
        return LockContent(CORRUPT_KEY, None, "it is not JSON, or cut off", content, 0.0)
    if type(members) is not dict:
        return _corrupt("it is JSON, but not an object", content)
    flaw = _flaw(members)
    if flaw is not None:
        return _corrupt(flaw, content)
    get = members.get
    lock_id = get("lock_id")
    # A lock by a program that knows only the five members has no id: its bytes are its identity.
    key = lock_id if type(lock_id) is str and _SAFE_ID(lock_id) else sha256(content).hexdigest()[:32]
    record = LockRecord(
        members["deliverable_id"], members["holder"], members["acquired"], members["lease_duration_s"],
        members["pid"], key, get("host"), get("boot_id"), get("pid_namespace"), get("pid_started"),
        get("folder_device"), get("folder_inode"), get("renewal_s"), get("recovered_from"),
        get("time_namespace"), get("secret_sha256"), get("schema_version", SCHEMA_VERSION),
        get("workspace"), get("path"),
    )  # fmt: skip
    return LockContent(key, record, None, content)


_OPTIONAL = {
    "schema_version": str, "host": str, "boot_id": str, "pid_namespace": str, "time_namespace": str,
    "secret_sha256": str, "workspace": str, "path": str,
    "pid_started": int, "folder_device": int, "folder_inode": int,
    "renewal_s": int, "recovered_from": dict,
}  # fmt: skip
_BOUNDS = {
    "lease_duration_s": (1, MAX_RECORDED_LEASE_S), "pid": (1, 2**31 - 1), "pid_started": (0, 2**63),
    "folder_device": (0, 2**64), "folder_inode": (0, 2**64), "renewal_s": (1, MAX_LEASE_S),
}  # fmt: skip
_MANDATORY = {"holder": str, "acquired": str, "lease_duration_s": int, "pid": int, "deliverable_id": str}


def _flaw(members: dict[str, Any]) -> str | None:
    """Return what is wrong with a JSON object that ought to be a record."""
    for name, kind in _MANDATORY.items():
        if type(members.get(name)) is not kind:
            return f"its member {name!r} is {'of the wrong type' if name in members else 'missing'}"
    for name, kind in _OPTIONAL.items():
        value = members.get(name)
        if value is not None and type(value) is not kind:
            return f"its member {name!r} is of the wrong type"
    for name, (least, most) in _BOUNDS.items():
        value = members.get(name)
        if value is not None and not least <= value <= most:
            return f"its member {name!r} is not from {least} to {most}"
    for name, value in members.items():
        texts = value.values() if name == "recovered_from" and value is not None else (value,)
        if not all(map(_is_text, texts)):
            return f"its member {name[:40]!r} is too long, or not Unicode text"
    try:
        parse_time_s(members["acquired"])
    except (ValueError, OverflowError, OSError):
        return "its member 'acquired' is not an ISO 8601 timestamp"
    return None


def _is_text(value: object) -> bool:
    """False if this is text that no ledger can hold, or that is longer than any of ours."""
    if type(value) is not str or value.isascii():
        return type(value) is not str or len(value) <= MAX_TEXT_CHARS
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return len(value) <= MAX_TEXT_CHARS


def _corrupt(reason: str, content: bytes = b"") -> LockContent:
    return LockContent(CORRUPT_KEY, None, reason, content)
