"""
AgentController: runs an agent's step; after a stale write it reads the file again and retries.

    def step(attempt):
        seen = attempt.fresh or turn.read_file("plan.md")
        return turn.write_file("plan.md", think(seen.text, attempt.diff))

    AgentController(turn).run(step)

The step may raise the `StaleFileError`, or return one of its two objects (011 or 009) as a dict or as JSON
text; nothing looser is recognised. The controller then re-reads the file that the object names and calls the
step again, with the fresh content and a diff from what the agent had seen. It never writes itself.

    RUNNING ──stale, or resubmitted──▶ RE_READ_REQUIRED ──re-read──▶ RUNNING
       │ │                                   └──no attempts left──▶ GAVE_UP
       │ └──busy──▶ WAITING ──waited──▶ RUNNING, or GAVE_UP
       └──any other result──▶ DONE, any other error──▶ FAILED

A write that was stale and landed merged (`on_stale = "merge"`) is a result: the reason of the last transition
is `MERGED` instead of `RESULT`, and the transition carries what was merged.

After the re-read the step may write whatever it likes, also the bytes that were refused (009-US2). With
`resubmitted="deny"` the turn refuses those: they were made without the other change and would undo it
(`STALE_RESUBMITTED`, ruling 23). The default is the turn's own option.

Deterministic: what it does depends on the step's outcomes, the clock and the random generator it was
given. `states` and `transitions` list the machine; `history` is what the last run went through.

The machine is a generator that asks for things (call the step, wait, re-read); `run` does them. The
asyncio twin does them its own way, and the machine is the same.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.values import ReadResult, WriteResult
from noclobber.core.wire import parse_refusal, parse_stale
from noclobber.errors import (
    FileBusyError,
    GaveUpError,
    MissingFileError,
    ResubmittedError,
    StaleFileError,
)
from noclobber.text.diff import unified

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from noclobber.core.clock import Clock
    from noclobber.guard.turn import Turn

    T = TypeVar("T")

RUNNING, RE_READ_REQUIRED, WAITING = "RUNNING", "RE_READ_REQUIRED", "WAITING"
DONE, GAVE_UP, FAILED = "DONE", "GAVE_UP", "FAILED"

STATES = (RUNNING, RE_READ_REQUIRED, WAITING, DONE, GAVE_UP, FAILED)
TRANSITIONS = (
    # from, to, reason
    (RUNNING, RE_READ_REQUIRED, StaleFileError.code),
    (RUNNING, RE_READ_REQUIRED, ResubmittedError.code),
    (RUNNING, WAITING, FileBusyError.code),
    (RUNNING, DONE, "RESULT"),
    (RUNNING, DONE, "MERGED"),
    (RUNNING, FAILED, "ERROR"),
    (RE_READ_REQUIRED, RUNNING, "RE_READ"),
    (RE_READ_REQUIRED, GAVE_UP, "NO_ATTEMPTS_LEFT"),
    (RE_READ_REQUIRED, FAILED, "ERROR"),
    (WAITING, RUNNING, "WAITED"),
    (WAITING, GAVE_UP, "NO_ATTEMPTS_LEFT"),
)

# Why the attempts ran out, by the last refusal, and what to do about it.
_WHY_GAVE_UP = {
    StaleFileError.code: ("The file kept changing", "Try again later, or lock its folder while you work."),
    ResubmittedError.code: (
        "The step sent the same refused content again after the file had been read again",
        "Make the new content from what `attempt.fresh` shows.",
    ),
    FileBusyError.code: ("Another program kept the file busy", "Try again when it is done."),
}

FIRST_DELAY_S = 0.002
LONGEST_DELAY_S = 0.5


class Attempt(NamedTuple):
    """What the step is told."""

    number: int
    """From 1; counts every call of the step."""
    fresh: ReadResult | None = None
    """The file as it is after the re-read; None at first, or if it is gone."""
    conflict: StaleFileError | None = None
    """Why there is a second attempt."""
    diff: str | None = None
    """From what the agent had seen to `fresh`; None if the old bytes were not kept."""

    def __repr__(self) -> str:
        return f"<Attempt {self.number}, fresh {self.fresh!r}, conflict {self.conflict!r}>"


class Transition(NamedTuple):
    """One step of the machine."""

    before: str
    after: str
    reason: str
    attempt: int
    at_s: float
    merged: tuple[WriteResult, ...] = ()
    """The writes of this attempt that landed merged with what others had changed."""


class CallStep(NamedTuple):
    """The machine asks: call the step. The answer is `(result, error)`."""

    attempt: Attempt


class Wait(NamedTuple):
    """The machine asks: wait."""

    seconds: float


class ReRead(NamedTuple):
    """The machine asks: read that file again. The answer is `((fresh, diff), error)`."""

    path: str


class RetryMachine:
    """When to call the step, to re-read and to wait. What `AgentController` and its asyncio twin share."""

    states = STATES
    transitions = TRANSITIONS

    def __init__(
        self,
        turn: Turn,
        *,
        max_attempts: int = 5,
        max_busy: int = 10,
        first_delay_s: float = FIRST_DELAY_S,
        longest_delay_s: float = LONGEST_DELAY_S,
        resubmitted: Literal["allow", "deny"] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        on_transition: Callable[[Transition], None] | None = None,
    ) -> None:
        """
        `max_attempts` counts calls that ended in a conflict, `max_busy` those that met a busy file.
        `resubmitted`: see the option of that name; None leaves it to the turn.
        """
        if max_attempts < 1 or max_busy < 0:
            raise ValueError("max_attempts must be at least 1, and max_busy at least 0")
        if resubmitted not in ("allow", "deny", None):
            raise ValueError(f"resubmitted must be 'allow' or 'deny', or None, not {resubmitted!r}")
        self.turn = turn
        self.state = RUNNING
        self.history: list[Transition] = []
        self._limits = (max_attempts, max_busy)
        self._delays_s = (first_delay_s, longest_delay_s)
        self._resubmitted = resubmitted
        self._clock, self._on_transition = clock, on_transition
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret

    def machine(self) -> Generator[CallStep | Wait | ReRead, Any, Any]:
        """Yield what has to be done next; return the step's result."""
        turn, options = self.turn, self.turn.options
        if self._resubmitted is not None:
            turn.options = options._replace(resubmitted=self._resubmitted)
        try:
            return (yield from self._attempts())
        finally:
            turn.options = options

    def _attempts(self) -> Generator[CallStep | Wait | ReRead, Any, Any]:
        max_attempts, max_busy = self._limits
        attempt, conflicts, busy = Attempt(1), 0, 0
        self.state = RUNNING
        self.history = []
        while True:
            merged_before = len(self.turn.merges)
            result, error = yield CallStep(attempt)
            conflict, code, path = _recognise(result if error is None else error)
            if code in (StaleFileError.code, ResubmittedError.code):
                conflicts += 1
                self._go(RE_READ_REQUIRED, code, attempt)
                if conflicts >= max_attempts:
                    raise self._give_up(attempt, code, path, error or conflict)
                # Wait first and read then: what was read must not grow old while we wait.
                yield Wait(self._delay_s(conflicts))
                read, failure = yield ReRead(path)
                if failure is not None:
                    self._go(FAILED, "ERROR", attempt)
                    raise failure
                attempt = Attempt(attempt.number + 1, read[0], conflict or attempt.conflict, read[1])
                self._go(RUNNING, "RE_READ", attempt)
            elif code == FileBusyError.code:
                busy += 1
                self._go(WAITING, code, attempt)
                if busy > max_busy:
                    raise self._give_up(attempt, code, path, error)
                yield Wait(self._delay_s(busy))
                attempt = attempt._replace(number=attempt.number + 1)
                self._go(RUNNING, "WAITED", attempt)
            elif error is not None:
                self._go(FAILED, "ERROR", attempt)
                raise error
            else:
                merged = tuple(self.turn.merges[merged_before:])
                self._go(DONE, "MERGED" if merged else "RESULT", attempt, merged)
                return result

    def re_read(self, path: str) -> tuple[ReadResult | None, str | None]:
        """Read a file again under the name that the agent used; return it, and what changed since."""
        name = self.turn.context.name_to_reread(path)
        before = self.turn.baseline_bytes(name)
        try:
            fresh = self.turn.read_file(name)
        except MissingFileError:
            return None, None if before is None else unified(before, b"", path)
        return fresh, None if before is None else unified(before, fresh.content, path)

    def _go(self, after: str, reason: str, attempt: Attempt, merged: tuple[WriteResult, ...] = ()) -> None:
        assert (self.state, after, reason) in TRANSITIONS
        transition = Transition(self.state, after, reason, attempt.number, self._clock.now_s(), merged)
        self.state = after
        self.history.append(transition)
        if self._on_transition is not None:
            self._on_transition(transition)

    def _give_up(self, attempt: Attempt, code: str, path: str, cause: Exception | None) -> GaveUpError:
        self._go(GAVE_UP, "NO_ATTEMPTS_LEFT", attempt)
        why, remedy = _WHY_GAVE_UP[code]
        count = "1 attempt" if attempt.number == 1 else f"{attempt.number} attempts"
        error = GaveUpError(
            path, f"{why}; gave up after {count}. {remedy}", attempts=attempt.number, reason=code
        )
        error.__cause__ = cause
        return error

    def _delay_s(self, count: int) -> float:
        """Full jitter: two that collided once must not go on in step and collide again."""
        first_s, longest_s = self._delays_s
        return self._rng.uniform(0.0, min(longest_s, first_s * 2.0 ** min(count - 1, 30)))


class AgentController(RetryMachine):
    """Runs steps of one turn, one run at a time, and retries after a stale write."""

    def run(self, step: Callable[[Attempt], T]) -> T:
        """
        Call the step until it ends in something else than a conflict, and return or raise that.

        `GaveUpError` if the attempts run out; its `__cause__` is the last refusal.
        """
        machine = self.machine()
        answer: Any = None
        try:
            while True:
                command = machine.send(answer)
                if isinstance(command, CallStep):
                    answer = _outcome(step, command.attempt)
                elif isinstance(command, ReRead):
                    answer = _outcome(self.re_read, command.path)
                else:
                    self._clock.sleep(command.seconds)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            machine.close()


def _outcome(work: Callable[[T], Any], argument: T) -> tuple[Any, Exception | None]:
    try:
        return work(argument), None
    except Exception as error:
        return None, error


def _recognise(outcome: object) -> tuple[StaleFileError | None, str, str]:
    """Return the conflict if it is one, its code or another refusal's, and the file that it names."""
    conflict = parse_stale(outcome)
    if conflict is not None:
        return conflict, conflict.code, conflict.path
    return None, *(parse_refusal(outcome) or ("", ""))
