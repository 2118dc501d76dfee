"""
One file's versions as a weave, against the version in HEAD: what of it is one agent's to commit.

Everything is compared as git keeps it, after line endings and filters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.guard.git.lineage import OUTSIDER, UNKNOWN_WRITER, WrittenBy
from noclobber.text.merge import LineRange, merge, split_lines
from noclobber.text.weave import Weave

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from noclobber.guard.git.lineage import FileVersion
    from noclobber.text.merge import Conflict

EXISTS = b"\0\n"
"""The first line of every version in a weave: that there is a file. No line of a text is like it."""
MOST_NAMED = 5


class BlockedError(Exception):
    """One file cannot be committed."""

    def __init__(
        self, reason: str, lines: tuple[LineRange, ...] = (), owners: Iterable[Hashable] = ()
    ) -> None:
        super().__init__(reason)
        self.reason, self.lines = reason, lines
        self.owners = tuple(sorted({who.who for who in owners if isinstance(who, WrittenBy)}))


def version_lines(content: bytes | None, *, is_whole: bool = False) -> list[bytes]:
    """Return a version as a weave has it; `is_whole`: as one line, because some version is binary."""
    if content is None:
        return []
    return [EXISTS, content] if is_whole else [EXISTS, *split_lines(content)]


def go_on(
    weave: Weave, versions: Iterable[FileVersion], clean: Callable[[bytes], bytes], *, is_whole: bool = False
) -> None:
    """Weave later versions in."""
    for version in versions:
        content = None if version.content is None else clean(version.content)
        weave.step(version_lines(content, is_whole=is_whole), version.by)


class WovenFile:
    """The versions of one file, woven, and the lines that HEAD has of it."""

    def __init__(
        self,
        weave: Weave,
        head: list[bytes],
        is_mine: Callable[[WrittenBy], bool],
        cut_off: Iterable[WrittenBy] = (),
    ) -> None:
        self._weave, self._head, self._is_mine, self._cut_off = weave, head, is_mine, frozenset(cut_off)

    def present(self) -> set[int] | None:
        """Return which of the changes HEAD has; None if that cannot be told."""
        return committed_hunks(self._weave, self._head)

    def has_unknown(self, present: set[int]) -> bool:
        """True if it is not known whose some of the other changes are, and they may be this agent's."""
        return _has_unknown(self._weave, present)

    def after(self, present: set[int]) -> tuple[bytes | None, tuple[str, ...]]:
        """Return what is to be committed, and who has changed other lines."""
        return self._content(self._picked(self._weave, present)), self._left(self._weave, present)

    def _picked(self, weave: Weave, present: set[int]) -> list[bytes]:
        """Return HEAD's lines with this agent's changes; raise if others are in the way."""
        open_hunks = [hunk for hunk in weave.hunks if hunk.number not in present]
        if _has_unknown(weave, present):
            raise BlockedError(
                "Several have changed it, you among them, and the versions between are not kept any more. "
                "Commit it with git."
            )
        wanted = {hunk.number for hunk in open_hunks if self._is_own(hunk.author)}
        picked = weave.picked(present, wanted)
        if picked.lines is None:
            # Line numbers without the one that stands for the file itself.
            lines = tuple(LineRange(max(0, start - 1), end - 1) for start, end in picked.blocked)
            names = ", ".join(sorted(who.who for who in picked.by if isinstance(who, WrittenBy)))
            raise BlockedError(
                f"{_spelled(lines)}: your changes are among uncommitted ones of {names or 'somebody'}. "
                "Let them commit first, or commit both together.",
                lines,
                picked.by,
            )
        if picked.lines and picked.lines[0] != EXISTS:
            creator = weave.lines[0].born
            who = creator.author if creator is not None else OUTSIDER
            name = who.who if isinstance(who, WrittenBy) else "somebody"
            raise BlockedError(
                f"It was created by {name} and is not committed yet. Let them commit it first, "
                "or commit both together.",
                owners=[who],
            )
        return picked.lines

    def _is_own(self, author: Hashable) -> bool:
        return isinstance(author, WrittenBy) and self._is_mine(author)

    def _left(self, weave: Weave, present: set[int]) -> tuple[str, ...]:
        others = {hunk.author for hunk in weave.hunks if hunk.number not in present}
        return tuple(
            sorted(who.who for who in others if isinstance(who, WrittenBy) and not self._is_mine(who))
        )

    def merged(self) -> tuple[bytes | None, tuple[str, ...]]:
        """HEAD has lines that no version on record had: take this agent's changes over by a merge."""
        weave = self._weave
        if any(map(self._is_mine, self._cut_off)):
            raise BlockedError(
                "Versions of it from before your changes are not kept any more, so it cannot be told which "
                "of the lines are yours. Commit it with git."
            )
        present = weave.nearest(self._head)
        base, ours = weave.version(present), self._picked(weave, present)
        if base == ours:
            return self._content(self._head), self._left(weave, present)
        if base[:1] != [EXISTS] or ours[:1] != [EXISTS]:
            raise BlockedError(
                "The version in the last commit is not the one that you deleted. Commit it with git."
            )
        versions = (b"".join(lines[1:]) for lines in (base, ours, self._head))
        merged = merge(*versions, equal_once=True)
        if merged.content is None:
            raise BlockedError(
                f"{_spelled_in_head(merged.conflicts)} of the committed version: you changed these, and it "
                "has other lines there than any version on record. Commit it with git."
            )
        return merged.content, self._left(weave, present)

    @staticmethod
    def _content(lines: list[bytes]) -> bytes | None:
        return b"".join(lines[1:]) if lines else None


def committed_hunks(weave: Weave, head: list[bytes]) -> set[int] | None:
    """Return which hunks of a weave HEAD's version has. What outsiders changed may have come in any order."""
    return weave.committed(head, in_any_order=(OUTSIDER, UNKNOWN_WRITER))


def _has_unknown(weave: Weave, present: set[int]) -> bool:
    return any(hunk.author == UNKNOWN_WRITER for hunk in weave.hunks if hunk.number not in present)


def _spelled(ranges: tuple[LineRange, ...]) -> str:
    named = [
        f"{start + 1}" if end - start <= 1 else f"{start + 1}-{end}" for start, end in ranges[:MOST_NAMED]
    ]
    word = "Line" if len(named) == 1 and "-" not in named[0] else "Lines"
    return f"{word} {', '.join(named)}{' and more' if len(ranges) > MOST_NAMED else ''}"


def _spelled_in_head(conflicts: tuple[Conflict, ...]) -> str:
    return _spelled(tuple(conflict.theirs for conflict in conflicts))
