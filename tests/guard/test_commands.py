"""Commands as tools of a turn: the same transaction, with what the turn has seen."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from noclobber import ShellUnavailableError, StaleFileError, Workspace, aio
from noclobber.disk.commit.change_set import expected_of
from noclobber.errors import ABSENT, FileBusyError, NoclobberError, OutsideScopeError, ReservedFileError
from noclobber.guard.commands import CommandStop
from tests.conftest import sha256
from tests.rigs.meanwhile import Meanwhile
from tests.shell.test_process import events, is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


def test_a_turn_runs_a_command_and_knows_what_it_wrote(root: Path) -> None:
    """N-shell: output, exit code, one result a file; the agent may go on writing."""
    (root / "plan.md").write_text("one\n")
    with Workspace(root).turn() as turn:
        turn.read_file("plan.md")
        done = turn.run("cat; echo two >> plan.md; echo new > new.md; exit 4", stdin=b"in")
        assert (done.exit_code, done.stdout, done.level) == (4, b"in", "guarded")
        assert [(result.path, result.previous_sha256) for result in done.landed] == [
            (f"{root}/new.md", ABSENT),
            (f"{root}/plan.md", sha256(b"one\n")),
        ]
        turn.write_file("plan.md", "three\n")
    assert (root / "plan.md").read_text() == "three\n"
    kinds = [event["action_type"] for event in events(root)]
    assert kinds == ["MUTATION"] * 3


def test_what_the_turn_has_seen_counts(root: Path) -> None:
    """N-shell: stale since the agent saw it, although nobody touched it while the command ran."""
    (root / "plan.md").write_text("one\n")
    with Workspace(root).turn() as turn:
        turn.read_file("plan.md")
        (root / "plan.md").write_text("theirs\n")
        with pytest.raises(StaleFileError) as refused:
            turn.run(["sh", "-c", "echo ran; echo mine >> plan.md"])
    error = refused.value
    assert (error.path, error.expected, error.actual) == (
        f"{root}/plan.md",
        sha256(b"one\n"),
        sha256(b"theirs\n"),
    )
    assert error.stdout == b"ran\n"  # type: ignore[attr-defined]
    assert (root / "plan.md").read_text() == "theirs\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [("mkdir sub; touch sub/.lock", ReservedFileError), ("echo x > noclobber.toml", ReservedFileError)],
)
def test_reserved_files_are_not_changed_by_commands_either(
    root: Path, command: str, expected: type[NoclobberError]
) -> None:
    """N-shell, REQ-LOCK-010: the same policies as for every other tool."""
    with Workspace(root).turn() as turn, pytest.raises(expected):
        turn.run(command)
    assert not (root / "sub").exists()


def test_a_command_stays_inside_the_write_scope(root: Path) -> None:
    """N-shell, K-WRITE-1: and nothing else of it lands."""
    (root / "docs").mkdir()
    with Workspace(root).turn(write_scope=["docs"]) as turn:
        with pytest.raises(OutsideScopeError):
            turn.run("echo a > docs/a; echo b > b")
        assert turn.run("echo a > docs/a").exit_code == 0
    assert sorted(os.listdir(root)) == [".noclobber", "docs"]


def test_what_a_command_replaced_is_kept_as_a_version(root: Path) -> None:
    """N-shell, N-versions: of files that were changed, removed, and removed with their folder."""
    (root / "sub").mkdir()
    for name in ("changed", "gone", "sub/gone"):
        (root / name).write_text(f"{name} before\n")
    workspace = Workspace(root)
    with workspace.turn() as turn:
        turn.run("echo after > changed; rm -r gone sub")
    workspace.close()
    kept = {path.read_bytes() for path in root.glob(".noclobber/versions.*/*/*") if path.is_file()}
    kept |= {path.read_bytes() for path in root.glob(".noclobber/versions.*/*") if path.is_file()}
    assert {b"changed before\n", b"gone before\n", b"sub/gone before\n"} <= kept


def test_the_asynchronous_twin(root: Path) -> None:
    """N-shell: `noclobber.aio`."""

    async def work() -> int:
        async with aio.Workspace(root).turn() as turn:
            return (await turn.run("echo a > a")).exit_code

    assert asyncio.run(work()) == 0
    assert (root / "a").read_text() == "a\n"


def test_where_a_guarded_shell_is_required_and_there_is_none_nothing_is_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: a home folder is not a project."""
    monkeypatch.setenv("HOME", str(root))
    with Workspace(root).turn() as turn, pytest.raises(ShellUnavailableError, match="home folder"):
        turn.run("touch ran", require=True)
    assert not (root / "ran").exists()


def test_where_there_is_no_guarded_shell_a_command_is_watched(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: certain targets are checked before, what changed is on record after, and the level is told."""
    monkeypatch.setenv("HOME", str(root))
    (root / "plan.md").write_text("one\n")
    with Workspace(root).turn() as turn:
        done = turn.run("echo out; echo err >&2; echo two > new.md; exit 3", stdin=b"")
        assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
        assert (done.level, [Path(file.path).name for file in done.landed]) == ("watched", ["new.md"])
        with pytest.raises(StaleFileError):
            turn.run("echo two > plan.md", expected_hashes={"plan.md": "1" * 64})
        late = turn.run("echo out; sleep 60", timeout_s=0.3)
        assert (late.exit_code, late.stdout) == (143, b"out\n")
        assert turn.run(["no-such-program"]).exit_code == 127
    assert (root / "plan.md").read_text() == "one\n"
    recorded = [(event["action_type"], event["payload"].get("level")) for event in events(root)]
    assert recorded == [("MUTATION", "watched"), ("MUTATION_CONFLICT", None)]


def test_what_a_watched_command_wrote_over_is_told_and_recorded_with_the_level(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: also the line about a race carries the level."""
    monkeypatch.setenv("HOME", str(root))
    (root / "plan.md").write_text("theirs\n")
    with Workspace(root).turn() as turn:
        name = "plan"  # Nobody can tell beforehand what this writes.
        done = turn.run(f"f={name}; echo mine > $f.md", expected_hashes={"plan.md": sha256(b"seen\n")})
    assert [error.code for error in done.overwritten] == ["MUTATION_RACE"]
    (race,) = events(root)
    assert (race["action_type"], race["payload"]["level"]) == ("MUTATION_RACE", "watched")


def test_every_version_that_a_command_replaces_is_kept(root: Path) -> None:
    """N-shell, N-versions: however many files it changes; none is left to be removed by a later call."""
    count = 150
    (root / "many").mkdir()
    for number in range(count):
        (root / f"many/{number}").write_text(f"before {number}\n")
    with Workspace(root).turn() as turn:
        assert turn.run("for f in many/*; do echo after > $f; done").exit_code == 0

    state = root / ".noclobber"
    kept = {path.read_text() for path in state.glob("versions*/?/*")}
    assert {f"before {number}\n" for number in range(count)} <= kept
    assert os.listdir(state / "swap") == []


def test_what_was_moved_into_a_new_folder_has_nothing_of_the_overlay_on_it(root: Path) -> None:
    """N-shell: neither attributes nor the devices that stand for what was removed."""
    (root / "old/inner").mkdir(parents=True)
    (root / "old/f").write_text("f")
    (root / "old/inner/g").write_text("g")
    os.setxattr(root / "old/f", "user.own", b"kept")
    with Workspace(root).turn() as turn:
        turn.run("mkdir -p new/sub && mv old/f new/sub/f && mv old/inner new/inner && rm new/inner/g")

    for path in (root / "new", *(root / "new").rglob("*")):
        assert [name for name in os.listxattr(path) if "overlay" in name] == []
    assert sorted(os.listdir(root / "new/inner")) == []
    assert os.listxattr(root / "new/sub/f") == ["user.own"]


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "], ids=["listens", "stubborn"])
def test_a_cancelled_command_is_ended_and_nothing_of_it_lands(
    root: Path, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell, N-frameworks: a task that is cancelled does not wait for the command's own end."""
    monkeypatch.setattr("noclobber.guard.commands.LISTENS_S", 0.2)
    begun = root.parent / "begun"  # Outside of the view, where a FIFO connects both sides.
    os.mkfifo(begun)

    async def play() -> None:
        async with aio.Workspace(root).turn() as turn:
            command = asyncio.ensure_future(
                turn.run(f"{trap}echo mine > plan.md; echo > {begun}; sleep 600; echo late > late.md")
            )
            await asyncio.to_thread(begun.read_text)
            command.cancel()
            with pytest.raises(asyncio.CancelledError):
                await command

    asyncio.run(play())
    assert not (root / "plan.md").exists()
    assert not (root / "late.md").exists()


def test_a_command_that_was_stopped_before_it_began_lands_nothing(root: Path) -> None:
    """N-shell: the stop may come before the process is there."""
    stop = CommandStop()
    stop.ask()
    with Workspace(root).turn() as turn:
        try:
            assert turn.run("echo mine > plan.md; sleep 600", stop=stop).timed_out
        except NoclobberError as error:
            assert error.timed_out  # type: ignore[attr-defined]
    assert not (root / "plan.md").exists()


def test_a_command_whose_time_is_over_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: as a result if there is nothing to land, and as a refusal if there is."""
    monkeypatch.setattr("noclobber.guard.commands.LISTENS_S", 0.2)
    begun = root.parent / "begun"
    os.mkfifo(begun)
    stop = CommandStop()

    def stop_it() -> None:
        begun.read_text()
        stop.ask()

    reader = threading.Thread(target=stop_it, daemon=True)
    reader.start()
    with Workspace(root).turn() as turn:
        try:
            told: object = turn.run("sleep 600", timeout_s=0.2)
        except NoclobberError as error:  # It had not begun by then.
            told = error
        assert told.timed_out  # type: ignore[attr-defined]
        with pytest.raises(FileBusyError) as refused:
            turn.run(f"echo mine > plan.md; echo begun > {begun}; sleep 600", stop=stop)
    reader.join()
    assert refused.value.timed_out  # type: ignore[attr-defined]
    assert not (root / "plan.md").exists()


def test_a_command_that_cannot_be_run_says_why(root: Path) -> None:
    """N-shell: 127 and 126 alone tell a caller nothing."""
    with Workspace(root) as workspace, workspace.turn(agent_id="a") as turn:
        missing = turn.run(["no-such-program"])
        assert (missing.exit_code, missing.stderr) == (127, b"no-such-program: command not found\n")
        nowhere = turn.run("true", cwd="gone")
        assert nowhere.exit_code == 126
        assert b"its folder cannot be entered" in nowhere.stderr


def test_a_folder_that_others_remove_between_two_looks_of_a_landing_is_stale(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding E1, ruling 30: of two that remove a folder one has removed it; it is no fault of the disk's."""
    (root / "full").mkdir()

    def looked_at(path: str) -> str:
        found = expected_of(path)
        if path.endswith("/full"):
            (root / "full").rmdir()
        return found

    monkeypatch.setattr("noclobber.guard.landing.expected_of", looked_at)
    with Workspace(root).turn() as turn, pytest.raises(StaleFileError) as refused:
        turn.run("rmdir full")
    assert refused.value.path == f"{root}/full"
    assert [event["action_type"] for event in events(root)] == ["MUTATION_CONFLICT"]


COUNT = "n=$(cat c); {pause}; echo $((n+1)) > c"


def test_two_commands_of_one_turn_that_overlap_do_not_count_once(root: Path, tmp_path: Path) -> None:
    """Finding E1: what the inner command left is the agent's own, and the outer one has not read it."""
    (root / "c").write_text("3\n")
    with Workspace(root).turn() as turn:
        turn.read_file("c")
        inner = Meanwhile(tmp_path / "pipes", lambda: turn.run(COUNT.format(pause=":")))
        with pytest.raises(StaleFileError):
            turn.run(COUNT.format(pause=inner.pause))
    assert (root / "c").read_text() == "4\n"


@pytest.mark.parametrize("expected_hashes", [None, {"c": sha256(b"3\n")}])
def test_a_file_that_is_changed_and_changed_back_while_a_command_runs_is_stale(
    root: Path, tmp_path: Path, expected_hashes: dict[str, str] | None
) -> None:
    """Finding E1, ruling 30: the command may have read the version in between, whatever is known of the file."""
    (root / "c").write_text("3\n")

    def there_and_back() -> None:
        (root / "c").write_text("4\n")
        (root / "c").write_text("3\n")

    with Workspace(root).turn() as turn:
        if expected_hashes is None:
            turn.read_file("c")
        then = Meanwhile(tmp_path / "pipes", there_and_back)
        with pytest.raises(StaleFileError):
            turn.run(COUNT.format(pause=then.pause), expected_hashes=expected_hashes)
    assert (root / "c").read_text() == "3\n"
