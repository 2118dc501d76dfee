"""What people look for in events, whatever kind or version they are of."""

from __future__ import annotations

from typing import Any

import pytest

from noclobber.ledger.browse import EventFilter, summary_of


def moved(**more: Any) -> dict[str, Any]:
    payload = {"target_file": "src/app.py", "destination": "/elsewhere/app.py"}
    return {"action_type": "MUTATION", "payload": payload, "time": "2027-01-15T08:00:00.000000Z", **more}


def test_with_a_root_paths_are_whole_and_ids_stay_ids() -> None:
    """Ruling 27: `q3` is the id of a deliverable, not a file in the root."""
    assert summary_of(moved(), "/w").subjects == ("/w/src/app.py", "/elsewhere/app.py")
    assert summary_of(moved()).subject == "src/app.py"
    lock = {"action_type": "LOCK_ACQUIRED", "payload": {"deliverable_id": "q3", "folder": "/w/q3"}}
    assert summary_of(lock, "/w").subjects == ("/w/q3", "q3")
    assert summary_of({"payload": {"deliverable_id": "q3"}}, "/w").subject == "q3"


@pytest.mark.parametrize(
    "event", [{}, {"payload": 7, "result": [], "identity": "x"}, {"payload": {"path": 5}}]
)
def test_events_of_other_programs_may_have_anything_anywhere(event: dict[str, Any]) -> None:
    """R-ledger: a summary never fails."""
    assert summary_of(event, "/w") == ("?", "", "", "", (), "")
    assert EventFilter().test()(event)
    assert not EventFilter(files=("a",)).test()(event)


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        ("src", True),
        ("src/", True),
        ("./src/app.py", True),
        ("app.py", True),
        ("src/*.py", True),
        ("/elsewhere", True),
        ("sr", False),
        ("pp.py", False),
        ("\0", False),
    ],
)
def test_files_are_found_where_the_root_is_not_known(wanted: str, passes: bool) -> None:
    """Ruling 27: a ledger that was copied out of its workspace."""
    assert EventFilter(files=(wanted,)).test()(moved()) is passes


def test_filters_of_different_kinds_must_all_pass() -> None:
    """R-ledger: any of one kind, all of different kinds; a time is taken, or the first one too late."""
    event = moved(identity={"agent_id": "ana"})
    noon = event["time"]
    assert EventFilter(agents=("ben", "a*"), kinds=("LOCK_*", "MUTATION"), since=noon).test()(event)
    assert not EventFilter(agents=("ana",), kinds=("LOCK_*",)).test()(event)
    assert not EventFilter(until=noon).test()(event)
