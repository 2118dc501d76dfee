"""What a framework's own tool reads and writes below a guarded folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber import Workspace
from noclobber.adapters.tool_io import MARK, ToolIO, bytes_of
from noclobber.errors import BadRequestError, MissingFileError, StaleFileError, UnreadFileError
from noclobber.guard.turn import Turn
from tests.rigs.ledgers import recorded

Begin = Callable[..., ToolIO]


@pytest.fixture
def turn(root: Path) -> Iterator[Turn]:
    """A turn of an agent."""
    with Workspace(root) as workspace, workspace.turn(agent_id="agent") as turn:
        yield turn


@pytest.fixture
def call(turn: Turn) -> Begin:
    """Begin a call of a tool in that turn."""
    return lambda tool="tool", call_id=None: ToolIO(lambda: turn, tool, call_id, writes_text=True)


def shown(io: ToolIO, path: str) -> None:
    """A tool reads a file and shows all of it."""
    io.over(io.read(path).decode("utf-8", "replace"))


def test_a_stale_edit_is_refused_though_its_tool_has_read_the_new_version(root: Path, call: Begin) -> None:
    """N-frameworks, 009-FR-004: what the tool read for itself is nothing that its agent saw."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    shown(call(), "plan.md")
    plan.write_bytes(b"theirs\n")
    edit = call("edit", "call-1")
    old = edit.read("plan.md")

    with pytest.raises(StaleFileError) as refused:
        edit.write("plan.md", old + b"mine\n")

    assert refused.value.expected == sha256(b"one\n").hexdigest()
    assert refused.value.actual == sha256(b"theirs\n").hexdigest()
    assert edit.refusal is refused.value
    assert plan.read_bytes() == b"theirs\n"
    [event] = recorded(root / ".noclobber" / "agent_trace.jsonl")
    assert (event["action_type"], event["identity"]["call_id"]) == ("MUTATION_CONFLICT", "call-1")


def test_what_a_tool_made_from_a_version_in_between_does_not_land(root: Path, call: Begin) -> None:
    """N-frameworks: the file is back at what the agent saw; the edit was made from what was there meanwhile."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    shown(call(), "plan.md")
    plan.write_bytes(b"theirs\n")
    edit = call()
    old = edit.read("plan.md")
    plan.write_bytes(b"one\n")

    with pytest.raises(StaleFileError):
        edit.write("plan.md", old + b"mine\n")

    assert plan.read_bytes() == b"one\n"


def test_an_edit_of_an_unread_file_replaces_only_what_its_tool_read(root: Path, call: Begin) -> None:
    """N-frameworks: the agent has seen nothing, but the tool's new content was made from what it read."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    edit = call()
    old = edit.read("plan.md")
    plan.write_bytes(b"one\ntheirs\n")

    with pytest.raises(StaleFileError):
        edit.write("plan.md", old + b"mine\n")

    assert plan.read_bytes() == b"one\ntheirs\n"


def test_a_read_that_was_written_over_is_not_a_read(root: Path, call: Begin, turn: Turn) -> None:
    """N-frameworks: after an edit the baseline is what was written."""
    (root / "plan.md").write_bytes(b"one\n")
    edit = call()
    edit.write("plan.md", edit.read("plan.md") + b"two\n")
    edit.over("Edited.")

    name = str(root / "plan.md")
    assert turn.context.expected_for(name, name) == sha256(b"one\ntwo\n").hexdigest()


def test_a_call_that_fails_has_shown_nothing(root: Path, call: Begin, turn: Turn) -> None:
    """N-frameworks: cancelled or failed, the agent has seen what it had seen before."""
    (root / "plan.md").write_bytes(b"one\n")
    call().read("plan.md")

    assert turn.context.expected_for(str(root / "plan.md"), str(root / "plan.md")) is None


def test_that_there_is_no_file_is_seen(root: Path, call: Begin) -> None:
    """Ruling 5: the agent looked and found nothing; somebody creates the file; the write is refused."""
    look = call()
    with pytest.raises(MissingFileError):
        look.read("plan.md")
    look.over("There is no such file.")
    (root / "plan.md").write_bytes(b"theirs\n")

    with pytest.raises(StaleFileError) as refused:
        call().write("plan.md", b"mine\n")
    assert refused.value.expected == "ABSENT"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("one\ntwo\nthree\n", True),
        ("[plan.md]\n     1\tone\n     2\ttwo\n     3\tthree\n", True),
        ("1|one\r\n2|two\r\n3|three\r\n", True),
        ("     2\ttwo\n", False),
        ("plan.md:2: two", False),
        ("3 matches", False),
    ],
)
def test_what_was_seen_is_what_the_result_shows(
    root: Path, call: Begin, turn: Turn, text: str, whole: bool
) -> None:
    """Ruling 2, ruling 11: a result with some of the lines is a read of a part."""
    (root / "plan.md").write_bytes(b"one\ntwo\nthree\n")
    io = call()
    io.read("plan.md")
    io.over(text)

    seen = turn.context.coverage_for(str(root / "plan.md"), str(root / "plan.md"))
    assert seen is not None
    assert seen.is_whole is whole


def test_a_search_does_not_move_the_baseline(root: Path, call: Begin) -> None:
    """Ruling 2: the agent saw lines of many files, and of none of them the whole."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(b"one\n")
    shown(call(), "a.md")
    (root / "a.md").write_bytes(b"theirs\n")
    search = call("grep")
    found = "".join(search.read(name).decode() for name in ("a.md", "b.md"))
    search.over(found)

    with pytest.raises(StaleFileError):
        call().write("a.md", b"mine\n")


def test_a_tool_that_reads_two_versions_makes_its_agent_read_again(root: Path, call: Begin) -> None:
    """Ruling 22: the result may show either, so what the agent saw has no name."""
    plan = root / "plan.md"
    plan.write_bytes(b"one\n")
    io = call()
    io.read("plan.md")
    plan.write_bytes(b"theirs\n")
    io.read("plan.md")
    io.over("one\n")

    with pytest.raises(UnreadFileError):
        call().write("plan.md", b"mine\n")


def test_bytes_that_are_not_utf8_survive_an_edit_of_the_text(root: Path, call: Begin) -> None:
    """N-frameworks: the tool decodes with a mark for each bad byte; what it left alone is as it was."""
    (root / "a.txt").write_bytes(b"M\xfcller\nhost = old\n")
    edit = call()
    text = edit.read("a.txt").decode("utf-8", "replace")
    edit.write("a.txt", text.replace("old", "new"))

    assert (root / "a.txt").read_bytes() == b"M\xfcller\nhost = new\n"


def test_a_change_of_what_the_tool_could_not_read_is_refused(root: Path, call: Begin) -> None:
    """N-frameworks: nobody knows which bytes are meant."""
    (root / "a.txt").write_bytes(b"M\xfcller\n")
    edit = call()
    text = edit.read("a.txt").decode("utf-8", "replace")

    with pytest.raises(BadRequestError):
        edit.write("a.txt", f"{text}{text}")
    assert (root / "a.txt").read_bytes() == b"M\xfcller\n"


def test_lines_that_a_tool_adds_end_as_the_others_do(root: Path, call: Begin) -> None:
    """N-frameworks: a tool that replaces text puts bare newlines into a file that has none."""
    (root / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    edit = call()
    text = edit.read("a.txt").decode()
    edit.write("a.txt", text.replace("two", "two\nthree"))

    assert (root / "a.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"


def test_a_path_that_is_no_text_is_refused(call: Begin) -> None:
    """N-frameworks: a list as a path would be a file with brackets in its name."""
    with pytest.raises(BadRequestError, match="A path is a text, not a list"):
        call().write(["a.txt"], b"")  # type: ignore[arg-type]


def test_bytes_of_a_tool_that_writes_no_text_are_written_as_they_are(root: Path, turn: Turn) -> None:
    """N-frameworks: a picture is not given other line endings."""
    (root / "a.bin").write_bytes(b"\x89PNG\r\n")
    io = ToolIO(lambda: turn, "draw")
    io.over(io.read("a.bin").decode("utf-8", "replace"))
    ToolIO(lambda: turn, "draw").write("a.bin", b"new\n")

    assert (root / "a.bin").read_bytes() == b"new\n"


DATA = st.lists(
    st.sampled_from([b"a", b"\n", b"\r\n", b"\xfc", b"\xc3", b"\xc3\xbc", b"\xf0\x9f", b"\xef\xbf\xbd"])
).map(b"".join)


@given(data=DATA)
def test_a_text_that_was_not_changed_is_the_same_bytes(data: bytes) -> None:
    """N-frameworks: nothing is lost by decoding and writing back."""
    assert bytes_of(data, data.decode("utf-8", "replace")) == data


@given(before=DATA, old=st.text("xyz", min_size=1), new=st.text("uvw\n"), after=DATA)
def test_only_the_changed_text_is_changed(before: bytes, old: str, new: str, after: bytes) -> None:
    """N-frameworks: every byte outside of the edit stays. Or nothing is written: a mark may be in the way."""
    text = (before + old.encode() + after).decode("utf-8", "replace").replace(old, new, 1)
    found = bytes_of(before + old.encode() + after, text)
    assert found in (before + new.encode() + after, None)
    assert found is not None or MARK in text
