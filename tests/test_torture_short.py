"""
The torture, short: real processes for a few seconds.

First against guards that are known to be too weak: a proof that cannot fail proves nothing. Then against
the real one. `make torture` runs the same for minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber.demo import arena, outsiders, rivals
from noclobber.demo.accounting import Account
from noclobber.demo.arena import Round

SEED = 20_240_611


def run(
    tmp_path: Path, kind: str, guard: str = rivals.REAL, seconds: float = 1.0, **options: bool
) -> Account:
    if reason := outsiders.unavailable(kind):
        pytest.skip(reason)
    return arena.run(str(tmp_path / "round"), Round((kind,), guard, seconds=seconds, seed=SEED, **options))[0]


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["check-inplace", "check-replace"])
@pytest.mark.parametrize("kind", ["rename", "append", "held"])
def test_a_guard_without_a_mutex_loses_outside_updates_and_the_books_show_it(
    tmp_path: Path, kind: str, guard: str
) -> None:
    """Proof: the accounting finds losses where there are losses."""
    account = run(tmp_path, kind, guard)

    assert account.commits, "nothing was written, so nothing was tested"
    assert account.lost > 0


@pytest.mark.slow
def test_guards_without_a_mutex_lose_each_others_commits_and_the_books_show_it(tmp_path: Path) -> None:
    """Proof: the accounting finds what guards lose among themselves."""
    assert run(tmp_path, "guards", "check-replace").lost_commits > 0


@pytest.mark.slow
def test_writing_in_place_tears_files_and_the_books_show_it(tmp_path: Path) -> None:
    """Proof: the watcher sees halves where there are halves."""
    assert run(tmp_path, "guards", "check-inplace").torn > 0


@pytest.mark.slow
def test_a_directory_mutex_alone_protects_guards_from_guards_but_not_outsiders(tmp_path: Path) -> None:
    """Proof: the books tell the two kinds of loss apart."""
    assert run(tmp_path / "guards", "guards", "check-flock").is_clean
    assert run(tmp_path / "outsider", "vim", "check-flock").lost > 0
