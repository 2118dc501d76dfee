"""
What the agent saw this turn: the snapshot that every guarded write is judged by.

Two hashes a file. The *initial hash* is of the bytes that the first successful read gave; it is set
once and never changes (`get_initial_hash`). The *baseline* is what the next write is checked against; a
read of the whole file moves it, and so does an own write. Nothing here touches a disk: callers
hand over what one single read returned, so that what was shown and what is remembered are the same bytes.

Calling sequence: `observe()` after each read, `expected_for()` before each write, then `wrote()` or
`refused()`; `end()` at the end of the turn, after which everything answers `TurnClosedError`.

How the baseline moves, where hash A is the baseline and a read finds B:

| what was read | `rebaseline="on-read"` | `"after-conflict"` |
|---|---|---|
| nothing was known | B | B |
| the whole file | B | B if a write was refused since, else A |
| parts that add up to the whole at B | B | the same |
| a part | A: the agent holds two halves of two versions | A |
| could not be read | A | A |

What an own command left (`git merge`, `cp`, `sed -i`) is the agent's write, and nothing that it has seen
(`brought`). The baseline stays. An edit, a delete and the next command are checked against what the command
left; a write of the whole file is checked against the baseline, so it is refused until the file was read.

Names. A file is known by its canonical path and by every name under which the agent read it. What was
seen *under a name* is what a write under that name is checked against: if `a.md` was read and has
since become a link to `b.md`, the write is checked against what `a.md` held, and so refused.

Not promised: the bytes of a baseline are kept for diffs within bounds only; the oldest go first.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.options import RETAINED_FILE_BYTES, RETAINED_TURN_BYTES
from noclobber.core.values import BOM, WHOLE, Coverage, Observation
from noclobber.errors import ABSENT, UNKNOWN, BadRequestError, TurnClosedError

if TYPE_CHECKING:
    from noclobber.core.clock import Clock


Rebaseline = Literal["on-read", "after-conflict"]

NOTHING_SEEN = Coverage((), 1)
KEPT, KEPT_A_FILE = 4096, 32  # Reads, and own writes.
REFUSED_KEPT = 64  # Hashes of refused bytes, a file. An agent that goes on for longer has been given up.

# One lock for all turns: it is held for a microsecond or two. A fork waits for it, so that no child
# ever inherits it held by a thread that it does not have, or a snapshot in the middle of a change.
# Re-entrant, because a signal handler may run, and may fork, while its own thread holds it.
_LOCK = RLock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class Remembered(NamedTuple):
    """What one file's entry carries into the next turn of a session."""

    baseline: str | None
    seen: Coverage | None
    retained: bytes | None
    unseen: str | None = None


class _File:
    """What the turn knows about one canonical path. Small: there may be a hundred thousand of them."""

    __slots__ = ("baseline", "initial", "path", "seen", "trouble")

    def __init__(self, path: str) -> None:
        self.path = path
        self.initial: str | None = None
        self.baseline: str | None = None
        self.seen: Coverage | None = None  # What part of the baseline was seen; None: all of it.
        self.trouble: _Trouble | None = None


class _Trouble:
    """What only a file that changed, or could not be read, needs to have remembered."""

    __slots__ = ("conflict", "error", "newer", "newer_seen", "refused", "unseen")

    def __init__(self) -> None:
        self.conflict = False  # A write was refused, and nothing has been read since.
        self.error: str | None = None
        self.newer: str | None = None  # A later version that was seen in part.
        self.newer_seen: Coverage = WHOLE
        self.refused: dict[str, str] = {}  # Hash of refused bytes -> the baseline they were made from.
        self.unseen: str | None = None  # What an own command left, and the agent has not read since.


class _Name:
    """A name that is not, or once was not, the canonical path of the file it leads to."""

    __slots__ = ("file", "initial")

    def __init__(self, file: _File, initial: str | None) -> None:
        self.file, self.initial = file, initial


class TurnContext:
    """The snapshot of one turn. Safe to share between the threads of that turn."""

    def __init__(
        self,
        root: str,
        *,
        turn_id: str,
        agent_id: str = "agent",
        session_id: str | None = None,
        rebaseline: Rebaseline = "on-read",
        retained_file_bytes: int = RETAINED_FILE_BYTES,
        retained_turn_bytes: int = RETAINED_TURN_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.root, self.turn_id, self.agent_id, self.session_id = root, turn_id, agent_id, session_id
        self.rebaseline = rebaseline
        self._retained_limits = (retained_file_bytes, retained_turn_bytes)
        self._clock = clock
        self.clear()

    # -- life ------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget everything; the turn goes on (010-FR-005)."""
        with _LOCK:
            self._files: dict[str, _File] | None = {}
            self._names: dict[str, _Name] = {}
            self._conflict_names: dict[str, str] = {}
            # The reads, in the order they happened; a read's id is its place, counted with those that are
            # forgotten. Four lists and not one of tuples: with a hundred thousand reads the collector would
            # go through as many tuples.
            self._forgotten_reads = 0
            self._read_files: list[_File] = []
            self._read_hashes: list[str] = []
            self._read_parts: list[Coverage] = []
            self._read_times_s: list[float] = []
            self._written: dict[tuple[str, str], Coverage] = {}  # Own writes, by path and hash.
            self._retained: dict[str, bytes] = {}  # Bytes of baselines by path, the oldest first.
            self._retained_bytes = 0
            self._inherited: dict[str, str] = {}
            self._with_bom: set[str] = set()

    def end(self) -> None:
        """Forget everything, and refuse whatever comes after. Ending twice is fine."""
        with _LOCK:
            self.clear()
            self._files = None

    @property
    def is_open(self) -> bool:
        """False once the turn has ended."""
        return self._files is not None

    def __len__(self) -> int:
        return len(self._known_files())

    # -- names -----------------------------------------------------------------------------------

    def name_of(self, path: str | os.PathLike[str]) -> str:
        """Return the absolute, normalised name for what the agent wrote, without a look at the disk."""
        text = path if isinstance(path, str) else os.fsdecode(path)
        text = os.path.normpath(text if text.startswith("/") else f"{self.root}/{text}")
        return text[1:] if text.startswith("//") else text  # POSIX lets two slashes mean something else.

    # -- what was seen ---------------------------------------------------------------------------

    def observe(
        self, lexical: str, canonical: str, sha256: str, content: bytes | None, seen: Coverage
    ) -> Observation:
        """
        Take note of one read that gave bytes.

        `sha256` is of the whole file, `content` its bytes (None: not to be kept for diffs), `seen` the
        part that the agent was shown.
        """
        with _LOCK:
            file = self._file(canonical)
            if file.initial is None:
                file.initial = sha256
            self._see(file, sha256, seen)
            is_all_seen = file.baseline == sha256 and file.seen is None
            self._bind(lexical, file, may_move=is_all_seen and self._name_may_move(lexical))
            if content is not None and file.baseline == sha256:
                self._note_bom(file, content)
                if file.path not in self._retained:
                    self._retain(file, content)
            return self._add_read(file, sha256, seen)

    def observe_absent(self, lexical: str, canonical: str) -> Observation:
        """Take note that there was no file. A baseline (`ABSENT`), but no initial hash."""
        with _LOCK:
            file = self._file(canonical)
            self._see(file, ABSENT, WHOLE)
            self._bind(lexical, file, may_move=file.baseline == ABSENT and self._name_may_move(lexical))
            return self._add_read(file, ABSENT, WHOLE)

    def saw_unknown(self, lexical: str, canonical: str) -> None:
        """Take note that the agent saw a version that nobody can name: it must read the whole file again."""
        with _LOCK:
            file = self._file(canonical)
            self._take(file, UNKNOWN, WHOLE)
            self._bind(lexical, file, may_move=True)

    def observe_error(self, lexical: str, canonical: str, code: str) -> None:
        """Take note that a read failed. It proves nothing, so neither hash moves and no name is bound."""
        with _LOCK:
            file = self._look_up(lexical, canonical) or self._file(canonical)
            _trouble(file).error = code

    def error_for(self, lexical: str, canonical: str) -> str | None:
        """Return the code of the last read's failure, None if it succeeded or there was none."""
        with _LOCK:
            file = self._look_up(lexical, canonical)
            return file.trouble.error if file and file.trouble else None

    def observation(self, observation_id: str) -> Observation:
        """Return the read with that id; `BadRequestError` if this turn made none such."""
        with _LOCK:
            self._known_files()
            turn_id, _, number = observation_id.rpartition(":")
            is_number = number.isascii() and number.isdigit() and len(number) < 10
            row = int(number) if is_number and turn_id == self.turn_id else -1
            row -= self._forgotten_reads
            if not 0 <= row < len(self._read_files) or str(row + self._forgotten_reads) != number:
                raise BadRequestError(
                    "",
                    f"This turn has made no observation {observation_id!r}, or thousands of reads ago. "
                    "An id is good within the turn that made it: read the file again.",
                    observation_id=observation_id,
                )
            return Observation(
                self._read_files[row].path,
                self._read_hashes[row],
                self._read_parts[row],
                observation_id,
                self._read_times_s[row],
            )

    # -- what was written ------------------------------------------------------------------------

    def wrote(
        self,
        lexical: str,
        canonical: str,
        sha256: str,
        content: bytes | None,
        seen: Coverage = WHOLE,
    ) -> None:
        """
        Take note of an own write: the hash of the bytes that were written is the baseline.

        `seen` says how much of them the agent knows: all, unless it edited a file that it had not
        wholly seen.
        """
        with _LOCK:
            file = self._file(canonical)
            if not seen.is_whole and file.trouble and file.trouble.unseen is not None:
                file.trouble.unseen = sha256  # An edit of what its own command had left: still not seen.
                return
            self._take(file, sha256, seen)
            self._written.pop((canonical, sha256), None)  # So that the last write is the last entry.
            self._written[canonical, sha256] = seen
            if len(self._written) > self._most_rows():
                self._forget_written()
            if file.trouble:
                file.trouble.refused.clear()  # What landed was made from the latest version.
            self._bind(lexical, file, may_move=True)
            self._conflict_names.pop(canonical, None)
            if content is not None:
                self._note_bom(file, content)
                self._retain(file, content)

    def brought(self, lexical: str, canonical: str, sha256: str) -> None:
        """Take note of what an own command made of a file: an own write, and nothing that was seen."""
        with _LOCK:
            trouble = _trouble(self._look_up(lexical, canonical) or self._file(canonical))
            trouble.unseen, trouble.conflict = sha256, False
            trouble.refused.clear()

    def removed(self, lexical: str, canonical: str) -> None:
        """Take note of an own delete, or of having moved the file away."""
        self.wrote(lexical, canonical, ABSENT, None)

    def refused(
        self, lexical: str, canonical: str, refused_sha256: str | None, made_from: str | None
    ) -> None:
        """
        Take note of a write refused as stale: a re-read is due under that name.

        `refused_sha256` is of the refused bytes (None for a targeted edit, which has no bytes of its own).
        """
        with _LOCK:
            # Under both names, because after a swap of links they are two entries, and the re-read
            # will arrive at the one that the canonical path leads to.
            for file in {self._look_up(lexical, canonical) or self._file(canonical), self._file(canonical)}:
                trouble = _trouble(file)
                trouble.conflict = True
                if self.rebaseline == "after-conflict":
                    trouble.newer = None  # Only reads that follow the refusal count.
                if refused_sha256 is not None and made_from is not None:
                    if len(trouble.refused) >= REFUSED_KEPT:
                        trouble.refused.pop(next(iter(trouble.refused)))
                    trouble.refused.setdefault(refused_sha256, made_from)
            self._conflict_names[canonical] = lexical

    def refused_from(self, lexical: str, canonical: str, sha256: str) -> str | None:
        """Return the baseline from which these very bytes were made when they were refused, or None."""
        with _LOCK:
            for file in (self._look_up(lexical, canonical), self._known_files().get(canonical)):
                if file and file.trouble and sha256 in file.trouble.refused:
                    return file.trouble.refused[sha256]
            return None

    def name_to_reread(self, path: str) -> str:
        """Return the name under which the write to `path` was refused: a re-read must use that one."""
        with _LOCK:
            self._known_files()
            return self._conflict_names.get(path, path)

    # -- what a write is checked against -----------------------------------------------------------

    def expected_for(self, lexical: str, canonical: str) -> str | None:
        """Return the baseline: a hash, `ABSENT`, or None for a file that was not read this turn."""
        with _LOCK:
            file = self._look_up(lexical, canonical)
            return file.baseline if file else None

    def left_for(self, lexical: str, canonical: str) -> str | None:
        """Return what an own command left of a file, if the agent has not read it since; None otherwise."""
        with _LOCK:
            file = self._look_up(lexical, canonical)
            return file.trouble.unseen if file and file.trouble else None

    def last_for(self, lexical: str, canonical: str) -> str | None:
        """Return the last version that the agent saw, wrote, or has by its own command; None: it has none."""
        return self.left_for(lexical, canonical) or self.expected_for(lexical, canonical)

    def coverage_for(self, lexical: str, canonical: str) -> Coverage | None:
        """Return which part of the last version was seen; None if there is none."""
        with _LOCK:
            file = self._look_up(lexical, canonical)
            if file is not None and file.trouble and file.trouble.unseen is not None:
                return NOTHING_SEEN
            return None if file is None or file.baseline is None else file.seen or WHOLE

    def saw(self, lexical: str, canonical: str, sha256: str) -> bool:
        """True if some of that version of the file was read, or if it is an own write."""
        seen = self.coverage_of(lexical, canonical, sha256)
        return seen is not None and (seen.is_whole or bool(seen.ranges))

    def coverage_of(self, lexical: str, canonical: str, sha256: str) -> Coverage | None:
        """
        Return how much of one version of a file was seen, now or earlier; None if nothing was.

        What the agent wrote it has seen. Under the name and under the path, which a link may have parted.
        """
        with _LOCK:
            files = {self._look_up(lexical, canonical), self._known_files().get(canonical)} - {None}
            seen: Coverage | None = None
            for file in files:
                assert file is not None
                parts = [
                    self._read_parts[row]
                    for row, read in enumerate(self._read_files)
                    if read is file and self._read_hashes[row] == sha256
                ]
                if file.baseline == sha256:  # Also in a turn that goes on where an earlier one ended.
                    parts.append(file.seen or WHOLE)
                if (file.path, sha256) in self._written:
                    parts.append(self._written[file.path, sha256])
                for part in parts:
                    whole = part.is_whole or (seen is not None and seen.is_whole)
                    seen = WHOLE if whole else part if seen is None else seen.plus(part)
            return seen

    def part_of(self, lexical: str, canonical: str, sha256: str) -> Coverage | None:
        """Return which part of one version was seen, the baseline or a later one; None if nothing was."""
        with _LOCK:
            file = self._look_up(lexical, canonical)
            if file is None or file.baseline is None:
                return None
            if file.baseline == sha256:
                return file.seen or WHOLE
            trouble = file.trouble
            return trouble.newer_seen if trouble is not None and trouble.newer == sha256 else None

    def starts_with_bom(self, lexical: str, canonical: str) -> bool:
        """True if the baseline begins with a byte-order mark, which no text that is read back shows."""
        with _LOCK:
            file = self._look_up(lexical, canonical)
            return file is not None and file.path in self._with_bom

    def get_initial_hash(self, path: str | os.PathLike[str]) -> str | None:
        """
        Return the hash of the first bytes that this turn read from the file; None if it read none.

        Never touches the disk. Relative paths are relative to the workspace.
        """
        files = self._files
        if files is None:
            raise self._closed()
        if isinstance(path, str) and not self._names:
            # Most callers spell a path plainly. Keys are normalised, so whatever hits one is right.
            file = files.get(path if path.startswith("/") else f"{self.root}/{path}")
            if file is not None:
                return file.initial
        name = self.name_of(path)
        known = self._names.get(name)
        if known is not None:
            return known.initial
        file = files.get(name)
        return None if file is None else file.initial

    def baseline_bytes(self, lexical: str, canonical: str) -> bytes | None:
        """Return the bytes of the baseline, if they are still kept. `ABSENT` is no bytes: `b""`."""
        with _LOCK:
            file = self._look_up(lexical, canonical)
            if file is None:
                return None
            return b"" if file.baseline == ABSENT else self._retained.get(file.path)

    def baselines(self) -> list[tuple[str, str]]:
        """Return every file that the agent has seen or written, and what its next write is checked by."""
        with _LOCK:
            found = ((file.path, _last(file)) for file in self._known_files().values())
            return [(path, sha256) for path, sha256 in found if sha256 is not None]

    def last_writes(self) -> list[tuple[str, str, bytes | None]]:
        """Return the last own write of each file: its path, its hash, and its bytes if they are kept."""
        with _LOCK:
            latest = dict(self._written.keys())  # By path. A later write is further down.
            found = []
            for path, sha256 in latest.items():
                file = self._known_files().get(path)
                is_kept = file is not None and file.baseline == sha256
                found.append((path, sha256, self._retained.get(path) if is_kept else None))
            return found

    @property
    def retained_bytes(self) -> int:
        """How many bytes of baselines are kept for diffs."""
        return self._retained_bytes

    # -- sessions ----------------------------------------------------------------------------------

    def remember(self) -> tuple[dict[str, Remembered], dict[str, str]]:
        """Return what this turn learnt: baselines by canonical path, and names by canonical path."""
        with _LOCK:
            return (
                {
                    path: Remembered(
                        file.baseline,
                        file.seen,
                        self._retained.get(path),
                        file.trouble.unseen if file.trouble else None,
                    )
                    for path, file in self._known_files().items()
                    # A twin turn of the session may know better what this one merely inherited.
                    if _last(file) is not None and _last(file) != self._inherited.get(path)
                },
                {name: known.file.path for name, known in self._names.items()},
            )

    def inherit(self, files: dict[str, Remembered], names: dict[str, str]) -> None:
        """Start from what earlier turns of the session saw: baselines, but no initial hashes."""
        with _LOCK:
            for path, remembered in files.items():
                file = self._file(path)
                file.baseline, file.seen = remembered.baseline, remembered.seen
                if remembered.retained is not None:
                    self._retain(file, remembered.retained)
                if remembered.unseen is not None:
                    _trouble(file).unseen = remembered.unseen
                self._inherited[path] = _last(file) or ""
            for name, path in names.items():
                self._names[name] = _Name(self._file(path), None)

    def pack(self, lexical: str, canonical: str) -> dict[str, Any]:
        """
        Return everything that is known under a name and a path, as plain values, by path and name.

        For a process that ends before the turn does (a hook); another one's `unpack()` goes on from there.
        Bytes of baselines are not in it.
        """
        with _LOCK:
            known = self._names.get(lexical)
            files = {canonical: self._files.get(canonical) if self._files else None}
            if known is not None:
                files[known.file.path] = known.file
            return {
                "files": {path: _packed(file) for path, file in files.items() if file is not None},
                "name": None if known is None else [lexical, known.file.path, known.initial],
            }

    def unpack(self, packed: dict[str, Any]) -> None:
        """Take up what `pack()` returned. Raises if it is not of that shape."""
        with _LOCK:
            for path, record in packed["files"].items():
                _unpacked(self._file(path), record)
            if packed["name"] is not None:
                lexical, path, initial = packed["name"]
                self._names[lexical] = _Name(self._file(path), initial)

    # -- inside --------------------------------------------------------------------------------------

    def _closed(self) -> TurnClosedError:
        return TurnClosedError(
            "", "The turn has ended. Start a new one and read again.", turn_id=self.turn_id
        )

    def _known_files(self) -> dict[str, _File]:
        if self._files is None:
            raise self._closed()
        return self._files

    def _file(self, canonical: str) -> _File:
        files = self._known_files()
        file = files.get(canonical)
        if file is None:
            file = files[canonical] = _File(canonical)
        return file

    def _look_up(self, lexical: str, canonical: str) -> _File | None:
        files = self._known_files()
        known = self._names.get(lexical)
        if known is not None:
            return known.file
        return files.get(lexical) or files.get(canonical)

    def _see(self, file: _File, sha256: str, seen: Coverage) -> None:
        """Move the baseline, or not, for a read that found `sha256`: the table at the top."""
        trouble = file.trouble
        if trouble:
            trouble.error = None
        if file.baseline is None:
            if seen.is_whole or seen.ranges or trouble is None or trouble.unseen is None:
                self._take(file, sha256, seen)
        elif file.baseline == sha256:
            if trouble:  # What the agent saw is what is there again.
                trouble.conflict, trouble.unseen = False, None
            if file.seen is not None:
                together = WHOLE if seen.is_whole else file.seen.plus(seen)
                file.seen = None if together.is_whole else together
        elif file.baseline == ABSENT and self._may_move(file):
            self._take(file, sha256, seen)  # There was nothing, so there are no halves to mix.
        elif self._whole_of_newer(file, sha256, seen) and (
            self._may_move(file) or (trouble is not None and trouble.unseen == sha256)
        ):
            self._take(file, sha256, WHOLE)

    def _may_move(self, file: _File) -> bool:
        if self.rebaseline == "on-read" or file.baseline == UNKNOWN:
            return True
        return file.trouble is not None and file.trouble.conflict

    def _name_may_move(self, lexical: str) -> bool:
        known = self._names.get(lexical)
        before = known.file if known else self._known_files().get(lexical)
        return before is None or self._may_move(before)

    @staticmethod
    def _whole_of_newer(file: _File, sha256: str, seen: Coverage) -> bool:
        """Add a part of a version that is not the baseline; True once all of that version was seen."""
        if seen.is_whole:
            return True
        trouble = _trouble(file)
        if trouble.newer == sha256:
            seen = trouble.newer_seen.plus(seen)
        trouble.newer, trouble.newer_seen = sha256, seen
        return seen.is_whole

    def _take(self, file: _File, sha256: str, seen: Coverage) -> None:
        file.baseline = file.initial if file.initial == sha256 else sha256  # One string where one will do.
        file.seen = None if seen.is_whole else seen
        self._let_go(file.path)
        if file.trouble:
            file.trouble.conflict, file.trouble.newer, file.trouble.unseen = False, None, None

    def _bind(self, lexical: str, file: _File, *, may_move: bool) -> None:
        """
        Let a name lead to the file that it was just seen to lead to.

        `may_move` is about a name that the agent knows and that led to another file before: like a
        baseline, it does not follow a read of only a part. The name's own first hash never changes.
        """
        known = self._names.get(lexical)
        if known is None:
            if lexical == file.path:
                return
            before = self._known_files().get(lexical)
            known = self._names[lexical] = _Name(before or file, before.initial if before else None)
        if may_move or known.file.baseline is None:
            known.file = file
        if known.initial is None:
            known.initial = file.initial

    def _note_bom(self, file: _File, content: bytes) -> None:
        if content.startswith(BOM):
            self._with_bom.add(file.path)
        else:
            self._with_bom.discard(file.path)

    def _retain(self, file: _File, content: bytes) -> None:
        file_limit, turn_limit = self._retained_limits
        if len(content) > min(file_limit, turn_limit):
            return
        self._retained[file.path] = content
        self._retained_bytes += len(content)
        while self._retained_bytes > turn_limit:
            self._let_go(next(iter(self._retained)))

    def _let_go(self, path: str) -> None:
        """Keep a file's bytes no longer."""
        content = self._retained.pop(path, None)
        if content is not None:
            self._retained_bytes -= len(content)

    def _add_read(self, file: _File, sha256: str, seen: Coverage) -> Observation:
        """Give a read its id, by which a write may name it for as long as the turn lasts."""
        at_s = self._clock.now_s()
        if sha256 == file.initial:
            sha256 = file.initial  # One string where one will do: there may be a hundred thousand.
        if len(self._read_files) > self._most_rows():
            self._forget_reads()
        observation_id = f"{self.turn_id}:{self._forgotten_reads + len(self._read_files)}"
        self._read_files.append(file)
        self._read_hashes.append(sha256)
        self._read_parts.append(seen)
        self._read_times_s.append(at_s)
        return Observation(file.path, sha256, seen, observation_id, at_s)

    def _most_rows(self) -> int:
        """Return how many reads, and how many own writes, are remembered: a turn may last for weeks."""
        return KEPT + KEPT_A_FILE * len(self._known_files())

    def _forget_reads(self) -> None:
        """Forget the older half of the reads. What is known of each file's baseline stays."""
        half = len(self._read_files) // 2
        for column in (self._read_files, self._read_hashes, self._read_parts, self._read_times_s):
            del column[:half]
        self._forgotten_reads += half

    def _forget_written(self) -> None:
        """Forget the older half of the own writes, but for each file's last one."""
        last, older = dict(self._written.keys()), len(self._written) // 2
        self._written = {
            (path, sha256): seen
            for number, ((path, sha256), seen) in enumerate(self._written.items())
            if number >= older or last[path] == sha256
        }


def _trouble(file: _File) -> _Trouble:
    if file.trouble is None:
        file.trouble = _Trouble()
    return file.trouble


def _last(file: _File) -> str | None:
    """Return what the next edit, and the next command, is checked against."""
    return (file.trouble.unseen if file.trouble else None) or file.baseline


def _packed(file: _File) -> list[Any]:
    trouble = file.trouble
    return [
        file.initial,
        file.baseline,
        None if file.seen is None else list(file.seen),
        None
        if trouble is None
        else [
            *(trouble.conflict, trouble.error, trouble.newer, list(trouble.newer_seen)),
            *(trouble.refused, trouble.unseen),
        ],
    ]


def _unpacked(file: _File, record: list[Any]) -> None:
    file.initial, file.baseline, seen, trouble = record
    file.seen = None if seen is None else _coverage(seen)
    if trouble is not None:
        kept = _trouble(file)
        kept.conflict, kept.error, kept.newer, newer_seen, kept.refused, *unseen = trouble
        kept.unseen = unseen[0] if unseen else None
        kept.newer_seen = _coverage(newer_seen)


def _coverage(listed: list[Any]) -> Coverage:
    ranges, total = listed
    return Coverage(tuple((start, end) for start, end in ranges), total)
