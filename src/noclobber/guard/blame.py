"""
Where every line of a file comes from: which agent's write, or somebody else's (`noclobber blame`).

The ledger says which version followed which and who wrote it; the bytes come from the versions that are
kept. From one version to the next, lines that stay keep their author and lines that are new get the
writer's. A version that no event wrote is an outsider's: an editor, a shell, git. Where the bytes of a
version are gone, what changed around it is said to be unknown, not guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import hashing
from noclobber.disk.hashing import is_hash
from noclobber.guard.past_bytes import find_bytes
from noclobber.ledger.history import History, LandedWrite, landed_writes
from noclobber.text.edit_script import equal_lines, shortest

if TYPE_CHECKING:
    from collections.abc import Sequence


class Author(NamedTuple):
    """Who wrote a line: a write on record, an outsider, or nobody knows."""

    kind: str
    """`agent`, `outsider`, `first` (there before the first event), or `unknown` (the bytes are gone)."""
    write: LandedWrite | None = None
    """For an agent, its write; for the others, the first write on record after it, if any."""


class BlamedLine(NamedTuple):
    """One line and its author."""

    text: bytes
    author: Author


def blame(root: str, path: str, content: bytes, history: History | None = None) -> list[BlamedLine]:
    """
    Return the lines of a file that holds `content`, each with its author.

    A caller that asks about several files passes the `history` on; without it the ledger is read.
    """
    history = history or History(landed_writes(root))
    tale = _Tale(root, path, content)
    for write in history.of_file(path):
        if write.destination is not None:
            tale.reach(write.before, Author("outsider", write))
            continue
        if is_hash(write.before):
            tale.reach(write.before, Author("outsider", write))
        else:
            tale.start_empty()
        if is_hash(write.after):
            tale.reach(write.after, Author("agent", write))
        else:
            tale.start_empty()
    tale.reach(hashing.of_bytes(content), Author("outsider"))
    return [BlamedLine(line, author) for line, author in zip(tale.lines, tale.authors, strict=True)]


class _Tale:
    """The file's lines and their authors, version by version."""

    def __init__(self, root: str, path: str, current: bytes) -> None:
        self._root, self._path = root, path
        self._current, self._current_hash = current, hashing.of_bytes(current)
        self.lines: Sequence[bytes] = ()
        self.authors: list[Author] = []
        self._at: str | None = None
        self._is_first, self._is_gap = True, False

    def start_empty(self) -> None:
        """There is no file at this point."""
        self.lines, self.authors, self._at = (), [], None
        self._is_first = self._is_gap = False

    def reach(self, sha256: str, author: Author) -> None:
        """Go on to the next version. New lines are this author's."""
        if sha256 == self._at:
            return
        is_current = sha256 == self._current_hash
        content = self._current if is_current else find_bytes(self._root, self._path, sha256)[0]
        if content is None:
            self._is_gap = True  # Whose the changes up to the next version are, nobody can say.
            self._at = sha256
            return
        if self._is_gap:
            author = Author("unknown", author.write)
        elif self._is_first:
            author = Author("first", author.write)
        self._take(content.splitlines(keepends=True), author)
        self._at, self._is_first, self._is_gap = sha256, False, False

    def _take(self, lines: list[bytes], author: Author) -> None:
        edits = shortest(self.lines, lines)
        if edits is None:  # Too different to say what stayed between the first and the last difference.
            start = equal_lines(self.lines, lines, 0, 0)
            old, new = self.lines[start:], lines[start:]
            end = equal_lines(old[::-1], new[::-1], 0, 0)
            between = [Author("unknown", author.write)] * (len(new) - end)
            self.authors = self.authors[:start] + between + self.authors[len(self.authors) - end :]
            self.lines = lines
            return
        authors: list[Author] = []
        used = 0
        for mark, old_at, _ in edits:
            authors += self.authors[used:old_at]
            used = old_at
            if mark == "-":
                used += 1
            else:
                authors.append(author)
        self.lines, self.authors = lines, authors + self.authors[used:]
