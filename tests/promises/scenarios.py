"""
The promises of the specifications as scenarios. Each is written once, for any agent by any way in.

`SCENARIOS` has them by name, in the order of the table. The sentence is what the table says; the ids are those of
docs/requirements.md. `needs` are the abilities in `agent`; `variants` says with which settings a scenario is
played once more (`VARIANTS`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from noclobber import DeliverableLock, schema
from noclobber.errors import DELETED
from tests.conftest import sha256
from tests.promises.agent import LANDED, Agent, Stand, Told
from tests.rigs.schemas import validator

FILE = "plan.md"
V1 = b"one\ntwo\nthree\n"
THEIRS = b"a person's\n"
MINE = b"the agent's\n"
STALE = "STALE_FILE"

Play = Callable[[Stand, Agent], None]


class Scenario(NamedTuple):
    """One promise."""

    name: str
    promise: str
    ids: str
    play: Play
    needs: tuple[str, ...] = ()
    options: str = ""
    variants: tuple[str, ...] = ()


SCENARIOS: dict[str, Scenario] = {}
VARIANTS = {
    "": "",
    "merge": 'on_stale = "merge"\n',
    "coordinator": "",
    "durable": "durable = true\n",
}


def scenario(
    promise: str, ids: str, *, needs: str = "read", options: str = "", variants: str = ""
) -> Callable[[Play], Play]:
    """Enter a scenario into the table."""

    def enter(play: Play) -> Play:
        name = play.__name__
        found = Scenario(name, promise, ids, play, tuple(needs.split()), options, tuple(variants.split()))
        SCENARIOS[name] = found
        return play

    return enter


def stale(stand: Stand, agent: Agent) -> Told:
    """The agent reads, a person saves, the agent writes."""
    agent.read(FILE)
    stand.path(FILE).write_bytes(THEIRS)
    return agent.write(FILE, MINE)


def content(stand: Stand, name: str = FILE) -> bytes:
    """What a file holds."""
    return stand.path(name).read_bytes()


# -- 009: stale or not ---------------------------------------------------------------------------------------


@scenario("A file that nobody changed can be written", "009-US1, 009-SC-002", variants="durable")
def unchanged(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == LANDED
    assert content(stand) == MINE
    assert [event["result"]["status"] for event in stand.events("MUTATION")] == ["APPLIED"]


@scenario("A file that somebody only touched can be written", "009-SC-002")
def touched(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    os.utime(stand.path(FILE), (1_000_000_000, 1_000_000_000))
    assert agent.write(FILE, MINE).code == LANDED
    assert content(stand) == MINE


@scenario(
    "A write over a change that the agent has not seen is refused, and the file stays as it is",
    "009-US1, 009-FR-001, 009-FR-002, 009-FR-003, 009-FR-004, 009-FR-005, 009-FR-008, 009-SC-001, 011-FR-001, "
    "011-FR-002, 011-SC-002",
    variants="merge coordinator durable",
)
def stale_write(stand: Stand, agent: Agent) -> None:
    assert stale(stand, agent).code == STALE
    assert content(stand) == THEIRS


@scenario("The agent gets the 009 object, exactly", "009-FR-006, 009-SC-004, ruling 3, ruling 4")
def agents_object(stand: Stand, agent: Agent) -> None:
    told = stale(stand, agent)
    found = told.for_agent
    if found is None:  # A program's document has the object for controllers.
        assert told.for_controller is not None
        return
    validator("stale-file-agent").validate(found)
    constants = {
        name: rule["const"]
        for name, rule in schema("stale-file-agent")["properties"].items()
        if "const" in rule
    }
    details = {
        "path": str(stand.path(FILE)),
        "baseline_hash": sha256(V1),
        "current_disk_hash": sha256(THEIRS),
    }
    assert found == {**constants, "details": details}


@scenario(
    "A controller gets the 011 object, exactly",
    "011-FR-003, 011-FR-004, 011-FR-006, 011-SC-001, 011-SC-003, ruling 3",
    needs="read controller",
)
def controllers_object(stand: Stand, agent: Agent) -> None:
    found = stale(stand, agent).for_controller
    validator("stale-file-controller").validate(found)
    assert found == {
        "error_type": STALE,
        "file_path": str(stand.path(FILE)),
        "expected_hash": sha256(V1),
        "actual_hash": sha256(THEIRS),
        "resolution": "RE_READ_REQUIRED",
    }


@scenario(
    "A conflict is exactly one event, with path and both hashes",
    "009-FR-009, 011-FR-005, 011-SC-004, R-ledger, ruling 13, ruling 27",
    variants="coordinator",
)
def one_event(stand: Stand, agent: Agent) -> None:
    stale(stand, agent)
    [event] = stand.events()
    assert event["action_type"] == "MUTATION_CONFLICT"
    assert event["result"] == {"status": "DENIED", "error_type": STALE}
    payload = event["payload"]
    assert (payload["target_file"], payload["baseline_hash"], payload["current_hash"]) == (
        FILE,
        f"sha256:{sha256(V1)}",
        f"sha256:{sha256(THEIRS)}",
    )


@scenario("After reading again the agent can write", "009-US2, 009-FR-007")
def recovered(stand: Stand, agent: Agent) -> None:
    assert stale(stand, agent).code == STALE
    agent.read(FILE)
    assert agent.write(FILE, THEIRS + MINE).code == LANDED
    assert content(stand) == THEIRS + MINE


@scenario(
    "A stale edit is refused before any of it is written", "009-FR-004, 011-edge-atomic", needs="read edit"
)
def stale_edit(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    theirs = V1.replace(b"two", b"theirs")
    stand.path(FILE).write_bytes(theirs)
    assert agent.edit(FILE, "three\n", "mine\n").code == STALE
    assert content(stand) == theirs


@scenario("An edit of an unchanged file lands", "009-US1, 009-SC-002", needs="read edit")
def edited(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    assert agent.edit(FILE, "two\n", "2\n").code == LANDED
    assert content(stand) == b"one\n2\nthree\n"


@scenario("An agent's own write is no conflict for its next one", "009-FR-007, ruling 10")
def second_write(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    assert agent.write(FILE, b"first\n").code == LANDED
    assert agent.write(FILE, b"second\n").code == LANDED
    assert content(stand) == b"second\n"
    assert len(stand.events("MUTATION")) == 2


@scenario("What somebody saved after the agent's own write is a conflict", "009-FR-007, ruling 10")
def changed_after_own_write(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    assert agent.write(FILE, b"first\n").code == LANDED
    stand.path(FILE).write_bytes(THEIRS)
    assert agent.write(FILE, b"second\n").code == STALE
    assert content(stand) == THEIRS


@scenario(
    "A file that is gone is stale: `DELETED`, and not created again",
    "009-edge-deleted, 011-edge-deleted, ruling 5",
)
def deleted(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    stand.path(FILE).unlink()
    told = agent.write(FILE, MINE)
    assert told.code == STALE
    assert DELETED in (
        (told.for_controller or {}).get("actual_hash"),
        (told.for_agent or {}).get("details", {}).get("current_disk_hash"),
    )
    assert not stand.path(FILE).exists()


@scenario("A file that was replaced by a folder is stale", "ruling 5", needs="read tools")
def folder_now(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    stand.path(FILE).unlink()
    stand.path(FILE).mkdir()
    assert agent.write(FILE, MINE).code == STALE
    assert stand.path(FILE).is_dir()


@scenario("An agent that found no file can create it", "ruling 5", needs="absence")
def created(stand: Stand, agent: Agent) -> None:
    agent.read("new.md")
    assert agent.write("new.md", MINE).code == LANDED
    assert content(stand, "new.md") == MINE


@scenario(
    "A file that was created since the agent found none is stale: `ABSENT`",
    "ruling 5",
    needs="absence",
    variants="merge",
)
def created_meanwhile(stand: Stand, agent: Agent) -> None:
    agent.read("new.md")
    stand.path("new.md").write_bytes(THEIRS)
    told = agent.write("new.md", MINE)
    assert told.code == STALE
    assert "ABSENT" in (
        (told.for_controller or {}).get("expected_hash"),
        (told.for_agent or {}).get("details", {}).get("baseline_hash"),
    )
    assert content(stand, "new.md") == THEIRS


@scenario(
    "A file that was created meanwhile with equal content is stale", "finding E1, ruling 29", needs="absence"
)
def created_meanwhile_with_equal_content(stand: Stand, agent: Agent) -> None:
    agent.read("new.md")
    stand.path("new.md").write_bytes(MINE)
    assert agent.write("new.md", MINE).code == STALE
    assert len(stand.events("MUTATION_CONFLICT")) == 1


@scenario("A file that was made and removed again is absent", "ruling 5", needs="absence")
def made_and_removed(stand: Stand, agent: Agent) -> None:
    agent.read("new.md")
    stand.path("new.md").write_bytes(THEIRS)
    stand.path("new.md").unlink()
    assert agent.write("new.md", MINE).code == LANDED


@scenario("A file that was changed and changed back has the bytes that the agent saw", "009-SC-002")
def changed_and_back(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    stand.path(FILE).write_bytes(THEIRS)
    stand.path(FILE).write_bytes(V1)
    assert agent.write(FILE, MINE).code == LANDED


@scenario(
    "Equal content is stale: another wrote what the agent wants to write",
    "finding E1, finding E3, ruling 29",
)
def equal_content(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    stand.path(FILE).write_bytes(MINE)
    assert agent.write(FILE, MINE).code == STALE
    assert len(stand.events("MUTATION_CONFLICT")) == 1


@scenario("Writing what is there already is no conflict", "009-SC-002")
def nothing_changed(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    assert agent.write(FILE, V1).code == LANDED
    assert content(stand) == V1
    assert stand.events("MUTATION_CONFLICT") == []


@scenario("Another agent's write makes the first one's stale", "009-SC-001")
def two_agents(stand: Stand, agent: Agent) -> None:
    other = stand.agent("bea")
    agent.read(FILE)
    other.read(FILE)
    assert agent.write(FILE, MINE).code == LANDED
    assert other.write(FILE, THEIRS).code == STALE
    assert content(stand) == MINE
    assert [event["action_type"] for event in stand.events()] == ["MUTATION", "MUTATION_CONFLICT"]


# -- 009: which bytes ---------------------------------------------------------------------------------------


@scenario("Bytes count: line endings", "ruling 8")
def line_endings(stand: Stand, agent: Agent) -> None:
    stand.path(FILE).write_bytes(b"one\r\ntwo\r\n")
    agent.read(FILE)
    stand.path(FILE).write_bytes(b"one\ntwo\n")
    assert agent.write(FILE, MINE).code == STALE
    assert content(stand) == b"one\ntwo\n"


@scenario("Bytes count: files that are not UTF-8", "ruling 8", needs="read raw")
def raw_bytes(stand: Stand, agent: Agent) -> None:
    stand.path(FILE).write_bytes(b"\xff\x00\n")
    agent.read(FILE)
    stand.path(FILE).write_bytes(b"\xfe\x00\n")  # As text with replacement characters it looks the same.
    assert agent.write(FILE, MINE).code == STALE
    assert content(stand) == b"\xfe\x00\n"


@scenario("An empty file has a hash like any other", "010-edge-empty, ruling 8")
def empty_file(stand: Stand, agent: Agent) -> None:
    stand.path(FILE).write_bytes(b"")
    agent.read(FILE)
    stand.path(FILE).write_bytes(b"x")
    assert agent.write(FILE, MINE).code == STALE
    stand.path(FILE).write_bytes(b"")
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == LANDED


@scenario(
    "A folder as the target is refused, and nothing is touched",
    "009-edge-directory, ruling 12",
    needs="folder",
)
def folder_as_target(stand: Stand, agent: Agent) -> None:
    stand.path("folder").mkdir()
    stand.path("folder/inside").write_bytes(V1)
    assert agent.write("folder", MINE).code == "NOT_A_FILE"
    assert content(stand, "folder/inside") == V1


@scenario("A link as the target: the file is checked, and the link stays one", "009-FR-004, ruling 8")
def link_as_target(stand: Stand, agent: Agent) -> None:
    stand.path("link.md").symlink_to(FILE)
    agent.read("link.md")
    stand.path(FILE).write_bytes(THEIRS)
    assert agent.write("link.md", MINE).code == STALE
    agent.read("link.md")
    assert agent.write("link.md", MINE).code == LANDED
    assert stand.path("link.md").is_symlink()
    assert content(stand) == MINE


# -- 009, 011: what was read, and how ---------------------------------------------------------------------------


@scenario("A file that the agent never read is not checked, and its write is on record", "ruling 7", needs="")
def unread(stand: Stand, agent: Agent) -> None:
    assert agent.write(FILE, MINE).code == LANDED
    assert len(stand.events("MUTATION")) == 1


@scenario(
    'With `unread = "deny"` a file that the agent never read is refused',
    "ruling 7",
    needs="options",
    options='unread = "deny"',
)
def unread_denied(stand: Stand, agent: Agent) -> None:
    assert agent.write(FILE, MINE).code == "UNREAD_FILE"
    assert content(stand) == V1
    assert len(stand.events("MUTATION_REFUSED")) == 1


@scenario(
    'With `unread = "deny"` a new file may be created', "ruling 7", needs="options", options='unread = "deny"'
)
def unread_denied_and_new(stand: Stand, agent: Agent) -> None:
    assert agent.write("new.md", MINE).code == LANDED


@scenario("A part that was read counts as read", "ruling 11", needs="part")
def partly_read(stand: Stand, agent: Agent) -> None:
    agent.read(FILE, (1, 2))
    stand.path(FILE).write_bytes(THEIRS)
    assert agent.write(FILE, MINE).code == STALE


@scenario(
    'With `partial = "deny"` a whole file is not replaced by who has read a part of it',
    "ruling 11",
    needs="part options whole",
    options='partial = "deny"',
)
def partly_read_denied(stand: Stand, agent: Agent) -> None:
    agent.read(FILE, (1, 2))
    told = agent.write(FILE, MINE)
    assert told.code == "PARTIAL_READ", told
    assert content(stand) == V1


@scenario("Parts of one version add up", "ruling 11", needs="part options", options='partial = "deny"')
def parts_add_up(stand: Stand, agent: Agent) -> None:
    agent.read(FILE, (1, 2))
    agent.read(FILE, (3, 3))
    assert agent.write(FILE, MINE).code == LANDED


@scenario(
    "An edit is not refused for a partial read",
    "ruling 11",
    needs="part edit tools",
    options='partial = "deny"',
)
def partly_read_edit(stand: Stand, agent: Agent) -> None:
    agent.read(FILE, (1, 2))
    assert agent.edit(FILE, "two\n", "2\n").code == LANDED


@scenario("A part of another version does not make the agent know it", "ruling 2", needs="part")
def two_halves(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    stand.path(FILE).write_bytes(b"one\n2\nthree\n")
    agent.read(FILE, (1, 2))
    assert agent.write(FILE, MINE).code == STALE


@scenario(
    'With `rebaseline = "after-conflict"` the first read counts until a refusal',
    "ruling 2",
    needs="options read turns",
    options='rebaseline = "after-conflict"',
)
def first_read_counts(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    stand.path(FILE).write_bytes(THEIRS)
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == STALE
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == LANDED


@scenario(
    "Where nobody knows which version was shown, the agent must read again",
    "ruling 22, finding E4",
    needs="unsure",
)
def unknown_version(stand: Stand, agent: Agent) -> None:
    agent.read_unsure(FILE, b"neither the old version\nnor the new one\n")
    before = content(stand)
    assert agent.write(FILE, MINE).code == "UNREAD_FILE"
    assert content(stand) == before
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == LANDED


@scenario("A hash that is given beats what was read", "ruling 9, 011-US1", needs="expected read")
def explicit_hash(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    stand.path(FILE).write_bytes(THEIRS)
    agent.read(FILE)
    told = agent.write(FILE, MINE, expected=sha256(V1))
    assert told.code == STALE
    assert content(stand) == THEIRS
    assert agent.write(FILE, MINE, expected=sha256(THEIRS)).code == LANDED


@scenario(
    'With `resubmitted = "deny"` the refused bytes are not written unchanged',
    "ruling 23",
    needs="options read turns tools whole",
    options='resubmitted = "deny"',
)
def resubmitted(stand: Stand, agent: Agent) -> None:
    assert stale(stand, agent).code == STALE
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == "STALE_RESUBMITTED"
    assert content(stand) == THEIRS


@scenario("After a re-read the bytes that were refused may be written", "ruling 23", needs="read tools")
def submitted_again(stand: Stand, agent: Agent) -> None:
    assert stale(stand, agent).code == STALE
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == LANDED


# -- 010: the snapshot of a turn ----------------------------------------------------------------------------------


@scenario(
    "The first hash of a turn stays, whatever happens to the file",
    "010-FR-001, 010-FR-002, 010-FR-003, 010-FR-004, 010-FR-006, 010-SC-001, 010-SC-002, ruling 1",
    needs="initial",
)
def initial_hash(stand: Stand, agent: Agent) -> None:
    assert agent.initial_hash(FILE) is None
    agent.read(FILE)
    assert agent.initial_hash(FILE) == sha256(V1)
    stand.path(FILE).write_bytes(THEIRS)
    assert agent.initial_hash(FILE) == sha256(V1)
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == LANDED
    assert agent.initial_hash(FILE) == sha256(V1)
    stand.path(FILE).unlink()
    assert agent.initial_hash(FILE) == sha256(V1)
    assert agent.initial_hash(str(stand.path(FILE))) == sha256(V1)


@scenario(
    "A file that cannot be read ends nothing, and has no hash",
    "010-edge-unreadable, ruling 6",
    needs="initial",
)
def unreadable(stand: Stand, agent: Agent) -> None:
    stand.path("folder").mkdir()
    agent.read("folder")
    assert agent.initial_hash("folder") is None
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == LANDED


@scenario(
    "What one turn read does not count in the next one, nor for another agent",
    "010-US3, 010-FR-005, 010-SC-003, R-turn, ruling 14",
    needs="read turns",
)
def turns_are_apart(stand: Stand, agent: Agent) -> None:
    other = stand.agent("bea")
    agent.read(FILE)
    stand.path(FILE).write_bytes(b"second\n")
    assert other.write(FILE, b"third\n").code == LANDED
    agent.new_turn()
    assert agent.write(FILE, MINE).code == LANDED
    agent.new_turn()
    agent.read(FILE)
    assert agent.write(FILE, THEIRS).code == LANDED


# -- what is refused whoever asks ---------------------------------------------------------------------------------


@scenario("If the refusal cannot be recorded, nothing is written either", "ruling 13", needs="")
def no_ledger(stand: Stand, agent: Agent) -> None:
    stand.path(".noclobber/agent_trace.jsonl").mkdir(parents=True)
    try:
        told = agent.write(FILE, MINE)
    finally:
        stand.path(".noclobber/agent_trace.jsonl").rmdir()
    assert told.code == "LEDGER_FAILED"
    assert content(stand) == V1


@scenario("Outside of `write_scope` nothing is written", "K-WRITE-1", options='write_scope = ["docs"]')
def outside_the_scope(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    assert agent.write(FILE, MINE).code == "OUTSIDE_SCOPE"
    assert agent.write("docs/new.md", MINE).code == LANDED


@scenario("The guard's own options are not written by an agent", "finding S8", needs="")
def own_switches(stand: Stand, agent: Agent) -> None:
    before = content(stand, "noclobber.toml")
    assert agent.write("noclobber.toml", MINE).code == "RESERVED_FILE"
    assert content(stand, "noclobber.toml") == before


@scenario(
    "What the project has reserved is not written by an agent",
    "finding S8",
    needs="",
    options='reserved = ["docs"]',
)
def reserved_by_the_project(stand: Stand, agent: Agent) -> None:
    assert agent.write("docs/new.md", MINE).code == "RESERVED_FILE"


@scenario(
    "A deliverable that somebody else has locked is not written",
    "REQ-LOCK-007",
    needs="",
    variants="coordinator",
)
def locked_by_another(stand: Stand, agent: Agent) -> None:
    stand.path("deliverable").mkdir()
    with DeliverableLock(stand.path("deliverable"), holder="somebody else"):
        assert agent.write("deliverable/new.md", MINE).code == "LOCK_CONTENTION"
    assert not stand.path("deliverable/new.md").exists()
