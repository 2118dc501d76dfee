"""
What a whole run must reach, and whether it did.

Every part of a run notes its figures, one JSON line each, in a file that all of them share: the parts are
processes of their own, some of them in other mount namespaces. At the end the bars are read off.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

UPDATES, KINDS, KILLS, CUTS = 500_000, 20, 10_000, 300
FILESYSTEMS = ("ext4", "xfs", "btrfs", "tmpfs", "overlay")
CUT_ON = ("ext4", "xfs", "btrfs")
MUST_TAKE_PART = ("mapping", "direct", "ring", "copy-range", "splice")
FULL_RUN_SECONDS, FULL_RUN_CUTS, FULL_RUN_KILLS = 300, CUTS, KILLS


class Bar(NamedTuple):
    """One line of the summary."""

    what: str
    wanted: str
    found: str
    is_met: bool | None  # None: a short run is not asked for it.


def note(path: str | None, part: str, **figures: Any) -> None:
    """Note what a part found; one write, because parts may run side by side."""
    if path is None:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, json.dumps({"part": part, **figures}).encode() + b"\n")
    finally:
        os.close(descriptor)


def read(path: str) -> list[dict[str, Any]]:
    """Return what the parts noted."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def of(noted: list[dict[str, Any]], *, seconds: float, cuts: int, kills: int) -> list[Bar]:
    """Read the bars off what was noted. How much there must be is asked of a full run only."""
    rounds = [each for each in noted if each["part"] == "round" and each["is_strong"]]
    outside = [each for each in rounds if each["changes_bytes"] and each["updates"]]
    crashes = [each for each in noted if each["part"] == "crash"]
    power = [each for each in noted if each["part"] == "power"]
    kinds = sorted({each["kind"] for each in outside})
    places = [name for name in FILESYSTEMS if any(each["filesystem"] == name for each in outside)]
    updates = sum(each["updates"] for each in outside)
    killed = sum(each["kills"] for each in [*crashes, *rounds])
    cut = sum(each["cuts"] for each in power)
    cut_on = [name for name in CUT_ON if any(each["filesystem"] == name for each in power)]
    is_long, has_cuts = seconds >= FULL_RUN_SECONDS, cuts >= FULL_RUN_CUTS
    has_kills = is_long and kills >= FULL_RUN_KILLS
    absent = [name for name in MUST_TAKE_PART if name not in kinds]

    def least(what: str, wanted: int, found: int, is_asked: bool, extra: str = "") -> Bar:
        return Bar(what, f"≥ {wanted}", f"{found}{extra}", found >= wanted if is_asked else None)

    def none(what: str, found: int) -> Bar:
        return Bar(what, "0", str(found), found == 0)

    bars = [
        least("outside updates", UPDATES, updates, is_long),
        least("kinds of outside writers", KINDS, len(kinds), is_long),
        Bar(
            "mmap, O_DIRECT, io_uring, copy_file_range, splice",
            "all",
            "without " + ", ".join(absent) if absent else "all",
            not absent if is_long else None,
        ),
        Bar(
            "filesystems",
            " ".join(FILESYSTEMS),
            " ".join(places) or "none",
            len(places) == len(FILESYSTEMS) if is_long else None,
        ),
        *(
            none(f"{word}, at the level that is claimed", sum(each[key] for each in rounds))
            for key, word in (
                ("lost", "lost"), ("torn", "torn"), ("false", "false stale"), ("withdrawn", "withdrawn")
            )
        ),
        least("kills, with saves afterwards", KILLS, killed, has_kills),
        none("saved after the crash, and moved", sum(each["moved"] for each in crashes)),
        none("swap files that stay after a crash", sum(each["left"] for each in crashes)),
        least("power cuts", CUTS, cut, has_cuts, f" on {' '.join(cut_on) or 'nothing'}"),
        Bar("power cuts on three filesystems", "3", str(len(cut_on)), len(cut_on) == 3 if has_cuts else None),
        none("files empty, torn or mixed after a cut", sum(each["wrong"] for each in power)),
        none("events that vouch for a lost version", sum(each["unreported"] for each in power)),
    ]  # fmt: skip
    others = {"several": "several files, moves, deletes", "counter": "64 agents, one counter"}
    others |= {"two mounts": "two mounts of one folder, compared with copy and rename"}
    for part, what in {**others, "lock": "locks", "FUSE": "FUSE, at the level that is claimed"}.items():
        met = [each["is_met"] for each in noted if each["part"] == part]
        if met:
            bars.append(Bar(what, "met", "met" if all(met) else "missed", all(met)))
    return bars


def table(bars: list[Bar]) -> str:
    """Return the summary."""
    words = {True: "met", False: "MISSED", None: "not asked of a short run"}
    width = max(len(bar.what) for bar in bars) + 2
    wanted = max(len(bar.wanted) for bar in bars) + 2
    found = max(len(bar.found) for bar in bars) + 2
    head = f"{'bar':<{width}}{'wanted':<{wanted}}{'found':<{found}}"
    lines = [
        f"{bar.what:<{width}}{bar.wanted:<{wanted}}{bar.found:<{found}}{words[bar.is_met]}" for bar in bars
    ]
    return "\n".join([head, "-" * len(head), *lines])
