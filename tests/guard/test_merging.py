"""Stale writes that merge: what lands, what is refused as ever, what the agent and the ledger are told."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import re
from pathlib import Path
from typing import Any

import pytest

from noclobber import AgentController, Edit, StaleFileError, Workspace
from noclobber.core.project import ledger_path
from noclobber.disk.reading import look_at
from noclobber.guard import engine

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))
THEIRS = TEXT.replace(b"line 18\n", b"theirs\n")
OURS = TEXT.replace(b"line 3\n", b"ours\n")
BOTH = THEIRS.replace(b"line 3\n", b"ours\n")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def events(root: Path, kind: str) -> list[dict[str, Any]]:
    lines = Path(ledger_path(str(root))).read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["action_type"] == kind]


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "plan.md"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def ws(root: Path) -> Workspace:
    return Workspace(root, on_stale="merge")


def test_a_stale_write_lands_with_the_changes_of_both(ws: Workspace, file: Path) -> None:
    """Ruling 17, N-merge: the agent is told, and shown what others changed."""
    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(THEIRS)

        done = turn.write_file("plan.md", OURS)

    assert file.read_bytes() == BOTH
    assert (done.sha256, done.previous_sha256) == (sha(BOTH), sha(THEIRS))
    assert done.merged is not None
    assert done.merged[:3] == (sha(TEXT), sha(THEIRS), sha(OURS))
    assert "-line 18\n+theirs\n" in done.merged.changes


def test_the_ledger_names_base_theirs_ours_and_result(ws: Workspace, root: Path, file: Path) -> None:
    """Ruling 17: one `MUTATION`, and no conflict."""
    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(THEIRS)
        turn.write_file("plan.md", OURS)

    [event] = events(root, "MUTATION")
    assert event["payload"]["merged"] == {
        "base_hash": f"sha256:{sha(TEXT)}",
        "theirs_hash": f"sha256:{sha(THEIRS)}",
        "ours_hash": f"sha256:{sha(OURS)}",
    }
    assert event["payload"]["before_hash"] == f"sha256:{sha(THEIRS)}"
    assert event["payload"]["after_hash"] == f"sha256:{sha(BOTH)}"
    assert events(root, "MUTATION_CONFLICT") == []


def test_the_merged_version_is_the_agents_baseline(ws: Workspace, file: Path) -> None:
    """Ruling 17: the next write is checked against it, and merged from it."""
    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(THEIRS)
        turn.write_file("plan.md", OURS)

        assert turn.write_file("plan.md", BOTH + b"more\n").merged is None
        file.write_bytes(BOTH.replace(b"line 10\n", b"again\n") + b"more\n")
        assert turn.write_file("plan.md", BOTH.replace(b"line 1\n", b"")).merged is not None

    assert file.read_bytes() == BOTH.replace(b"line 10\n", b"again\n").replace(b"line 1\n", b"")


def test_refusing_is_the_default(root: Path, file: Path) -> None:
    """009-FR-004, ruling 17."""
    with Workspace(root).turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(THEIRS)

        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", OURS)

    assert refused.value.not_merged is None
    assert file.read_bytes() == THEIRS


def test_a_conflict_is_refused_with_the_lines_beside_the_object(ws: Workspace, file: Path) -> None:
    """Ruling 17: the object is unchanged."""
    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(TEXT.replace(b"line 3\n", b"theirs\n"))

        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", OURS)

    assert refused.value.not_merged == "Both changed the same lines: 2-3 of the current file."
    assert set(refused.value.to_agent()) == {"error_type", "message", "details", "recovery_hint"}
    assert file.read_bytes() == TEXT.replace(b"line 3\n", b"theirs\n")


def test_an_edit_is_made_in_the_current_file(ws: Workspace, file: Path) -> None:
    """Ruling 17: an edit on a stale file."""
    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(THEIRS)

        done = turn.edit_file("plan.md", [Edit("line 3\n", "ours\n")])

    assert file.read_bytes() == BOTH
    assert done.merged is not None
    assert done.merged.ours_sha256 == sha(OURS)


def test_an_edit_that_would_go_to_another_place_is_refused(ws: Workspace, file: Path) -> None:
    """DESIGN, the two-test rule: the old text occurs once in both, but it is not the same place."""
    file.write_bytes(b"def one():\n    return 1\n\n\ndef two():\n    pass\n")
    moved = b"def one():\n    pass\n\n\ndef two():\n    return 1\n"
    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(moved)

        with pytest.raises(StaleFileError) as refused:
            turn.edit_file("plan.md", [Edit("    return 1\n", "    return 2\n")])

    assert refused.value.not_merged is not None
    assert file.read_bytes() == moved


def test_an_edit_whose_text_is_gone_is_refused_as_stale(ws: Workspace, file: Path) -> None:
    """Ruling 17: what the agent needs to know is that the file changed."""
    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(TEXT.replace(b"line 3\n", b""))

        with pytest.raises(StaleFileError):
            turn.edit_file("plan.md", [Edit("line 3\n", "ours\n")])


def test_several_files_are_all_merged_or_none_is(ws: Workspace, root: Path, file: Path) -> None:
    """Ruling 17: several files."""
    for name in ("a.md", "b.md", "c.md"):
        (root / name).write_bytes(TEXT)
    with ws.turn() as turn:
        for name in ("a.md", "b.md", "c.md"):
            turn.read_file(name)
        (root / "a.md").write_bytes(THEIRS)
        (root / "c.md").write_bytes(TEXT.replace(b"line 3\n", b"conflict\n"))

        with pytest.raises(StaleFileError):
            turn.write_files(dict.fromkeys(("a.md", "b.md", "c.md"), OURS))
        assert (root / "a.md").read_bytes() == THEIRS
        assert (root / "b.md").read_bytes() == TEXT

        (root / "c.md").write_bytes(THEIRS)
        done = turn.write_files(dict.fromkeys(("a.md", "b.md", "c.md"), OURS))

    assert [(root / name).read_bytes() for name in ("a.md", "b.md", "c.md")] == [BOTH, OURS, BOTH]
    assert [done[name].merged is not None for name in ("a.md", "b.md", "c.md")] == [True, False, True]


def test_a_file_that_changes_again_is_merged_again(
    ws: Workspace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-merge: a compare-and-swap on what is there now, within bounds."""
    states = [THEIRS.replace(b"line 9\n", b"again\n"), THEIRS.replace(b"line 10\n", b"and again\n")]
    real = look_at

    def look_and_change(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        if states:
            file.write_bytes(states.pop(0))
        return found

    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(THEIRS)
        monkeypatch.setattr(engine, "look_at", look_and_change)

        done = turn.write_file("plan.md", OURS)

    assert file.read_bytes() == BOTH.replace(b"line 10\n", b"and again\n")
    assert done.merged is not None
    assert done.merged.theirs_sha256 == done.previous_sha256


def test_a_file_that_never_stops_changing_is_refused(
    ws: Workspace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-merge: within bounds."""
    real, count = look_at, 0

    def look_and_change(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        found = real(*args, **kwargs)
        file.write_bytes(THEIRS.replace(b"line 9\n", b"change %d\n" % count))
        return found

    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(THEIRS)
        monkeypatch.setattr(engine, "look_at", look_and_change)

        with pytest.raises(StaleFileError):
            turn.write_file("plan.md", OURS)

    assert file.read_bytes() == THEIRS.replace(b"line 9\n", b"change %d\n" % count)


@pytest.mark.parametrize("name", ["package.json", "uv.lock", "pnpm-lock.yaml", "notes.ipynb"])
def test_files_that_are_only_right_as_a_whole_are_not_merged(ws: Workspace, root: Path, name: str) -> None:
    """Ruling 17: lock files of package managers, JSON and notebooks by default."""
    (root / name).write_bytes(TEXT)
    with ws.turn() as turn:
        turn.read_file(name)
        (root / name).write_bytes(THEIRS)

        with pytest.raises(StaleFileError) as refused:
            turn.write_file(name, OURS)

    assert refused.value.not_merged is not None
    assert "never_merge" in refused.value.not_merged


def test_a_list_of_our_own_says_what_is_never_merged(root: Path, file: Path) -> None:
    """Ruling 17: names, and paths if there is a slash in them."""
    (root / "docs").mkdir()
    (root / "docs" / "plan.md").write_bytes(TEXT)
    with Workspace(root, on_stale="merge", never_merge=["docs/*.md"]).turn() as turn:
        for name in ("plan.md", "docs/plan.md"):
            turn.read_file(name)
            (root / name).write_bytes(THEIRS)

        assert turn.write_file("plan.md", OURS).merged is not None
        with pytest.raises(StaleFileError):
            turn.write_file("docs/plan.md", OURS)


def test_a_file_that_was_seen_in_part_is_not_merged(ws: Workspace, file: Path) -> None:
    """Ruling 17: seen only in part is refused as ever."""
    with ws.turn() as turn:
        turn.read_file("plan.md", start_line=1, end_line=5)
        file.write_bytes(THEIRS)

        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", OURS)

    assert refused.value.not_merged == "You have read only part of the file."


def test_a_base_that_was_not_kept_is_not_merged(root: Path, file: Path) -> None:
    """Ruling 17: base not kept, refused as ever."""
    with Workspace(root, on_stale="merge", retained_file_bytes=10).turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(THEIRS)

        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", OURS)

    assert refused.value.not_merged == "What you read is not kept any more."


def test_a_write_that_names_an_older_version_is_not_merged_from_the_newer(ws: Workspace, file: Path) -> None:
    """Ruling 17: the base is what the write was made from, and of that the bytes are not at hand."""
    with ws.turn() as turn:
        turn.read_file("plan.md")
        file.write_bytes(THEIRS)
        turn.read_file("plan.md")

        with pytest.raises(StaleFileError):
            turn.write_file("plan.md", OURS, expected_hash=sha(TEXT))

    assert file.read_bytes() == THEIRS


@pytest.mark.parametrize("state", ["deleted", "binary"])
def test_what_cannot_be_merged_is_refused_as_ever(ws: Workspace, file: Path, state: str) -> None:
    """Ruling 17."""
    with ws.turn() as turn:
        turn.read_file("plan.md")
        if state == "deleted":
            file.unlink()
        else:
            file.write_bytes(b"\0\1\2")

        with pytest.raises(StaleFileError):
            turn.write_file("plan.md", OURS)

    assert not file.exists() if state == "deleted" else file.read_bytes() == b"\0\1\2"


def test_deletes_moves_and_files_created_since_are_never_merged(
    ws: Workspace, root: Path, file: Path
) -> None:
    """Ruling 17."""
    with ws.turn() as turn:
        turn.read_file("plan.md")
        with pytest.raises(FileNotFoundError):
            turn.read_file("new.md")
        file.write_bytes(THEIRS)
        (root / "new.md").write_bytes(TEXT)

        for refused in (
            lambda: turn.delete_file("plan.md"),
            lambda: turn.move_file("plan.md", "elsewhere.md"),
            lambda: turn.write_file("new.md", OURS),
        ):
            with pytest.raises(StaleFileError):
                refused()

    assert file.read_bytes() == THEIRS
    assert (root / "new.md").read_bytes() == TEXT


def test_a_merge_is_a_result_for_the_controller(ws: Workspace, file: Path) -> None:
    """N-merge: MERGED is no error, and the history says what was merged."""
    with ws.turn() as turn:
        controller = AgentController(turn)

        def step(attempt: Any) -> str:
            turn.read_file("plan.md")
            file.write_bytes(THEIRS)
            turn.write_file("plan.md", OURS)
            return "whatever the step returns"

        assert controller.run(step) == "whatever the step returns"

    [last] = controller.history
    assert (last.after, last.reason) == ("DONE", "MERGED")
    assert [done.path for done in last.merged] == [str(file)]


# -- equal changes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "wanted", "theirs"),
    [
        pytest.param(b"3\n", b"4\n", b"4\n", id="the whole file"),
        pytest.param(TEXT + b"stock 10\n", TEXT + b"stock 9\n", TEXT + b"stock 9\n", id="one line of it"),
        pytest.param(TEXT, TEXT + b"- [ ] x\n", TEXT + b"- [ ] x\n", id="appended"),
        pytest.param(TEXT, b"", b"", id="emptied"),
    ],
)
@pytest.mark.parametrize("on_stale", ["refuse", "merge"])
def test_what_is_there_already_is_told_and_not_counted_once(
    root: Path, file: Path, on_stale: Any, seen: bytes, wanted: bytes, theirs: bytes
) -> None:
    """Finding E3, ruling 29: STALE_FILE; where the project merges, with the name of who was first."""
    file.write_bytes(seen)
    ws = Workspace(root, on_stale=on_stale)
    with ws.turn(agent_id="late") as turn, ws.turn(agent_id="early") as first:
        turn.read_file("plan.md")
        first.read_file("plan.md")
        first.write_file("plan.md", theirs)

        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", wanted)

    reason = refused.value.not_merged
    if on_stale == "merge":
        assert reason is not None
        assert reason.startswith("Already so, by the agent early")
    else:
        assert reason is None
    assert len(events(root, "MUTATION")) == 1
    assert file.read_bytes() == theirs


def test_an_equal_change_among_others_is_a_conflict(ws: Workspace, file: Path) -> None:
    """Finding E3, ruling 29: the agent asked for something else as well, so the counter would count once."""
    file.write_bytes(TEXT + b"count 3\n")
    with ws.turn() as turn:
        turn.read_file("plan.md")
        theirs = TEXT + b"count 4\n"
        file.write_bytes(theirs)

        with pytest.raises(StaleFileError) as refused:
            turn.write_file("plan.md", OURS + b"count 4\n")

    assert "same lines" in (refused.value.not_merged or "")
    assert file.read_bytes() == theirs


# -- several processes -------------------------------------------------------------------------------------


def _append_lines(root: str, worker: int, count: int, refused: Any) -> None:
    ws = Workspace(root, on_stale="merge")
    for number in range(count):
        while True:
            with ws.turn(agent_id=f"agent-{worker}") as turn:
                seen = turn.read_file("shared.md").content
                mark = b"## section %d\n" % worker
                try:
                    turn.write_file("shared.md", seen.replace(mark, mark + b"%d.%d\n" % (worker, number)))
                    break
                except StaleFileError:
                    with refused.get_lock():
                        refused.value += 1


def _count_up(root: str, worker: int, count: int, refused: Any) -> None:
    ws = Workspace(root, on_stale="merge")
    for _ in range(count):
        while True:
            with ws.turn(agent_id=f"agent-{worker}") as turn:
                seen = turn.read_file("shared.md").content
                [line] = re.findall(rb"count \d+\n", seen)
                try:
                    turn.write_file("shared.md", seen.replace(line, b"count %d\n" % (int(line[6:]) + 1)))
                    break
                except StaleFileError:
                    with refused.get_lock():
                        refused.value += 1


@pytest.mark.parametrize("rest", [b"", TEXT])
def test_agents_that_count_in_one_line_count_every_time(root: Path, rest: bytes) -> None:
    """Finding E3, live: 3 processes count 20 times each. Of two that write the same number one is refused."""
    (root / "shared.md").write_bytes(rest + b"count 0\n" + rest.replace(b"line", b"end"))
    context = multiprocessing.get_context("spawn")
    refused = context.Value("i", 0)
    agents = [context.Process(target=_count_up, args=(str(root), worker, 20, refused)) for worker in range(3)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()

    assert [agent.exitcode for agent in agents] == [0] * 3
    assert b"count 60\n" in (root / "shared.md").read_bytes()
    assert refused.value > 0, "they took turns by luck, and the test proved nothing"


def test_agents_that_write_one_file_at_once_lose_nothing(root: Path) -> None:
    """N-merge, live: real processes, each in its own section; every line is in the file once, in order."""
    workers, count = 4, 15
    sections = [
        b"## section %d\n" % w + b"".join(b"text %d.%d\n" % (w, n) for n in range(4)) for w in range(4)
    ]
    (root / "shared.md").write_bytes(b"".join(sections))
    context = multiprocessing.get_context("spawn")
    refused = context.Value("i", 0)
    agents = [
        context.Process(target=_append_lines, args=(str(root), worker, count, refused))
        for worker in range(workers)
    ]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()

    assert [agent.exitcode for agent in agents] == [0] * workers
    found = (root / "shared.md").read_bytes()
    for worker, section in enumerate(sections):
        mark, rest = section.split(b"\n", 1)
        new = b"".join(b"%d.%d\n" % (worker, number) for number in reversed(range(count)))
        assert mark + b"\n" + new + rest in found
    assert len(found.splitlines()) == workers * (count + 5)
