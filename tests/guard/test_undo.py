"""Taking back what one agent wrote: others' lines stay, or nothing is touched."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noclobber import CannotUndoError, StaleFileError, Workspace
from noclobber.guard.blame import blame
from noclobber.guard.commands import run_command
from noclobber.guard.undo import AGENT_ID, Selection, carry_out, plan
from noclobber.ledger import history
from noclobber.ledger.chosen import lines_of
from noclobber.ledger.history import History, LandedWrite
from noclobber.shell.roots import why_not

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))


@pytest.fixture
def ws(root: Path) -> Workspace:
    return Workspace(root)


def change(ws: Workspace, agent: str, name: str, old: bytes, new: bytes, **who: Any) -> None:
    """One agent reads a file, replaces one line of it, and writes it back."""
    with ws.turn(agent_id=agent, **who) as turn:
        content = turn.read_file(name).content
        assert old in content
        turn.write_file(name, content.replace(old, new))


def test_one_agents_writes_are_taken_back_and_others_changes_stay(ws: Workspace, root: Path) -> None:
    """Ruling 19: also an outsider's, and also in between."""
    file = root / "plan.md"
    file.write_bytes(TEXT)
    change(ws, "ana", "plan.md", b"line 2\n", b"ana 2\n")
    change(ws, "bob", "plan.md", b"line 10\n", b"bob 10\n")
    file.write_bytes(file.read_bytes().replace(b"line 15\n", b"a person\n"))
    change(ws, "ana", "plan.md", b"line 19\n", b"ana 19\nana again\n")

    done = ws.undo(agent_id="ana")

    assert file.read_bytes() == TEXT.replace(b"line 10\n", b"bob 10\n").replace(b"line 15\n", b"a person\n")
    assert [write.agent_id for write in done.writes] == ["ana", "ana"]


def test_nothing_is_touched_where_others_built_on_it(ws: Workspace, root: Path) -> None:
    """Ruling 19: or refuses; every obstacle is named, and other files stay as they are, too."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(TEXT)
        change(ws, "ana", name, b"line 2\n", b"ana 2\n")
    change(ws, "bob", "b.md", b"ana 2\n", b"bob's version of ana 2\n")
    before = {name: (root / name).read_bytes() for name in ("a.md", "b.md")}

    with pytest.raises(CannotUndoError, match="these lines") as refused:
        ws.undo(agent_id="ana")

    assert refused.value.path == str(root / "b.md")
    assert {name: (root / name).read_bytes() for name in ("a.md", "b.md")} == before
    assert ws.undo(agent_id="ana", path="a.md").files[0].path == str(root / "a.md")
    assert (root / "a.md").read_bytes() == TEXT


def files_in(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}


def test_files_that_were_created_deleted_and_changed_are_taken_back_together(
    ws: Workspace, root: Path
) -> None:
    """Ruling 19: in one commit. What is restored is for its owner only: its mode is not on record."""
    (root / "deleted.md").write_bytes(b"old\n")
    (root / "changed.md").write_bytes(TEXT)
    (root / "changed.md").chmod(0o640)
    before = files_in(root)
    with ws.turn(agent_id="ana") as turn:
        turn.read_file("deleted.md")
        turn.write_file("created.md", b"new\n")
        turn.delete_file("deleted.md")
        turn.read_file("changed.md")
        turn.write_file("changed.md", TEXT.replace(b"line 2\n", b"ana 2\n"))
    after = files_in(root)

    ws.undo(agent_id="ana")

    assert files_in(root) == before
    assert (root / "deleted.md").stat().st_mode & 0o777 == 0o600
    assert (root / "changed.md").stat().st_mode & 0o777 == 0o640
    assert ws.undo(agent_id="ana").writes == ()
    ws.undo(agent_id=AGENT_ID)
    assert files_in(root) == after
    ws.ledger.verify()
    assert not list((root / ".noclobber").glob("staged-*"))


def test_a_move_is_taken_back_with_its_mode_and_with_what_others_changed_since(
    ws: Workspace, root: Path
) -> None:
    """Ruling 19: also together with what the agent wrote before and after the move; and forth again."""
    plan_md = root / "plan.md"
    plan_md.write_bytes(TEXT)
    plan_md.chmod(0o755)
    with ws.turn(agent_id="ana") as turn:
        turn.read_file("plan.md")
        turn.write_file("plan.md", TEXT.replace(b"line 2\n", b"ana 2\n"))
        turn.move_file("plan.md", "moved.md")
    change(ws, "bob", "moved.md", b"line 10\n", b"bob 10\n")
    change(ws, "ana", "moved.md", b"line 18\n", b"ana 18\n")
    after = files_in(root)

    ws.undo(agent_id="ana")

    assert files_in(root) == {"plan.md": TEXT.replace(b"line 10\n", b"bob 10\n")}
    assert plan_md.stat().st_mode & 0o777 == 0o755
    assert ws.undo(agent_id="ana").writes == ()
    authors = {line.text: line.author for line in blame(str(root), str(plan_md), plan_md.read_bytes())}
    by_bob = authors[b"bob 10\n"].write
    assert by_bob is not None
    assert by_bob.agent_id == "bob"

    ws.undo(agent_id=AGENT_ID)
    assert files_in(root) == after


def test_a_plain_move_is_a_move_back(ws: Workspace, root: Path) -> None:
    """Ruling 19: on record as one, so that the file's lines stay whose they are."""
    (root / "a.md").write_bytes(TEXT)
    with ws.turn(agent_id="ana") as turn:
        turn.read_file("a.md")
        turn.move_file("a.md", "b.md")

    ws.undo(agent_id="ana")

    assert files_in(root) == {"a.md": TEXT}
    last = list(ws.ledger.events())[-1]["payload"]
    assert (last["target_file"], last["destination"]) == ("b.md", "a.md")


@pytest.mark.parametrize("at", ["a.md", "b.md"])
def test_a_move_whose_names_are_not_free_any_more_is_not_taken_back(
    ws: Workspace, root: Path, at: str
) -> None:
    """Ruling 19: somebody made a file at the old name, or deleted the moved one; nothing is touched."""
    (root / "a.md").write_bytes(TEXT)
    with ws.turn(agent_id="ana") as turn:
        turn.read_file("a.md")
        turn.move_file("a.md", "b.md")
        turn.write_file("c.md", b"new\n")
    if at == "a.md":
        (root / "a.md").write_bytes(b"a person's\n")
    else:
        (root / "b.md").unlink()
    before = files_in(root)

    with pytest.raises(CannotUndoError, match="moved to"):
        ws.undo(agent_id="ana")

    assert files_in(root) == before


def test_a_file_that_others_moved_since_is_an_obstacle(ws: Workspace, root: Path) -> None:
    """Ruling 19: it is not at its name any more, and a file that is there is another one."""
    with ws.turn(agent_id="ana") as turn:
        turn.write_file("a.md", TEXT)
    with ws.turn(agent_id="bob") as turn:
        turn.read_file("a.md")
        turn.move_file("a.md", "b.md")
        turn.write_file("a.md", TEXT)
    before = files_in(root)

    with pytest.raises(CannotUndoError, match=r"moved it to .*b\.md since"):
        ws.undo(agent_id="ana")

    assert files_in(root) == before


def test_versions_that_disagree_with_the_ledger_are_not_used(ws: Workspace, root: Path) -> None:
    """N-versions, N-input: forged bytes under a hash of the ledger; nothing is touched."""
    (root / "plan.md").write_bytes(TEXT)
    change(ws, "ana", "plan.md", b"line 2\n", b"ana 2\n")
    for kept in (root / ".noclobber").glob("versions.*/?/*"):
        kept.write_bytes(b"forged\n")
    before = files_in(root)

    with pytest.raises(CannotUndoError, match="not kept any more"):
        ws.undo(agent_id="ana")

    assert files_in(root) == before


def test_a_mixed_undo_that_meets_a_change_touches_nothing(ws: Workspace, root: Path) -> None:
    """Ruling 19: all or none, also if somebody saves between plan and commit."""
    (root / "a.md").write_bytes(TEXT)
    change(ws, "ana", "a.md", b"line 2\n", b"ana 2\n")
    with ws.turn(agent_id="ana") as turn:
        turn.write_file("new.md", b"new\n")
    with ws.turn(agent_id=AGENT_ID) as turn:
        planned = plan(turn, Selection(agent_id="ana"))
        (root / "new.md").write_bytes(b"a person was here\n")
        before = files_in(root)
        with pytest.raises(StaleFileError):
            carry_out(turn, planned)

    assert files_in(root) == before


def test_the_same_bytes_of_somebody_else_stay(ws: Workspace, root: Path) -> None:
    """Ruling 19: who deleted a file or a line and wrote it again, wrote it."""
    with ws.turn(agent_id="ana") as turn:
        turn.write_file("file.md", b"same\n")
    with ws.turn(agent_id="bob") as turn:
        turn.read_file("file.md")
        turn.delete_file("file.md")
        turn.write_file("file.md", b"same\n")
    (root / "plan.md").write_bytes(TEXT)
    change(ws, "ana", "plan.md", b"line 2\n", b"line 2\nlicence\n")
    change(ws, "bob", "plan.md", b"licence\n", b"")
    change(ws, "bob", "plan.md", b"line 2\n", b"line 2\nlicence\n")

    for name in ("file.md", "plan.md"):
        before = (root / name).read_bytes()
        with pytest.raises(CannotUndoError, match=r"others wrote it|made another file"):
            ws.undo(agent_id="ana", path=name)
        assert (root / name).read_bytes() == before


def test_a_created_file_that_others_changed_is_not_removed(ws: Workspace, root: Path) -> None:
    """Ruling 19: their bytes would be gone."""
    with ws.turn(agent_id="ana") as turn:
        turn.write_file("new.md", TEXT)
    change(ws, "bob", "new.md", b"line 3\n", b"bob\n")

    with pytest.raises(CannotUndoError, match="others have changed it since"):
        ws.undo(agent_id="ana")

    assert b"bob\n" in (root / "new.md").read_bytes()


def test_an_undo_can_be_undone_and_a_second_one_takes_nothing_back_twice(ws: Workspace, root: Path) -> None:
    """Ruling 19: an undo is a write like any other."""
    file = root / "plan.md"
    file.write_bytes(TEXT)
    change(ws, "ana", "plan.md", b"line 2\n", b"ana 2\n")
    wanted = file.read_bytes()

    ws.undo(agent_id="ana")
    assert ws.undo(agent_id="ana").writes == ()
    assert file.read_bytes() == TEXT

    ws.undo(agent_id=AGENT_ID)
    assert file.read_bytes() == wanted

    ws.undo(agent_id="ana")
    assert file.read_bytes() == TEXT


def test_the_deleted_name_of_a_file_with_several_comes_back(ws: Workspace, root: Path) -> None:
    """Finding G12: its bytes were not kept, because somebody may write to them under the other name."""
    (root / "a.md").write_bytes(TEXT)
    os.link(root / "a.md", root / "b.md")
    with ws.turn(agent_id="ana") as turn:
        turn.read_file("a.md")
        turn.delete_file("a.md")
    (root / "b.md").write_bytes(b"theirs\n")
    ws.undo(agent_id="ana")
    assert ((root / "a.md").read_bytes(), (root / "b.md").read_bytes()) == (TEXT, b"theirs\n")


@pytest.mark.parametrize("by", ["session_id", "turn_id", "call_id"])
def test_a_session_a_turn_or_a_call_can_be_chosen(ws: Workspace, root: Path, by: str) -> None:
    """Ruling 19: of a session the beginning is enough."""
    file = root / "plan.md"
    file.write_bytes(TEXT)
    change(ws, "ana", "plan.md", b"line 2\n", b"one\n", session_id="session-1", turn_id="t1")
    change(ws, "ana", "plan.md", b"line 12\n", b"two\n", session_id="session-2", turn_id="t2")

    chosen: Any = {by: {"session_id": "session-1", "turn_id": "t1", "call_id": "t1/2"}[by]}
    ws.undo(**chosen)

    assert file.read_bytes() == TEXT.replace(b"line 12\n", b"two\n")


def test_a_merged_write_is_taken_back_without_what_it_was_merged_with(root: Path) -> None:
    """Rulings 17 and 19: what goes is what the agent sent, not what others had changed."""
    ws = Workspace(root, on_stale="merge")
    file = root / "plan.md"
    file.write_bytes(TEXT)
    with ws.turn(agent_id="ana") as turn:
        turn.read_file("plan.md")
        file.write_bytes(TEXT.replace(b"line 18\n", b"a person\n"))
        assert turn.write_file("plan.md", TEXT.replace(b"line 3\n", b"ana\n")).merged

    ws.undo(agent_id="ana")

    assert file.read_bytes() == TEXT.replace(b"line 18\n", b"a person\n")


def test_bytes_that_are_not_kept_any_more_are_an_obstacle(root: Path) -> None:
    """Ruling 19: nothing is guessed."""
    file = root / "plan.md"
    file.write_bytes(TEXT)
    change(Workspace(root, versions="off"), "ana", "plan.md", b"line 2\n", b"ana 2\n")
    before = file.read_bytes()

    with pytest.raises(CannotUndoError, match="not kept any more"):
        Workspace(root).undo(agent_id="ana")

    assert file.read_bytes() == before


def test_a_file_that_changes_between_plan_and_deed_is_left_alone(ws: Workspace, root: Path) -> None:
    """N-versions: an undo is a compare-and-swap on what was looked at, over all its files."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(TEXT)
        change(ws, "ana", name, b"line 2\n", b"ana 2\n")
    with ws.turn(agent_id=AGENT_ID) as turn:
        planned = plan(turn, Selection(agent_id="ana"))
        (root / "b.md").write_bytes(b"a person was here\n")
        with pytest.raises(StaleFileError):
            carry_out(turn, planned)

    assert b"ana 2\n" in (root / "a.md").read_bytes()
    assert (root / "b.md").read_bytes() == b"a person was here\n"


AGENTS = ["ana", "bob", "eve", "outsider"]
STEPS = st.lists(
    st.tuples(st.sampled_from(AGENTS), st.integers(0, 11), st.sampled_from(["change", "add", "remove"])),
    min_size=1,
    max_size=10,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.sampled_from(AGENTS[:3]))
def test_over_random_histories_others_lines_stay_or_nothing_is_touched(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str]], who: str
) -> None:
    """N-versions, undo: three agents and an outsider; every line that another wrote is there afterwards, and none of theirs."""
    root = tmp_path_factory.mktemp("undo")
    file = root / "plan.md"
    file.write_bytes(b"".join(b"line %d of the text\n" % number for number in range(12)))
    ws = Workspace(root)
    for number, (agent, at, kind) in enumerate(steps):
        lines = file.read_bytes().splitlines(keepends=True)
        at = min(at, len(lines))
        mark = b"%s wrote this, number %d\n" % (agent.encode(), number)
        lines[at : at + (kind != "add")] = [] if kind == "remove" else [mark]
        if agent == "outsider":
            file.write_bytes(b"".join(lines))
            continue
        with ws.turn(agent_id=agent) as turn:
            turn.read_file("plan.md")
            turn.write_file("plan.md", b"".join(lines))
    before = file.read_bytes()

    try:
        ws.undo(agent_id=who)
    except CannotUndoError:
        assert file.read_bytes() == before
    else:
        after = file.read_bytes().splitlines()
        assert not [line for line in after if line.startswith(who.encode())]
        others = [
            line
            for line in before.splitlines()
            if b"wrote this" in line and not line.startswith(who.encode())
        ]
        assert [line for line in others if line not in after] == []
    ws.close()


MIXED_STEPS = st.lists(
    st.tuples(
        st.sampled_from(AGENTS),
        st.sampled_from(["change", "add", "create", "delete", "move"]),
        st.integers(0, 2),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MIXED_STEPS, st.sampled_from(AGENTS[:3]))
def test_over_random_histories_of_files_that_come_and_go(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, int]], who: str
) -> None:
    """N-versions, undo: three files that are made, moved, deleted and changed; and an undo of the undo."""
    root = tmp_path_factory.mktemp("undo")
    (root / "0.md").write_bytes(b"".join(b"line %d of the text\n" % number for number in range(8)))
    ws = Workspace(root)
    for number, (agent, kind, which, at) in enumerate(steps):
        _step(ws, root, agent, kind, f"{which}.md", f"{at % 3}.md", at, number)
    before = files_in(root)

    try:
        ws.undo(agent_id=who)
    except CannotUndoError:
        assert files_in(root) == before
    else:
        after = files_in(root)
        now = b"".join(after.values()).splitlines()
        assert not [line for line in now if line.startswith(who.encode())]
        then = b"".join(before.values()).splitlines()
        others = [line for line in then if b"wrote this" in line and not line.startswith(who.encode())]
        assert [line for line in others if line not in now] == []
        if after != before:
            try:
                ws.undo(agent_id=AGENT_ID)
            except CannotUndoError:
                assert files_in(root) == after
            else:
                assert files_in(root) == before
    ws.close()


def _step(
    ws: Workspace, root: Path, agent: str, kind: str, name: str, other: str, at: int, number: int
) -> None:
    """One step of an agent or of an outsider, if it is possible."""
    file, mark = root / name, b"%s wrote this, number %d\n" % (agent.encode(), number)
    if (kind == "create") == file.exists() or (kind == "move" and (root / other).exists()):
        return
    lines = [] if kind == "create" else file.read_bytes().splitlines(keepends=True)
    lines[at : at + (kind == "change")] = [mark]
    content = b"".join(lines)
    if agent == "outsider":
        if kind == "delete":
            file.unlink()
        elif kind != "move":  # Where an outsider has moved a file to, nobody can know.
            file.write_bytes(content)
        return
    with ws.turn(agent_id=agent) as turn:
        if kind != "create":
            turn.read_file(name)
        if kind == "delete":
            turn.delete_file(name)
        elif kind == "move":
            turn.move_file(name, other)
        else:
            turn.write_file(name, content)


def test_undo_needs_to_know_whose(ws: Workspace) -> None:
    """N-input."""
    with pytest.raises(ValueError, match="whose"):
        ws.undo()


def test_a_ledger_that_names_files_elsewhere_leads_nowhere(ws: Workspace, root: Path, tmp_path: Path) -> None:
    """N-input: a ledger comes with a folder. A path outside the root is an obstacle, and nothing is written."""
    outside = tmp_path / "outside.md"
    outside.write_bytes(b"safe\n")
    event = {
        "action_type": "MUTATION",
        "payload": {
            "tool_name": "write_file",
            "target_file": os.path.relpath(outside, root),
            "before_hash": "sha256:" + "0" * 64,
            "after_hash": "sha256:" + "1" * 64,
            "level": "plain",
        },
        "result": {"status": "APPLIED"},
        "identity": {"agent_id": "ana"},
    }
    with ws.turn() as turn:
        turn.write_file("x.md", b"x")
    ws.ledger.append(event)

    with pytest.raises(CannotUndoError):
        ws.undo(agent_id="ana")

    assert outside.read_bytes() == b"safe\n"


def test_it_tells_how_much_of_the_planning_is_done(ws: Workspace, root: Path) -> None:
    """finding U11: it only rises, and ends at all of it."""
    for name in ("a.md", "b.md"):
        (root / name).write_bytes(TEXT)
        change(ws, "ana", name, b"line 2\n", b"ana 2\n")
        change(ws, "ana", name, b"line 10\n", b"ana 10\n")
    told: list[float] = []
    with ws.turn(agent_id=AGENT_ID) as turn:
        plan(turn, Selection(agent_id="ana"), lambda done, total: told.append(done / total))
    assert told == sorted(told)
    assert len(told) == 4 + 2
    assert told[-1] == 1.0


# -- what commands did -------------------------------------------------------------------------------------


@pytest.fixture
def shell(root: Path) -> Path:
    """A project with folders, links and modes, in which commands can be guarded."""
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)
    (root / "src/in").mkdir(parents=True)
    (root / "src/in").chmod(0o750)
    (root / "src/a").write_bytes(TEXT)
    (root / "src/in/b").write_bytes(b"b\n")
    (root / "src/in/b").chmod(0o755)
    (root / "link").symlink_to("src/a")
    (root / "src/in/up").symlink_to("../a")
    (root / "big").write_bytes(b"".join(b"%d\n" % number for number in range(2000)))
    (root / "empty").mkdir()
    (root / ".git").mkdir()
    (root / ".gitignore").write_bytes(b"*.log\n")
    (root / "x.log").write_bytes(b"1\n")
    return root


def everything(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Every file, link and folder, with its mode and what is in it."""
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if name.startswith((".noclobber", ".git/")):
            continue
        mode = path.lstat().st_mode
        if path.is_symlink():
            found[name] = (mode, os.readlink(path))
        else:
            found[name] = (mode, path.read_bytes() if path.is_file() else None)
    return found


def command(root: Path, text: str, agent: str = "bot") -> None:
    with Workspace(root) as workspace, workspace.turn(agent_id=agent) as turn:
        done = run_command(turn, text)
        assert done.exit_code == 0, done.stderr


COMMANDS = [
    "rm -rf src",
    "mv src dst",
    "mv src dst && mv dst/in dst/out",
    "seq 3000 9000 > big",
    "ln -s src/a two && ln -sf src/in/b link && echo 1 >> src/a",
    "rm link && echo 1 >> src/a",
    "rm link && cp src/a link",
    "rm src/a && ln -s in/b src/a",
    "chmod 600 src/a && chmod +x big && chmod 700 src/in",
    "echo 1 >> src/a && chmod 711 src/a",
    "mkdir -p n/m && echo 1 > n/m/f && chmod 755 n/m/f",
    "mkdir -p n/m && rmdir empty",
    "rm -rf src && mkdir src && echo new > src/a",
    "cp -r src copy && rm src/in/b",
    "mv src/a src/c && mv big src/a",
]


@pytest.mark.parametrize("text", COMMANDS)
def test_what_a_command_did_is_taken_back_and_forth(shell: Path, text: str) -> None:
    """Findings G5, G12: folders are made again, links, modes, moves of folders, and very different versions."""
    before = everything(shell)
    command(shell, text)
    after = everything(shell)
    assert after != before

    with Workspace(shell) as workspace:
        workspace.undo(agent_id="bot")
        assert everything(shell) == before
        assert workspace.undo(agent_id="bot").writes == ()
        workspace.undo(agent_id=AGENT_ID)
    modeless = {name: thing for name, (_, thing) in everything(shell).items()}
    assert {name: thing for name, thing in modeless.items() if thing is not None} == {
        name: thing for name, (_, thing) in after.items() if thing is not None
    }


def test_what_cannot_be_taken_back_is_named_and_the_rest_can_be(shell: Path) -> None:
    """finding G5: one ignored file, of which nothing is kept, or a FIFO, does not block everything."""
    command(shell, "echo 2 >> x.log && echo 1 >> src/a && mkfifo queue")
    with Workspace(shell) as workspace:
        planned = workspace.undo(agent_id="bot", dry_run=True)
        assert [each.path for each in planned.obstacles] == [str(shell / "x.log")]
        assert [each.path for each in planned.left] == [str(shell / "queue")]

        workspace.undo(agent_id="bot", but=["x.log"])

    assert (shell / "src/a").read_bytes() == TEXT
    assert (shell / "x.log").read_bytes() == b"1\n2\n"


def test_a_file_that_others_renamed_is_not_said_to_be_undone(shell: Path) -> None:
    """Finding G12: what the agent made is still there, under another name, so nothing was taken back."""
    command(shell, "echo 1 > new && echo 1 >> big")
    (shell / "new").rename(shell / "newer")

    with Workspace(shell) as workspace:
        planned = workspace.undo(agent_id="bot")

    assert [each.path for each in planned.files] == [str(shell / "big")]
    assert [each.path for each in planned.left] == [str(shell / "new")]
    assert "renamed or removed" in planned.left[0].reason
    assert [write.path for write in planned.writes] == [str(shell / "big")]


def test_what_others_put_into_a_folder_that_came_stays(shell: Path) -> None:
    """Finding G5: a folder goes only if it is empty, and a mode only if nobody has set another."""
    command(shell, "mkdir n && echo 1 > n/f && chmod 600 src/a")
    (shell / "n/theirs").write_bytes(b"theirs\n")
    (shell / "src/a").chmod(0o640)

    with Workspace(shell) as workspace:
        planned = workspace.undo(agent_id="bot")

    assert sorted(path.name for path in (shell / "n").iterdir()) == ["theirs"]
    assert (shell / "src/a").stat().st_mode & 0o777 == 0o640
    assert [each.path for each in planned.left] == [str(shell / "src/a")]


def test_a_large_rewrite_with_others_lines_in_it_is_not_taken_back(shell: Path) -> None:
    """Finding G5: only what is exactly as the agent left it goes back unseen."""
    command(shell, "seq 3000 9000 > big")
    with (shell / "big").open("ab") as file:
        file.write(b"theirs\n")
    before = everything(shell)

    with Workspace(shell) as workspace, pytest.raises(CannotUndoError):
        workspace.undo(agent_id="bot")

    assert everything(shell) == before


def test_an_empty_file_that_others_made_again_stays(ws: Workspace, root: Path) -> None:
    """Finding E9: the same bytes, none at all, are another file."""
    with ws.turn(agent_id="ana") as turn:
        turn.write_file("mark", b"")
    (root / "mark").unlink()
    with ws.turn(agent_id="bob") as turn:
        turn.write_file("mark", b"")

    with pytest.raises(CannotUndoError, match="another file"):
        ws.undo(agent_id="ana")

    assert (root / "mark").exists()


def test_a_link_that_came_later_is_not_followed(ws: Workspace, root: Path) -> None:
    """Finding G5: what is behind a link is another file, and stays as it is."""
    with ws.turn(agent_id="ana") as turn:
        turn.write_file("mine", b"same\n")
    (root / "theirs").write_bytes(b"same\n")
    (root / "mine").unlink()
    (root / "mine").symlink_to("theirs")

    with pytest.raises(CannotUndoError):
        ws.undo(agent_id="ana")

    assert (root / "theirs").read_bytes() == b"same\n"


def test_the_ledger_is_read_once_however_many_files_there_are(
    ws: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding R16: whose lines would go is asked of the list of writes that the undo itself has read."""
    for agent, line in (("a", b"a\n"), ("b", b"b\n")):
        with ws.turn(agent_id=agent) as turn:
            for name in ("x", "y", "z"):
                old = turn.read_file(name).content if (root / name).exists() else b"1\n2\n3\n4\n"
                turn.write_file(name, line + old if agent == "a" else old + line)
    reads: list[str] = []

    def counted(folder: str) -> Iterable[bytes]:
        reads.append(folder)
        return lines_of(folder)

    monkeypatch.setattr(history, "lines_of", counted)

    planned = ws.undo(agent_id="b")

    assert len(planned.files) == 3
    assert len(reads) == 1
    assert (root / "x").read_bytes() == b"a\n1\n2\n3\n4\n"


def test_a_files_writes_are_found_under_the_names_that_it_had() -> None:
    """N-who: blame follows a file through its moves."""
    made = LandedWrite("/a", "ABSENT", "1", "", entry="made")
    moved = LandedWrite("/a", "1", "1", "", destination="/b", entry="moved")
    other = LandedWrite("/a", "ABSENT", "2", "", entry="other")
    changed = LandedWrite("/b", "1", "3", "", entry="changed")
    writes = History([made, moved, other, changed])
    assert writes.of_file("/b") == [made, moved, changed]


@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize("changes", ["by a person", "by a command"])
def test_what_others_changed_in_a_file_that_a_command_moved_goes_back_with_it(
    ws: Workspace, root: Path, changes: str
) -> None:
    """Ruling 19: `mv` in a command, and then others write to the new name; the rest is taken back, too."""
    (root / "dir").mkdir()
    (root / "dir/x").write_bytes(TEXT)
    (root / "k").write_bytes(b"k\n")
    with ws.turn(agent_id="ana") as turn:
        run_command(turn, "mv dir dir2 && echo more >> k")
    if changes == "by a person":
        (root / "dir2/x").write_bytes(TEXT + b"theirs\n")
    else:
        with ws.turn(agent_id="bob") as turn:
            run_command(turn, "echo theirs >> dir2/x")

    ws.undo(agent_id="ana")

    assert (root / "dir/x").read_bytes() == TEXT + b"theirs\n"
    assert not (root / "dir2").exists()
    assert (root / "k").read_bytes() == b"k\n"
    ws.undo(agent_id=AGENT_ID)
    assert (root / "dir2/x").read_bytes() == TEXT + b"theirs\n"
    assert not (root / "dir/x").exists()


@pytest.mark.usefixtures("shell")
def test_two_empty_files_are_not_one_that_was_moved(ws: Workspace, root: Path) -> None:
    """Finding E1: equal bytes, if there are none, do not say that it is the same file."""
    (root / "a").touch()
    with ws.turn(agent_id="ana") as turn:
        run_command(turn, "rm a && touch z")
    (root / "z").write_bytes(b"theirs\n")

    with pytest.raises(CannotUndoError):
        ws.undo(agent_id="ana")

    assert (root / "z").read_bytes() == b"theirs\n"


@pytest.mark.usefixtures("shell")
def test_an_empty_folder_comes_back_where_a_command_had_put_a_file(ws: Workspace, root: Path) -> None:
    """Finding G5: undo said that it was done, and there was neither the file nor the folder."""
    (root / "n").mkdir()
    with ws.turn(agent_id="ana") as turn:
        run_command(turn, "rmdir n && echo file > n")

    ws.undo(agent_id="ana")

    assert (root / "n").is_dir()


@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize("command", ["rm n && mkdir n && echo in > n/x", "rm -r m && echo file > m"])
def test_a_file_that_became_a_folder_or_the_reverse_is_named_with_the_remedy(
    ws: Workspace, root: Path, command: str
) -> None:
    """Finding G5: what cannot be taken back is named; nothing is changed."""
    (root / "n").write_bytes(b"file\n")
    (root / "m").mkdir()
    (root / "m/x").write_bytes(b"in\n")
    with ws.turn(agent_id="ana") as turn:
        run_command(turn, command)

    with pytest.raises(CannotUndoError, match="--except"):
        ws.undo(agent_id="ana")
