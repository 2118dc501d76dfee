"""Guarded tools in turns, on a real disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber import Turn
from noclobber.core.values import Coverage, Edit
from noclobber.disk import hashing
from noclobber.errors import (
    AccessDeniedError,
    BadPathError,
    BadRequestError,
    BaselineNotRetainedError,
    EditMismatchError,
    FileExistsAlreadyError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    OutsideScopeError,
    OutsideWorkspaceError,
    PartialReadError,
    ReservedFileError,
    StaleFileError,
    UnreadFileError,
)
from noclobber.guard.workspace import Workspace
from tests.conftest import AtStep, sha256
from tests.rigs.driven import each_twin  # noqa: F401 - every test runs over both twins


@pytest.fixture
def ws(root: Path) -> Iterator[Workspace]:
    with Workspace(root) as workspace:
        yield workspace


def test_a_write_over_someone_elses_edit_is_refused(root: Path, turn: Turn) -> None:
    """009-FR-001, 009-FR-002, 009-FR-004, 009-FR-005, 011-FR-002, 011-SC-002: their bytes survive."""
    (root / "plan.md").write_bytes(b"v1")
    turn.read_file("plan.md")
    (root / "plan.md").write_bytes(b"human edit")

    with pytest.raises(StaleFileError) as refused:
        turn.write_file("plan.md", b"agent edit")

    assert refused.value.path == str(root / "plan.md")
    assert refused.value.expected == sha256(b"v1")
    assert refused.value.actual == sha256(b"human edit")
    assert (root / "plan.md").read_bytes() == b"human edit"


def test_a_write_to_an_unchanged_file_succeeds(root: Path, turn: Turn) -> None:
    """009-SC-002, 009-US1."""
    (root / "a.md").write_bytes(b"v1")
    turn.read_file("a.md")
    result = turn.write_file("a.md", "v2")
    assert (root / "a.md").read_bytes() == b"v2"
    assert (result.sha256, result.previous_sha256) == (sha256(b"v2"), sha256(b"v1"))


def test_after_a_re_read_the_same_bytes_pass(root: Path, turn: Turn) -> None:
    """009-US2, 009-FR-007: in a plain turn a re-read is all it takes."""
    (root / "a.md").write_bytes(b"v1")
    turn.read_file("a.md")
    (root / "a.md").write_bytes(b"v2")
    with pytest.raises(StaleFileError):
        turn.write_file("a.md", b"mine")
    turn.read_file("a.md")
    turn.write_file("a.md", b"mine")
    assert (root / "a.md").read_bytes() == b"mine"
    assert turn.get_initial_hash("a.md") == sha256(b"v1")


def test_own_writes_follow_each_other(root: Path, turn: Turn) -> None:
    """009-FR-007, ruling 10."""
    (root / "a.md").write_bytes(b"v1")
    turn.read_file("a.md")
    for number in range(5):
        turn.write_file("a.md", b"%d" % number)
        turn.edit_file("a.md", [Edit(str(number), f"{number}!")])
    assert (root / "a.md").read_bytes() == b"4!"


def test_the_baseline_after_a_write_is_what_was_written_not_what_stands_there(
    root: Path, turn: Turn, at_step: AtStep
) -> None:
    """Ruling 10: somebody saves right after our commit; our next write must not take theirs for ours."""
    (root / "a.md").write_bytes(b"v1")
    turn.read_file("a.md")
    turn.write_file("a.md", b"v2")
    (root / "a.md").write_bytes(b"theirs")
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("a.md", b"v3")
    assert refused.value.expected == sha256(b"v2")


def test_a_deleted_file_is_stale(root: Path, turn: Turn) -> None:
    """009-edge-deleted, 011-edge-deleted, ruling 5."""
    (root / "a.md").write_bytes(b"v1")
    turn.read_file("a.md")
    (root / "a.md").unlink()
    for write in (
        lambda: turn.write_file("a.md", b"v2"),
        lambda: turn.edit_file("a.md", [Edit("v1", "v2")]),
        lambda: turn.delete_file("a.md"),
        lambda: turn.move_file("a.md", "b.md"),
        lambda: turn.write_files({"a.md": b"v2", "b.md": b"x"}),
    ):
        with pytest.raises(StaleFileError) as refused:
            write()
        assert refused.value.actual == "DELETED"
    assert sorted(path.name for path in root.iterdir()) == [".noclobber"]


def test_a_file_whose_folder_is_gone_is_stale(root: Path, turn: Turn) -> None:
    """Ruling 5: also if nothing is left of the way to it."""
    (root / "sub").mkdir()
    (root / "sub/a.md").write_bytes(b"v1")
    turn.read_file("sub/a.md")
    (root / "sub/a.md").unlink()
    (root / "sub").rmdir()
    for write in (
        lambda: turn.write_file("sub/a.md", b"v2"),
        lambda: turn.edit_file("sub/a.md", [Edit("v1", "v2")]),
        lambda: turn.delete_file("sub/a.md"),
        lambda: turn.move_file("sub/a.md", "b.md"),
    ):
        with pytest.raises(StaleFileError) as refused:
            write()
        assert refused.value.actual == "DELETED"
    (root / "sub").write_bytes(b"a file now")
    with pytest.raises(StaleFileError):
        turn.write_file("sub/a.md", b"v2")


def test_a_folder_in_the_place_of_what_was_read_is_stale(root: Path, turn: Turn) -> None:
    """Ruling 5: NOT_A_FILE stands for the hash."""
    (root / "a.md").write_bytes(b"v1")
    turn.read_file("a.md")
    (root / "a.md").unlink()
    (root / "a.md").mkdir()
    for write in (
        lambda: turn.write_file("a.md", b"v2"),
        lambda: turn.edit_file("a.md", [Edit("v1", "v2")]),
        lambda: turn.delete_file("a.md"),
    ):
        with pytest.raises(StaleFileError) as refused:
            write()
        assert refused.value.actual == "NOT_A_FILE"


@pytest.mark.parametrize("tool", ["read", "write", "edit", "delete"])
def test_a_folder_that_was_never_read_is_not_a_file(root: Path, turn: Turn, tool: str) -> None:
    """Ruling 12, 009-edge-directory: a clear error; nothing is touched."""
    (root / "sub").mkdir()
    with pytest.raises(NotAFileError):
        {
            "read": lambda: turn.read_file("sub"),
            "write": lambda: turn.write_file("sub", b"x"),
            "edit": lambda: turn.edit_file("sub", [Edit("a", "b")]),
            "delete": lambda: turn.delete_file("sub"),
        }[tool]()
    assert (root / "sub").is_dir()


def test_who_found_nothing_creates_exclusively(root: Path, turn: Turn) -> None:
    """Ruling 5: the baseline is ABSENT."""
    with pytest.raises(MissingFileError):
        turn.read_file("a.md")
    assert turn.get_initial_hash("a.md") is None
    (root / "a.md").write_bytes(b"theirs")
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("a.md", b"mine")
    assert (refused.value.expected, refused.value.actual) == ("ABSENT", sha256(b"theirs"))
    assert (root / "a.md").read_bytes() == b"theirs"


def test_a_missing_file_is_also_a_file_not_found_error(turn: Turn) -> None:
    """DESIGN: so that ordinary code need not know us."""
    with pytest.raises(FileNotFoundError):
        turn.read_file("a.md")


def test_files_that_were_never_read_are_not_checked(root: Path, turn: Turn) -> None:
    """Ruling 7: but replaced atomically, and on record."""
    (root / "a.md").write_bytes(b"v1")
    result = turn.write_file("a.md", b"v2")
    assert result.previous_sha256 == sha256(b"v1")
    turn.edit_file("a.md", [Edit("v2", "v3")])
    assert (root / "a.md").read_bytes() == b"v3"


def test_unread_deny_asks_for_a_read_first_but_lets_new_files_be_made(root: Path, ws: Workspace) -> None:
    """Ruling 7, `unread = "deny"`."""
    (root / "a.md").write_bytes(b"v1")
    with ws.turn(unread="deny") as turn:
        for write in (
            lambda: turn.write_file("a.md", b"x"),
            lambda: turn.edit_file("a.md", [Edit("v1", "x")]),
            lambda: turn.delete_file("a.md"),
            lambda: turn.move_file("a.md", "b.md"),
            lambda: turn.write_files({"new.md": b"x", "a.md": b"y"}),
        ):
            with pytest.raises(UnreadFileError):
                write()
        assert not (root / "new.md").exists()
        turn.write_file("new.md", b"x")
        turn.write_file("a.md", b"v2", expected_hash=sha256(b"v1"))
        turn.write_file("a.md", b"v3")
    assert (root / "a.md").read_bytes() == b"v3"


def test_unread_deny_creates_exclusively(root: Path, ws: Workspace, at_step: AtStep) -> None:
    """Ruling 7: what appears between the look and the commit has not been read either."""
    with ws.turn(unread="deny") as turn:
        seen = at_step("entered", lambda: (root / "a.md").write_bytes(b"theirs"))
        with pytest.raises(StaleFileError):
            turn.write_file("a.md", b"mine")
        assert seen
    assert (root / "a.md").read_bytes() == b"theirs"


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A workspace folder, and a user who is not root: root may read and write everything."""
    folder = Path(tempfile.mkdtemp()).resolve()
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_an_unreadable_file_is_never_treated_as_absent(as_nobody: Path) -> None:
    """Ruling 5, ruling 6, 010-edge-unreadable: the turn goes on, the snapshot holds the error."""
    secret = as_nobody / "secret.md"
    secret.write_bytes(b"v1")
    secret.chmod(0)
    with nobody(), Workspace(as_nobody) as ws, ws.turn(unread="deny") as turn:
        with pytest.raises(AccessDeniedError):
            turn.read_file("secret.md")
        assert turn.get_initial_hash("secret.md") is None
        assert turn.context.error_for(str(secret), str(secret)) == "ACCESS_DENIED"
        with pytest.raises(UnreadFileError):
            turn.write_file("secret.md", b"x")
        turn.write_file("other.md", b"the turn goes on")


def test_a_file_that_became_unreadable_is_stale(as_nobody: Path) -> None:
    """Ruling 5: UNREADABLE stands for the hash."""
    with nobody(), Workspace(as_nobody) as ws, ws.turn() as turn:
        turn.write_file("a.md", b"v1")
        turn.read_file("a.md")
        (as_nobody / "a.md").chmod(0)
        for write in (
            lambda: turn.write_file("a.md", b"x"),
            lambda: turn.edit_file("a.md", [Edit("v1", "x")]),
            lambda: turn.delete_file("a.md"),
        ):
            with pytest.raises(StaleFileError) as refused:
                write()
            assert refused.value.actual == "UNREADABLE"


# -- explicit expectations --------------------------------------------------------------------------


def test_an_explicit_hash_beats_the_baseline(root: Path, turn: Turn) -> None:
    """Ruling 9, 011-US1: both ways."""
    (root / "a.md").write_bytes(b"v1")
    turn.read_file("a.md")
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("a.md", b"x", expected_hash=sha256(b"v0"))
    assert refused.value.expected == sha256(b"v0")
    (root / "a.md").write_bytes(b"v2")
    turn.write_file("a.md", b"x", expected_hash=sha256(b"v2"))
    with pytest.raises(StaleFileError):
        turn.write_file("a.md", b"x", expected_hash="ABSENT")


def test_an_observation_stands_for_what_it_saw(root: Path, turn: Turn) -> None:
    """Ruling 9."""
    (root / "a.md").write_bytes(b"v1")
    (root / "b.md").write_bytes(b"v1")
    first = turn.read_file("a.md")
    (root / "a.md").write_bytes(b"v2")
    turn.read_file("a.md")
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("a.md", b"x", observation_id=first.observation_id)
    assert refused.value.expected == sha256(b"v1")
    with pytest.raises(BadRequestError, match="another file"):
        turn.write_file("b.md", b"x", observation_id=first.observation_id)
    with pytest.raises(BadRequestError, match="no observation"):
        turn.write_file("a.md", b"x", observation_id="made up")
    with pytest.raises(BadRequestError, match="another hash"):
        turn.write_file("a.md", b"x", observation_id=first.observation_id, expected_hash=sha256(b"v2"))


@pytest.mark.parametrize("wrong", ["", "abc", sha256(b"v1").upper(), "sha256:" + sha256(b"v1"), 7, "DELETED"])
def test_a_misspelt_hash_is_a_bad_request_and_never_unchecked(root: Path, turn: Turn, wrong: Any) -> None:
    """Ruling 4, ruling 9."""
    (root / "a.md").write_bytes(b"v1")
    with pytest.raises(BadRequestError, match="64 lower-case"):
        turn.write_file("a.md", b"x", expected_hash=wrong)
    assert (root / "a.md").read_bytes() == b"v1"


# -- parts ------------------------------------------------------------------------------------------


def test_a_part_carries_the_whole_files_hash(root: Path, turn: Turn) -> None:
    """Ruling 11, ruling 8: one read; what is shown and what is hashed come from it."""
    (root / "a.md").write_bytes(b"1\n2\n3\n4")
    seen = turn.read_file("a.md", start_line=2, end_line=3)
    assert seen.content == b"2\n3\n"
    assert seen.sha256 == sha256(b"1\n2\n3\n4")
    assert seen.seen == Coverage(((1, 3),), 4)
    assert turn.read_file("a.md", start_line=4).seen == Coverage(((3, 4),), 4)
    assert turn.read_file("a.md", start_line=9).content == b""


def test_partial_deny_asks_for_the_rest(root: Path, ws: Workspace) -> None:
    """Ruling 11, `partial = "deny"`: parts at one hash add up; edits are never refused for this."""
    (root / "a.md").write_bytes(b"1\n2\n3\n")
    with ws.turn(partial="deny") as turn:
        turn.read_file("a.md", start_line=1, end_line=2)
        with pytest.raises(PartialReadError):
            turn.write_file("a.md", b"x")
        with pytest.raises(PartialReadError):
            turn.write_files({"a.md": b"x"})
        turn.edit_file("a.md", [Edit("1", "one")])
        with pytest.raises(PartialReadError):
            turn.write_file("a.md", b"x")
        turn.read_file("a.md", start_line=1, end_line=2)
        turn.read_file("a.md", start_line=3)
        turn.edit_file("a.md", [Edit("2", "two")])
        turn.write_file("a.md", b"x")
    assert (root / "a.md").read_bytes() == b"x"


def test_a_stale_file_that_was_seen_in_part_is_called_stale(root: Path, ws: Workspace) -> None:
    """011-SC-001: the right reason, whatever else is wrong."""
    (root / "a.md").write_bytes(b"1\n2\n")
    with ws.turn(partial="deny") as turn:
        turn.read_file("a.md", start_line=1, end_line=1)
        (root / "a.md").write_bytes(b"theirs")
        with pytest.raises(StaleFileError):
            turn.write_file("a.md", b"x")


def test_a_part_of_a_new_version_does_not_let_a_write_through(root: Path, turn: Turn) -> None:
    """Ruling 2."""
    (root / "a.md").write_bytes(b"1\n2\n")
    turn.read_file("a.md")
    (root / "a.md").write_bytes(b"1\ntheirs\n")
    turn.read_file("a.md", start_line=1, end_line=1)
    with pytest.raises(StaleFileError):
        turn.write_file("a.md", b"x")
    turn.read_file("a.md", start_line=2)
    turn.write_file("a.md", b"x")


def test_after_conflict_is_an_option(root: Path, ws: Workspace) -> None:
    """Ruling 2, `rebaseline = "after-conflict"`."""
    (root / "a.md").write_bytes(b"v1")
    with ws.turn(rebaseline="after-conflict") as turn:
        turn.read_file("a.md")
        (root / "a.md").write_bytes(b"v2")
        turn.read_file("a.md")
        with pytest.raises(StaleFileError):
            turn.write_file("a.md", b"x")
        turn.read_file("a.md")
        turn.write_file("a.md", b"x")


# -- links and names --------------------------------------------------------------------------------


def test_a_link_is_written_through_and_known_by_both_names(root: Path, turn: Turn) -> None:
    """010-FR-002; the link stays a link."""
    (root / "real.md").write_bytes(b"v1")
    (root / "link.md").symlink_to("real.md")
    turn.read_file("link.md")
    assert turn.get_initial_hash("link.md") == turn.get_initial_hash("real.md") == sha256(b"v1")
    turn.write_file("link.md", b"v2")
    turn.write_file("real.md", b"v3")
    turn.write_file("link.md", b"v4")
    assert (root / "link.md").is_symlink()
    assert (root / "real.md").read_bytes() == b"v4"


def test_a_file_that_became_a_link_is_checked_against_what_was_seen_under_its_name(
    root: Path, turn: Turn
) -> None:
    """N-link-swap: a path swapped for a link never counts as a file that was not read."""
    (root / "a.md").write_bytes(b"v1")
    (root / "b.md").write_bytes(b"somebody else's")
    turn.read_file("a.md")
    (root / "a.md").unlink()
    (root / "a.md").symlink_to("b.md")
    for write in (
        lambda: turn.write_file("a.md", b"x"),
        lambda: turn.edit_file("a.md", [Edit("s", "x", replace_all=True)]),
        lambda: turn.delete_file("a.md"),
        lambda: turn.write_files({"a.md": b"x"}),
    ):
        with pytest.raises(StaleFileError) as refused:
            write()
        assert refused.value.expected == sha256(b"v1")
    assert (root / "b.md").read_bytes() == b"somebody else's"
    turn.read_file("a.md")
    turn.write_file("a.md", b"x")
    assert (root / "b.md").read_bytes() == b"x"


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/passwd",
        "a/../../x",
        "out/x",
        ".noclobber/agent_trace.jsonl",
        "./.noclobber/x",
        "records/x",
    ],
)
def test_nothing_outside_the_workspace_is_read_or_written(root: Path, turn: Turn, path: str) -> None:
    """N-paths: `..`, absolute, through links, and our own records."""
    (root / "out").symlink_to("/tmp")
    (root / "records").symlink_to(".noclobber")
    turn.write_file("a.md", b"x")
    for use in (
        lambda: turn.read_file(path),
        lambda: turn.write_file(path, b"x"),
        lambda: turn.edit_file(path, [Edit("a", "b")]),
        lambda: turn.delete_file(path),
        lambda: turn.move_file("a.md", path),
        lambda: turn.write_files({path: b"x"}),
    ):
        with pytest.raises(OutsideWorkspaceError):
            use()


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 300, "\udcff", b"\xff"])
def test_what_cannot_be_a_path_is_refused(turn: Turn, path: Any) -> None:
    """N-paths, N-input: empty, NUL, too long, not UTF-8."""
    for use in (lambda: turn.read_file(path), lambda: turn.write_file(path, b"x")):
        with pytest.raises(BadPathError):
            use()


@pytest.mark.parametrize("name", [".lock", ".lock-ledger.jsonl"])
@pytest.mark.broken_ledger
def test_lock_files_are_not_served(root: Path, turn: Turn, name: str) -> None:
    """REQ-LOCK-010."""
    (root / "d").mkdir()
    (root / "d" / name).write_bytes(b"{}")
    (root / "link").symlink_to(f"d/{name}")
    for path in (f"d/{name}", "link"):
        for use in (
            lambda path=path: turn.read_file(path),
            lambda path=path: turn.write_file(path, b"x"),
            lambda path=path: turn.delete_file(path),
            lambda path=path: turn.move_file(path, "elsewhere"),
        ):
            with pytest.raises(ReservedFileError):
                use()
    turn.write_file("a.md", b"x")
    with pytest.raises(ReservedFileError):
        turn.move_file("a.md", f"d2/{name}")
    assert (root / "d" / name).read_bytes() == b"{}"


# -- write scope ------------------------------------------------------------------------------------


def test_a_turn_limited_to_folders_writes_nowhere_else(root: Path, ws: Workspace) -> None:
    """K-WRITE-1: not through links either, and not by moving."""
    for folder in ("docs", "src"):
        (root / folder).mkdir()
        (root / folder / "a.md").write_bytes(b"v1")
    (root / "docs/out").symlink_to("../src")
    with ws.turn(write_scope=["docs"]) as turn:
        turn.read_file("src/a.md")
        turn.write_file("docs/a.md", b"v2")
        turn.write_file("docs/new/deep.md", b"v2")
        for write in (
            lambda: turn.write_file("src/a.md", b"x"),
            lambda: turn.write_file("docs/out/a.md", b"x"),
            lambda: turn.edit_file("src/a.md", [Edit("v1", "x")]),
            lambda: turn.delete_file("src/a.md"),
            lambda: turn.move_file("src/a.md", "docs/b.md"),
            lambda: turn.move_file("docs/a.md", "src/b.md"),
            lambda: turn.write_files({"docs/a.md": b"x", "src/a.md": b"x"}),
        ):
            with pytest.raises(OutsideScopeError):
                write()
    assert (root / "src/a.md").read_bytes() == b"v1"
    assert (root / "docs/a.md").read_bytes() == b"v2"
    with ws.turn(write_scope=["."]) as turn:
        turn.write_file("src/a.md", b"v2")
    with ws.turn(write_scope=[]) as turn, pytest.raises(OutsideScopeError):
        turn.write_file("docs/a.md", b"x")


@pytest.mark.parametrize("kind", ["write", "edit", "many", "delete", "move"])
def test_a_link_changed_after_the_judgement_leads_no_write_out_of_its_scope(
    root: Path, ws: Workspace, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """K-WRITE-1: what was judged is what is written, or nothing is."""
    for folder in ("docs", "src"):
        (root / folder).mkdir()
        (root / folder / "a.md").write_bytes(b"v1")
    link = root / "docs/link"
    link.symlink_to("a.md")
    look = Turn.ledger_trouble

    def swap_and_look(turn: Turn) -> Any:
        link.unlink()
        link.symlink_to("../src/a.md")
        return look(turn)

    with ws.turn(write_scope=["docs"]) as turn:
        turn.read_file("docs/link")
        monkeypatch.setattr(Turn, "ledger_trouble", swap_and_look)
        with pytest.raises(NoclobberError):
            {
                "write": lambda: turn.write_file("docs/link", b"x"),
                "edit": lambda: turn.edit_file("docs/link", [Edit("v1", "x")]),
                "many": lambda: turn.write_files({"docs/link": b"x"}),
                "delete": lambda: turn.delete_file("docs/link"),
                "move": lambda: turn.move_file("docs/link", "docs/b.md"),
            }[kind]()
    assert (root / "src/a.md").read_bytes() == b"v1"


# -- several files, deletes, moves ------------------------------------------------------------------


def test_several_files_land_together_or_not_at_all(root: Path, turn: Turn) -> None:
    """011-edge-atomic, 011-FR-002: one stale file, and none is written."""
    (root / "a.md").write_bytes(b"a1")
    (root / "b.md").write_bytes(b"b1")
    turn.read_file("a.md")
    turn.read_file("b.md")
    (root / "b.md").write_bytes(b"theirs")
    with pytest.raises(StaleFileError) as refused:
        turn.write_files({"a.md": b"a2", "b.md": b"b2", "c.md": b"c2"})
    assert refused.value.path == str(root / "b.md")
    assert [(root / name).exists() for name in ("a.md", "b.md", "c.md")] == [True, True, False]
    assert (root / "a.md").read_bytes() == b"a1"
    turn.read_file("b.md")
    results = turn.write_files({"a.md": "a2", "b.md": b"b2", "c.md": b"c2"})
    assert {path: result.sha256 for path, result in results.items()} == {
        "a.md": sha256(b"a2"),
        "b.md": sha256(b"b2"),
        "c.md": sha256(b"c2"),
    }
    turn.write_files({"a.md": b"a3", "c.md": b"c3"})


def test_two_names_of_one_file_are_not_two_files(root: Path, turn: Turn) -> None:
    """N-many, N-input: what it should hold would be a guess."""
    (root / "a.md").write_bytes(b"v1")
    (root / "link").symlink_to("a.md")
    with pytest.raises(BadRequestError, match="one file"):
        turn.write_files({"a.md": b"x", "link": b"y"})


def test_a_path_cannot_be_a_file_and_the_folder_of_another(root: Path, turn: Turn) -> None:
    """N-many, N-input: it was "not a regular file", and the folder stayed behind, with nothing in it."""
    with pytest.raises(BadRequestError, match=r"the folder of .*new/deep/f\.md"):
        turn.write_files({"a.md": b"x", "new": b"x", "new/deep/f.md": b"y"})
    assert sorted(os.listdir(root)) == [".noclobber"]


@pytest.mark.parametrize("goal", ["a.md", "./a.md", "link"])
def test_a_move_onto_itself_is_a_bad_request(root: Path, turn: Turn, goal: str) -> None:
    """N-move, N-input: the message is about the move, and names the file."""
    (root / "a.md").write_bytes(b"v1")
    (root / "link").symlink_to("a.md")
    with pytest.raises(BadRequestError, match=r"a\.md: A file cannot be moved to its own name"):
        turn.move_file("a.md", goal)
    assert (root / "a.md").read_bytes() == b"v1"


def test_many_files_take_explicit_hashes(root: Path, turn: Turn) -> None:
    """Ruling 9."""
    (root / "a.md").write_bytes(b"v1")
    with pytest.raises(StaleFileError):
        turn.write_files({"a.md": b"x"}, expected_hashes={"a.md": sha256(b"v0")})
    with pytest.raises(BadRequestError):
        turn.write_files({"a.md": b"x"}, expected_hashes={"b.md": sha256(b"v0")})
    turn.write_files({"a.md": b"x"}, expected_hashes={"a.md": sha256(b"v1")})


def test_deleting_and_moving_are_checked_and_move_the_baseline(root: Path, turn: Turn) -> None:
    """009-FR-003: every modification; ruling 10."""
    (root / "a.md").write_bytes(b"v1")
    turn.read_file("a.md")
    moved = turn.move_file("a.md", "sub/b.md")
    assert (moved.path, moved.sha256) == (str(root / "sub/b.md"), sha256(b"v1"))
    turn.write_file("sub/b.md", b"v2")
    (root / "sub/b.md").write_bytes(b"theirs")
    for write in (lambda: turn.delete_file("sub/b.md"), lambda: turn.move_file("sub/b.md", "c.md")):
        with pytest.raises(StaleFileError):
            write()
    turn.read_file("sub/b.md")
    turn.delete_file("sub/b.md")
    (root / "sub/b.md").write_bytes(b"somebody made it again")
    with pytest.raises(StaleFileError) as refused:
        turn.write_file("sub/b.md", b"x")
    assert refused.value.expected == "ABSENT"


def test_a_move_never_replaces(root: Path, turn: Turn) -> None:
    """N-tools."""
    (root / "a.md").write_bytes(b"v1")
    (root / "b.md").write_bytes(b"v2")
    with pytest.raises(FileExistsAlreadyError):
        turn.move_file("a.md", "b.md")
    assert (root / "b.md").read_bytes() == b"v2"


def test_a_file_moved_unread_stays_unread(root: Path, ws: Workspace) -> None:
    """Ruling 7: moving is not reading."""
    (root / "a.md").write_bytes(b"v1")
    with ws.turn() as turn:
        turn.move_file("a.md", "b.md")
        assert turn.context.expected_for(str(root / "b.md"), str(root / "b.md")) is None


# -- edits ------------------------------------------------------------------------------------------


def test_edits_are_made_all_or_none(root: Path, turn: Turn) -> None:
    """011-edge-atomic: the whole operation is atomic."""
    (root / "a.md").write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    turn.read_file("a.md")
    with pytest.raises(EditMismatchError):
        turn.edit_file("a.md", [Edit("one", "1"), Edit("three", "3")])
    assert (root / "a.md").read_bytes() == b"\xef\xbb\xbfone\r\ntwo"
    turn.edit_file("a.md", [Edit("one\ntwo\n", "1\n2\n")])
    assert (root / "a.md").read_bytes() == b"\xef\xbb\xbf1\r\n2"


def test_a_stale_edit_is_refused_even_where_it_would_still_fit(root: Path, turn: Turn) -> None:
    """009-FR-003, 011-FR-001: every modification is checked."""
    (root / "a.md").write_bytes(b"one two")
    turn.read_file("a.md")
    (root / "a.md").write_bytes(b"one TWO")
    with pytest.raises(StaleFileError):
        turn.edit_file("a.md", [Edit("one", "1")])
    assert (root / "a.md").read_bytes() == b"one TWO"


def test_an_edit_of_an_unread_file_survives_a_race(root: Path, turn: Turn, at_step: AtStep) -> None:
    """Ruling 7, 009-SC-001: nothing was seen, so there is nothing to be stale; and nothing is lost."""
    (root / "a.md").write_bytes(b"one two")
    seen = at_step("entered", lambda: (root / "a.md").write_bytes(b"one TWO"))
    turn.edit_file("a.md", [Edit("one", "1")])
    assert seen
    assert (root / "a.md").read_bytes() == b"1 TWO"


def test_text_over_a_file_with_a_byte_order_mark_keeps_the_mark(root: Path, turn: Turn) -> None:
    """N-bytes: `text` does not show it, so nobody who writes `text` back means to drop it."""
    (root / "a.md").write_bytes(b"\xef\xbb\xbfone")
    seen = turn.read_file("a.md")
    turn.write_file("a.md", seen.text.upper())
    assert (root / "a.md").read_bytes() == b"\xef\xbb\xbfONE"
    turn.write_file("a.md", b"bytes are exact")
    assert (root / "a.md").read_bytes() == b"bytes are exact"


# -- what changed -----------------------------------------------------------------------------------


def test_changes_since_read_is_a_diff_from_what_was_seen(root: Path, turn: Turn) -> None:
    """DESIGN: and looking is not reading."""
    (root / "a.md").write_bytes(b"one\ntwo\n")
    turn.read_file("a.md")
    assert turn.changes_since_read("a.md") == ""
    (root / "a.md").write_bytes(b"one\n2\n")
    diff = turn.changes_since_read("a.md")
    assert "-two\n+2\n" in diff
    with pytest.raises(StaleFileError):
        turn.write_file("a.md", b"x")
    (root / "a.md").unlink()
    assert "-one\n-two\n" in turn.changes_since_read("a.md")


def test_changes_need_something_that_was_seen_and_kept(root: Path, ws: Workspace) -> None:
    """N-bounded: bounded."""
    (root / "a.md").write_bytes(b"v1" * 100)
    with ws.turn(retained_file_bytes=10) as turn:
        with pytest.raises(UnreadFileError):
            turn.changes_since_read("a.md")
        turn.read_file("a.md")
        with pytest.raises(BaselineNotRetainedError):
            turn.changes_since_read("a.md")


def test_two_threads_of_a_turn_that_read_first_get_one_initial_hash(root: Path, turn: Turn) -> None:
    """010-FR-003, 010-SC-001: while somebody rewrites the file all the time."""
    path = root / "a.md"
    stop = threading.Event()

    def rewrite() -> None:
        number = 0
        while not stop.is_set():
            (root / "new").write_bytes(b"%d" % number)
            os.replace(root / "new", path)
            number += 1

    path.write_bytes(b"start")
    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        seen = set()
        start = threading.Barrier(6)

        def read() -> None:
            start.wait()
            found = turn.read_file("a.md")
            assert found.sha256 == sha256(found.content)
            seen.add(turn.get_initial_hash("a.md"))

        readers = [threading.Thread(target=read) for _ in range(6)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    finally:
        stop.set()
        writer.join()
    assert len(seen) == 1


def test_paths_may_be_path_objects(root: Path, turn: Turn) -> None:
    """010-FR-004."""
    turn.write_file(Path("a.md"), b"v1")
    turn.read_file(root / "a.md")
    assert turn.get_initial_hash(Path("a.md")) == turn.get_initial_hash(root / "a.md") == sha256(b"v1")


def test_the_check_of_a_write_hashes_each_version_once(
    root: Path, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """009-SC-003: what is compared and what is written, no third pass; `make bench` says what that takes."""
    size = 1_000_000
    (root / "a.bin").write_bytes(b"0" * size)
    turn.read_file("a.bin")
    hashed = []

    class Counted:
        def __init__(self, data: bytes = b"") -> None:
            self._inner = hashlib.sha256(data)
            hashed.append(len(data))

        def update(self, data: bytes) -> None:
            self._inner.update(data)
            hashed.append(len(data))

        def hexdigest(self) -> str:
            return self._inner.hexdigest()

    monkeypatch.setattr(hashing, "sha256", Counted)
    turn.write_file("a.bin", b"1" * size)
    assert size <= sum(hashed) <= 2 * size + 10_000  # The ledger's lines are hashed as well.
