"""
Generated merges, judged by `git merge-file` and by ruling 29: never clean with other bytes than git's, where
git has a conflict, or where both sides changed the same line of the base.

    python -m torture.merges            CASES=100000 SEED=1

Four kinds of texts: few different lines (the worst for lining versions up), sources with blank lines and
braces, prose, and histories in which one version grows out of another. In some, both sides count one number
up, or append the same line. Ends of lines and the last newline vary. A failure prints its seed; `case(seed)`
makes the three versions again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from noclobber.text.merge import merge, split_lines

BATCH = 500


class Case(NamedTuple):
    """Three versions of a text."""

    base: bytes
    ours: bytes
    theirs: bytes


class Counts(NamedTuple):
    """What became of the cases."""

    cases: int = 0
    clean: int = 0
    other_bytes: int = 0
    conflict_in_git: int = 0
    counted_once: int = 0
    """Clean although both sides changed the same line."""
    collisions: int = 0
    """Cases in which both did, and which are therefore conflicts."""

    def plus(self, other: Counts) -> Counts:
        """Add two counts."""
        return Counts(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def is_good(self) -> bool:
        """True if nothing came out that nobody can answer for."""
        return not (self.other_bytes or self.conflict_in_git or self.counted_once)

    def __str__(self) -> str:
        return (
            f"{self.cases} merges: {self.clean} clean, {self.other_bytes} of them with other bytes than git, "
            f"{self.conflict_in_git} where git has a conflict, {self.counted_once} where both changed the "
            f"same line (of {self.collisions})"
        )


def case(seed: int) -> Case:
    """Make three versions of one text."""
    dice = random.Random(seed)
    alphabet = _alphabet(dice)
    base = [dice.choice(alphabet) for _ in range(dice.choice([3, 6, 10, 20, 40, 120, 300]))]
    for _ in range(dice.choice([0, 0, 5, 20])):  # A history before: blocks that were copied and moved.
        base = _edited(dice, base, alphabet, 1)
    collision = dice.choice(["", "", "", "count", "append"])
    if collision == "count":
        base.insert(dice.randint(0, len(base)), "count 3")
    sides = [_edited(dice, base, alphabet, dice.choice([0, 1, 1, 2, 3, 5, 12])) for _ in range(2)]
    if collision == "count":
        sides = [["count 4" if line == "count 3" else line for line in side] for side in sides]
    elif collision == "append":
        sides = [[*side, "appended"] for side in sides]
    ending = "\r\n" if dice.random() < 0.05 else "\n"
    versions = []
    for lines in (base, *sides):
        text = "".join(f"{line}{ending}" for line in lines).encode()
        versions.append(text[: -len(ending)] if text and dice.random() < 0.1 else text)
    return Case(*versions)


def _alphabet(dice: random.Random) -> list[str]:
    kind = dice.random()
    if kind < 0.5:
        few = list("abcdefghijklmnop"[: dice.choice([2, 2, 3, 3, 4, 5, 8, 16])])
        return few + ["", "}"] * (dice.random() < 0.4)
    if kind < 0.8:
        names = [f"    value_{number} = {number * number}" for number in range(60)]
        return names + [""] * 12 + ["    }"] * 6 + ["\treturn x"] * 5 + ["    pass", "else:"] * 3
    return [f"Sentence {number} of a text." for number in range(400)] + [""] * 100


def _edited(dice: random.Random, lines: list[str], alphabet: list[str], times: int) -> list[str]:
    lines = list(lines)
    for _ in range(times):
        kind, at, width = dice.random(), dice.randint(0, len(lines)), dice.choice([1, 1, 1, 2, 3, 8])
        new = [dice.choice(alphabet) for _ in range(width)]
        if kind < 0.35:
            lines[at:at] = new
        elif kind < 0.65:
            del lines[at : at + width]
        elif kind < 0.9:
            lines[at : at + width] = new
        else:
            copied = dice.randint(0, len(lines))
            lines[at:at] = lines[copied : copied + width]
    return lines


def both_changed(versions: Case) -> bool:
    """
    True if both sides surely changed the same place: whatever way the versions are lined up.

    A line that the base has once and neither side has, or a first or last line that both have and the base
    has not.
    """
    base, ours, theirs = (split_lines(version) for version in versions)
    if any(ours and theirs and ours[at] == theirs[at] and ours[at] not in base for at in (0, -1)):
        return True
    gone = set(base).difference(ours).difference(theirs)
    return any(base.count(line) == 1 for line in gone)


def judged(folder: str, versions: Case, name: str) -> Counts:
    """Merge one case here and in git; one that is clean and should not be is printed, by its name."""
    merged, collides = merge(*versions).content, both_changed(versions)
    if merged is None:
        return Counts(1, collisions=collides)
    by_git = merged_by_git(folder, versions)
    wrong = {
        "other bytes than git": by_git is not None and by_git != merged,
        "git has a conflict": by_git is None,
        "both changed the same line": collides,
    }
    if any(wrong.values()):
        print(f"{name}: {', '.join(what for what, is_so in wrong.items() if is_so)}", flush=True)
    return Counts(1, 1, *wrong.values())._replace(collisions=collides)


def judge(first_seed: int, count: int) -> Counts:
    """Merge that many cases here and in git; a case in which git would not agree is printed."""
    counts = Counts()
    with tempfile.TemporaryDirectory(prefix="noclobber-merges-") as folder:
        for seed in range(first_seed, first_seed + count):
            counts = counts.plus(judged(folder, case(seed), f"seed {seed}"))
    return counts


def merged_by_git(folder: str, versions: Case) -> bytes | None:
    """Return what `git merge-file` makes of it; None for a conflict."""
    names = []
    for name, content in zip(("base", "ours", "theirs"), versions, strict=True):
        names.append(os.path.join(folder, name))
        with open(names[-1], "wb") as file:
            file.write(content)
    base, ours, theirs = names
    done = subprocess.run(
        ["git", "merge-file", "-p", "-q", ours, base, theirs], capture_output=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def main() -> int:
    """Judge `CASES` merges from `SEED` on."""
    cases, seed = int(os.environ.get("CASES", "100000")), int(os.environ.get("SEED", "1"))
    counts = Counts()
    with ProcessPoolExecutor() as pool:
        starts = range(seed, seed + cases, BATCH)
        sizes = [min(BATCH, seed + cases - start) for start in starts]
        for counted in pool.map(judge, starts, sizes):
            counts = counts.plus(counted)
    print(f"{counts} (seed {seed})")
    return 0 if counts.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
