"""
What is shown now, kept up to date by threads, for any number of pages at once.

- One follows the ledger, and those of locks, and looks for appended lines twenty times a second: one `lstat`
  each while nothing happens.
- One looks at turns, claims, locks and kept files. Looking for locks walks the tree, so at most a tenth of
  the time is spent on it; and while nobody is watching, nothing is looked for.
- One counts the ledger's older part, in small blocks.
- `doctor` runs in a process of its own: at the start, and when a person asks for it.

A page holds a `Cursor` and asks for what changed since. Nothing is queued for it, so a page that is slow, or
gone, costs no memory: it is told less often.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any

from noclobber import __version__
from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.core.findings import Finding
from noclobber.core.own_python import own_command
from noclobber.ledger.chosen import is_on_server
from noclobber.view import attention, session_memories, workspace_state
from noclobber.view.at_work import at_work
from noclobber.view.ledger_feed import LedgerFeed
from noclobber.view.lock_feeds import LockFeeds

if TYPE_CHECKING:
    from noclobber.core.clock import Clock

LOOK_S = 0.05
STATE_S = 1.0
LOOKING_SHARE = 10
COUNT_PAUSE_S = 0.002
BLOCKS_TOLD = 16
DOCTOR_PATIENCE_S = 600
MOST_DOCTOR_BYTES = 4 << 20
EVENTS_AT_ONCE = 200
NOBODY_WATCHES_S = 5.0
FIRST_PAGE_S = 2.0  # What takes long waits for so long, because the first page comes first.

NOT_LOOKED: list[Finding] = []

Sections = dict[str, Any]


class Cursor:
    """How far one page has been told."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.seen_count = -1
        self.epoch = -1


class Live:
    """The state of one project for everybody who looks at it."""

    def __init__(
        self, root: str, *, clock: Clock = SYSTEM_CLOCK, with_doctor: bool = True, state_s: float = STATE_S
    ) -> None:
        self.root, self._clock, self._state_s = root, clock, state_s
        self._changed, self._looking = threading.Condition(), threading.Lock()
        self._feed = _feed_of(root, clock)
        self._lock_feeds = LockFeeds()
        self._sections: Sections = {}
        self._versions: dict[str, int] = {}
        self._lock_waits = 0
        """Since the start: how often somebody wanted a lock that another agent had."""
        self._epoch = 0
        """Rises when the ledger begins anew: what a page holds of it is history."""
        self._findings: list[Finding] = NOT_LOOKED
        self._ends = threading.Event()
        self._look_now = threading.Event()
        self._asked_s = clock.monotonic_s()
        self._with_doctor, self._is_checking = with_doctor, False
        self._threads: list[threading.Thread] = []
        self._doctor: subprocess.Popen[bytes] | None = None
        self._set("project", {"root": root, "name": os.path.basename(root) or root, "version": __version__})
        self._set("checks", {"state": "not run", "findings": [], "time": None})
        self._set("gone", False)

    # -- running --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look once, so that the first page has the ledger's end, and go on in the background."""
        self._look()
        with self._changed:
            self._note_ledger()  # Also if there is no ledger yet.
        for work in (self._follow, self._watch_state, self._count):
            thread = threading.Thread(target=work, name=f"noclobber-view-{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)
        if self._with_doctor:
            self.check()

    def stop(self) -> None:
        """End the threads."""
        self._ends.set()
        self._look_now.set()
        if self._doctor is not None and self._doctor.poll() is None:
            self._doctor.send_signal(signal.SIGINT)  # Not killed: it removes what it has tried things with.
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=5.0)

    @property
    def is_ending(self) -> bool:
        """True after `stop()`."""
        return self._ends.is_set()

    def _follow(self) -> None:
        while not self._ends.is_set():
            if not self._look():
                self._ends.wait(LOOK_S)

    def _look(self) -> bool:
        self._feed.fetch()  # Without the lock: a server may take its time.
        with self._changed:
            count = self._feed.seen_count
            is_new = self._feed.look()
            if self._feed.seen_count < count:
                self._epoch += 1
                self._lock_feeds = LockFeeds()
            if locks := self._lock_feeds.look():
                self._feed.append(locks)
                self._lock_waits += sum(event["action_type"] == "LOCK_CONTENTION" for event in locks)
            if is_new or locks:
                self._note_ledger()
            return is_new or bool(locks)

    def _note_ledger(self) -> None:
        feed = self._feed
        self._set("totals", {**feed.tallies.totals(), "counted_share": round(feed.counted_share, 4)})
        self._set("hottest", feed.tallies.hottest())
        self._set("chain", feed.chain())
        self._set(
            "ledger",
            {"path": feed.path, "exists": feed.exists, "size_bytes": feed.size_bytes, "head": feed.head},
        )
        self._set("feed_troubles", sorted(feed.troubles.values()))
        self._set("minutes", feed.minutes())
        self._changed.notify_all()

    def _count(self) -> None:
        self._ends.wait(FIRST_PAGE_S)
        more, blocks = True, 0
        while more and not self._ends.is_set():
            self._feed.fetch_older()
            with self._changed:
                more, blocks = self._feed.count_back(), blocks + 1
                if not more or blocks % BLOCKS_TOLD == 0:
                    self._note_ledger()
            self._ends.wait(COUNT_PAUSE_S)  # Others need the interpreter as well: the first page waits.

    def _watch_state(self) -> None:
        while not self._ends.is_set():
            began_s = self._clock.monotonic_s()
            if began_s - self._asked_s < NOBODY_WATCHES_S or "locks" not in self._sections:
                self._look_and_tell()
            took_s = self._clock.monotonic_s() - began_s
            self._look_now.wait(max(self._state_s, took_s * LOOKING_SHARE))
            self._look_now.clear()

    def _look_and_tell(self) -> None:
        """Look; what keeps us from it stands on the page: a thread that ended would leave it old."""
        try:
            self.look_at_state()
        except Exception as error:
            with self._changed:
                told = f"The project's state cannot be read: {type(error).__name__}: {error}"
                self._set("state_troubles", [told])
                self._changed.notify_all()

    def look_at_state(self) -> None:
        """Look at turns, claims, locks and kept files now."""
        # One at a time: who looks at a refused command holds it, and another would take it for one that runs.
        with self._looking:
            self._look_at_state()

    def _look_at_state(self) -> None:
        now_s = self._clock.now_s()
        if not os.path.isdir(self.root):
            with self._changed:
                self._set("gone", True)
                self._changed.notify_all()
            return
        lock_ledgers: set[str] = set()
        state = workspace_state.read_state(
            self.root, self._clock, with_ledger=False, lock_ledgers=lock_ledgers
        )
        with self._changed:
            if not self._feed.insert(self._lock_feeds.watch(lock_ledgers)):
                self._epoch += 1  # Some are older than what pages have: they get the list once more.
            events = list(self._feed.events)
        names = {name for event in events for name in (event.who.agent, event.who.session) if name}
        reads = session_memories.last_reads(self.root, names)
        rows = at_work(state, reads, events, now_s)
        waiting = attention.found_in(self.root, self._findings, now_s)
        with self._changed:
            self._set("gone", False)
            self._set("at_work", [row._asdict() for row in rows])
            self._set("locks", state.locks)
            self._set("attention", [item._asdict() for item in waiting])
            self._set("state_troubles", state.troubles)
            self._set("minutes", self._feed.minutes())
            self._changed.notify_all()

    def look_soon(self) -> None:
        """Look at locks and kept files at once: something was done about them."""
        self._look_now.set()

    # -- doctor ---------------------------------------------------------------------------------------

    def check(self) -> bool:
        """Let `doctor` look, in the background; False if it does already."""
        with self._changed:
            if self._is_checking:
                return False
            self._is_checking = True
            self._set("checks", {**self._sections["checks"], "state": "running"})
            self._changed.notify_all()
        thread = threading.Thread(target=self._check, name="noclobber-view-doctor", daemon=True)
        thread.start()
        self._threads.append(thread)
        return True

    def _check(self) -> None:
        if self._findings is NOT_LOOKED:
            self._ends.wait(FIRST_PAGE_S)
        state, findings = "done", []
        command = own_command("doctor", self.root, "--no-repair", "--json")
        try:
            self._doctor = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
            )
            with self._doctor as process:
                if self._ends.is_set():
                    process.send_signal(signal.SIGINT)
                try:
                    findings = _findings(process.communicate(timeout=DOCTOR_PATIENCE_S)[0])
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            state = f"doctor could not be run: {type(error).__name__}"
        with self._changed:
            self._is_checking = False
            self._findings = findings
            self._set(
                "checks",
                {
                    "state": state,
                    "findings": [finding._asdict() for finding in findings],
                    "time": iso8601(self._clock.now_s()),
                },
            )
            self._changed.notify_all()
        self.look_soon()

    # -- asking ---------------------------------------------------------------------------------------

    def news(self, cursor: Cursor, wait_s: float) -> Sections:
        """Return the sections that changed since, after at most `wait_s`; empty if none did."""
        with self._changed:
            self._asked_s = self._clock.monotonic_s()
            if not self._is_news(cursor):
                self._changed.wait(wait_s)
            self._asked_s = self._clock.monotonic_s()
            changed = {
                name: value
                for name, value in self._sections.items()
                if cursor.versions.get(name) != self._versions[name]
            }
            cursor.versions = dict(self._versions)
            changed |= self._new_events(cursor)
            if changed:
                changed["time"] = iso8601(self._clock.now_s())
            return changed

    def _is_news(self, cursor: Cursor) -> bool:
        is_behind = cursor.seen_count != self._feed.seen_count or cursor.epoch != self._epoch
        return is_behind or cursor.versions != self._versions or self._ends.is_set()

    def _new_events(self, cursor: Cursor) -> Sections:
        feed, is_first = self._feed, cursor.epoch != self._epoch
        new = feed.seen_count if is_first else feed.seen_count - cursor.seen_count
        cursor.seen_count, cursor.epoch = feed.seen_count, self._epoch
        if not new and not is_first:
            return {}
        shown = list(feed.events)[-min(new, EVENTS_AT_ONCE) :] if new else []
        return {
            "events": {
                "from_start": is_first,
                "skipped": 0 if is_first else max(0, new - len(shown)),
                "newest_first": [_event_json(event) for event in reversed(shown)],
            }
        }

    def snapshot(self) -> Sections:
        """Return everything at once."""
        return self.news(Cursor(), 0.0)

    def gauges(self) -> Sections:
        """Return what metrics are made of."""
        with self._changed:
            self._asked_s = self._clock.monotonic_s()
            names = ("totals", "locks", "attention", "at_work", "chain")
            return {name: self._sections.get(name) for name in names} | {"lock_waits": self._lock_waits}

    def _set(self, name: str, value: Any) -> None:
        if name not in self._versions or self._sections[name] != value:
            self._sections[name] = value
            self._versions[name] = self._versions.get(name, 0) + 1


def _feed_of(root: str, clock: Clock) -> LedgerFeed:
    if not is_on_server():
        return LedgerFeed(root, clock)
    from noclobber.view.server_feed import ServerFeed

    return ServerFeed(root, clock)


def _event_json(event: Any) -> dict[str, Any]:
    return {**event._asdict(), "who": event.who._asdict()}


def _findings(output: bytes) -> list[Finding]:
    told = json.loads(output[:MOST_DOCTOR_BYTES])
    try:
        return [Finding(*(each[name] for name in Finding._fields)) for each in told["findings"]]
    except (KeyError, TypeError) as error:
        raise ValueError("not an answer of doctor") from error
