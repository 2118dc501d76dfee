"""
The reads of one turn, in the order they happened, each findable by its id.

Held in columns and not as objects: a turn may read a hundred thousand files, and an `Observation` with
its strings would cost a kilobyte where a row here costs 48 bytes. The value is built when somebody
asks for it, so every id of the turn stays good until the turn ends.
"""

from __future__ import annotations

from struct import Struct  # Not `array`: that one brings `collections` along, and hooks count milliseconds.

from noclobber.core.values import WHOLE, Coverage, Observation
from noclobber.errors import ABSENT, BadRequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class SeenFile(Protocol):
        """What a row refers to: the turn's entry for one file."""

        path: str


DIGEST_BYTES = 32
_MOMENT = Struct("d")


class ObservationLog:
    """Rows of (file, hash, when), and what part was seen where that was not the whole file."""

    __slots__ = ("_at_s", "_digests", "_files", "_prefix", "_unusual")

    def __init__(self, turn_id: str) -> None:
        self._prefix = f"{turn_id}:"
        self._files: list[SeenFile] = []
        self._digests = bytearray()
        self._at_s = bytearray()
        self._unusual: dict[int, Coverage | None] = {}  # A part; None: there was no file.

    def __len__(self) -> int:
        return len(self._files)

    def append(self, file: SeenFile, sha256: str, seen: Coverage, at_s: float) -> Observation:
        """Add a row and return it as a value."""
        row = len(self._files)
        self._files.append(file)
        self._at_s += _MOMENT.pack(at_s)
        if sha256 == ABSENT:
            self._digests += bytes(DIGEST_BYTES)
            self._unusual[row] = None
        else:
            self._digests += bytes.fromhex(sha256)
            if not seen.is_whole:
                self._unusual[row] = seen
        return Observation(file.path, sha256, seen, f"{self._prefix}{row}", at_s)

    def file_at(self, row: int) -> SeenFile:
        """Return which file a row is about."""
        return self._files[row]

    def sha256_at(self, row: int) -> str:
        """Return what that row's read found."""
        if self._unusual.get(row, WHOLE) is None:
            return ABSENT
        return self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES].hex()

    def find(self, observation_id: str) -> Observation:
        """Return the observation with that id; `BadRequestError` if this turn has none such."""
        number = observation_id.removeprefix(self._prefix)
        row = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else -1
        if number == observation_id or not 0 <= row < len(self._files) or str(row) != number:
            raise BadRequestError(
                "",
                f"This turn has made no observation {observation_id!r}. "
                "An id is good within the turn that made it: read the file again.",
                observation_id=observation_id,
            )
        seen = self._unusual.get(row, WHOLE) or WHOLE
        [at_s] = _MOMENT.unpack_from(self._at_s, row * _MOMENT.size)
        return Observation(self._files[row].path, self.sha256_at(row), seen, observation_id, at_s)
