"""
SHA-256 of bytes and of open files: raw, as on disk, in constant memory.

Hashes are spelled as 64 lower-case hex digits everywhere but in the ledger (`sha256:<hex>`).

Two implementations. OpenSSL's, by way of `hashlib`, is several times as fast and takes four milliseconds to
load; the interpreter's own is there at once. A process that hashes a few files and exits (a hook) says
`start_light()` and gets the latter, until it meets a file for which loading pays.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

HEX_DIGITS = 64
CHUNK_BYTES = 1 << 18  # Fits the L2 cache, so that hashing reads what the copy has just put there.
HEAVY_BYTES = 1 << 20  # From here on loading OpenSSL is paid back.


def _choose(data: Any = b"") -> Any:
    """Load OpenSSL at the first hash."""
    global _make
    from hashlib import sha256 as heavy

    _make = heavy
    return heavy(data)


_make: Callable[..., Any] = _choose


def start_light() -> None:
    """Use the interpreter's own implementation until a large file comes."""
    global _make
    if _make is not _choose:
        return
    try:
        from _sha256 import sha256 as light  # type: ignore[import-not-found]
    except ImportError:
        try:
            from _sha2 import sha256 as light  # type: ignore[import-not-found]  # Its home from 3.12 on.
        except ImportError:
            return
    _make = light


def sha256(data: bytes | bytearray | memoryview = b"") -> Any:
    """Return a hash object, as `hashlib.sha256` does."""
    if len(data) >= HEAVY_BYTES:
        return _choose(data)
    return _make(data)


def of_bytes(data: bytes | bytearray | memoryview) -> str:
    """Return the hash of bytes in memory."""
    digest: str = (_make if len(data) < HEAVY_BYTES else _choose)(data).hexdigest()
    return digest


def of_descriptor(descriptor: int, *, size_hint: int | None = None) -> str:
    """
    Return the hash of everything that an open file holds, from its first byte.

    Reads to the end, whatever `size_hint` says: a file that grew meanwhile must hash as grown.
    `pread` leaves the descriptor's offset alone, so that threads may share it.
    """
    if size_hint is not None and size_hint < CHUNK_BYTES:
        head = os.pread(descriptor, size_hint + 1, 0)
        if len(head) == size_hint:  # Longer or shorter: it changed while we read; take the long way.
            return of_bytes(head)
    elif size_hint is not None and size_hint >= HEAVY_BYTES:
        _choose()
    digest = _make()
    chunk = memoryview(bytearray(CHUNK_BYTES))
    offset = 0
    while count := os.preadv(descriptor, [chunk], offset):
        digest.update(chunk[:count])
        offset += count
    result: str = digest.hexdigest()
    return result


def is_hash(text: str) -> bool:
    """True for a hash, False for a word that says why there is none."""
    return len(text) == HEX_DIGITS
