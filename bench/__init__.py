"""
Speed and memory, as ratios within one run.

Machines are noisy and differ, so nothing here compares with a stored figure: each row measures ours
and its peer in turns, in the same minute, and prints their ratio next to the bar.

A module of this package that has `rows()` is a table; `python -m bench [NAME …]` runs them all or some.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple


class Row(NamedTuple):
    """One line of the table."""

    what: str
    against: str
    ratio: float
    bar: str
    ok: bool
    detail: str


def in_turns(
    ours: Callable[[], object], peer: Callable[[], object], *, rounds: int, batch: int = 1
) -> tuple[float, float, float]:
    """
    Run both in turns; return the median seconds of each and the median of the pairwise ratios.

    The ratio is taken pair by pair, so that a slow second of the machine hits both sides of it.
    Who goes first alternates: the second of a pair finds the caches, and the disk's queue, as the
    first left them.
    """
    our_times, peer_times = [], []
    for number in range(rounds + 2):
        pair = {}
        for name, function in (("ours", ours), ("peer", peer))[:: 1 if number % 2 else -1]:
            begun = time.perf_counter()
            for _ in range(batch):
                function()
            pair[name] = (time.perf_counter() - begun) / batch
        if number >= 2:  # The first two warm up.
            our_times.append(pair["ours"])
            peer_times.append(pair["peer"])
    ratios = [mine / theirs for mine, theirs in zip(our_times, peer_times, strict=True)]
    return median(our_times), median(peer_times), median(ratios)


def spelled(seconds: float) -> str:
    """A duration that can be read."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
