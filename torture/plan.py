"""
Which rounds are run, for how long, and what each of them must meet.

The time of a whole run is shared out by weight. A round's seed depends on the run's seed and on its own name
only, so that `--kind` repeats one round of a long run.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from torture import outsiders
from torture.accounting import Account
from torture.arena import Round

DEFAULT_SECONDS = 400

STRONG_LEVELS = {"lease+exchange", "lease+inplace", "create"}
UNDER_FIRE = (
    "guards",
    "rename",
    "vim",
    "truncate",
    "slow",
    "append",
    "pwrite",
    "delete",
    "symlink",
    "directory",
)


class Planned(NamedTuple):
    """One round, and its name in the report."""

    name: str
    kind: str
    round: Round


def rounds(seconds: float, seed: int, kinds: list[str] | None, *, flushing: str = "some") -> list[Planned]:
    """Share the time out over the rounds."""
    chosen = kinds or list(outsiders.KINDS)
    plan = [(kind, False, _weight(kind)) for kind in chosen]
    plan += [(kind, True, 0.5) for kind in chosen if kind in UNDER_FIRE]
    unit_s = seconds / sum(weight for _, _, weight in plan)
    out = []
    for kind, under_fire, weight in plan:
        name = outsiders.KINDS[kind].says + (", kill -9" if under_fire else "")
        own_seed = (seed * 1_000_003 + crc32(name.encode())) % 1_000_000_000
        # Six processes at a time: agents (with their killer), outsider, watcher, and this one.
        agents = 2 if under_fire else 3
        round_ = Round(
            (kind,),
            seconds=unit_s * weight,
            seed=own_seed,
            agents=agents,
            under_fire=under_fire,
            flushing=flushing,
        )
        out.append(Planned(name, kind, round_))
    return out


def _weight(kind: str) -> float:
    if not outsiders.KINDS[kind].changes_bytes:
        return 0.4
    return 0.5 if kind == "guards" else 1.0


def is_strong(account: Account, forced_level: str | None) -> bool:
    """True if a round was at a level that claims to lose nothing."""
    return forced_level in (None, "lease+exchange") and set(account.levels) <= STRONG_LEVELS


def missed_bars(account: Account, *, forced_level: str | None) -> list[str]:
    """
    Say which bars a round missed.

    At the strong levels nothing may be lost, falsely refused, withdrawn or torn. Below them nothing is torn,
    and where only guards change bytes they lose nothing to each other and refuse nothing falsely; what
    becomes of an outsider's updates, and of what guards built on them, is reported as it is.
    """
    strong = is_strong(account, forced_level)
    kind = outsiders.KINDS[account.kind]
    is_among_guards = kind.step is None or not kind.changes_bytes
    missed = []
    if account.lost_commits and (strong or is_among_guards):
        missed.append(f"{account.lost_commits} commits lost to other guards")
    if account.false_refusals and (strong or is_among_guards):
        missed.append(f"{account.false_refusals} false refusals")
    if account.torn:
        missed.append(f"{account.torn} torn")
    if strong and account.lost:
        missed.append(f"{account.lost} outside updates lost")
    if strong and account.withdrawn:
        missed.append(f"{account.withdrawn} withdrawn")
    if not account.commits and not account.kills:  # A guard that is killed at once proves its recovery.
        missed.append("no guard ever committed: nothing was proved")
    return [*missed, *account.faults]
