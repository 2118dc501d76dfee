"""
Hash large content beside other work.

A section's new version is hashed and put on the disk before the server is asked. Hashing takes a processor,
and flushing mostly waits. Measured at 1 MiB: 0.65 ms and 0.75 ms one after the other, 0.8 ms at once.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from noclobber.disk import hashing
from noclobber.errors import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGE_BYTES = 1 << 18  # Starting a thread takes as long as hashing 100 KiB.


class HashedAside:
    """The hashes of new versions, `ABSENT` for one that goes. From the first question on, a list."""

    def __init__(self, contents: Sequence[bytes | None]) -> None:
        self._contents, self._found = contents, list[str]()
        self._thread: threading.Thread | None = None
        if sum(len(content) for content in contents if content is not None) >= LARGE_BYTES:
            thread = threading.Thread(target=self._hash, name="noclobber-hash", daemon=True)
            with suppress(
                RuntimeError
            ):  # No room for another thread. Then it is hashed when it is asked for.
                thread.start()
                self._thread = thread

    def all(self) -> list[str]:
        """Return them, in the order of the contents; wait for those that are not there yet."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if len(self._found) < len(self._contents):
            self._hash()
        return self._found

    def _hash(self) -> None:
        self._found = [ABSENT if content is None else hashing.of_bytes(content) for content in self._contents]
