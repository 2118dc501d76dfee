"""The controller: deterministic, bounded, observable; and it launders nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from noclobber import Attempt, Turn
from noclobber.core.values import Edit
from noclobber.core.wire import to_json, to_object
from noclobber.errors import (
    EditMismatchError,
    FileBusyError,
    GaveUpError,
    NotAFileError,
    ResubmittedError,
    StaleFileError,
)
from noclobber.guard.controller import STATES, TRANSITIONS, AgentController
from noclobber.guard.workspace import Workspace
from tests.conftest import sha256


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.naps: list[float] = []

    def now_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


@pytest.fixture
def ws(root: Path) -> Iterator[Workspace]:
    (root / "a.md").write_bytes(b"v1\n")
    with Workspace(root) as workspace:
        yield workspace


@pytest.fixture
def turn(ws: Workspace) -> Iterator[Turn]:
    with ws.turn() as turn:
        yield turn


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def controller(turn: Turn, clock: FakeClock, **options: Any) -> AgentController:
    return AgentController(turn, clock=clock, rng=random.Random(7), **options)


def path_of(run: AgentController) -> list[tuple[str, str, str]]:
    return [(step.before, step.after, step.reason) for step in run.history]


STALE_PATH = [
    ("RUNNING", "RE_READ_REQUIRED", "STALE_FILE"),
    ("RE_READ_REQUIRED", "RUNNING", "RE_READ"),
]
DONE = [("RUNNING", "DONE", "RESULT")]


@pytest.mark.parametrize("audience", ["controller", "agent"])
@pytest.mark.parametrize("form", ["exception", "mapping", "text"])
def test_the_object_sends_the_controller_to_re_read_and_retry(
    root: Path, turn: Turn, clock: FakeClock, form: str, audience: Literal["agent", "controller"]
) -> None:
    """
    011-FR-006, 011-SC-003, finding D10: as exception, dict or JSON text, the controller's object or the agent's;
    with the fresh content and a diff.
    """
    told: list[Attempt] = []

    def step(attempt: Attempt) -> Any:
        told.append(attempt)
        if attempt.number == 1:
            turn.read_file("a.md")
            (root / "a.md").write_bytes(b"v1\ntheirs\n")
        text = attempt.fresh.text if attempt.fresh else "v1\n"
        try:
            return turn.write_file("a.md", text + "mine\n")
        except StaleFileError as error:
            if form == "exception":
                raise
            return to_object(error, audience) if form == "mapping" else to_json(error, audience)

    run = controller(turn, clock)
    result = run.run(step)

    assert result.sha256 == sha256(b"v1\ntheirs\nmine\n")
    assert (root / "a.md").read_bytes() == b"v1\ntheirs\nmine\n"
    assert [attempt.number for attempt in told] == [1, 2]
    assert [told[0].fresh, told[0].conflict, told[0].diff] == [None, None, None]
    assert told[1].fresh.content == b"v1\ntheirs\n"
    assert told[1].conflict.actual == sha256(b"v1\ntheirs\n")
    assert "+theirs\n" in str(told[1].diff)
    assert path_of(run) == STALE_PATH + DONE
    assert run.state == "DONE"


def test_what_merely_looks_like_the_object_is_a_result(turn: Turn, clock: FakeClock) -> None:
    """011-FR-004: nothing looser is recognised."""
    error = StaleFileError("/ws/a.md", sha256(b"1"), sha256(b"2"))
    for result in (
        f"Error: {to_json(error, 'controller')}",
        {**error.to_controller(), "note": 1},
        {**error.to_agent(), "note": 1},
        {**error.to_agent(), "recovery_hint": "Read it again."},
    ):
        run = controller(turn, clock)
        assert run.run(lambda attempt: result) == result  # noqa: B023 - run at once
        assert path_of(run) == DONE


def test_the_identical_stale_bytes_are_refused_after_the_re_read(
    root: Path, ws: Workspace, turn: Turn, clock: FakeClock
) -> None:
    """Ruling 23: `resubmitted = "deny"`; passing them would undo what somebody else wrote."""

    def step(attempt: Attempt) -> object:
        if attempt.number == 1:
            turn.read_file("a.md")
            (root / "a.md").write_bytes(b"theirs\n")
        return turn.write_file("a.md", b"mine\n" if attempt.number < 3 else attempt.fresh.content + b"mine\n")

    run = controller(turn, clock, resubmitted="deny")
    run.run(step)
    assert (root / "a.md").read_bytes() == b"theirs\nmine\n"
    assert path_of(run) == [
        *STALE_PATH,
        ("RUNNING", "RE_READ_REQUIRED", "STALE_RESUBMITTED"),
        ("RE_READ_REQUIRED", "RUNNING", "RE_READ"),
        *DONE,
    ]
    kinds = [event["action_type"] for event in ws.ledger.events()]
    assert kinds == ["MUTATION_CONFLICT", "MUTATION_REFUSED", "MUTATION"]


def constant_step(root: Path, turn: Turn) -> Callable[[Attempt], object]:
    """A step that writes the same bytes whatever it is shown; somebody saves once, before the first write."""

    def step(attempt: Attempt) -> object:
        if attempt.number == 1:
            turn.read_file("a.md")
            (root / "a.md").write_bytes(b"theirs\n")
        return turn.write_file("a.md", b"constant\n")

    return step


def test_the_same_bytes_may_be_written_after_a_re_read(root: Path, turn: Turn, clock: FakeClock) -> None:
    """009-US2, ruling 23, finding D2: nobody wrote again, so nothing stands in the way."""
    run = controller(turn, clock)
    run.run(constant_step(root, turn))
    assert (root / "a.md").read_bytes() == b"constant\n"
    assert path_of(run) == STALE_PATH + DONE


@pytest.mark.parametrize(
    ("of_turn", "of_controller", "lands"),
    [
        ("allow", None, True),
        ("deny", None, False),
        ("allow", "deny", False),
        ("deny", "allow", True),
    ],
)
def test_the_controllers_word_on_resubmission_beats_the_turns(
    root: Path, ws: Workspace, clock: FakeClock, of_turn: Any, of_controller: Any, lands: bool
) -> None:
    """Ruling 23: an option of both; without one of its own the controller leaves it to the turn."""
    with ws.turn(resubmitted=of_turn) as turn:
        run = controller(turn, clock, max_attempts=2, resubmitted=of_controller)
        if lands:
            run.run(constant_step(root, turn))
        else:
            with pytest.raises(GaveUpError) as gave_up:
                run.run(constant_step(root, turn))
            assert gave_up.value.details["reason"] == "STALE_RESUBMITTED"
    assert ((root / "a.md").read_bytes() == b"constant\n") is lands


def test_a_turn_that_denies_resubmission_does_so_without_a_controller(root: Path, ws: Workspace) -> None:
    """Ruling 23: the error says what it is."""
    with ws.turn(resubmitted="deny") as turn:
        turn.read_file("a.md")
        (root / "a.md").write_bytes(b"theirs\n")
        with pytest.raises(StaleFileError):
            turn.write_file("a.md", b"mine\n")
        turn.read_file("a.md")
        with pytest.raises(ResubmittedError, match="were refused before"):
            turn.write_file("a.md", b"mine\n")
        turn.write_file("a.md", b"theirs\nmine\n")


def test_identical_bytes_are_fine_if_the_file_went_back(root: Path, turn: Turn, clock: FakeClock) -> None:
    """Ruling 23: they were made from exactly what is there again."""

    def step(attempt: Attempt) -> object:
        if attempt.number == 1:
            turn.read_file("a.md")
            (root / "a.md").write_bytes(b"theirs\n")
            try:
                turn.write_file("a.md", b"mine\n")
            finally:
                (root / "a.md").write_bytes(b"v1\n")
        return turn.write_file("a.md", b"mine\n")

    controller(turn, clock, resubmitted="deny").run(step)
    assert (root / "a.md").read_bytes() == b"mine\n"


def test_a_resubmitted_edit_is_no_resubmission(root: Path, turn: Turn, clock: FakeClock) -> None:
    """N-resubmission: a targeted edit brings no bytes but its own."""

    def step(attempt: Attempt) -> object:
        if attempt.number == 1:
            turn.read_file("a.md")
            (root / "a.md").write_bytes(b"v1\ntheirs\n")
        return turn.edit_file("a.md", [Edit("v1", "v2")])

    controller(turn, clock, resubmitted="deny").run(step)
    assert (root / "a.md").read_bytes() == b"v2\ntheirs\n"


def test_the_turn_is_plain_again_after_the_run(root: Path, turn: Turn, clock: FakeClock) -> None:
    """009-US2: only a controller asks for it."""

    def step(attempt: Attempt) -> object:
        turn.read_file("a.md")
        (root / "a.md").write_bytes(b"%d" % attempt.number)
        return turn.write_file("a.md", b"mine")

    with pytest.raises(GaveUpError, match="gave up after 1 attempt\\. "):
        controller(turn, clock, max_attempts=1, resubmitted="deny").run(step)
    turn.read_file("a.md")
    turn.write_file("a.md", b"mine")
    assert (root / "a.md").read_bytes() == b"mine"


def test_attempts_are_bounded_and_the_last_refusal_is_the_cause(
    root: Path, turn: Turn, clock: FakeClock
) -> None:
    """N-controller, 011-SC-003: GAVE_UP, after exactly as many calls as allowed."""
    calls = []

    def step(attempt: Attempt) -> object:
        calls.append(attempt.number)
        if not attempt.fresh:
            turn.read_file("a.md")
        (root / "a.md").write_bytes(b"%d" % attempt.number)
        return turn.write_file("a.md", b"mine %d" % attempt.number)

    run = controller(turn, clock, max_attempts=4)
    with pytest.raises(GaveUpError) as gave_up:
        run.run(step)
    assert calls == [1, 2, 3, 4]
    assert isinstance(gave_up.value.__cause__, StaleFileError)
    assert gave_up.value.details == {"attempts": 4, "reason": "STALE_FILE"}
    assert gave_up.value.message == (
        "The file kept changing; gave up after 4 attempts. "
        "Try again later, or lock its folder while you work."
    )
    assert path_of(run) == STALE_PATH * 3 + [
        ("RUNNING", "RE_READ_REQUIRED", "STALE_FILE"),
        ("RE_READ_REQUIRED", "GAVE_UP", "NO_ATTEMPTS_LEFT"),
    ]
    assert run.state == "GAVE_UP"


def test_delays_are_jittered_bounded_and_reproducible(root: Path, turn: Turn) -> None:
    """N-controller: the same generator, the same delays; no two processes in step."""

    def delays(seed: int) -> list[float]:
        clock = FakeClock()

        def step(attempt: Attempt) -> object:
            turn.read_file("a.md")
            (root / "a.md").write_bytes(os.urandom(8))
            return turn.write_file("a.md", os.urandom(8))

        run = AgentController(
            turn,
            max_attempts=12,
            first_delay_s=0.01,
            longest_delay_s=0.1,
            clock=clock,
            rng=random.Random(seed),
        )
        with pytest.raises(GaveUpError):
            run.run(step)
        return clock.naps

    one = delays(1)
    assert len(one) == 11
    assert one == delays(1) != delays(2)
    assert all(0 <= nap <= min(0.1, 0.01 * 2**number) for number, nap in enumerate(one))
    assert max(one) > 0.03, "it does grow"


def test_a_busy_file_is_retried_and_bounded_on_its_own(turn: Turn, clock: FakeClock) -> None:
    """N-controller, N-busy: FILE_BUSY is nobody's mistake."""

    def step(attempt: Attempt) -> object:
        if attempt.number < 4:
            raise FileBusyError("/ws/a.md", "somebody has it open")
        return "done"

    run = controller(turn, clock, max_attempts=1)
    assert run.run(step) == "done"
    assert path_of(run) == [("RUNNING", "WAITING", "FILE_BUSY"), ("WAITING", "RUNNING", "WAITED")] * 3 + DONE
    assert len(clock.naps) == 3
    run = controller(turn, clock, max_busy=2)
    with pytest.raises(GaveUpError) as gave_up:
        run.run(step)
    assert isinstance(gave_up.value.__cause__, FileBusyError)
    assert gave_up.value.message.startswith("Another program kept the file busy; gave up after 3 attempts.")
    refusal = FileBusyError("/ws/a.md", "busy").to_refusal()
    with pytest.raises(GaveUpError):
        controller(turn, clock, max_busy=0).run(lambda attempt: refusal)


def test_other_errors_and_interrupts_go_through(turn: Turn, clock: FakeClock) -> None:
    """N-controller: the controller retries what a retry can help."""

    def fail(error: BaseException) -> Callable[[Attempt], object]:
        def step(attempt: Attempt) -> object:
            raise error

        return step

    for error in (EditMismatchError("/a", "no"), ValueError("x")):
        run = controller(turn, clock)
        with pytest.raises(type(error)) as raised:
            run.run(fail(error))
        assert raised.value is error
        assert path_of(run) == [("RUNNING", "FAILED", "ERROR")]
    with pytest.raises(KeyboardInterrupt):
        controller(turn, clock).run(fail(KeyboardInterrupt()))
    assert turn.options.resubmitted == "allow"


def test_a_file_that_was_deleted_is_told_by_an_empty_fresh_read(
    root: Path, turn: Turn, clock: FakeClock
) -> None:
    """011-edge-deleted: the agent then creates it, exclusively."""

    def step(attempt: Attempt) -> object:
        if attempt.number == 1:
            turn.read_file("a.md")
            (root / "a.md").unlink()
        else:
            assert attempt.fresh is None
            assert attempt.conflict.actual == "DELETED"
            assert "-v1\n" in str(attempt.diff)
        return turn.write_file("a.md", b"again %d" % attempt.number)

    controller(turn, clock).run(step)
    assert (root / "a.md").read_bytes() == b"again 2"


def test_a_file_that_cannot_be_read_again_ends_the_run(root: Path, turn: Turn, clock: FakeClock) -> None:
    """N-controller: the re-read's own error is the answer."""

    def step(attempt: Attempt) -> object:
        turn.read_file("a.md")
        (root / "a.md").unlink()
        (root / "a.md").mkdir()
        return turn.write_file("a.md", b"x")

    run = controller(turn, clock)
    with pytest.raises(NotAFileError):
        run.run(step)
    assert path_of(run)[-1] == ("RE_READ_REQUIRED", "FAILED", "ERROR")


def test_the_re_read_uses_the_name_that_the_agent_used(root: Path, turn: Turn, clock: FakeClock) -> None:
    """N-link-swap: reading the canonical path alone would leave the agent's own name stale for ever."""
    (root / "b.md").write_bytes(b"theirs\n")

    def step(attempt: Attempt) -> object:
        if attempt.number == 1:
            turn.read_file("a.md")
            (root / "a.md").unlink()
            (root / "a.md").symlink_to("b.md")
        return turn.write_file("a.md", (attempt.fresh.content if attempt.fresh else b"") + b"mine\n")

    controller(turn, clock).run(step)
    assert (root / "b.md").read_bytes() == b"theirs\nmine\n"


def test_one_conflict_among_many_files_is_re_read(root: Path, turn: Turn, clock: FakeClock) -> None:
    """011-edge-atomic: the whole operation is retried."""
    (root / "b.md").write_bytes(b"b\n")

    def step(attempt: Attempt) -> object:
        if attempt.number == 1:
            turn.read_file("a.md")
            turn.read_file("b.md")
            (root / "b.md").write_bytes(b"theirs\n")
        other = attempt.fresh.content if attempt.fresh else b"b\n"
        return turn.write_files({"a.md": b"a2\n", "b.md": other + b"mine\n"})

    controller(turn, clock).run(step)
    assert (root / "a.md").read_bytes() == b"a2\n"
    assert (root / "b.md").read_bytes() == b"theirs\nmine\n"


def test_one_of_many_resubmitted_is_refused(root: Path, turn: Turn, clock: FakeClock) -> None:
    """Ruling 23: in company, too; and the message says what happened (finding U9)."""

    def step(attempt: Attempt) -> object:
        if attempt.number == 1:
            turn.read_file("a.md")
            (root / "a.md").write_bytes(b"theirs\n")
        return turn.write_files({"a.md": b"mine\n", "b.md": b"%d" % attempt.number})

    run = controller(turn, clock, max_attempts=3, resubmitted="deny")
    with pytest.raises(GaveUpError) as gave_up:
        run.run(step)
    assert isinstance(gave_up.value.__cause__, ResubmittedError)
    assert gave_up.value.details == {"attempts": 3, "reason": "STALE_RESUBMITTED"}
    assert gave_up.value.message == (
        "The step sent the same refused content again after the file had been read again; "
        "gave up after 3 attempts. Make the new content from what `attempt.fresh` shows."
    )
    assert (root / "a.md").read_bytes() == b"theirs\n"
    assert not (root / "b.md").exists()


def test_states_and_transitions_can_be_listed_and_watched(root: Path, turn: Turn, clock: FakeClock) -> None:
    """N-controller, 011-SC-003: deterministic and observable."""
    assert AgentController.states == STATES
    assert {state for before, after, _ in TRANSITIONS for state in (before, after)} == set(STATES)
    terminal = {"DONE", "GAVE_UP", "FAILED"}
    assert {before for before, _, _ in TRANSITIONS} == set(STATES) - terminal
    watched: list[Any] = []

    def step(attempt: Attempt) -> object:
        if attempt.number == 1:
            turn.read_file("a.md")
            (root / "a.md").write_bytes(b"theirs\n")
        return turn.write_file("a.md", b"mine %d" % attempt.number)

    run = controller(turn, clock, on_transition=watched.append)
    run.run(step)
    assert watched == run.history
    assert all((seen.before, seen.after, seen.reason) in AgentController.transitions for seen in watched)
    assert [seen.attempt for seen in watched] == [1, 2, 2]


def test_nonsense_bounds_are_refused(turn: Turn) -> None:
    """N-controller, N-input."""
    with pytest.raises(ValueError, match="max_attempts"):
        AgentController(turn, max_attempts=0)
    with pytest.raises(ValueError, match="resubmitted must be 'allow' or 'deny'"):
        AgentController(turn, resubmitted=True)  # type: ignore[arg-type]


COUNTER = """
import sys
from noclobber import AgentController, Workspace
root, times = sys.argv[1], int(sys.argv[2])
ws = Workspace(root)
conflicts = 0
for _ in range(times):
    with ws.turn() as turn:
        controller = AgentController(turn, max_attempts=100_000, max_busy=100_000)
        def step(attempt):
            seen = attempt.fresh or turn.read_file("counter")
            return turn.write_file("counter", str(int(seen.text) + 1))
        controller.run(step)
        conflicts += len(controller.history) // 2
print(conflicts)
"""


@pytest.mark.slow
def test_processes_incrementing_one_counter_lose_nothing(root: Path) -> None:
    """009-SC-001, 011-SC-002, 011-SC-004: real processes, through the controller; and they did collide."""
    (root / "counter").write_bytes(b"0")
    crowd = [
        subprocess.Popen([sys.executable, "-c", COUNTER, str(root), "25"], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    conflicts = sum(int(process.communicate(timeout=120)[0]) for process in crowd)
    assert [process.returncode for process in crowd] == [0] * 6
    assert (root / "counter").read_bytes() == b"150"
    assert conflicts > 0, "they took turns by luck, and the test proved nothing"
    with Workspace(root) as ws:
        ws.ledger.verify()
        kinds = [event["action_type"] for event in ws.ledger.events()]
    assert kinds.count("MUTATION") == 150
    assert kinds.count("MUTATION_CONFLICT") + kinds.count("MUTATION_REFUSED") == conflicts
