"""The report: one line a round, as it ends; and what to look at if a bar was missed."""

from __future__ import annotations

from torture.accounting import Account

COLUMNS = (
    ("kind", 34),
    ("updates", 8),
    ("lost", 6),
    ("kept", 5),
    ("false", 6),
    ("withdrawn", 10),
    ("undone", 7),
    ("torn", 5),
    ("commits", 8),
    ("stale", 8),
    ("busy", 7),
    ("kills", 6),
    ("slowest", 9),
    ("  level", 0),
)


def heading() -> str:
    """Return the table's first two lines."""
    words = "".join(f"{name:<{width}}" if name == "kind" else f"{name:>{width}}" for name, width in COLUMNS)
    return f"{words}\n{'-' * len(words)}"


def line(name: str, account: Account) -> str:
    """Return one round's line."""
    cells = (
        account.updates,
        account.lost + account.lost_commits,
        account.kept,
        account.false_refusals,
        account.withdrawn,
        account.undone,
        account.torn,
        account.commits,
        account.stale,
        account.busy,
        account.kills,
        f"{account.slowest_update_ms:.0f} ms",
    )
    figures = "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS[1:-1], strict=True))
    levels = ", ".join(f"{level} {count}" for level, count in sorted(account.levels.items()))
    notes = [f"{code} {count}" for code, count in sorted(account.refused_otherwise.items())]
    notes += [f"modes lost {account.lost_modes}"] if account.lost_modes else []
    notes += [f"older file in a folder's place {account.stood_in}"] if account.stood_in else []
    others = ", ".join(notes)
    return f"{name:<{COLUMNS[0][1]}}{figures}  {levels}{'; ' + others if others else ''}"


LEGEND = """\
updates    completed by the outsider (storms: how often the file was touched)
lost       of those, and of other guards' commits, gone because a guard replaced a version it had not seen
kept       not in the file, but in a file that the guard kept aside and reported
false      refused as stale although nobody had changed a byte
withdrawn  seen by a reader, then taken back        torn     seen in part by a reader, or at the end
undone     the same of an agent that was killed between its exchange and its last look
slowest    the outsider's slowest update, pauses of its own included"""


def explanation(
    name: str, account: Account, missed: list[str], seed: int, kind: str, most_lines: int = 8
) -> str:
    """Say what was missed, on what evidence, and how to run it again."""
    lines = [f"MISSED: {name}: {'; '.join(missed)[:2000]}"]
    lines += [f"    {each}" for each in account.evidence[:most_lines]]
    if len(account.evidence) > most_lines:
        lines.append(f"    … and {len(account.evidence) - most_lines} more")
    lines.append(f"    again: python -m torture --seed {seed} --kind {kind}")
    return "\n".join(lines)
