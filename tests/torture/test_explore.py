"""Real processes through every interleaving of their named steps; `make explore` runs more of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from torture.explore import Plan, explore, plans, run

from noclobber.disk import leases
from noclobber.disk.commit.section import Section
from noclobber.disk.commit.swap import Swap
from noclobber.lock import file_arbiter, nested
from noclobber.lock.file_arbiter import FileArbiter
from noclobber.lock.lock_file import LockFile

pytestmark = pytest.mark.skipif(not leases.SUPPORTED, reason="needs file leases")

WHOLE = [
    Plan(("write", "editor")),
    Plan(("delete", "editor")),
    Plan(("move", "editor")),
    Plan(("many", "editor")),
    Plan(("write", "write")),
]
# The first process is killed at each of its stops; a schedule of each; `make explore` has more.
KILLED = [
    ("write", "write", "editor"), ("many", "many"), ("many", "write y"), ("many", "editor"), ("tree", "write y"),
    ("delete", "write"), ("move", "many"), ("create", "create"), ("lock", "lock"),
    ("outer", "inner", "inner"), ("late", "taker"), ("lock", "recover"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("plan", WHOLE, ids=lambda plan: " ".join(plan.parts))
def test_no_interleaving_loses_a_save_or_leaves_something_behind(tmp_path: Path, plan: Plan) -> None:
    """N-proof: every one of them; the failure's message has the schedule that repeats it."""
    count, is_all = explore(str(tmp_path), plan, most=150)
    assert is_all
    assert count > 3


@pytest.mark.slow
@pytest.mark.parametrize("parts", KILLED, ids=" ".join)
def test_a_kill_at_any_step_leaves_all_or_nothing_and_no_stuck_lock(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    """N-proof: several files, deletes, moves, and locks with take-over, renewal and nesting."""
    for plan in plans(str(tmp_path), together=[parts]):
        count, _ = explore(str(tmp_path), plan, most=1, seed=20_261_116)
        assert count >= 1


def _without_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swap, "settle", lambda swap, *_: setattr(swap, "is_settled", True))


def _without_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Section, "_recover", lambda _: None)


def _without_second_look_around(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_before(*args: Any, is_published: bool) -> nested.Obstacle | None:
        return None if is_published else nested.find_obstacle(*args, is_published=False)

    monkeypatch.setattr(file_arbiter, "find_obstacle", find_before)


def _without_mutex_and_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(lock: LockFile, record: object) -> bool:
        Path(lock.location(), ".lock").write_bytes(record.to_bytes())  # type: ignore[attr-defined]
        return True

    monkeypatch.setattr(LockFile, "section", lambda *_, **__: nullcontext())
    monkeypatch.setattr(LockFile, "create", create)


def _without_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileArbiter, "admit", lambda *_: None)


@pytest.mark.parametrize(
    ("mutate", "parts"),
    [
        (_without_second_look, ("write", "editor")),
        (_without_recovery, ("many", "write y")),
        (_without_second_look_around, ("outer", "inner")),
        (_without_mutex_and_link, ("lock", "lock")),
        (_without_fence, ("late", "taker")),
    ],
)
def test_a_planted_error_is_convicted_and_its_schedule_repeats_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    parts: tuple[str, ...],
) -> None:
    """N-proof: an exploration that cannot fail proves nothing."""
    mutate(monkeypatch)

    def search() -> None:
        for plan in plans(str(tmp_path), together=[parts]):
            explore(str(tmp_path), plan, most=150, seed=1)

    with pytest.raises(AssertionError, match=r"repeat with run\(") as convicted:
        search()
    call = str(convicted.value).split("repeat with run(folder, ")[1].rstrip(")")
    found, _, schedule = call.rpartition(", [")
    with pytest.raises(AssertionError):
        run(str(tmp_path), eval(found), eval(f"[{schedule}"))
