"""
The commit of thousands of files (`disk/commit/large`), with a few: the bounds that lead to it are lowered.

Cuts, faults and exploration try it with a few files. Recovery takes the way for many folders, too, in every
process in which the bound on held mutexes is `FEW`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from noclobber.disk.commit import many, section

USUAL, FEW = section.MOST_HELD, 1


def hold_few(is_few: bool = True) -> None:
    """Have recovery in this process treat a commit over two folders as one over many."""
    section.MOST_HELD = FEW if is_few else USUAL


@contextmanager
def large() -> Iterator[None]:
    """Commits of several files are large ones in this block."""
    usual = many._are_too_many
    many._are_too_many = lambda changes: True
    hold_few()
    try:
        yield
    finally:
        many._are_too_many = usual
        hold_few(False)
