"""
The bytes that an agent saw last, and those that its calls must leave: a small store beside its memory.

With them a refusal can show what changed, a formatter can be told from a stranger, and several edits in one
message can be foreseen together. The memory itself has hashes only.

A fixed number of places, by the first digits of the hash: a newer version takes an older one's place. So an
agent never has more than `PLACES` times `MOST_BYTES` here. Bytes that are gone mean a refusal without a
diff, or a formatter that is not recognised; never a write that lands.

Not held: files whose names are those of secrets. The folder is the user's alone, and goes with the session.
"""

from __future__ import annotations

import os

from noclobber.core.secret_names import is_secret
from noclobber.disk import small_file

MOST_BYTES = 256 << 10
PLACES = 256
_DIGITS = 64


def hold(folder_fd: int, path: str, sha256: str, data: bytes) -> bool:
    """Hold the bytes of a version; False if they are not held. Never raises: nothing depends on it."""
    if len(data) > MOST_BYTES or is_secret(path):
        return False
    try:
        opened = os.open(_place(sha256), small_file.WRITE, 0o600, dir_fd=folder_fd)
        with small_file.closing(opened) as descriptor:
            # The hash last: a kill in the middle leaves bytes that are nobody's.
            os.pwrite(descriptor, b"-" * _DIGITS, 0)
            held = os.pwrite(descriptor, data, _DIGITS) == len(data)
            os.ftruncate(descriptor, _DIGITS + len(data))
            return held and os.pwrite(descriptor, sha256.encode(), 0) == _DIGITS
    except OSError:
        return False


def held(folder_fd: int, sha256: str | None) -> bytes | None:
    """Return the bytes of a version, None if they are not held."""
    return None if sha256 is None or len(sha256) != _DIGITS else held_like(folder_fd, sha256)


def held_like(folder_fd: int, sha256: str) -> bytes | None:
    """Return the bytes of a version whose hash begins so (two digits at least), None if they are not held."""
    try:
        data = small_file.read(_place(sha256), folder_fd, most_bytes=_DIGITS + MOST_BYTES)
    except OSError:
        return None
    return data[_DIGITS:] if data[: len(sha256)] == sha256.encode() else None


def _place(sha256: str) -> str:
    return f"b{sha256[:2]}"
