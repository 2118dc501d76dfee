"""
The demo's second half: the same contest twice, first with plain writes, then through noclobber.

Outsiders of every kind write, three files at a time, and two agents keep changing all three. The numbers are
counted by `accounting` from the logs of this very run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from noclobber.demo import outsiders, weaker_guards
from noclobber.demo.arena import START_DELAY_S, Round, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.demo.accounting import Account

# Three outsiders, two agents and the parent make six processes. `mapped` is left out: a plain write that
# empties the file kills whoever has it mapped, which is a loss of another kind.
BATCHES = (
    ("guards", "rename", "vim"),
    ("truncate", "slow", "append"),
    ("pwrite", "held", "hardlink"),
    ("git", "delete", "symlink"),
    ("directory", "touch", "open"),
)
PLAIN = "unguarded"
SETTLING_S = 0.15  # What a batch takes besides its start and its contest.


class Row(NamedTuple):
    """One kind of outsider, both times. `made` counts updates; among agents only, their commits."""

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
    skipped: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def totals(self) -> Row:
        """The last line. Storms change no byte, so they have no updates to lose."""
        rows = [row for row in self.rows if outsiders.KINDS[row.kind].changes_bytes]
        return Row(
            "all",
            "together, without storms",
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
    """
    Run the contest both ways and count. `progress` gets the share that is done, and a description.

    Takes about `seconds`, however many kinds can run here.
    """
    skipped = [(kind, reason) for kind in sum(BATCHES, ()) if (reason := outsiders.unavailable(kind))]
    missing = {kind for kind, _ in skipped}
    batches = [tuple(kind for kind in batch if kind not in missing) for batch in BATCHES]
    share_s = seconds / (2 * len(batches))
    round_s = max(0.3, share_s - START_DELAY_S - SETTLING_S)
    accounts: dict[str, dict[str, Account]] = {}
    faults: list[str] = []
    done = 0
    for guard, what in ((PLAIN, "plain writes"), (weaker_guards.REAL, "through noclobber")):
        for number, batch in enumerate(batches):
            told = f"{what}: {', '.join(outsiders.KINDS[kind].says for kind in batch)}"
            clock = _Ticker(progress, done / (2 * len(batches)), 1 / (2 * len(batches)), share_s, told)
            round_ = Round(batch, guard, seconds=round_s, seed=seed * 100 + number, watched=False)
            for account in run(os.path.join(folder, f"{what.split()[0]}-{number}"), round_, clock.tick):
                accounts.setdefault(account.kind, {})[guard] = account
                # With plain writes outsiders fail at times, which is no fault of the run.
                if guard == weaker_guards.REAL:
                    faults += [fault for fault in account.faults if fault not in faults]
            done += 1
    progress(1.0, "done")
    rows = tuple(_row(kind, both[PLAIN], both[weaker_guards.REAL]) for kind, both in accounts.items())
    return Numbers(rows, tuple(f"{kind}: {reason}" for kind, reason in skipped), tuple(faults))


def _row(kind: str, plain: Account, guarded: Account) -> Row:
    is_among_agents = outsiders.KINDS[kind].step is None
    return Row(
        kind,
        "other agents" if is_among_agents else outsiders.KINDS[kind].says,
        plain.commits if is_among_agents else plain.updates,
        plain.lost_commits if is_among_agents else plain.lost,
        guarded.commits if is_among_agents else guarded.updates,
        guarded.lost + guarded.lost_commits,
        guarded.kept,
        guarded.stale + guarded.busy,
        tuple(sorted(guarded.levels)),
    )


class _Ticker:
    """Turn the ticks of a round into shares of the whole."""

    def __init__(
        self, progress: Callable[[float, str], None], begin: float, width: float, share_s: float, told: str
    ) -> None:
        import time

        self._progress, self._begin, self._width, self._told = progress, begin, width, told
        self._share_s, self._now_s = share_s, time.monotonic
        self._begun_s = self._now_s()
        progress(begin, told)

    def tick(self) -> None:
        gone = min(1.0, (self._now_s() - self._begun_s) / self._share_s)
        self._progress(self._begin + self._width * gone, self._told)


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
