"""
SHA-256 of bytes and of open files: raw, as on disk, in constant memory.

Hashes are spelled as 64 lower-case hex digits everywhere but in the ledger (`sha256:<hex>`).
"""

from __future__ import annotations

import os
from hashlib import sha256 as sha256

HEX_DIGITS = 64
CHUNK_BYTES = 1 << 18  # Fits the L2 cache, so that hashing reads what the copy has just put there.


def of_bytes(data: bytes | bytearray | memoryview) -> str:
    """Return the hash of bytes in memory."""
    return sha256(data).hexdigest()


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
    digest = sha256()
    chunk = memoryview(bytearray(CHUNK_BYTES))
    offset = 0
    while count := os.preadv(descriptor, [chunk], offset):
        digest.update(chunk[:count])
        offset += count
    return digest.hexdigest()


def is_hash(text: str) -> bool:
    """True for a hash, False for a word that says why there is none."""
    return len(text) == HEX_DIGITS
