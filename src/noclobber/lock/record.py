"""
The content of a lock file: how it is spelled, read and found broken.

Five members are the specification's and enough to judge a lock by (`holder`, `acquired`,
`lease_duration_s`, `pid`, `deliverable_id`); the lease ends at `acquired + lease_duration_s`, always.
The others are ours. `lock_id` is new for every acquisition: it is what renew, release and recovery
compare. `host`, `boot_id`, `pid_namespace` and `pid_started` say whose numbering `pid` belongs to.
`folder_device` and `folder_inode` tell a folder's own lock from one that came along in a copy. `renewal_s`
is for how long one renewal lasts; `lease_duration_s` grows with each, counting from `acquired`.
`recovered_from` is present if the lock was taken over, so that a recovery is on record in the same step
in which it happens, even if the recoverer is killed before it reaches the ledger.

Whatever stands at the lock's name, reading it ends: links are not followed, FIFOs and devices are not
waited for, and no more than `MAX_RECORD_BYTES` are read. What is not a record is `corrupt`, with the reason
in words. What may not be read is an error, and never "free" (X-003).
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple

from noclobber.disk.processes import ProcessIdentity

SCHEMA_VERSION = "1"
MAX_RECORD_BYTES = 64 * 1024
_USUAL_BYTES = 4096  # Asking for the bound every time would allocate it every time.

# A lock_id becomes part of a file name, so what another program wrote there is not taken on trust.
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{7,63}").fullmatch
CORRUPT_KEY = "corrupt"

_quote = json.encoder.encode_basestring_ascii

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


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
    schema_version: str = SCHEMA_VERSION

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
        return ProcessIdentity(self.pid, self.pid_started, self.host or "", self.boot_id, self.pid_namespace)

    def to_bytes(self) -> bytes:
        """Spell it as a lock file: JSON on one line, the five mandatory members first."""
        # By hand: a dict and an encoder for it would cost as much as publishing the file.
        text = (
            f'{{"holder": {_quote(self.holder)}, "acquired": {_quote(self.acquired)}, '
            f'"lease_duration_s": {self.lease_duration_s}, "pid": {self.pid}, '
            f'"deliverable_id": {_quote(self.deliverable_id)}, "schema_version": "{SCHEMA_VERSION}", '
            f'"lock_id": {_quote(self.lock_id)}, "host": {_spell(self.host)}, '
            f'"boot_id": {_spell(self.boot_id)}, "pid_namespace": {_spell(self.pid_namespace)}, '
            f'"pid_started": {_spell(self.pid_started)}, "folder_device": {_spell(self.folder_device)}, '
            f'"folder_inode": {_spell(self.folder_inode)}, "renewal_s": {_spell(self.renewal_s)}'
        )
        if self.recovered_from is not None:
            text += f', "recovered_from": {json.dumps(self.recovered_from)}'
        return f"{text}}}\n".encode()


_id_prefix = ""
_id_numbers = count()  # Made in C: neither a second thread nor an interrupt can break it in the middle.


def new_id() -> str:
    """Return an id that no other acquisition has: twelve random bytes for this process, and a count."""
    global _id_prefix
    if not _id_prefix:
        _id_prefix = os.urandom(12).hex()
    return f"{_id_prefix}{next(_id_numbers):08x}"


def _forget_id_prefix() -> None:
    # A child that went on with its parent's prefix would use the parent's next ids.
    global _id_prefix
    _id_prefix = ""


os.register_at_fork(after_in_child=_forget_id_prefix)


def _spell(value: str | int | None) -> str:
    return "null" if value is None else _quote(value) if isinstance(value, str) else str(value)


class Found(NamedTuple):
    """What stands at a lock's name: a record, or something broken. `key` is what a change compares."""

    key: str
    record: LockRecord | None
    corruption: str | None = None
    content: bytes = b""

    @property
    def fingerprint(self) -> str:
        """What tells this very content from any other, for files that share a lock's id."""
        return sha256(self.content or repr(self.corruption).encode()).hexdigest()[:32]


def parse_time_s(text: str) -> float:
    """Read an ISO 8601 timestamp; one without an offset is UTC. `ValueError` if it is none."""
    seconds = _times_s.get(text)
    if seconds is None:
        seconds = _parse_time_s(text)
        remember_time(text, seconds)
    return seconds


_times_s: dict[str, float] = {}  # A record's time is asked for several times while it is judged.
MOST_TIMES = 256


def remember_time(text: str, seconds: float) -> None:
    """Spare the next reader of a timestamp the work: whoever spells one knows what it says."""
    if len(_times_s) >= MOST_TIMES:
        _times_s.clear()
    _times_s[text] = seconds


def _parse_time_s(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def read(name: str, directory: int | None = None) -> Found | None:
    """Read what stands at a name; None if nothing does. `PermissionError` and the like go to the caller."""
    try:
        descriptor = os.open(name, _OPEN_FLAGS, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            return _corrupt("it is a symbolic link")
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP):
            return _corrupt("it is a socket or a device")
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            return _corrupt(f"it is a {_KINDS.get(stat.S_IFMT(mode), 'special file')}")
        content = os.read(descriptor, _USUAL_BYTES)
        if len(content) == _USUAL_BYTES:
            content += os.read(descriptor, MAX_RECORD_BYTES)
    finally:
        os.close(descriptor)
    return parse(content)


_KINDS = {stat.S_IFDIR: "directory", stat.S_IFIFO: "FIFO", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def parse(content: bytes) -> Found:
    """Make a record of a lock file's bytes, or say why they are none."""
    if not content:
        return _corrupt("it is empty")
    if len(content) > MAX_RECORD_BYTES:
        return _corrupt(f"it is larger than {MAX_RECORD_BYTES} bytes", content)
    try:
        members = json.loads(content)
    except (ValueError, RecursionError):
        return _corrupt("it is not JSON, or cut off", content)
    if type(members) is not dict:
        return _corrupt("it is JSON, but not an object", content)
    if not _is_sound(members):
        flaw = _flaw(members)
        if flaw:
            return _corrupt(flaw, content)
    get = members.get
    lock_id = get("lock_id")
    # A lock by a program that knows only the five members has no id: its bytes are its identity.
    key = lock_id if type(lock_id) is str and _SAFE_ID(lock_id) else sha256(content).hexdigest()[:32]
    record = LockRecord(
        members["deliverable_id"], members["holder"], members["acquired"], members["lease_duration_s"],
        members["pid"], key, get("host"), get("boot_id"), get("pid_namespace"), get("pid_started"),
        get("folder_device"), get("folder_inode"), get("renewal_s"), get("recovered_from"),
        get("schema_version", SCHEMA_VERSION),
    )  # fmt: skip
    return Found(key, record, None, content)


def _is_sound(members: dict[str, Any]) -> bool:
    """True for a record as this library writes it: one expression, because status is asked for often. False
    says nothing; `_flaw` looks closer. `type is`, because a bool is an int."""
    try:
        return (
            type(members["holder"]) is str
            and type(members["acquired"]) is str
            and type(members["lease_duration_s"]) is int
            and type(members["pid"]) is int
            and type(members["deliverable_id"]) is str
            and type(members["host"]) is str
            and type(members["boot_id"]) is str
            and type(members["pid_namespace"]) is str
            and type(members["pid_started"]) is int
            and type(members["folder_device"]) is int
            and type(members["folder_inode"]) is int
            and type(members["renewal_s"]) is int
            and members["schema_version"] == SCHEMA_VERSION
            and "recovered_from" not in members
            and members["lease_duration_s"] > 0
            and members["pid"] > 0
            and parse_time_s(members["acquired"]) > 0
        )
    except (KeyError, ValueError, OverflowError, OSError):
        return False


_OPTIONAL = {
    "schema_version": str, "host": str, "boot_id": str, "pid_namespace": str,
    "pid_started": int, "folder_device": int, "folder_inode": int,
    "renewal_s": int, "recovered_from": dict,
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
    if members["lease_duration_s"] < 1:
        return "its lease is shorter than a second"
    if members["pid"] < 1:
        return "its pid is not positive"
    try:
        parse_time_s(members["acquired"])
    except (ValueError, OverflowError, OSError):
        return "its member 'acquired' is not an ISO 8601 timestamp"
    return None


def _corrupt(reason: str, content: bytes = b"") -> Found:
    return Found(CORRUPT_KEY, None, reason, content)
