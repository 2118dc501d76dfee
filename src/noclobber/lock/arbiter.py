"""
Who decides about a deliverable's lock: the protocol between `DeliverableLock` and the place where locks are
kept.

Two implementations: `file_arbiter` keeps a lock in a file of the deliverable folder, and
`postgres.arbiter` in a row that several machines share; `chosen` chooses. Whatever is on this side of it
(`lock`, `heartbeat`, `backend`, `doctor`, the command line) never reads a lock file, parses
no record, and never compares a lease with its own clock. So a server can decide by its own.

| operation | from | to | refused if |
|---|---|---|---|
| `take` | nothing, or an orphan's lock | the taker's lock | somebody is alive there, above or below |
| `renew` | the holder's own lock | the same with a longer lease | it is no longer the holder's |
| `give_up` | the holder's own lock | nothing | it is no longer the holder's |
| `clear` | nothing, or an orphan's lock | nothing | somebody is alive there |

Each of these is one compare-and-set, and its event is recorded in the same step. `find`, `check`, `read` and
`list` change nothing. A guarded write is an intent that is begun and settled. In between, the answer that it
was given stays true: nobody takes the lock over and writes before the write that has begun is over, or can
no longer happen.

tests/lock/arbiter_suite.py is what an implementation has to pass. docs/decisions/lock-arbiter.md says why the
seam is here and not below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from noclobber.disk.processes import ProcessIdentity
    from noclobber.errors import LockContention, LockLost

    LockState = Literal["free", "live", "expired", "dead", "corrupt", "unreadable"]


class Taker(NamedTuple):
    """Who wants a lock, and for how long."""

    deliverable_id: str
    holder: str
    lease_duration_s: int
    process: ProcessIdentity
    lease_only: bool = False
    held_ids: tuple[str, ...] = ()
    """Ids of locks that the taker holds already. They are not in its way, above and below."""


class Recovery(NamedTuple):
    """An orphan that was cleared, as its event records it."""

    recovery_reason: str
    previous_holder: str | None
    previous_acquired: str | None
    previous_lock_id: str | None
    detail: str


class LockStatus(NamedTuple):
    """What one folder's lock is like. Everything but `folder`, `state` and `detail` is None if unknown."""

    folder: str
    state: LockState
    """
    `free`, `live`, `expired`, `dead` or `corrupt`. The last three are taken over by the next to acquire. In
    a list also `unreadable`: `detail` has owner and remedy, and until then it counts as locked.
    """
    detail: str
    deliverable_id: str | None = None
    holder: str | None = None
    acquired: str | None = None
    age_s: int | None = None
    lease_duration_s: int | None = None
    lease_remaining_s: int | None = None
    pid: int | None = None
    host: str | None = None
    public_id: str | None = None
    """Tells acquisitions apart. It gives no right: that is the holder's own id."""
    fencing_token: int | None = None
    """Rises with every holder, on every machine. None for a lock that is kept in a file."""

    @property
    def is_locked(self) -> bool:
        """True if acquire would be refused."""
        return self.state == "live"

    def __repr__(self) -> str:
        by = f" by {self.holder!r}, {self.lease_remaining_s} s left" if self.is_locked else ""
        return f"<LockStatus {self.folder}: {self.state}{by} ({self.detail})>"

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return self._asdict()


class Holding(Protocol):
    """A lock that is held, as its arbiter knows it. A value: `renew` returns another one."""

    @property
    def lock_id(self) -> str:
        """The holder's id, a secret: whoever knows it can speak for the lock. Status never shows it."""

    @property
    def deliverable_id(self) -> str:
        """What is locked."""

    @property
    def holder(self) -> str:
        """Who holds it."""

    @property
    def renewal_s(self) -> int | None:
        """For how long one renewal lasts; None if the lock does not say."""

    @property
    def fencing_token(self) -> int | None:
        """Rises with every holder; None where there are none."""

    @property
    def folder(self) -> str:
        """Where the folder is now, canonical; found again after it was moved."""

    def ends_in_s(self) -> float | None:
        """
        Seconds until its holder stops by its own clock, unless it is renewed; None where one can always look.
        """

    def ended(self) -> LockLost:
        """Return what to tell its holder when that time is over."""


class WriteIntent(Protocol):
    """
    A guarded write inside a locked folder. It exists before it is begun, so that it can be settled whatever
    becomes of `begin()`: an interrupt in the middle of it, an answer that was lost.
    """

    def begin(self) -> None:
        """
        Let the write begin, or raise.

        With a lock of the writer's own: `LockLost` if it was lost; a lease that ran out unnoticed is renewed.
        Without one: `LockContention` if somebody else's is live; an orphan is cleared.
        """

    def settle(self) -> None:
        """The write has landed, or will not: from now on somebody else may take over. Also if never begun."""


H = TypeVar("H", bound=Holding)


class Arbiter(Protocol[H]):
    """
    Decides who holds which deliverable, judged by one clock. Deliverables are named by their folders.

    Every operation may raise what its place raises: `MissingFileError`, `NotAFileError` and
    `AccessDeniedError` for the folder, `StorageError`, `FileBusyError` (a stopped process is in the way),
    `LedgerError` (the event cannot be recorded).
    """

    longest_pause_s: float
    """How long a waiter may wait before it asks again. Short where nobody wakes it."""

    renewed_lease_s: int
    """
    The lease of a lock that a heartbeat renews, if nobody names one. Short where nothing else shows that a
    holder died.
    """

    def take(self, folder: str, taker: Taker, began: Callable[[H], None]) -> LockContention | None:
        """
        Take the lock, an orphan's too, and call `began` with it. Return None, or the refusal, not raised.
        Refused as well if somebody else's live lock is above or below (ruling 24).

        `began` is called while the lock can still be taken back: if it raises, nothing stays locked. After
        the return, an interruption could fall between two steps and leave a lock that nobody knows of.
        """

    def find(self, folder: str, lock_id: str) -> H:
        """Return the lock with this id, whoever took it; `LockLost` if another one or none is there."""

    def check(self, holding: H) -> float:
        """Return how many seconds of the lease are left (negative: ran out); `LockLost` if it was lost."""

    def renew(self, holding: H, lease_s: int, *, patience_s: float | None = None) -> H:
        """Extend the lease to a full one from now, never to an earlier end; `LockLost` if it was lost."""

    def give_up(self, holding: H, ended: Callable[[str], None]) -> None:
        """
        Take the lock away; `LockLost` if it was lost.

        `ended` is called as soon as it is gone, with the folder's path. What is raised after that (the event
        could not be recorded) does not bring it back.
        """

    def clear(self, folder: str, taker: Taker, *, retire: bool = False) -> Recovery | LockContention | None:
        """
        Clear an orphan. Return what was recovered, None if there was none, or the refusal if its holder
        lives.

        `retire` records the end of the deliverable, also if it was free, or is the taker's own (`held_ids`).
        """

    def refused(self, folder: str, asker: str, refusal: LockContention) -> None:
        """Record a refusal: once for each question, and not for each look."""

    def read(self, folder: str) -> LockStatus:
        """Return what the folder's lock is like now. Takes no part in anything: history when it is read."""

    def list(self, root: str, ledgers: set[str] | None = None) -> Iterator[LockStatus]:
        """
        Yield the status of every locked folder below a root, the root included.

        `ledgers` gets the path of every file there that has events of locks.
        """

    def wait(self, folder: str, at_most_s: float) -> None:
        """Return when it may be worth asking again, and after `at_most_s` at the latest."""

    def intend_write(self, folder: str, holding: H | None, held: Sequence[int]) -> WriteIntent:
        """
        Return a write inside a locked folder, not begun.

        `holding` is the writer's lock on that folder, None if it has none. `held` are descriptors of folders
        whose mutexes the caller has.
        """

    def close(self) -> None:
        """Let go of descriptors and connections. Locks stay as they are."""
