"""
The demo's second half: the same contest twice, first with plain writes, then through noclobber.

Two agents and one other writer keep changing one file (`contest`), one kind of other writer after the other.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from noclobber.demo import contest

if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.demo.contest import Count


class Row(NamedTuple):
    """One kind of other writer, both times. `made` counts its lines; among agents only, theirs."""

    kind: str
    says: str
    made_plain: int
    lost_plain: int
    made: int
    lost: int
    kept: int
    refused: int
    levels: tuple[str, ...]


class Numbers(NamedTuple):
    """The table, and what else happened."""

    rows: tuple[Row, ...]
    faults: tuple[str, ...]

    @property
    def totals(self) -> Row:
        """The last line."""
        rows = self.rows
        return Row(
            "all",
            "together",
            sum(row.made_plain for row in rows),
            sum(row.lost_plain for row in rows),
            sum(row.made for row in rows),
            sum(row.lost for row in rows),
            sum(row.kept for row in rows),
            sum(row.refused for row in rows),
            tuple(sorted({level for row in self.rows for level in row.levels})),
        )

    @property
    def is_clean(self) -> bool:
        """True if the guard lost nothing and nothing broke."""
        return sum(row.lost for row in self.rows) == 0 and not self.faults


def measure(folder: str, *, seconds: float, seed: int, progress: Callable[[float, str], None]) -> Numbers:
    """Run the contest both ways and count. `progress` gets the share that is done, and a description."""
    share_s = seconds / (2 * len(contest.KINDS))
    counts: dict[tuple[str, bool], Count] = {}
    begun_s = time.monotonic()
    for guarded, what in ((False, "plain writes"), (True, "through noclobber")):
        for number, (kind, (says, _)) in enumerate(contest.KINDS.items()):

            def tick(told: str = f"{what}: {says}") -> None:
                progress(min(1.0, (time.monotonic() - begun_s) / seconds), told)

            home = os.path.join(folder, f"{what.split()[0]}-{number}")
            tick()
            counts[kind, guarded] = contest.run(
                home, kind, guarded=guarded, seconds=share_s, seed=seed * 100 + number, tick=tick
            )
    progress(1.0, "done")
    rows = tuple(_row(kind, counts[kind, False], counts[kind, True]) for kind in contest.KINDS)
    # With plain writes others fail at times, which is no fault of the run.
    faults = (fault for (_, guarded), count in counts.items() if guarded for fault in count.faults)
    return Numbers(rows, tuple(dict.fromkeys(faults)))


def _row(kind: str, plain: Count, guarded: Count) -> Row:
    return Row(
        kind,
        contest.KINDS[kind][0],
        plain.made,
        plain.lost,
        guarded.made,
        guarded.lost,
        guarded.kept,
        guarded.refused,
        guarded.levels,
    )


WIDE_COLUMNS = 78
NARROW_COLUMNS = 40


def table(numbers: Numbers, columns: int = WIDE_COLUMNS) -> str:
    """Return the table as text; where it does not fit, a narrower one of lost and made updates."""
    return _wide_table(numbers) if columns >= WIDE_COLUMNS else _narrow_table(numbers)


def _wide_table(numbers: Numbers) -> str:
    head = f"{'':<26}{'plain writes':>18}   {'through noclobber':>31}\n"
    head += (
        f"{'who else writes':<26}{'made':>9}{'lost':>9}   {'made':>9}{'lost':>6}{'kept':>6}{'refused':>10}"
    )
    lines = [head, "-" * WIDE_COLUMNS]
    for row in (*numbers.rows, numbers.totals):
        if row.kind == "all":
            lines.append("-" * WIDE_COLUMNS)
        plain = f"{row.made_plain:>9}{row.lost_plain:>9}"
        guarded = f"{row.made:>9}{row.lost:>6}{row.kept:>6}{row.refused:>10}"
        lines.append(f"{row.says:<26}{plain}   {guarded}")
    return "\n".join(lines)


def _narrow_table(numbers: Numbers) -> str:
    lines = [f"{'lost of made':<22}{'plain':>9}{'guarded':>9}", "-" * NARROW_COLUMNS]
    for row in (*numbers.rows, numbers.totals):
        if row.kind == "all":
            lines.append("-" * NARROW_COLUMNS)
        counts = f" {row.lost_plain}/{row.made_plain}".rjust(9) + f" {row.lost}/{row.made}".rjust(9)
        left = NARROW_COLUMNS - len(counts)  # What long numbers leave for the name.
        name = "together" if row.kind == "all" else row.says
        lines.append(f"{name[:left]:<{left}}{counts}")
    return "\n".join(lines)
