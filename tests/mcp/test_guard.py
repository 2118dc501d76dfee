"""What the MCP tools add to the reference server's: refusals, hashes, all or none, locks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from noclobber import AgentTraceLedger, schema
from noclobber.errors import STALE_HINT, STALE_MESSAGE
from noclobber.mcp import dispatch
from tests.conftest import sha256
from tests.mcp.conftest import Call


def events(root: Path) -> list[dict[str, Any]]:
    """The workspace's ledger."""
    return list(AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl").events())


# -- a stale write -----------------------------------------------------------------------------------


def test_a_client_that_knows_nothing_of_hashes_cannot_overwrite_somebody_elses_edit(
    call: Call, root: Path
) -> None:
    """009-FR-004: what this connection read is what its write is checked against."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"human edit")

    refused = call("write_file", path="plan.md", content="agent edit")

    assert refused.is_error
    assert plan.read_bytes() == b"human edit"


def test_a_refused_write_is_the_009_object_as_text_and_the_011_object_as_structured_content(
    call: Call, root: Path
) -> None:
    """Ruling 3, 011: exactly these objects, nothing around them and nothing in them."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"v2")

    refused = call("write_file", path="plan.md", content="mine")

    [block] = refused.content
    told = json.loads(block["text"])
    assert told == {
        "error_type": "STALE_FILE",
        "message": STALE_MESSAGE,
        "details": {
            "path": str(plan),
            "baseline_hash": sha256(b"v1"),
            "current_disk_hash": sha256(b"v2"),
        },
        "recovery_hint": STALE_HINT,
    }
    assert refused.structured == {
        "error_type": "STALE_FILE",
        "file_path": str(plan),
        "expected_hash": sha256(b"v1"),
        "actual_hash": sha256(b"v2"),
        "resolution": "RE_READ_REQUIRED",
    }
    jsonschema.validate(told, schema("stale-file-agent"))
    jsonschema.validate(refused.structured, schema("stale-file-controller"))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"content": "x"}),
        ("edit_file", {"edits": [{"oldText": "v", "newText": "w"}]}),
        ("delete_file", {}),
        ("move_file", {"destination": "elsewhere.md"}),
        ("write_files", {"files": [{"path": "plan.md", "content": "x"}]}),
    ],
)
def test_no_tool_changes_a_file_that_changed_since_it_was_read(
    call: Call, root: Path, tool: str, arguments: dict[str, Any]
) -> None:
    """009-FR-003: writes, edits, deletions, moves, and several files at once."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"v2")
    where = (
        {"source": "plan.md"} if tool == "move_file" else {} if tool == "write_files" else {"path": "plan.md"}
    )

    refused = call(tool, **where, **arguments)

    assert refused.is_error
    assert refused.structured is not None
    assert refused.structured["error_type"] == "STALE_FILE"
    assert plan.read_bytes() == b"v2"
    assert [event["action_type"] for event in events(root)] == ["MUTATION_CONFLICT"]


def test_after_a_re_read_the_write_succeeds(call: Call, root: Path) -> None:
    """009-FR-007: recovery is a read away."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"v2")
    assert call("write_file", path="plan.md", content="v3").is_error

    call("read_text_file", path="plan.md")

    assert not call("write_file", path="plan.md", content="v3").is_error
    assert plan.read_bytes() == b"v3"


def test_own_writes_in_a_row_need_no_read_between_them(call: Call, root: Path) -> None:
    """Ruling 10: what was written is the new baseline."""
    for number in range(3):
        assert not call("write_file", path="log.md", content=f"v{number}").is_error
    edited = call("edit_file", path="log.md", edits=[{"oldText": "v2", "newText": "v3"}])

    assert not edited.is_error
    assert (root / "log.md").read_bytes() == b"v3"


def test_a_file_created_since_the_agent_found_none_is_not_overwritten(call: Call, root: Path) -> None:
    """Ruling 5: a read that found nothing is a baseline, too."""
    assert call("read_text_file", path="new.md").is_error
    (root / "new.md").write_bytes(b"theirs")

    refused = call("write_file", path="new.md", content="mine")

    assert refused.structured is not None
    assert refused.structured["expected_hash"] == "ABSENT"
    assert (root / "new.md").read_bytes() == b"theirs"


@pytest.mark.parametrize("part", [{"head": 1}, {"tail": 1}])
def test_a_part_of_a_file_is_enough_to_notice_that_the_file_changed(
    call: Call, root: Path, part: dict[str, int]
) -> None:
    """Ruling 11: every read stamps the whole file's hash."""
    plan = root / "plan.md"
    plan.write_bytes(b"a\nb\nc\n")
    seen = call("read_text_file", path="plan.md", **part)
    assert seen.structured is not None
    assert seen.structured["sha256"] == sha256(b"a\nb\nc\n")
    plan.write_bytes(b"a\nX\nc\n")

    assert call("write_file", path="plan.md", content="mine").is_error


def test_reads_of_every_kind_count(call: Call, root: Path) -> None:
    """Media files and files read several at once are seen, too."""
    for name in ("one.md", "two.png"):
        (root / name).write_bytes(b"v1")
    call("read_multiple_files", paths=["one.md"])
    call("read_media_file", path="two.png")
    for name in ("one.md", "two.png"):
        (root / name).write_bytes(b"v2")

    assert call("write_file", path="one.md", content="x").is_error
    assert call("write_file", path="two.png", content="x").is_error


def test_two_connections_have_seen_different_things(connect: Callable[..., Call], root: Path) -> None:
    """What one agent read says nothing about what another one saw."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    one, two = connect(), connect()
    one("read_text_file", path="plan.md")
    two("read_text_file", path="plan.md")

    assert not two("write_file", path="plan.md", content="two's").is_error
    assert one("write_file", path="plan.md", content="one's").is_error
    assert plan.read_bytes() == b"two's"


def test_writing_through_a_name_that_became_a_link_to_another_file_is_refused(call: Call, root: Path) -> None:
    """What was seen under a name is what a write under that name is checked against."""
    (root / "a.md").write_bytes(b"a")
    (root / "b.md").write_bytes(b"b")
    call("read_text_file", path="a.md")
    (root / "a.md").unlink()
    (root / "a.md").symlink_to("b.md")

    assert call("write_file", path="a.md", content="x").is_error
    assert (root / "b.md").read_bytes() == b"b"


# -- what a write says itself ------------------------------------------------------------------------


def test_an_expected_hash_beats_what_the_connection_saw(call: Call, root: Path) -> None:
    """Ruling 9."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"v2")

    written = call("write_file", path="plan.md", content="v3", expected_hash=sha256(b"v2"))

    assert written.structured is not None
    assert written.structured["sha256"] == sha256(b"v3")
    assert written.structured["previous_sha256"] == sha256(b"v2")


def test_an_observation_id_stands_for_the_version_that_was_read(call: Call, root: Path) -> None:
    """Ruling 9, even if the file was read again since."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    first = call("read_text_file", path="plan.md").structured
    plan.write_bytes(b"v2")
    second = call("read_text_file", path="plan.md").structured
    assert first is not None
    assert second is not None

    stale = call("write_file", path="plan.md", content="x", observation_id=first["observation_id"])
    fresh = call("write_file", path="plan.md", content="x", observation_id=second["observation_id"])

    assert stale.is_error
    assert not fresh.is_error


def test_an_observation_of_another_file_is_no_excuse(call: Call, root: Path) -> None:
    """An id is of one file."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(b"same")
    seen = call("read_text_file", path="a.md").structured
    assert seen is not None

    refused = call("write_file", path="b.md", content="x", observation_id=seen["observation_id"])

    assert refused.structured is not None
    assert refused.structured["error_type"] == "BAD_REQUEST"


def test_absent_creates_and_never_replaces(call: Call, root: Path) -> None:
    """Ruling 5."""
    assert not call("write_file", path="n.md", content="1", expected_hash="ABSENT").is_error
    assert call("write_file", path="n.md", content="2", expected_hash="ABSENT").is_error
    assert (root / "n.md").read_bytes() == b"1"


def test_without_a_session_only_what_a_write_says_counts(connect: Callable[..., Call], root: Path) -> None:
    """Issue 4: the protocol is stateless over HTTP; the default is the reference server's, on record."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    anyone = connect(is_session=False, is_process=False)
    seen = anyone("read_text_file", path="plan.md").structured
    assert seen is not None
    plan.write_bytes(b"v2")

    by_hash = anyone("write_file", path="plan.md", content="x", expected_hash=seen["sha256"])
    by_id = anyone("write_file", path="plan.md", content="x", observation_id=seen["observation_id"])
    kept = plan.read_bytes()
    by_nothing = anyone("write_file", path="plan.md", content="v3")

    assert by_hash.is_error
    assert by_id.is_error
    assert kept == b"v2"
    assert not by_nothing.is_error
    assert [event["action_type"] for event in events(root)] == [
        "MUTATION_CONFLICT",
        "MUTATION_CONFLICT",
        "MUTATION",
    ]


@pytest.mark.parametrize("is_session", [True, False])
def test_strict_wants_every_change_of_an_existing_file_to_say_what_it_expects(
    connect: Callable[..., Call], root: Path, is_session: bool
) -> None:
    """Issue 4, `--strict`: even after a read, because several subagents may share one connection."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    strict = connect(strict=True, is_session=is_session, is_process=is_session)
    seen = strict("read_text_file", path="plan.md").structured
    assert seen is not None

    refused = [
        strict("write_file", path="plan.md", content="x"),
        strict("edit_file", path="plan.md", edits=[{"oldText": "v", "newText": "w"}]),
        strict("delete_file", path="plan.md"),
        strict("move_file", source="plan.md", destination="p.md"),
        strict("write_files", files=[{"path": "plan.md", "content": "x"}]),
    ]
    kept = plan.read_bytes()

    assert [one.structured["error_type"] for one in refused if one.structured] == ["UNREAD_FILE"] * 5
    assert kept == b"v1"
    assert [event["action_type"] for event in events(root)] == ["MUTATION_REFUSED"] * 5
    assert not strict("write_file", path="new.md", content="x").is_error
    assert not strict("write_file", path="plan.md", content="v2", expected_hash=seen["sha256"]).is_error


def test_a_dry_run_neither_writes_nor_counts_as_a_read(call: Call, root: Path) -> None:
    """Looking at a diff is not seeing the file."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"v2")
    edits = [{"oldText": "v", "newText": "w"}]

    assert not call("edit_file", path="plan.md", edits=edits, dryRun=True).is_error
    assert call("edit_file", path="plan.md", edits=edits).is_error
    assert plan.read_bytes() == b"v2"


# -- the tools that are ours -------------------------------------------------------------------------


def test_of_several_files_all_are_written_or_none(call: Call, root: Path) -> None:
    """N-many: one stale file keeps the others as they were."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(b"v1")
        call("read_text_file", path=name)
    (root / "b.md").write_bytes(b"theirs")
    files = [{"path": name, "content": "v2"} for name in ("a.md", "b.md", "c.md")]

    refused = call("write_files", files=files)

    assert refused.is_error
    assert (root / "a.md").read_bytes() == b"v1"
    assert not (root / "c.md").exists()

    call("read_text_file", path="b.md")
    written = call("write_files", files=files)
    assert written.structured is not None
    assert [one["sha256"] for one in written.structured["files"]] == [sha256(b"v2")] * 3


def test_several_files_may_each_say_what_they_expect(call: Call, root: Path) -> None:
    """Hash, observation id or ABSENT, a file each."""
    (root / "a.md").write_bytes(b"v1")
    seen = call("read_text_file", path="a.md").structured
    assert seen is not None

    stale = call(
        "write_files",
        files=[
            {"path": "a.md", "content": "v2", "observation_id": seen["observation_id"]},
            {"path": "b.md", "content": "v2", "expected_hash": sha256(b"never")},
        ],
    )
    fresh = call(
        "write_files",
        files=[
            {"path": "a.md", "content": "v2", "observation_id": seen["observation_id"]},
            {"path": "b.md", "content": "v2", "expected_hash": "ABSENT"},
        ],
    )

    assert stale.is_error
    assert not fresh.is_error


def test_deleting_goes_on_record_with_what_was_deleted(call: Call, root: Path) -> None:
    """N-ledger: hashes, never content."""
    (root / "old.md").write_bytes(b"old")

    gone = call("delete_file", path="old.md")

    assert not gone.is_error
    assert not (root / "old.md").exists()
    [event] = events(root)
    assert event["payload"]["before_hash"] == f"sha256:{sha256(b'old')}"
    assert event["identity"]["host"] == "mcp"


def test_changes_since_read_shows_what_happened_and_does_not_count_as_a_read(call: Call, root: Path) -> None:
    """N-diff: to write, the agent has to read."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\ntwo\n")
    call("read_text_file", path="plan.md")
    same = call("changes_since_read", path="plan.md")
    plan.write_bytes(b"one\nTWO\n")

    changed = call("changes_since_read", path="plan.md")

    assert same.content[0]["text"] == ""
    assert "-two\n+TWO\n" in changed.content[0]["text"]
    assert changed.structured is not None
    assert changed.structured["sha256"] == sha256(b"one\nTWO\n")
    assert call("write_file", path="plan.md", content="x").is_error


def test_changes_since_read_of_a_file_that_nobody_read_is_a_clear_refusal(call: Call, root: Path) -> None:
    """There is nothing to compare with."""
    (root / "plan.md").write_bytes(b"x")

    refused = call("changes_since_read", path="plan.md")

    assert refused.structured is not None
    assert refused.structured["error_type"] == "UNREAD_FILE"


def test_a_lock_is_taken_shown_renewed_and_given_back(connect: Callable[..., Call], root: Path) -> None:
    """REQ-LOCK-001, 005, 007, 013: any connection that has the id may renew and release."""
    (root / "part").mkdir()
    one, two = connect(), connect()

    taken = one("lock_acquire", path="part", holder="builder-1", lease_duration_s=60).structured
    refused = two("lock_acquire", path="part")
    status = two("lock_status", path="part").structured
    assert taken is not None
    assert status is not None
    renewed = two("lock_renew", path="part", lock_id=taken["lock_id"], lease_duration_s=120)
    released = two("lock_release", path="part", lock_id=taken["lock_id"])
    after = one("lock_status", path="part").structured
    assert after is not None

    assert refused.is_error
    assert refused.structured is not None
    assert refused.structured["error_type"] == "LOCK_CONTENTION"
    assert refused.structured["holder"] == "builder-1"
    assert (status["state"], status["holder"]) == ("live", "builder-1")
    assert "lock_id" not in status
    assert not renewed.is_error
    assert released.structured is not None
    assert released.structured["released"] is True
    assert after["state"] == "free"


def test_a_locked_folder_is_written_by_who_took_the_lock_or_shows_its_id(
    connect: Callable[..., Call], root: Path
) -> None:
    """REQ-LOCK-013: others are refused, and so is a holder that lost its lock."""
    (root / "part").mkdir()
    holder, other = connect(), connect()
    anyone = connect(is_session=False, is_process=False)
    taken = holder("lock_acquire", path="part").structured
    assert taken is not None
    shown = {"lock_id": taken["lock_id"]}

    mine = [
        holder("write_file", path="part/a.md", content="1"),
        holder("write_file", path="elsewhere.md", content="1"),
        holder("create_directory", path="part/in/it"),
        anyone("write_file", path="part/a.md", content="2", **shown),
        anyone("write_files", files=[{"path": "part/b.md", "content": "2"}], **shown),
    ]
    theirs = [
        call(*tool, **arguments)
        for call in (other, anyone)
        for tool, arguments in (
            (("write_file",), {"path": "part/c.md", "content": "x"}),
            (("write_files",), {"files": [{"path": "part/c.md", "content": "x"}]}),
            (("delete_file",), {"path": "part/a.md"}),
            (("create_directory",), {"path": "part/d"}),
            (("move_file",), {"source": "part/in", "destination": "out"}),
        )
    ]

    assert [one.is_error for one in mine] == [False] * 5
    assert [one.structured["error_type"] for one in theirs if one.structured] == ["LOCK_CONTENTION"] * 10
    assert sorted(path.name for path in (root / "part").iterdir() if path.name[0] != ".") == [
        "a.md",
        "b.md",
        "in",
    ]

    other("lock_release", path="part", lock_id=taken["lock_id"])
    other("lock_acquire", path="part")
    lost = holder("write_file", path="part/a.md", content="3", expected_hash=sha256(b"2"))
    assert lost.structured is not None
    assert lost.structured["error_type"] == "LOCK_LOST"


def test_a_wrong_lock_id_releases_nothing(connect: Callable[..., Call], root: Path) -> None:
    """REQ-LOCK-005: only the owner's id."""
    (root / "part").mkdir()
    call = connect()
    call("lock_acquire", path="part")

    refused = call("lock_release", path="part", lock_id="0" * 32)

    assert refused.structured is not None
    assert refused.structured["error_type"] == "LOCK_LOST"
    assert call("lock_status", path="part").structured["state"] == "live"  # type: ignore[index]


def test_locks_end_with_a_connection_that_is_a_process(connect: Callable[..., Call], root: Path) -> None:
    """REQ-LOCK-005: nobody is left to release it."""
    (root / "part").mkdir()
    call = connect()
    call("lock_acquire", path="part")

    call.memory.close()  # type: ignore[attr-defined]

    assert connect()("lock_status", path="part").structured["state"] == "free"  # type: ignore[index]


def test_lock_files_and_our_own_records_are_nobodys_to_read(call: Call, root: Path) -> None:
    """REQ-LOCK-010; and an agent cannot edit its own record."""
    (root / "part").mkdir()
    call("lock_acquire", path="part")
    call("write_file", path="a.md", content="x")

    for path in ("part/.lock", ".noclobber/agent_trace.jsonl"):
        assert call("read_text_file", path=path).is_error
        assert call("write_file", path=path, content="x").is_error
    assert ".noclobber" not in call("list_directory", path=".").content[0]["text"]
    assert ".noclobber" not in call("search_files", path=".", pattern="**").content[0]["text"]


# -- roots -------------------------------------------------------------------------------------------


def test_each_root_has_its_own_record(connect: Callable[..., Call], tmp_path: Path) -> None:
    """Several roots; state is kept in the root that a file is in."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    call = connect(one, two)
    call("write_file", path=str(one / "a"), content="1")
    call("write_file", path=str(two / "b"), content="2")

    assert [event["payload"]["target_file"] for event in events(one)] == ["a"]
    assert [event["payload"]["target_file"] for event in events(two)] == ["b"]


def test_a_move_between_roots_is_checked_and_takes_nothing_back_but_its_own(
    connect: Callable[..., Call], tmp_path: Path
) -> None:
    """009-FR-003 across roots: the source must be what was seen, and a refusal leaves both as they were."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    call = connect(one, two)
    source = one / "a.sh"
    source.write_bytes(b"v1")
    source.chmod(0o755)
    call("read_text_file", path=str(source))
    source.write_bytes(b"v2")

    refused = call("move_file", source=str(source), destination=str(two / "a.sh"))
    assert refused.is_error
    assert source.read_bytes() == b"v2"
    assert not (two / "a.sh").exists()

    call("read_text_file", path=str(source))
    assert not call("move_file", source=str(source), destination=str(two / "a.sh")).is_error
    assert not source.exists()
    assert (two / "a.sh").read_bytes() == b"v2"
    assert (two / "a.sh").stat().st_mode & 0o777 == 0o755


def test_moving_a_folder_is_on_record(call: Call, root: Path) -> None:
    """A folder has no hash, but where it went is written down."""
    (root / "part").mkdir()

    call("move_file", source="part", destination="piece")

    [event] = events(root)
    assert event["payload"]["destination"] == "piece"


# -- edits keep what they do not touch ---------------------------------------------------------------


def test_an_edit_keeps_the_line_endings_of_lines_that_it_does_not_touch(call: Call, root: Path) -> None:
    """N-bytes: the reference server rewrites the whole file; the answer is the same, the file is not."""
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\nthree\n")

    shown = call("edit_file", path="dos.txt", edits=[{"oldText": "two", "newText": "2\nzwei"}])

    assert "-two\n+2\n+zwei\n" in shown.content[0]["text"]
    assert (root / "dos.txt").read_bytes() == b"one\r\n2\r\nzwei\r\nthree\n"


def test_an_edit_keeps_bytes_that_are_no_text(call: Call, root: Path) -> None:
    """N-bytes: what does not decode is not replaced by question marks."""
    (root / "mixed").write_bytes(b"\xff\xfe one \xf0\x9f\x98 two")

    assert not call("edit_file", path="mixed", edits=[{"oldText": "one", "newText": "1"}]).is_error
    assert (root / "mixed").read_bytes() == b"\xff\xfe 1 \xf0\x9f\x98 two"


def test_an_edit_across_bytes_that_are_no_text_keeps_them(call: Call, root: Path) -> None:
    """N-bytes: the model saw replacement characters and sends them back; the bytes stay what they were."""
    (root / "latin").write_bytes(b"caf\xe9 one\r\ntwo\n")

    edited = call(
        "edit_file", path="latin", edits=[{"oldText": "f\ufffd one\ntwo", "newText": "F\ufffd 1\n2"}]
    )

    assert not edited.is_error
    assert (root / "latin").read_bytes() == b"caF\xe9 1\r\n2\n"


# -- nothing that arrives is too strange ---------------------------------------------------------------


def test_a_failure_of_ours_is_an_answer_and_not_the_end(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 4, bad input: one sentence to the client, the traceback on stderr."""

    def broken(*_: object) -> Any:
        raise ZeroDivisionError("a secret")

    monkeypatch.setitem(dispatch._CARRY_OUT, "read_file", broken)

    told = call("read_file", path="a")

    assert told.is_error
    assert "ZeroDivisionError" in told.content[0]["text"]
    assert "a secret" not in told.content[0]["text"]
    assert "ZeroDivisionError: a secret" in capsys.readouterr().err


def test_a_file_name_that_is_not_utf8_is_listed_and_harms_nobody(call: Call, root: Path) -> None:
    """Issue 4, bad input."""
    os.close(os.open(os.fsencode(root) + b"/bad\xff", os.O_CREAT | os.O_WRONLY))

    assert "bad\ufffd" in call("list_directory", path=".").content[0]["text"]
    assert "bad\ufffd" in call("search_files", path=".", pattern="*").content[0]["text"]
    json.dumps(call("directory_tree", path=".").structured).encode()


def test_a_fifo_is_refused_and_never_waited_for(call: Call, root: Path) -> None:
    """Issue 4, bad input: the reference server hangs on one."""
    os.mkfifo(root / "fifo")

    for tool, more in (("read_text_file", {}), ("write_file", {"content": "x"}), ("read_media_file", {})):
        refused = call(tool, path="fifo", **more)
        assert refused.structured is not None
        assert refused.structured["error_type"] == "NOT_A_FILE"
