"""
The torture, short: real processes for a few seconds.

First against guards that are known to be too weak: a proof that cannot fail proves nothing. Then against
the real one. `make torture` runs the same for minutes.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from torture.accounting import Account
from torture.arena import Round

from torture import arena, counter, outsiders, plan, several, weaker_guards

SEED = 20_240_611


def run(
    tmp_path: Path, kind: str, guard: str = weaker_guards.REAL, seconds: float = 1.0, **options: Any
) -> Account:
    if reason := outsiders.unavailable(kind):
        pytest.skip(reason)
    return arena.run(str(tmp_path / "round"), Round((kind,), guard, seconds=seconds, seed=SEED, **options))[0]


def shows(what: str, tmp_path: Path, kind: str, guard: str) -> bool:
    """True if a round shows what is looked for: on a busy machine two writers may not meet in every round."""
    for number in range(10):
        account = run(tmp_path / f"{number}", kind, guard)
        assert account.commits, "nothing was written, so nothing was tested"
        if getattr(account, what) > 0:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "guard"),
    [
        ("rename", "check-replace"),
        ("append", "check-replace"),
        ("held", "check-inplace"),
        ("delete", "check-inplace"),
    ],
)
def test_a_guard_without_a_mutex_loses_outside_updates_and_the_accounting_shows_it(
    tmp_path: Path, kind: str, guard: str
) -> None:
    """N-proof: the accounting finds losses where there are losses."""
    assert shows("lost", tmp_path, kind, guard)


@pytest.mark.slow
def test_guards_without_a_mutex_lose_each_others_commits_and_the_accounting_shows_it(tmp_path: Path) -> None:
    """N-proof: the accounting finds what guards lose among themselves."""
    assert shows("lost_commits", tmp_path, "guards", "check-replace")


@pytest.mark.slow
def test_writing_in_place_tears_files_and_the_accounting_shows_it(tmp_path: Path) -> None:
    """N-proof: the watcher sees halves where there are halves."""
    assert shows("torn", tmp_path, "guards", "check-inplace")


@pytest.mark.slow
def test_a_directory_mutex_alone_protects_guards_from_guards_but_not_outsiders(tmp_path: Path) -> None:
    """N-proof: the accounting tells the two kinds of loss apart."""
    assert run(tmp_path / "guards", "guards", "check-flock").is_clean
    assert shows("lost", tmp_path / "outsider", "vim", "check-flock")


# --- the real guard ----------------------------------------------------------------------------


def complaints(account: Account) -> str:
    return "\n".join([str(account._replace(evidence=())), *account.evidence[:10]])


ATOMIC = ["rename", "vim", "delete", "symlink", "directory", "git"]
IN_PLACE = ["truncate", "append", "pwrite", "held", "hardlink"]


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [ATOMIC[:3], ATOMIC[3:], IN_PLACE[:3], IN_PLACE[3:]], ids="+".join)
def test_the_guard_loses_nothing_that_outsiders_save(tmp_path: Path, kinds: list[str]) -> None:
    """N-proof: lost 0, false stale 0, torn 0, withdrawn 0, with three outsiders and two agents at a time."""
    able = tuple(kind for kind in kinds if outsiders.unavailable(kind) is None)
    round_ = Round(able, seconds=1.5, seed=SEED)
    for account in arena.run(str(tmp_path / "round"), round_):
        assert account.updates, "the outsider did nothing, so nothing was tested"
        assert account.commits, "the guard did nothing, so nothing was tested"
        assert not plan.missed_bars(account, forced_level=None), complaints(account)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["touch", "chmod", "open"])
def test_a_storm_that_changes_no_byte_is_no_reason_to_refuse(tmp_path: Path, kind: str) -> None:
    """N-proof: zero false refusals. One agent only, so that nobody at all changes a byte but the agent itself."""
    [account] = arena.run(str(tmp_path / "round"), Round((kind,), seconds=1.0, seed=SEED, agents=1))

    assert account.commits
    assert account.stale == account.false_refusals == 0, complaints(account)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["guards", "append"])
def test_agents_that_are_killed_at_random_moments_leave_nothing_broken(tmp_path: Path, kind: str) -> None:
    """N-proof: kill -9, recovery by the next call, nothing lost and nothing torn."""
    for number, seconds in enumerate(
        (1.5, 5.0, 15.0)
    ):  # On a busy machine nobody gets anything done at first.
        account = run(tmp_path / str(number), kind, seconds=seconds, under_fire=True)
        if account.kills > 5 and account.commits:
            break

    assert account.kills > 5, "nobody was killed, so nothing was tested"
    assert not plan.missed_bars(account, forced_level=None), complaints(account)


@pytest.mark.slow
def test_agents_that_count_through_the_controller_end_at_exactly_the_right_number() -> None:
    """N-proof: the counter, with fewer agents than in the long run."""
    assert counter.run(Namespace(folder=None, seed=SEED), agents=8, increments=20)


@pytest.mark.slow
@pytest.mark.parametrize("kind", several.KINDS, ids=lambda kind: kind.name)
def test_checking_and_then_acting_loses_updates_and_the_accounting_shows_it(
    tmp_path: Path, kind: several.Kind
) -> None:
    """N-proof: several files, moves and deletes; the accounting finds what a guard without us loses."""
    account = several.run_round(str(tmp_path), kind, seconds=1.0, seed=SEED, under_fire=False, naive=True)
    assert account.lost + account.mixed > 0


@pytest.mark.slow
@pytest.mark.parametrize("under_fire", [False, True], ids=["", "kill -9"])
@pytest.mark.parametrize("kind", several.KINDS, ids=lambda kind: kind.name)
def test_several_files_moves_and_deletes_lose_nothing(
    tmp_path: Path, kind: several.Kind, under_fire: bool
) -> None:
    """N-proof, N-many: all or none, also after kill -9, and every line that an outsider appends is somewhere."""
    for number, seconds in enumerate(
        (1.0, 5.0, 15.0)
    ):  # On a busy machine nobody gets anything done at first.
        folder = tmp_path / str(number)
        folder.mkdir()
        account = several.run_round(str(folder), kind, seconds=seconds, seed=SEED, under_fire=under_fire)
        if account.commits and account.updates:
            break
    assert account.missed() == [], account


def test_a_long_run_is_shared_out_and_one_kind_of_it_can_be_repeated() -> None:
    """N-proof: bounded and seeded; `--kind` gives the same seed as the whole run."""
    whole = plan.rounds(100, 7, None)
    alone = plan.rounds(100, 7, ["vim"])

    assert sum(each.round.seconds for each in whole) == pytest.approx(100)
    assert {each.kind for each in whole} == set(outsiders.KINDS)
    assert {each.round.seed for each in alone} <= {each.round.seed for each in whole}
    assert all(each.round.agents + each.round.under_fire + 3 <= 6 for each in whole)
