"""What a write is checked against: what it says itself, else what its connection saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import sha256
from tests.mcp.conftest import Call, Connect, events


def test_two_connections_have_seen_different_things(connect: Connect, root: Path) -> None:
    """What one agent read says nothing about what another one saw."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    one, two = connect(), connect()
    one("read_text_file", path="plan.md")
    two("read_text_file", path="plan.md")

    assert not two("write_file", path="plan.md", content="two's").is_error
    assert one("write_file", path="plan.md", content="one's").is_error
    assert plan.read_bytes() == b"two's"


def test_an_expected_hash_beats_what_the_connection_saw(call: Call, root: Path) -> None:
    """Ruling 9."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"v2")

    written = call("write_file", path="plan.md", content="v3", expected_hash=sha256(b"v2"))

    assert written.structured["sha256"] == sha256(b"v3")
    assert written.structured["previous_sha256"] == sha256(b"v2")


def test_an_observation_id_stands_for_the_version_that_was_read(call: Call, root: Path) -> None:
    """Ruling 9, even if the file was read again since."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    first = call("read_text_file", path="plan.md").structured
    plan.write_bytes(b"v2")
    second = call("read_text_file", path="plan.md").structured

    stale = call("write_file", path="plan.md", content="x", observation_id=first["observation_id"])
    fresh = call("write_file", path="plan.md", content="x", observation_id=second["observation_id"])

    assert stale.is_error
    assert not fresh.is_error


def test_an_observation_of_another_file_is_refused(call: Call, root: Path) -> None:
    """An id is of one file."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(b"same")
    seen = call("read_text_file", path="a.md").structured

    refused = call("write_file", path="b.md", content="x", observation_id=seen["observation_id"])

    assert refused.structured["error_type"] == "BAD_REQUEST"


def test_absent_creates_and_never_replaces(call: Call, root: Path) -> None:
    """Ruling 5."""
    assert not call("write_file", path="n.md", content="1", expected_hash="ABSENT").is_error
    assert call("write_file", path="n.md", content="2", expected_hash="ABSENT").is_error
    assert (root / "n.md").read_bytes() == b"1"


def test_without_a_session_only_what_a_write_says_counts(connect: Connect, root: Path) -> None:
    """N-mcp: the protocol is stateless over HTTP; the default is the reference server's, on record."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    anyone = connect(is_session=False, is_process=False)
    seen = anyone("read_text_file", path="plan.md").structured
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
    connect: Connect, root: Path, is_session: bool
) -> None:
    """N-mcp, `--strict`: even after a read, because several subagents may share one connection."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    strict = connect(strict=True, is_session=is_session, is_process=is_session)
    seen = strict("read_text_file", path="plan.md").structured

    refused = [
        strict("write_file", path="plan.md", content="x"),
        strict("edit_file", path="plan.md", edits=[{"oldText": "v", "newText": "w"}]),
        strict("delete_file", path="plan.md"),
        strict("move_file", source="plan.md", destination="p.md"),
        strict("write_files", files=[{"path": "plan.md", "content": "x"}]),
    ]
    kept = plan.read_bytes()

    assert [one.structured["error_type"] for one in refused] == ["UNREAD_FILE"] * 5
    assert kept == b"v1"
    assert [event["action_type"] for event in events(root)] == ["MUTATION_REFUSED"] * 5
    assert not strict("write_file", path="new.md", content="x").is_error
    assert not strict("write_file", path="plan.md", content="v2", expected_hash=seen["sha256"]).is_error


def test_each_root_has_its_own_record(connect: Connect, tmp_path: Path) -> None:
    """Several roots; state is kept in the root that a file is in."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    call = connect(one, two)
    call("write_file", path=str(one / "a"), content="1")
    call("write_file", path=str(two / "b"), content="2")

    assert [event["payload"]["target_file"] for event in events(one)] == ["a"]
    assert [event["payload"]["target_file"] for event in events(two)] == ["b"]


def test_the_option_scope_does_not_mix_what_different_clients_saw(connect: Connect, root: Path) -> None:
    """finding D8: a connection remembers until it ends; without sessions there is nothing to remember by."""
    (root / "noclobber.toml").write_text('scope = "session"\n')
    anyone = connect(is_session=False, is_process=False)
    anyone("write_file", path="plan.md", content="by one client")
    (root / "plan.md").write_bytes(b"by a person")

    written = anyone("write_file", path="plan.md", content="by another client")

    assert not written.is_error


def test_a_connection_remembers_until_it_ends(connect: Connect, root: Path) -> None:
    """finding D8: turns do not exist here; what was read long ago still counts, on this connection only."""
    (root / "plan.md").write_bytes(b"v1")
    call = connect()
    call("read_text_file", path="plan.md")
    for number in range(20):
        call("write_file", path=f"other-{number}.md", content="x")
    (root / "plan.md").write_bytes(b"v2")

    assert call("write_file", path="plan.md", content="x").is_error
    call.connection.close()
    assert not call("write_file", path="plan.md", content="x").is_error
