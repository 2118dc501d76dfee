"""
What goes on in a workspace, for `status` and `watch`. It only reads: nothing is created or repaired.

Each part is read on its own. If one cannot be read (a ledger that is a folder, a lock without permission),
the others are shown and `troubles` says what is missing: people ask for the status when something is wrong.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import iso8601
from noclobber.core.project import STATE_FOLDER, is_marked, ledger_path
from noclobber.disk.commit import leftovers
from noclobber.disk.processes import GONE
from noclobber.errors import ConfigError, NoclobberError
from noclobber.guard import open_turns
from noclobber.ledger.browse import event_in
from noclobber.ledger.chosen import is_on_server, ledger_of
from noclobber.view import lock_feeds, session_memories
from noclobber.view.last_refusals import last_refusals

if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.core.clock import Clock

EVENTS_LOOKED_AT = 2000  # From the ledger's end. `ledger show` has older refusals.


class WorkspaceView(NamedTuple):
    """The state of a workspace at one moment. Every value can be written as JSON."""

    root: str
    time: str
    turns: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    claims: list[dict[str, Any]]
    locks: list[dict[str, Any]]
    refusals: list[dict[str, Any]]
    kept: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    leftovers: dict[str, list[str]]
    ledger: dict[str, Any]
    troubles: list[str]

    def what_is_new(self) -> Any:
        """Return everything but what changes by the passing of time alone."""
        locks = [
            {key: value for key, value in lock.items() if key not in ("age_s", "lease_remaining_s", "detail")}
            for lock in self.locks
        ]
        claims = [{**claim, "remaining_s": 0} for claim in self.claims]
        return self._replace(time="", locks=locks, claims=claims)


def read_state(
    root: str,
    clock: Clock,
    *,
    refusals: int = 5,
    with_ledger: bool = True,
    lock_ledgers: set[str] | None = None,
) -> WorkspaceView:
    """
    Read every part once. Without the ledger: for who follows it anyway, and looks at sessions itself.

    `lock_ledgers` gets the path of every ledger of locks that was found below the root.
    """
    state = f"{root}/{STATE_FOLDER}"
    troubles: list[str] = []

    def attempt(part: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return part()
        except (NoclobberError, OSError) as error:
            troubles.append(str(error))
            return otherwise

    if said := attempt(lambda: _check_config(root), ""):
        troubles.append(said)
    turns = [turn._asdict() for turn in open_turns.look(state)]
    found = leftovers.found_in(state, clock.now_s())
    events = attempt(lambda: last_events(root, troubles), []) if with_ledger else []
    ledgers: set[str] = set() if lock_ledgers is None else lock_ledgers
    locks = attempt(lambda: _locks(root, clock, troubles, ledgers), [])
    if is_on_server():  # The coordinator's record has the same events.
        ledgers.clear()
    return WorkspaceView(
        root,
        iso8601(clock.now_s()),
        [turn for turn in turns if turn["state"] != GONE],
        attempt(lambda: session_memories.rows(root, _names(events)), []) if with_ledger else [],
        attempt(lambda: _claims(root, clock), []),
        locks,
        last_refusals(
            root,
            events,
            lock_feeds.last_events(ledgers),
            refusals,
            is_all=len(events) < EVENTS_LOOKED_AT,
        )
        if with_ledger
        else [],
        [kept._asdict() for kept in found.kept],
        attempt(lambda: _refused_commands(root), []),
        {
            "notes": list(found.notes),
            "swaps": list(found.swaps),
            "turns": sorted({turn["file"] for turn in turns if turn["state"] == GONE}),
        },
        attempt(lambda: _ledger(root), {"path": ledger_path(root), "exists": True}) if with_ledger else {},
        troubles,
    )


def _check_config(root: str) -> str:
    """Return which options do not count; `ConfigError` if the file is wrong."""
    from noclobber.core import trust

    try:
        not_counted = trust.ignored(root)
    except ConfigError as error:
        raise ConfigError(error.path, f"{error.message} Until it is fixed, every turn is refused.") from None
    return trust.told(not_counted) if not_counted else ""


def _ledger(root: str) -> dict[str, Any]:
    from noclobber.ledger import AgentTraceLedger

    if is_on_server():
        ledger = ledger_of(root)
        return {"path": ledger.path, "exists": True, "size_bytes": None, "head": ledger.head}
    path = ledger_path(root)
    if not os.path.lexists(path):
        return {"path": path, "exists": False, "size_bytes": 0, "head": None}
    return {
        "path": path,
        "exists": True,
        "size_bytes": os.lstat(path).st_size,
        "head": AgentTraceLedger(path).head,
    }


def last_events(root: str, troubles: list[str]) -> list[dict[str, Any]]:
    """Return the last events on record; what is damaged among them is told."""
    path = ledger_path(root)
    if not is_on_server() and not os.path.lexists(path):
        return []
    events, bad = [], 0
    for line in ledger_of(root).last_lines(EVENTS_LOOKED_AT):
        event = event_in(line)
        if event is None:
            bad += 1
        else:
            events.append(event)
    if bad:
        troubles.append(f"{path}: {bad} of the last lines are damaged; run `noclobber ledger verify`")
    return events


def _locks(root: str, clock: Clock, troubles: list[str], ledgers: set[str]) -> list[dict[str, Any]]:
    from noclobber.lock.backend import list_locks

    if not is_marked(root) and (os.path.ismount(root) or root == os.path.realpath(os.path.expanduser("~"))):
        troubles.append(f"{root} is no project, and too much is below it to look for locks; give --root")
        return []
    return sorted(
        (status.to_dict() for status in list_locks(root, clock, ledgers=ledgers)),
        key=lambda lock: str(lock["folder"]),
    )


def _names(events: list[dict[str, Any]]) -> set[str]:
    """Return every id of a session or an agent in these events."""
    identities = [event["identity"] for event in events if isinstance(event.get("identity"), dict)]
    found = [identity.get(name) for identity in identities for name in ("session_id", "agent_id")]
    return {name for name in found if isinstance(name, str)}


def _refused_commands(root: str) -> list[dict[str, Any]]:
    from noclobber.view.attention import refused_commands

    return [each._asdict() for each in refused_commands(root)]


def _claims(root: str, clock: Clock) -> list[dict[str, Any]]:
    from noclobber.guard import claims

    return [
        {
            "path": claim.path,
            "holder": claim.owner,
            "call_id": claim.call_id,
            "remaining_s": max(0, round(claim.expires_s - clock.now_s())),
        }
        for claim in claims.live(root, clock=clock)
    ]
