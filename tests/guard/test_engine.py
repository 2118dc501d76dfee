"""The gateway: what it lets through, what it records, and what it believes of others."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber import Turn
from noclobber.core.values import Edit, ToolCall
from noclobber.errors import (
    BadRequestError,
    EditMismatchError,
    LedgerError,
    NoclobberError,
    PartialReadError,
    StaleFileError,
    StorageError,
    UnknownToolError,
    UnreadFileError,
)
from noclobber.guard import engine, requests
from noclobber.guard.catalogue import Tool
from noclobber.guard.workspace import Workspace
from tests.conftest import sha256
from tests.rigs.driven import each_twin  # noqa: F401 - every test runs over both twins
from tests.rigs.ledgers import recorded


@pytest.fixture
def ws(root: Path) -> Iterator[Workspace]:
    (root / "a.md").write_bytes(b"v1\n")
    with Workspace(root) as workspace:
        yield workspace


@pytest.fixture
def turn(ws: Workspace) -> Iterator[Turn]:
    with ws.turn(
        agent_id="builder", session_id="s1", turn_id="t1", host="test-host", intent_id="INT-7"
    ) as turn:
        yield turn


def events(ws: Workspace) -> list[dict[str, Any]]:
    return recorded(ws.ledger.path)


def make_stale(root: Path, turn: Turn) -> None:
    turn.read_file("a.md")
    (root / "a.md").write_bytes(b"theirs\n")


# -- the record --------------------------------------------------------------------------------------


def test_a_conflict_is_recorded_once_word_for_word(root: Path, ws: Workspace, turn: Turn) -> None:
    """R-ledger, 009-FR-009, 011-FR-005, 011-SC-004: the research page's object, and who asked."""
    make_stale(root, turn)
    with pytest.raises(StaleFileError):
        turn.call("write_to_file", {"path": "a.md", "content": "x"}, call_id="c9")
    [event] = events(ws)
    assert event["action_type"] == "MUTATION_CONFLICT"
    assert event["payload"] == {
        "tool_name": "write_to_file",
        "target_file": "a.md",
        "baseline_hash": f"sha256:{sha256(b'v1' + bytes([10]))}",
        "current_hash": f"sha256:{sha256(b'theirs' + bytes([10]))}",
    }
    assert event["result"] == {"status": "DENIED", "error_type": "STALE_FILE"}
    assert event["identity"] == {
        "agent_id": "builder",
        "session_id": "s1",
        "turn_id": "t1",
        "call_id": "c9",
        "host": "test-host",
        "intent_id": "INT-7",
    }


WRITES = {
    "write": lambda turn: turn.write_file("a.md", b"x"),
    "edit": lambda turn: turn.edit_file("a.md", [Edit("v1", "x")]),
    "many": lambda turn: turn.write_files({"a.md": b"x", "b.md": b"y"}),
    "delete": lambda turn: turn.delete_file("a.md"),
    "move": lambda turn: turn.move_file("a.md", "b.md"),
    "apply_diff": lambda turn: turn.call(
        "apply_diff",
        {"path": "a.md", "diff": "<<<<<<< SEARCH\nv1\n=======\nx\n>>>>>>> REPLACE"},
    ),
    "insert_content": lambda turn: turn.call("insert_content", {"path": "a.md", "line": 1, "content": "x"}),
    "search_and_replace": lambda turn: turn.call(
        "search_and_replace", {"path": "a.md", "search": "v1", "replace": "x"}
    ),
}


@pytest.mark.parametrize("kind", WRITES)
def test_every_kind_of_write_is_checked_and_recorded_once(
    root: Path, ws: Workspace, turn: Turn, kind: str
) -> None:
    """009-FR-003, 009-FR-008, 009-FR-009, 011-SC-004: one event for each refused write."""
    make_stale(root, turn)
    with pytest.raises(StaleFileError):
        WRITES[kind](turn)
    assert [event["action_type"] for event in events(ws)] == ["MUTATION_CONFLICT"]
    assert (root / "a.md").read_bytes() == b"theirs\n"
    assert not (root / "b.md").exists()


@pytest.mark.parametrize("kind", WRITES)
def test_every_landed_write_is_recorded_once_a_file(root: Path, ws: Workspace, turn: Turn, kind: str) -> None:
    """N-events: hashes before and after, and the level."""
    turn.read_file("a.md")
    WRITES[kind](turn)
    found = events(ws)
    assert [event["action_type"] for event in found] == ["MUTATION"] * (2 if kind == "many" else 1)
    payload = found[0]["payload"]
    assert payload["target_file"] == "a.md"
    assert payload["before_hash"] == f"sha256:{sha256(b'v1' + bytes([10]))}"
    if kind == "delete":
        assert payload["after_hash"] == "DELETED"
    elif kind == "move":
        assert payload["destination"] == "b.md"
        assert payload["after_hash"] == payload["before_hash"]
    else:
        assert payload["after_hash"] == f"sha256:{sha256((root / 'a.md').read_bytes())}"
    assert payload["level"] in ("lease+exchange", "lease+inplace", "exchange", "plain", "create")
    assert found[0]["result"] == {"status": "APPLIED"}


@pytest.mark.parametrize(
    ("use", "code"),
    [
        (lambda turn: turn.edit_file("a.md", [Edit("z", "x")]), "EDIT_MISMATCH"),
        (lambda turn: turn.write_file("../out.md", b"x"), "OUTSIDE_WORKSPACE"),
        (lambda turn: turn.write_file("\udcff", b"x"), "BAD_PATH"),
        (lambda turn: turn.write_file("a.md", 7), "BAD_REQUEST"),
        (lambda turn: turn.call("write_file", {}), "BAD_REQUEST"),
        (lambda turn: turn.call("execute_command", {"command": "rm"}), "UNKNOWN_TOOL"),
        (lambda turn: turn.delete_file("missing.md"), "FILE_NOT_FOUND"),
        (lambda turn: turn.write_file(".lock", b"x"), "RESERVED_FILE"),
    ],
)
def test_other_refused_writes_are_recorded_once_too(
    ws: Workspace, turn: Turn, use: Callable[..., Any], code: str
) -> None:
    """N-events: as refusals of their own, not as conflicts."""
    with pytest.raises(NoclobberError) as refused:
        use(turn)
    assert refused.value.code == code
    [event] = events(ws)
    assert event["action_type"] == "MUTATION_REFUSED"
    assert event["result"] == {"status": "DENIED", "error_type": code}


def test_refused_reads_are_not_on_record(ws: Workspace, turn: Turn) -> None:
    """011-FR-005 is about writes."""
    for path in ("missing.md", "../out", ".lock"):
        with pytest.raises(NoclobberError):
            turn.read_file(path)
    with pytest.raises(NoclobberError):
        turn.call("read_file", {})
    assert events(ws) == []


def test_the_record_holds_no_content(root: Path, ws: Workspace, turn: Turn) -> None:
    """DESIGN: hashes and paths, never file content."""
    turn.read_file("a.md")
    turn.write_file("a.md", b"top secret")
    with pytest.raises(EditMismatchError):
        turn.edit_file("a.md", [Edit("hidden", "top secret")])
    with open(ws.ledger.path) as ledger:
        text = ledger.read()
    assert "secret" not in text
    assert "hidden" not in text


KILLED = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.guard.workspace import Workspace
turn = Workspace(sys.argv[1]).turn()
turn.read_file("a.md")
steps.observer = lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == "exchanged" else None
turn.write_file("a.md", b"never recorded")
"""


@pytest.mark.parametrize("first_use", ["read", "write"])
def test_what_a_killed_process_had_begun_is_on_record_when_it_is_found(
    root: Path, ws: Workspace, turn: Turn, first_use: str
) -> None:
    """N-events: its own event was never written."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(root)], check=False)
    assert killed.returncode == -9
    if first_use == "read":
        turn.read_file("a.md")
    else:
        turn.write_file("a.md", b"x")
    found = [event for event in events(ws) if event["action_type"] == "COMMIT_RECOVERED"]
    assert [event["payload"]["target_file"] for event in found] == ["a.md"]
    assert found[0]["payload"]["outcome"] in ("landed", "restored")


def test_versions_kept_aside_are_on_record_at_the_end_of_the_turn(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN: reported and kept, not lost."""
    with ws.turn() as turn:
        turn.write_file("a.md", b"x")
        monkeypatch.setattr(turn.guard, "sweep", lambda: ["/ws/.noclobber/kept/kept-1~a.md"])
    assert turn.kept == ["/ws/.noclobber/kept/kept-1~a.md"]
    last = events(ws)[-1]
    assert (last["action_type"], last["payload"]) == ("VERSION_KEPT", {"kept": turn.kept})


def test_a_link_changed_between_the_judgement_and_the_read_is_judged_again(
    root: Path, ws: Workspace, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REQ-LOCK-010: no lock file through a link that was swapped in."""
    (root / ".lock").write_bytes(b"{}")
    (root / "link").symlink_to("a.md")
    read = turn.guard.read

    def swap_then_read(path: str) -> Any:
        (root / "link").unlink()
        (root / "link").symlink_to(".lock")
        return read(path)

    monkeypatch.setattr(turn.guard, "read", swap_then_read)
    with pytest.raises(NoclobberError) as refused:
        turn.read_file("link")
    assert refused.value.code == "RESERVED_FILE"


# -- a broken ledger -----------------------------------------------------------------------------------


def break_ledger(ws: Workspace) -> None:
    os.makedirs(ws.ledger.path)


def test_a_conflict_is_refused_even_if_it_cannot_be_recorded(root: Path, ws: Workspace, turn: Turn) -> None:
    """Ruling 13: and the ledger's failure is reported too."""
    make_stale(root, turn)
    break_ledger(ws)
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("a.md", b"x")
    assert isinstance(getattr(refused.value, "ledger_error", None), LedgerError)
    assert any("not on record" in note for note in refused.value.__notes__)
    assert set(refused.value.to_controller()) == {
        "error_type", "file_path", "expected_hash", "actual_hash", "resolution",
    }  # fmt: skip
    assert (root / "a.md").read_bytes() == b"theirs\n"


@pytest.mark.parametrize("kind", WRITES)
def test_a_broken_ledger_lets_no_write_through(root: Path, ws: Workspace, turn: Turn, kind: str) -> None:
    """Ruling 13: no write without a record."""
    turn.read_file("a.md")
    break_ledger(ws)
    with pytest.raises(LedgerError):
        WRITES[kind](turn)
    assert (root / "a.md").read_bytes() == b"v1\n"
    assert not (root / "b.md").exists()


def test_reads_need_no_ledger(ws: Workspace, turn: Turn) -> None:
    """Ruling 13 is about writes."""
    break_ledger(ws)
    assert turn.read_file("a.md").content == b"v1\n"


def test_a_ledger_that_fails_after_the_write_is_reported_with_what_landed(
    root: Path, ws: Workspace, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 13: no silent loss; and the turn knows that its bytes are there."""
    turn.read_file("a.md")
    append = ws.ledger.append

    def full(event: Any) -> None:
        raise LedgerError(ws.ledger.path, "disk full")

    monkeypatch.setattr(ws.ledger, "append", full)
    with pytest.raises(LedgerError, match="landed") as failed:
        turn.write_file("a.md", b"v2")
    assert failed.value.details["landed"] == sha256(b"v2")
    assert (root / "a.md").read_bytes() == b"v2"
    monkeypatch.setattr(ws.ledger, "append", append)
    turn.write_file("a.md", b"v3")
    assert (root / "a.md").read_bytes() == b"v3"


@pytest.mark.parametrize("kind", WRITES)
def test_a_write_that_the_disk_would_not_flush_is_on_record_as_landed(
    root: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """N-durable, R-ledger: the caller hears of the flush; but nothing was refused, and the turn knows that."""
    (root / "a.md").write_bytes(b"v1\n")
    real = os.fsync

    def fail_for_folders(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), os.stat(root)):
            raise OSError(5, "I/O error")
        real(descriptor)

    with Workspace(root, durable=True) as ws, ws.turn(agent_id="builder") as turn:
        turn.read_file("a.md")
        monkeypatch.setattr(os, "fsync", fail_for_folders)
        with pytest.raises(StorageError, match="the file was changed") as told:
            WRITES[kind](turn)
        monkeypatch.setattr(os, "fsync", real)
        found = events(ws)
        assert [event["action_type"] for event in found] == ["MUTATION"] * (2 if kind == "many" else 1)
        payload, now = found[0]["payload"], root / ("b.md" if kind == "move" else "a.md")
        assert payload["flushed"] == "no"
        assert payload.get("destination") == ("b.md" if kind == "move" else None)
        if kind == "delete":
            assert not now.exists()
            assert payload["after_hash"] == told.value.details["landed"] == "DELETED"
            return
        assert payload["after_hash"] == f"sha256:{sha256(now.read_bytes())}"
        assert told.value.details["landed"] == sha256(now.read_bytes())
        turn.write_file(now, b"next")
        assert now.read_bytes() == b"next"


def folder_that_cannot_be_flushed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fail_for_the_root(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), os.stat(root)):
            raise OSError(5, "I/O error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_the_root)


@pytest.mark.parametrize("lines", [None, (1, 5)])
def test_an_edit_that_could_not_be_flushed_is_not_as_good_as_a_read(
    root: Path, monkeypatch: pytest.MonkeyPatch, lines: tuple[int, int] | None
) -> None:
    """N-durable, PARTIAL_READ: who had not seen it all still has not."""
    (root / "a.md").write_bytes(b"".join(b"line %d\n" % number for number in range(1, 21)))
    with Workspace(root, durable=True, partial="deny") as ws, ws.turn(agent_id="builder") as turn:
        if lines:
            turn.read_file("a.md", start_line=lines[0], end_line=lines[1])
        edits = [Edit("line 1\nline 2\nline 3\n", ""), Edit("line 20\n", "line 20\nx\ny\nz\n")]
        with monkeypatch.context() as patch:
            folder_that_cannot_be_flushed(root, patch)
            with pytest.raises(StorageError):
                turn.edit_file("a.md", edits)
        if lines:
            turn.read_file("a.md", start_line=6)
        with pytest.raises(PartialReadError):
            turn.write_file("a.md", b"x")


def test_every_file_of_an_unflushed_write_is_known_before_the_ledger_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 13, N-durable: two failures at once, and the turn knows its own bytes all the same."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(b"v1")
    with Workspace(root, durable=True) as ws, ws.turn(agent_id="builder") as turn:
        turn.read_file("a.md")
        turn.read_file("b.md")

        def full(event: Any) -> None:
            raise LedgerError(ws.ledger.path, "disk full")

        with monkeypatch.context() as patch:
            folder_that_cannot_be_flushed(root, patch)
            patch.setattr(ws.ledger, "append", full)
            with pytest.raises(LedgerError, match="landed"):
                turn.write_files({"a.md": b"v2", "b.md": b"v2"})
        turn.write_file("a.md", b"v3")
        turn.write_file("b.md", b"v3")


def test_a_state_folder_that_was_cleaned_away_is_made_again(root: Path, ws: Workspace, turn: Turn) -> None:
    """N-clean: `git clean -fdx` in the middle of a turn."""
    import shutil

    turn.write_file("a.md", b"v2")
    shutil.rmtree(root / ".noclobber")
    turn.write_file("a.md", b"v3")
    assert events(ws)[-1]["action_type"] == "MUTATION"


# -- hooks around a foreign executor ---------------------------------------------------------------------


def call(turn: Turn, tool: str, **params: Any) -> Any:
    return turn.tool_call(tool, params)


def test_pre_tool_use_refuses_a_stale_write_before_it_runs(root: Path, ws: Workspace, turn: Turn) -> None:
    """R-hook, 009-FR-008: the decision carries the error, and it is on record once."""
    make_stale(root, turn)
    decision = ws.engine.pre_tool_use(call(turn, "write_to_file", path="a.md", content="x"))
    assert not decision.allowed
    assert isinstance(decision.error, StaleFileError)
    assert [event["action_type"] for event in events(ws)] == ["MUTATION_CONFLICT"]


def test_pre_tool_use_lets_reads_and_good_writes_through_without_a_record(ws: Workspace, turn: Turn) -> None:
    """R-hook: nothing has happened yet."""
    assert ws.engine.pre_tool_use(call(turn, "read_file", path="a.md")).allowed
    assert ws.engine.pre_tool_use(call(turn, "write_to_file", path="a.md", content="x")).allowed
    assert ws.engine.pre_tool_use(call(turn, "list_files")).allowed
    assert events(ws) == []


@pytest.mark.parametrize(
    "shown",
    [b"v1\r\nv2\r\n", "v1\nv2\n", "1\tv1\n2\tv2", "v1\nv2", {"text": "v1"}, object(), None, 7],
    ids=["bytes", "folded", "numbered", "stripped", "mapping", "object", "none", "number"],
)
@pytest.mark.parametrize("style", ["execute", "pre and post"])
def test_a_foreign_read_counts_whatever_it_returns_if_the_file_did_not_change(
    root: Path, ws: Workspace, turn: Turn, shown: Any, style: str
) -> None:
    """Ruling 22, finding D1: the hash before and after says what was seen, not what the executor made of it."""
    (root / "a.md").write_bytes(b"v1\r\nv2\r\n")
    read = call(turn, "read_file", path="a.md")
    if style == "execute":
        assert ws.engine.execute(read, lambda _: shown) is shown
    else:
        assert ws.engine.pre_tool_use(read).allowed
        assert ws.engine.post_tool_use(read, shown) is None
    assert turn.get_initial_hash("a.md") == sha256(b"v1\r\nv2\r\n")
    turn.write_file("a.md", b"mine")

    ws.engine.execute(read, lambda _: shown)
    (root / "a.md").write_bytes(b"theirs")
    with pytest.raises(StaleFileError):
        turn.write_file("a.md", b"mine again")
    assert (root / "a.md").read_bytes() == b"theirs"


def test_a_foreign_read_of_some_lines_counts_as_those_lines(root: Path, ws: Workspace) -> None:
    """Ruling 22, ruling 11: parts at one hash add up."""
    (root / "a.md").write_bytes(b"1\n2\n3\n")
    with ws.turn(partial="deny") as turn:
        ws.engine.execute(call(turn, "read_file", path="a.md", start_line=1, end_line=2), lambda _: "1, 2")
        with pytest.raises(PartialReadError):
            turn.write_file("a.md", b"x")
        ws.engine.execute(call(turn, "read_file", path="a.md", start_line=3), lambda _: "3")
        turn.write_file("a.md", b"x")


@pytest.mark.parametrize("changed", ["during", "after"])
def test_what_a_foreign_read_returned_counts_if_it_is_what_is_there_now(
    root: Path, ws: Workspace, turn: Turn, changed: str
) -> None:
    """Ruling 22: the file changed meanwhile, and the executor read the new version, or the old one."""

    def executor(call: ToolCall) -> bytes:
        path = root / str(call.params["path"])
        before = path.read_bytes()
        path.write_bytes(b"changed\n")
        return path.read_bytes() if changed == "during" else before

    ws.engine.execute(call(turn, "read_file", path="a.md"), executor)
    if changed == "during":
        turn.write_file("a.md", b"x")
        return
    with pytest.raises(UnreadFileError):  # Seen at an unknown version: nothing is forgotten silently.
        turn.write_file("a.md", b"x")
    assert (root / "a.md").read_bytes() == b"changed\n"
    turn.read_file("a.md")
    turn.write_file("a.md", b"x")


@pytest.mark.parametrize("result", [b"v1\n", "v1\n", {"content": "v1\n"}])
def test_foreign_reads_may_return_bytes_text_or_a_mapping(
    ws: Workspace, turn: Turn, result: bytes | dict[str, Any] | str
) -> None:
    """R-baseline, ruling 22: also if nobody asked before."""
    ws.engine.post_tool_use(call(turn, "read_file", path="a.md"), result)
    assert turn.get_initial_hash("a.md") == sha256(b"v1\n")


@pytest.mark.parametrize("result", [None, {"ok": True}, 7, "v1"])
def test_a_foreign_read_that_proves_nothing_must_be_repeated_before_a_write(
    ws: Workspace, turn: Turn, result: dict[str, Any] | int | str | None
) -> None:
    """Ruling 22: nobody asked before, and what was returned is not the file; never not remembered."""
    ws.engine.post_tool_use(call(turn, "read_file", path="a.md"), result)
    assert turn.get_initial_hash("a.md") is None
    with pytest.raises(UnreadFileError):
        turn.write_file("a.md", b"x")


def test_one_call_leaves_one_event(root: Path, ws: Workspace, turn: Turn) -> None:
    """finding D9: judged by `pre_tool_use`, then carried out or refused by `execute`, then told."""
    make_stale(root, turn)
    refused = call(turn, "write_to_file", path="a.md", content="x")
    assert not ws.engine.pre_tool_use(refused).allowed
    with pytest.raises(StaleFileError):
        ws.engine.execute(refused)
    assert [event["action_type"] for event in events(ws)] == ["MUTATION_CONFLICT"]

    turn.read_file("a.md")
    good = call(turn, "write_to_file", path="a.md", content="x")
    assert ws.engine.pre_tool_use(good).allowed
    result = ws.engine.execute(good)
    assert ws.engine.post_tool_use(good, result) is None
    assert [event["action_type"] for event in events(ws)] == ["MUTATION_CONFLICT", "MUTATION"]
    with ws.turn(agent_id="another") as other:  # The claim has ended with the call.
        other.write_file("a.md", b"y")


def test_two_calls_without_a_name_are_two_conflicts(root: Path, ws: Workspace, turn: Turn) -> None:
    """011-SC-004, finding D9: only a call id says that two calls are one."""
    make_stale(root, turn)
    for _ in range(2):
        unnamed = call(turn, "write_to_file", path="a.md", content="x")._replace(call_id=None)
        assert not ws.engine.pre_tool_use(unnamed).allowed
    assert [event["action_type"] for event in events(ws)] == ["MUTATION_CONFLICT"] * 2


def test_a_write_that_an_outsider_got_mixed_up_with_is_told(root: Path, ws: Workspace, turn: Turn) -> None:
    """009-SC-001: the executor is not ours, so it can happen; but not unnoticed."""
    turn.read_file("a.md")
    write = call(turn, "write_to_file", path="a.md", content="x")
    assert ws.engine.pre_tool_use(write).allowed
    (root / "a.md").write_bytes(b"theirs")
    told = ws.engine.post_tool_use(write, "ok")
    assert isinstance(told, StaleFileError)
    assert (told.expected, told.actual) == (sha256(b"x"), sha256(b"theirs"))
    assert [event["action_type"] for event in events(ws)] == ["MUTATION_RACE"]
    with pytest.raises(UnreadFileError):
        turn.write_file("a.md", b"y")


def test_a_foreign_read_that_failed_is_a_failed_read(root: Path, ws: Workspace, turn: Turn) -> None:
    """Ruling 5, ruling 6."""

    def missing(call: ToolCall) -> None:
        raise FileNotFoundError(call.params["path"])

    with pytest.raises(FileNotFoundError):
        ws.engine.execute(call(turn, "read_file", path="new.md"), missing)
    (root / "new.md").write_bytes(b"theirs")
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("new.md", b"x")
    assert refused.value.expected == "ABSENT"
    ws.engine.post_tool_use(call(turn, "read_file", path="a.md"), PermissionError())
    assert turn.context.error_for(str(root / "a.md"), str(root / "a.md")) == "PermissionError"


def write_plainly(root: Path) -> Callable[[ToolCall], str]:
    def executor(call: ToolCall) -> Any:
        path = root / call.params["path"]
        if "content" in call.params:
            path.write_text(call.params["content"])
        else:
            path.write_text(path.read_text().replace("v1", "v2"))
        return "ok"

    return executor


def test_the_baseline_of_a_foreign_write_is_what_it_wrote(root: Path, ws: Workspace, turn: Turn) -> None:
    """Ruling 10, R-baseline: and it is on record, with a level that promises nothing."""
    turn.read_file("a.md")
    ws.engine.execute(call(turn, "write_to_file", path="a.md", content="x"), write_plainly(root))
    [event] = events(ws)
    assert event["payload"]["level"] == "executor"
    assert event["payload"]["after_hash"] == f"sha256:{sha256(b'x')}"
    turn.write_file("a.md", b"y")
    (root / "a.md").write_bytes(b"theirs")
    with pytest.raises(StaleFileError):
        ws.engine.execute(call(turn, "write_to_file", path="a.md", content="z"), write_plainly(root))
    assert (root / "a.md").read_bytes() == b"theirs"


def test_the_outcome_of_a_foreign_edit_is_told_from_what_was_seen(
    root: Path, ws: Workspace, turn: Turn
) -> None:
    """Ruling 10: two edits in a row, without a look in between."""
    turn.read_file("a.md")
    edit = call(turn, "search_and_replace", path="a.md", search="v1", replace="v2")
    ws.engine.execute(edit, write_plainly(root))
    turn.edit_file("a.md", [Edit("v2", "v3")])
    assert (root / "a.md").read_bytes() == b"v3\n"


def test_after_a_foreign_edit_that_cannot_be_told_the_agent_must_read_again(
    root: Path, ws: Workspace, turn: Turn
) -> None:
    """Ruling 10: never a guess, never unchecked."""
    turn.read_file("a.md")
    edit = call(turn, "search_and_replace", path="a.md", search="not in the file", replace="v2")
    ws.engine.execute(edit, write_plainly(root))
    with pytest.raises(UnreadFileError):
        turn.write_file("a.md", b"x")
    assert events(ws)[0]["payload"]["after_hash"] == f"sha256:{sha256((root / 'a.md').read_bytes())}"


def test_foreign_deletes_and_moves_leave_nothing_behind(root: Path, ws: Workspace, turn: Turn) -> None:
    """Ruling 10: gone is what the agent knows."""
    turn.read_file("a.md")
    ws.engine.execute(call(turn, "delete_file", path="a.md"), lambda call: (root / "a.md").unlink())
    (root / "a.md").write_bytes(b"theirs")
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("a.md", b"x")
    assert refused.value.expected == "ABSENT"


def test_a_foreign_executor_that_fails_is_on_record_and_moves_nothing(
    root: Path, ws: Workspace, turn: Turn
) -> None:
    """N-events: it was let through, and nobody knows how far it came."""
    turn.read_file("a.md")

    def fails(call: ToolCall) -> None:
        (root / "a.md").write_bytes(b"half")
        raise OSError("boom")

    with pytest.raises(OSError, match="boom"):
        ws.engine.execute(call(turn, "write_to_file", path="a.md", content="x"), fails)
    assert [event["action_type"] for event in events(ws)] == ["MUTATION_FAILED"]
    with pytest.raises(StaleFileError):
        turn.write_file("a.md", b"x")


def test_an_unknown_tool_never_runs(root: Path, ws: Workspace, turn: Turn) -> None:
    """N-tools: nobody knows what it writes."""
    ran: list[Any] = []
    with pytest.raises(UnknownToolError):
        ws.engine.execute(call(turn, "execute_command", command="rm -r ."), ran.append)
    assert ran == []
    assert [event["result"]["error_type"] for event in events(ws)] == ["UNKNOWN_TOOL"]
    assert not ws.engine.pre_tool_use(call(turn, "execute_command", command="x")).allowed


def test_a_registered_tool_is_judged_like_any_other(root: Path, ws: Workspace, turn: Turn) -> None:
    """N-tools: tools are data."""
    ws.catalogue.register(Tool("save_note", "write", path=("note",), content="body"))
    make_stale(root, turn)
    with pytest.raises(StaleFileError):
        turn.call("save_note", {"note": "a.md", "body": "x"})
    turn.read_file("a.md")
    turn.call("save_note", {"note": "a.md", "body": "x"})
    assert (root / "a.md").read_bytes() == b"x"
    with Workspace(root) as other, other.turn() as theirs, pytest.raises(UnknownToolError):
        theirs.call("save_note", {"note": "a.md", "body": "x"})


def test_harmless_tools_pass_and_have_no_executor_here(ws: Workspace, turn: Turn) -> None:
    """N-tools."""
    assert ws.engine.execute(call(turn, "list_files"), lambda call: ["a.md"]) == ["a.md"]
    with pytest.raises(UnknownToolError):
        turn.call("list_files", {})
    assert events(ws) == []


# -- which turn --------------------------------------------------------------------------------------------


def test_a_call_finds_its_turn_by_id_or_by_its_agent(ws: Workspace) -> None:
    """R-turn: a host may not know our ids."""
    with ws.turn(agent_id="one") as one, ws.turn(agent_id="two", session_id="s") as two:
        read = {"path": "a.md"}
        ws.engine.execute(ToolCall("read_file", read, agent_id="one"))
        assert one.get_initial_hash("a.md") is not None
        assert two.get_initial_hash("a.md") is None
        for wrong in (
            ToolCall("read_file", read, agent_id="two"),
            ToolCall("read_file", read, agent_id="three"),
            ToolCall("read_file", read, turn_id="made up"),
        ):
            with pytest.raises(NoclobberError) as refused:
                ws.engine.execute(wrong)
            assert refused.value.code == "TURN_CLOSED"
        with ws.turn(agent_id="one"), pytest.raises(NoclobberError, match="several"):
            ws.engine.execute(ToolCall("read_file", read, agent_id="one"))


def test_the_errors_objects_are_what_an_agent_and_a_controller_get(
    root: Path, ws: Workspace, turn: Turn
) -> None:
    """011-FR-003, 011-FR-004, 009-FR-006: raised as they are, nothing wrapped around."""
    make_stale(root, turn)
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("a.md", b"x")
    assert refused.value.to_controller() == {
        "error_type": "STALE_FILE",
        "file_path": str(root / "a.md"),
        "expected_hash": turn.get_initial_hash("a.md"),
        "actual_hash": sha256(b"theirs\n"),
        "resolution": "RE_READ_REQUIRED",
    }
    json.dumps(refused.value.to_agent())


def test_the_ledger_is_never_opened_through_a_fifo(root: Path, ws: Workspace, turn: Turn) -> None:
    """N-input: nothing may block."""
    os.makedirs(ws.state_folder)
    os.mkfifo(ws.ledger.path)
    assert stat.S_ISFIFO(os.stat(ws.ledger.path).st_mode)
    with pytest.raises(LedgerError):
        turn.write_file("a.md", b"x")


def test_a_race_that_was_found_after_an_executor_reaches_its_caller(
    root: Path, ws: Workspace, turn: Turn
) -> None:
    """009-SC-001: a result that says "ok" while something else is on the disk would be a silent loss."""
    turn.read_file("a.md")

    def executor(call: ToolCall) -> str:
        (root / "a.md").write_bytes(b"x")
        (root / "a.md").write_bytes(b"theirs")
        return "ok"

    with pytest.raises(StaleFileError):
        ws.engine.execute(call(turn, "write_to_file", path="a.md", content="x"), executor)
    assert [event["action_type"] for event in events(ws)] == ["MUTATION_RACE"]


# -- several kinds of changes in one set --------------------------------------------------------------


def test_a_set_of_writes_edits_and_deletions_lands_together(ws: Workspace, turn: Turn, root: Path) -> None:
    """Finding C10: one commit, also where files go."""
    (root / "b.md").write_bytes(b"one\ntwo\n")
    turn.read_file("b.md")
    actions = [
        requests.delete("a.md"),  # Not read: what is there at the commit goes.
        requests.edit("b.md", requests.edits([Edit("two", "2")])),
        requests.write("c.md", "new\n"),
    ]
    results = engine.change(turn, turn.tool_call("patch"), actions)
    assert [done.path for done in results] == [str(root / name) for name in ("a.md", "b.md", "c.md")]
    assert not (root / "a.md").exists()
    assert ((root / "b.md").read_bytes(), (root / "c.md").read_bytes()) == (b"one\n2\n", b"new\n")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((root / "c.md").stat().st_mode) == 0o666 & ~umask
    turn.write_file("c.md", "newer\n")  # Its own version is known.
    assert [event["action_type"] for event in events(ws)] == ["MUTATION"] * 4


@pytest.mark.parametrize("stale", ["a.md", "b.md"])
def test_of_a_set_with_a_stale_file_nothing_lands(ws: Workspace, turn: Turn, root: Path, stale: str) -> None:
    """Finding C10: whichever of its files is stale, the one that goes or the one that is written."""
    (root / "b.md").write_bytes(b"one\n")
    turn.read_file("a.md")
    turn.read_file("b.md")
    (root / stale).write_bytes(b"theirs\n")
    before = {name: (root / name).read_bytes() for name in ("a.md", "b.md")}
    actions = [requests.write("b.md", "mine\n"), requests.write("c.md", "new\n"), requests.delete("a.md")]
    with pytest.raises(StaleFileError) as refused:
        engine.change(turn, turn.tool_call("patch"), actions)
    assert refused.value.path == str(root / stale)
    assert {name: (root / name).read_bytes() for name in ("a.md", "b.md")} == before
    assert not (root / "c.md").exists()
    assert [event["action_type"] for event in events(ws)] == ["MUTATION_CONFLICT"]


def test_two_changes_of_one_path_are_refused(turn: Turn, root: Path) -> None:
    """Finding C12: which of the two would count is a guess, also through a link."""
    (root / "link.md").symlink_to("a.md")
    actions = [requests.delete("a.md"), requests.write("link.md", "x\n")]
    with pytest.raises(BadRequestError, match="lead to one file"):
        engine.change(turn, turn.tool_call("patch"), actions)
    assert (root / "a.md").read_bytes() == b"v1\n"
