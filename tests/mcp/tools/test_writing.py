"""What the writing tools add to the reference server's: stale writes are refused, all or none, bytes stay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber import schema
from noclobber.errors import STALE_HINT, STALE_MESSAGE
from noclobber.mcp.tools.writing import unified
from tests.conftest import AtStep, sha256
from tests.mcp.conftest import Call, Connect, events


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
    """Ruling 3, ruling 21, 011: exactly these objects, nothing around them or in them; who, as a second text."""
    plan = root / "plan.md"
    plan.write_bytes(b"v1")
    call("read_text_file", path="plan.md")
    plan.write_bytes(b"v2")

    refused = call("write_file", path="plan.md", content="mine")

    block, who = refused.content
    assert who["text"].startswith("Written by an outsider, at 20")
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

    assert refused.structured["expected_hash"] == "ABSENT"
    assert (root / "new.md").read_bytes() == b"theirs"


def test_writing_through_a_name_that_became_a_link_to_another_file_is_refused(call: Call, root: Path) -> None:
    """What was seen under a name is what a write under that name is checked against."""
    (root / "a.md").write_bytes(b"a")
    (root / "b.md").write_bytes(b"b")
    call("read_text_file", path="a.md")
    (root / "a.md").unlink()
    (root / "a.md").symlink_to("b.md")

    assert call("write_file", path="a.md", content="x").is_error
    assert (root / "b.md").read_bytes() == b"b"


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
    assert [one["sha256"] for one in written.structured["files"]] == [sha256(b"v2")] * 3


def test_several_files_may_each_say_what_they_expect(call: Call, root: Path) -> None:
    """Hash, observation id or ABSENT, a file each."""
    (root / "a.md").write_bytes(b"v1")
    seen = call("read_text_file", path="a.md").structured

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


@pytest.mark.parametrize("tool", ["write_file", "edit_file", "write_files"])
def test_a_write_does_not_reach_out_of_the_root_by_a_hard_link(
    call: Call, root: Path, tmp_path: Path, tool: str
) -> None:
    """finding S20: the other name may be anywhere. Deleting and writing anew changes this name alone."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    (root / "inside").hardlink_to(outside)
    arguments: dict[str, dict[str, Any]] = {
        "write_file": {"path": "inside", "content": "mine"},
        "edit_file": {"path": "inside", "edits": [{"oldText": "theirs", "newText": "mine"}]},
        "write_files": {"files": [{"path": "inside", "content": "mine"}, {"path": "new", "content": "x"}]},
    }

    refused = call(tool, **arguments[tool])

    assert refused.is_error
    code = "BAD_REQUEST" if tool == "write_files" else "OUTSIDE_WORKSPACE"
    assert refused.structured["error_type"] == code
    assert outside.read_bytes() == b"theirs"
    assert not (root / "new").exists()
    assert not call("delete_file", path="inside").is_error
    assert not call("write_file", path="inside", content="mine").is_error
    assert outside.read_bytes() == b"theirs"


def test_a_hard_link_that_appears_during_the_write_does_not_lead_out(
    call: Call, root: Path, tmp_path: Path, at_step: AtStep
) -> None:
    """finding S20: looked at inside the commit, and not only before it."""
    (root / "a.md").write_bytes(b"v1")
    reached = at_step("noted", lambda: os.link(root / "a.md", tmp_path / "outside"))

    call("write_file", path="a.md", content="mine")

    assert reached == ["noted"]
    assert (tmp_path / "outside").read_bytes() == b"v1"


def test_the_options_file_may_allow_hard_links(connect: Connect, root: Path, tmp_path: Path) -> None:
    """finding S20: where all names are known to be inside, for instance."""
    (root / "noclobber.toml").write_text('hard_links = "write"\n')
    (root / "a.md").write_bytes(b"v1")
    (root / "b.md").hardlink_to(root / "a.md")

    assert not connect()("write_file", path="a.md", content="mine").is_error
    assert (root / "b.md").read_bytes() == b"mine"


LINES = b"".join(b"line %d\n" % number for number in range(1, 21))


def test_with_on_stale_merge_a_stale_write_lands_and_says_what_others_changed(call: Call, root: Path) -> None:
    """Ruling 17: the agent is told that it was merged, and shown what others changed."""
    (root / "noclobber.toml").write_text('on_stale = "merge"\n')
    plan = root / "plan.md"
    plan.write_bytes(LINES)
    call("read_text_file", path="plan.md")
    plan.write_bytes(LINES.replace(b"line 18\n", b"theirs\n"))

    done = call("write_file", path="plan.md", content=LINES.replace(b"line 3\n", b"ours\n").decode())

    assert plan.read_bytes() == LINES.replace(b"line 3\n", b"ours\n").replace(b"line 18\n", b"theirs\n")
    assert not done.is_error
    assert done.content[0]["text"].startswith("Successfully wrote to plan.md\n\nThe file had changed")
    assert "-line 18\n+theirs\n" in done.content[0]["text"]
    assert done.structured["merged"]["base_sha256"] == sha256(LINES)


def test_with_on_stale_merge_an_edit_lands_in_the_current_file(call: Call, root: Path) -> None:
    """Ruling 17: the diff is of the current file."""
    (root / "noclobber.toml").write_text('on_stale = "merge"\n')
    plan = root / "plan.md"
    plan.write_bytes(LINES)
    call("read_text_file", path="plan.md")
    plan.write_bytes(LINES.replace(b"line 4\n", b"line 4\nline 4 and a half\nline 4 and more\n"))

    done = call("edit_file", path="plan.md", edits=[{"oldText": "line 9", "newText": "ours"}])

    assert not done.is_error
    assert b"ours\n" in plan.read_bytes()
    assert b"and a half" in plan.read_bytes()
    assert "merged with what an outsider had changed" in done.content[0]["text"]


def test_with_on_stale_merge_a_conflict_is_the_exact_object_and_the_lines_beside_it(
    call: Call, root: Path
) -> None:
    """Ruling 17: the object stays as it is; other texts say who, and why it was not merged."""
    (root / "noclobber.toml").write_text('on_stale = "merge"\n')
    plan = root / "plan.md"
    plan.write_bytes(LINES)
    call("read_text_file", path="plan.md")
    plan.write_bytes(LINES.replace(b"line 3\n", b"theirs\n"))

    refused = call("write_file", path="plan.md", content=LINES.replace(b"line 3\n", b"ours\n").decode())

    assert refused.is_error
    told, _, beside = refused.content
    jsonschema.validate(json.loads(told["text"]), schema("stale-file-agent"))
    assert beside["text"] == "Not merged: Both changed the same lines: 2-3 of the current file."


PATCH_LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  x"]), max_size=12)


@pytest.mark.skipif(shutil.which("patch") is None, reason="the program `patch` is not installed")
@settings(max_examples=40, deadline=None)
@given(before=PATCH_LINES, after=PATCH_LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_the_patch_tool_takes_our_patches(
    before: Any, after: Any, ends: tuple[bool, bool], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Counts, contexts and missing last newlines are right for a program that checks them."""
    old, new = (
        "\n".join(lines) + ("\n" if lines and end else "")
        for lines, end in zip((before, after), ends, strict=True)
    )
    folder = tmp_path_factory.mktemp("patch")
    (folder / "f").write_text(old)

    text = unified(old, new, "f")
    if old != new:
        done = subprocess.run(
            ["patch", "-s", "f"], input=text, text=True, cwd=folder, capture_output=True, check=False
        )
        assert done.returncode == 0, (text, done.stdout)
        # patch removes a file that has become empty.
        assert ((folder / "f").read_text() if (folder / "f").exists() else "") == new
