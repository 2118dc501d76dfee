"""
What every kind of outsider shares: one file, one log, and the number of its last update.

The log is private and append-only, and has one line for each fact:

    U 17 g0:5    update 17 is complete, made on top of version g0:5 (or `-` where no new version was made)
    M 17 g1:6    update 17 was complete, and version g1:6, which is on disk now, lacks it
    T g1:6       the file as found was not whole, and this process had left it whole
    V            the file was gone, and this process had left it there
    O folder     what this process had replaced before, a folder, was there again
    G            the file was "missing" for a moment, as files on FUSE are while they are being replaced
    P 640        the permission bits were set to 640, and are not so a moment later
    N text       anything else worth knowing
    D 12.5       the slowest update took that many milliseconds

An update counts only from its U line on: what an outsider had not finished cannot be lost.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

from noclobber.disk import filesystems
from torture import versions

if TYPE_CHECKING:
    from torture.versions import Version

PATIENCE_S = 5.0  # For an obstacle that a guard causes for a moment, such as a file where a folder was.
PADDINGS_BYTES = (0, 40, 40, 700, 700, 5_000, 20_000)


class OutsideWriter:
    """An outsider at work: its file, its log, the number of its last update, and its random numbers."""

    def __init__(self, path: str, log_path: str, seed: int, until_s: float) -> None:
        self.path = path
        self.chance = random.Random(seed)
        self.until_s = until_s
        self.made = 0
        self._log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._missed: set[int] = set()
        self.scratch = path + ".o-tmp"
        self.has_gaps = _is_on_fuse(os.path.dirname(path))

    def log(self, line: str) -> None:
        """Write one line without a buffer, so that it stays logged if this process is killed."""
        os.write(self._log, f"{line}\n".encode())

    def now_s(self) -> float:
        return time.monotonic()

    def pause(self, *longest_s: float) -> None:
        """Wait for a random part of one of these times."""
        time.sleep(self.chance.choice(longest_s) * self.chance.random())

    def look(self, path: str | None = None) -> Version:
        """Read the file as it is, and note everything that should be there and is not."""
        version = versions.parse(self._content(path or self.path))
        if not version.is_whole:
            self.log(f"T {version.id}")
        self._note_missing(version)
        return version

    def _content(self, path: str) -> bytes:
        deadline_s = self.now_s() + PATIENCE_S
        while True:
            try:
                with open(path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                if self.has_gaps and os.path.basename(path) in os.listdir(os.path.dirname(path)):
                    raise
                self.log("V")
                return b""
            except IsADirectoryError:
                self.log("O folder")
                if self.now_s() > deadline_s:
                    raise

    def _note_missing(self, version: Version) -> None:
        for tag in version.missing(self.made):
            if tag not in self._missed:
                self._missed.add(tag)
                self.log(f"M {tag} {version.id}")

    def note_slot(self, digits: bytes) -> None:
        """Note missing updates, for a writer that reads only the slot."""
        slot = int(digits) if digits.isdigit() else 0
        if len(digits) != versions.SLOT_WIDTH:
            self.log(f"T {versions.NO_ID}")
        for tag in range(slot + 1, self.made + 1):
            if tag not in self._missed:
                self._missed.add(tag)
                self.log(f"M {tag} {versions.NO_ID}")

    def next_version(self, base: Version) -> bytes:
        """Return what was read plus the next number."""
        return versions.render(
            f"o:{self.made + 1}",
            base.id if base.is_whole else versions.HALF_ID,
            versions.with_tags(base.tags, [self.made + 1]),
            slot=base.slot,
            counters=base.counters,
            padding_bytes=self.chance.choice(PADDINGS_BYTES),
        )

    def done(self, base_id: str = versions.NO_ID) -> None:
        """Log the update as complete: from here on nobody may lose it."""
        self.made += 1
        self.log(f"U {self.made} {base_id}")


def _is_on_fuse(folder: str) -> bool:
    """True where a file that is being replaced is missing for a moment, without any guard (disk/reading)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return filesystems.kind_of(descriptor) == "fuse"
    finally:
        os.close(descriptor)
