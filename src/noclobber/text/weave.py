"""
All versions of a text in one sequence of lines, and which of the changes between them another version has.

A *weave* has every line that was ever there, in order. A line knows which hunk brought it and which removed
it. A *hunk* is one place of one step from a version to the next. So any set of hunks is a version: the lines
that a hunk of the set brought (or that were there at first) and that none of the set removed.

`committed()` goes the other way: given some version, which hunks are in it? It does not compare lines that
look alike; it searches for a set that gives exactly these lines, so the answer carries its proof. Changes of
one author are taken in the order in which they were made. Where several sets give the same lines it is the
one with the most hunks: what was changed to and fro counts as done.

`picked()` is what makes a commit of one author's changes: the version with some more hunks, if they can be
taken without the others. They cannot where they remove a line that only the others brought, or where both
changed neighbouring lines, unless theirs came later, or nothing but insertions is there.
"""

from __future__ import annotations

from collections import Counter
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.text.edit_script import equal_lines, shortest
from noclobber.text.merge import LineRange, is_telling

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

MOST_TRIES = 200_000


class Hunk(NamedTuple):
    """One place of one step."""

    number: int
    step: int
    author: Hashable


class WovenLine:
    """A line that was there in some version. `born` is None for a line of the first version."""

    __slots__ = ("born", "died", "next", "previous", "text")

    def __init__(self, text: bytes, born: Hunk | None = None) -> None:
        self.text, self.born = text, born
        self.died: Hunk | None = None
        self.next = self.previous = self

    def put_before(self, other: WovenLine) -> None:
        """Take the place before another line."""
        self.previous, self.next = other.previous, other
        self.previous.next = other.previous = self


class Picked(NamedTuple):
    """The lines with the picked changes; or None, and where in the last version the others are in the way."""

    lines: list[bytes] | None
    blocked: tuple[LineRange, ...] = ()
    by: frozenset[Hashable] = frozenset()
    """The authors of what is in the way."""


class Weave:
    """Begins with a first version; `step()` adds the next one."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.hunks: list[Hunk] = []
        self._last: list[bytes] = list(lines)
        self._steps = 0
        self._end = WovenLine(b"")  # Lines are a ring: a step costs what it changes, not what was ever there.
        self._alive = [WovenLine(line) for line in lines]
        for line in self._alive:
            line.put_before(self._end)

    @property
    def lines(self) -> list[WovenLine]:
        """Every line that was ever there, in order."""
        found, line = [], self._end.next
        while line is not self._end:
            found.append(line)
            line = line.next
        return found

    def step(self, lines: Sequence[bytes], author: Hashable) -> None:
        """Go on to the next version, which this author made."""
        new = list(lines)
        self._steps += 1
        removed, added = _changes(self._last, new)
        old, alive = self._alive, []
        used, follows = 0, -1
        for at in sorted({*removed, *added}):
            if at != follows:
                hunk = self._hunk(author)
            alive += old[used:at]
            # New lines come behind what was removed here, so that later ones are further on in the weave.
            for number in added.get(at, ()):
                line = WovenLine(new[number], hunk)
                line.put_before(old[at] if at < len(old) else self._end)
                alive.append(line)
            used = at
            if at in removed:
                old[at].died = hunk
                used = follows = at + 1
        self._alive, self._last = [*alive, *old[used:]], new

    def _hunk(self, author: Hashable) -> Hunk:
        self.hunks.append(Hunk(len(self.hunks), self._steps, author))
        return self.hunks[-1]

    # -- a shorter one, and one that was put away -------------------------------------------------------

    def condensed(self, present: Collection[int], first: int) -> Weave:
        """
        Return the weave of the `first` hunks, in which those of them that are `present` were always there.

        What it can tell of the others is what this one can tell. It costs what is open, not what ever was.
        """
        short = Weave(())
        kept: dict[int, Hunk] = {}
        for hunk in self.hunks[:first]:
            if hunk.number not in present:
                kept[hunk.number] = hunk._replace(number=len(short.hunks))
                short.hunks.append(kept[hunk.number])
        for line in self.lines:
            born, died = line.born, line.died
            if died is not None and died.number >= first:
                died = None
            if (born is not None and born.number >= first) or (died is not None and died.number in present):
                continue
            new = WovenLine(line.text, kept.get(born.number) if born is not None else None)
            new.died = kept[died.number] if died is not None else None
            new.put_before(short._end)
        short._take_up(self._steps)
        return short

    def _take_up(self, steps: int) -> None:
        """Go on from the lines that are there."""
        self._steps = steps
        self._alive = [line for line in self.lines if line.died is None]
        self._last = [line.text for line in self._alive]

    def put_away(self, spelled: Callable[[Hashable], Any]) -> dict[str, Any]:
        """Return it as plain values, for `taken_up()`. `spelled` makes one of an author."""
        return {
            "steps": self._steps,
            "hunks": [[hunk.step, spelled(hunk.author)] for hunk in self.hunks],
            "lines": [
                [line.text.decode("latin-1"), *(hunk and hunk.number for hunk in (line.born, line.died))]
                for line in self.lines
            ],
        }

    @classmethod
    def taken_up(cls, plain: dict[str, Any], author: Callable[[Any], Hashable]) -> Weave:
        """Return what was put away."""
        weave = cls(())
        weave.hunks = [Hunk(number, step, author(who)) for number, (step, who) in enumerate(plain["hunks"])]
        for text, born, died in plain["lines"]:
            line = WovenLine(text.encode("latin-1"), None if born is None else weave.hunks[born])
            line.died = None if died is None else weave.hunks[died]
            line.put_before(weave._end)
        weave._take_up(plain["steps"])
        return weave

    # -- which hunks a version has ----------------------------------------------------------------------

    def committed(
        self, version: Sequence[bytes], *, in_any_order: Collection[Hashable] = ()
    ) -> set[int] | None:
        """Return the numbers of the hunks that give exactly this version; None if there are none such."""
        return _Search(self, version, in_any_order).result()

    def version(self, hunks: Collection[int]) -> list[bytes]:
        """Return the lines with these hunks."""
        return [line.text for line in self.lines if _is_in(line, hunks)]

    def nearest(self, version: Sequence[bytes]) -> set[int]:
        """
        Return hunks whose version is about this one, for a three-way merge with it.

        A hunk counts as there if the version has its lines, by the shortest way from the whole weave.
        """
        lines = self.lines
        removed, _ = _changes([line.text for line in lines], list(version))
        found, missing = set(), set()
        for at, line in enumerate(lines):
            if at not in removed:
                found |= {line.born.number} if line.born else set()
                missing |= {line.died.number} if line.died else set()
            elif line.died is None and line.born is not None:
                missing.add(line.born.number)
            elif line.died is not None and line.born is None:
                found.add(line.died.number)
        chosen = found - missing
        for line in lines:  # Nobody removes a line that has not come yet.
            if line.born and line.died and line.born.number not in chosen:
                chosen.discard(line.died.number)
        return chosen

    # -- some more hunks --------------------------------------------------------------------------------

    def picked(self, present: Collection[int], wanted: Collection[int]) -> Picked:
        """Return the version with the `present` and the `wanted` hunks, if the rest can be left out."""
        present, wanted = set(present), set(wanted) - set(present)
        both = present | wanted
        left_out = {hunk.number for hunk in self.hunks} - both
        result = [line.text for line in self.lines if _is_in(line, both)]
        if not result:
            return Picked(result)  # The whole is removed; nothing of others is in it.
        blocked, authors = [], set()
        for group, place in self._groups(present, wanted | left_out):
            ours = [hunk for hunk in group if hunk.number in wanted]
            theirs = [hunk for hunk in group if hunk.number in left_out]
            if ours and theirs and not self._is_apart(ours, theirs):
                blocked.append(place)
                authors |= {hunk.author for hunk in theirs}
        if any(not text.endswith(b"\n") for text in result[:-1]):
            blocked = blocked or [LineRange(0, len(self._last))]
        return Picked(None, tuple(blocked), frozenset(authors)) if blocked else Picked(result)

    def _is_apart(self, ours: list[Hunk], theirs: list[Hunk]) -> bool:
        if max(hunk.step for hunk in ours) < min(hunk.step for hunk in theirs):
            return True  # What we left was there, and they built on it.
        numbers = {hunk.number for hunk in (*ours, *theirs)}
        return not any(line.died and line.died.number in numbers for line in self.lines)

    def _groups(self, present: set[int], open_hunks: set[int]) -> list[tuple[list[Hunk], LineRange]]:
        """
        Return the hunks that are not separated by a telling line which nobody changed.

        With each group: where it is in the last version.
        """
        lines = self.lines
        counts = Counter(line.text for line in lines)
        most = isqrt(len(lines))
        groups: list[tuple[list[Hunk], LineRange]] = []
        group: dict[Hunk, None] = {}
        start = at = 0
        for line in lines:
            here = [hunk for hunk in (line.born, line.died) if hunk and hunk.number in open_hunks]
            if here:
                if not group:
                    start = at
                group.update(dict.fromkeys(here))
                end = at + (line.died is None)
            elif group and _is_in(line, present) and is_telling(line.text) and counts[line.text] <= most + 1:
                groups.append((list(group), LineRange(start, end)))
                group = {}
            at += line.died is None
        if group:
            groups.append((list(group), LineRange(start, end)))
        return groups


def _is_in(line: WovenLine, hunks: Collection[int]) -> bool:
    return (line.born is None or line.born.number in hunks) and (
        line.died is None or line.died.number not in hunks
    )


def _changes(old: list[bytes], new: list[bytes]) -> tuple[set[int], dict[int, list[int]]]:
    """Return which old lines are removed, and before which old line which new ones are added."""
    edits = shortest(old, new)
    removed: set[int] = set()
    added: dict[int, list[int]] = {}
    if edits is None:  # Too different to say what stayed between the first and the last difference.
        start = equal_lines(old, new, 0, 0)
        most = min(len(old), len(new)) - start
        end = min(equal_lines(old[::-1], new[::-1], 0, 0), most)
        removed.update(range(start, len(old) - end))
        added[len(old) - end] = list(range(start, len(new) - end))
        return removed, added
    for edit in edits:
        if edit.mark == "-":
            removed.add(edit.old_at)
        else:
            added.setdefault(edit.old_at, []).append(edit.new_at)
    return removed, added


class _Search:
    """
    Walks along the weave and the version, and decides about a hunk when it meets the first of its lines.

    A wrong decision shows at the next line or two, because a line that is in must be the version's next one.
    Then the last decision that has another answer is taken back.
    """

    def __init__(self, weave: Weave, version: Sequence[bytes], in_any_order: Collection[Hashable]) -> None:
        self._lines, self._version = weave.lines, version
        self._in_any_order = in_any_order
        self._is_in: dict[int, bool] = {}
        self._trail: list[Hunk] = []
        self._last_in: dict[Hashable, list[int]] = {}
        """By author: the last step of the hunks that are in, and below the first of those that are not, each
        after every decision: so one is taken back by dropping the last."""
        self._first_out: dict[Hashable, list[int]] = {}

    def result(self) -> set[int] | None:
        """Search."""
        at = used = tries = 0
        choices: list[tuple[int, int, int, Hunk]] = []
        while True:
            tries += 1
            if tries > MOST_TRIES + len(self._lines):
                return None
            is_wrong = False
            if at == len(self._lines):
                if used == len(self._version):
                    return {number for number, is_in in self._is_in.items() if is_in}
                is_wrong = True
            else:
                line = self._lines[at]
                open_hunk = self._undecided(line)
                if open_hunk is not None:
                    # Nobody removes a line that has not come yet.
                    must_be_out = open_hunk is line.died and not self._holds(line.born)
                    if not must_be_out and self._decide(open_hunk, is_in=True):
                        choices.append((at, used, len(self._trail) - 1, open_hunk))
                    else:
                        is_wrong = not self._decide(open_hunk, is_in=False)
                    if not is_wrong:
                        continue
                elif self._holds(line.born) and not (line.died and self._holds(line.died)):
                    if used < len(self._version) and self._version[used] == line.text:
                        at, used = at + 1, used + 1
                        continue
                    is_wrong = True
                elif line.born and line.died and not self._holds(line.born) and self._holds(line.died):
                    is_wrong = True
                else:
                    at += 1
                    continue
            if is_wrong:
                while choices:
                    at, used, length, hunk = choices.pop()
                    self._forget(length)
                    if self._decide(hunk, is_in=False):
                        break
                else:
                    return None

    def _undecided(self, line: WovenLine) -> Hunk | None:
        if line.born is not None and line.born.number not in self._is_in:
            return line.born
        if line.died is not None and line.died.number not in self._is_in:
            return line.died
        return None

    def _holds(self, hunk: Hunk | None) -> bool:
        return hunk is None or self._is_in[hunk.number]

    def _decide(self, hunk: Hunk, *, is_in: bool) -> bool:
        """Decide about a hunk; False if an author's other changes say otherwise."""
        author = hunk.author
        if author not in self._in_any_order:
            last_in = self._last_in.get(author)
            first_out = self._first_out.get(author)
            if is_in:
                if first_out and hunk.step >= first_out[-1]:
                    return False
                self._last_in.setdefault(author, []).append(max(hunk.step, last_in[-1] if last_in else 0))
            else:
                if last_in and hunk.step <= last_in[-1]:
                    return False
                least = min(hunk.step, first_out[-1]) if first_out else hunk.step
                self._first_out.setdefault(author, []).append(least)
        self._is_in[hunk.number] = is_in
        self._trail.append(hunk)
        return True

    def _forget(self, length: int) -> None:
        while len(self._trail) > length:
            hunk = self._trail.pop()
            is_in = self._is_in.pop(hunk.number)
            if hunk.author not in self._in_any_order:
                (self._last_in if is_in else self._first_out)[hunk.author].pop()
