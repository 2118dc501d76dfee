"""Guarded writes inside locked deliverables: who may, who may not, and what a zombie can still do."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import noclobber
from noclobber.core.clock import iso8601
from noclobber.disk import mutex
from noclobber.errors import ClaimedError, FileBusyError, LockContention, LockLost, OutsideScopeError
from noclobber.guard import claims
from noclobber.guard.fence import GuardedWrite, WriteFence
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.locked_folder import locked_folder
from noclobber.mcp import dispatch
from noclobber.mcp.connection import ClientConnection, Workspaces
from noclobber.mcp.roots import Roots
from tests.rigs.hooks import HookRig, refusal
from tests.rigs.locks import ToldClock, dead_process, events, finish, put_record, python
from tests.rigs.locks import noclobber as command
from tests.rigs.mcp import check_answer


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "ws/d/sub/deep").mkdir(parents=True)
    (tmp_path / "ws/other").mkdir()
    return tmp_path / "ws"


@pytest.fixture
def clock() -> ToldClock:
    return ToldClock()


def enter(
    tree: Path, target: str, lock: DeliverableLock | None, clock: ToldClock, held: tuple[int, ...] = ()
) -> GuardedWrite:
    return WriteFence(str(tree), lock, clock=clock).guarding(str(tree / target), held)


def hold(folder: Path, clock: ToldClock, holder: str = "a", **options: Any) -> DeliverableLock:
    return DeliverableLock(folder, holder=holder, clock=clock, heartbeat=False, **options).acquire()


def test_nothing_is_asked_where_nothing_is_locked(tree: Path, clock: ToldClock) -> None:
    """N-fence: an unlocked tree is a stat per folder, and nothing is held."""
    with enter(tree, "d/sub/x.md", None, clock) as fence:
        assert fence.folder is None
        for folder in ("d/sub", "d", "."):
            descriptor = os.open(tree / folder, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(descriptor)
        fence.look_again()


@pytest.mark.parametrize("target", ["d/x.md", "d/sub/x.md", "d/sub/deep/x.md", "d/not/yet/there/x.md"])
def test_anyone_but_the_holder_is_refused_at_any_depth(tree: Path, clock: ToldClock, target: str) -> None:
    """REQ-LOCK-007: with the LOCK_CONTENTION object; the holder passes."""
    lock = hold(tree / "d", clock)
    for stranger in (None,):
        with pytest.raises(LockContention) as refused, enter(tree, target, stranger, clock):
            pytest.fail("a stranger got in")
        assert refused.value.to_report()["holder"] == "a"
        assert refused.value.to_report()["deliverable_id"] == "d"
    with enter(tree, target, lock, clock) as fence:
        assert fence.folder == str(tree / "d")
    with enter(tree, "other/x.md", None, clock):
        pass
    lock.release()


def test_a_turn_that_carries_a_lock_writes_inside_its_folder_only(tree: Path, clock: ToldClock) -> None:
    """K-WRITE-1, REQ-LOCK-008: the write scope is that folder."""
    lock = hold(tree / "d", clock)
    for target in ("other/x.md", "x.md", "d2/x.md", "d.md"):
        with pytest.raises(OutsideScopeError), enter(tree, target, lock, clock):
            pytest.fail("out of scope")
    lock.release()


def test_the_innermost_lock_decides(tree: Path, clock: ToldClock) -> None:
    """Ruling 24: a deliverable inside a deliverable, whose holder locked it for a part of its work."""
    outer = hold(tree / "d", clock, "outer")
    inner = hold(tree / "d/sub", clock, "inner", held_ids=[outer.lock_id])
    with pytest.raises(LockContention, match="inner"), enter(tree, "d/sub/x.md", outer, clock):
        pass
    with enter(tree, "d/sub/x.md", inner, clock), enter(tree, "d/x.md", outer, clock):
        pass
    assert locked_folder(str(tree / "d/sub/deep/x"), str(tree)) == str(tree / "d/sub")
    inner.release()
    with enter(tree, "d/sub/x.md", outer, clock):
        pass
    outer.release()


@pytest.mark.parametrize("how", ["taken over", "released", "removed", "deleted", "re-created", "damaged"])
def test_a_former_holder_is_refused_with_lock_lost(tree: Path, clock: ToldClock, how: str) -> None:
    """REQ-LOCK-013, REQ-LOCK-012: and told once and for all."""
    lock = hold(tree / "d", clock, lease_duration_s=60)
    if how == "taken over":
        clock.time_s += 60
        hold(tree / "d", clock, "b").detach()
    elif how == "released":
        DeliverableLock.attach(tree / "d", lock.lock_id or "", clock=clock).release()
    elif how == "removed":
        (tree / "d/.lock").unlink()
    elif how == "damaged":
        (tree / "d/.lock").write_text("")
    else:
        shutil.rmtree(tree / "d")
        if how == "re-created":
            (tree / "d").mkdir()
    for _ in range(2):
        with pytest.raises(LockLost), enter(tree, "d/x.md", lock, clock):
            pytest.fail("a former holder got in")
    assert lock.held is False


def test_a_holder_whose_lease_ran_out_unnoticed_renews_as_it_writes(tree: Path, clock: ToldClock) -> None:
    """REQ-LOCK-013: it may, as long as its id stands, and it does so before it writes."""
    lock = hold(tree / "d", clock, lease_duration_s=60)
    clock.time_s += 3600
    with enter(tree, "d/x.md", lock, clock):
        assert lock.status().lease_remaining_s == 60
    lock.release()


def test_an_orphan_does_not_keep_writers_out_and_its_holder_finds_its_lock_lost(
    tree: Path, clock: ToldClock
) -> None:
    """REQ-LOCK-006: recovered as acquire would, with the same record."""
    sleeper = hold(tree / "d", clock, "sleeper", lease_duration_s=60)
    clock.time_s += 60
    with enter(tree, "d/x.md", None, clock):
        pass
    (event,) = events(tree / "d", "LOCK_RECOVERED")
    assert event["payload"]["recovery_reason"] == "lease_expired"
    assert event["payload"]["previous_holder"] == "sleeper"
    with pytest.raises(LockLost), enter(tree, "d/x.md", sleeper, clock):
        pytest.fail("the zombie got in")
    put_record(tree / "other", dead_process())
    with enter(tree, "other/x.md", None, clock):
        pass
    assert len(events(tree / "other", "LOCK_RECOVERED")) == 1


def test_nobody_takes_over_between_the_check_and_the_write(tree: Path) -> None:
    """N-fence: inside the block the folder's mutex is held, so a recoverer waits for the write."""
    lock = DeliverableLock(tree / "d", holder="sleeper", lease_duration_s=1, heartbeat=False).acquire()
    code = """
import sys
from noclobber.lock.lock import DeliverableLock
print("asking", flush=True)
DeliverableLock(sys.argv[1], holder="successor").acquire(timeout_s=20)
print((open(sys.argv[1] + "/x.md").read()), flush=True)
"""
    with WriteFence(str(tree), lock).guarding(str(tree / "d/sub/x.md")):
        process = python(code, tree / "d")
        assert process.stdout is not None
        process.stdout.readline()
        threading.Event().wait(1.3)  # Past the lease, with the successor asking all the time.
        assert process.poll() is None
        assert (tree / "d/.lock").read_text().count("sleeper") == 1
        (tree / "d/x.md").write_text("written by the holder, before the take-over")
    returned, said, complaint = finish(process)
    assert (returned, said) == (0, "written by the holder, before the take-over"), complaint
    with pytest.raises(LockLost), WriteFence(str(tree), lock).guarding(str(tree / "d/x.md")):
        pytest.fail("the zombie got in")


def test_a_guard_that_holds_the_parents_mutex_does_not_wait_for_itself(tree: Path, clock: ToldClock) -> None:
    """The parent is the locked folder: passed as already held, its mutex is not taken a second time."""
    lock = hold(tree / "d", clock)
    parent = os.open(tree / "d", os.O_RDONLY)
    try:
        fcntl.flock(parent, fcntl.LOCK_EX)
        with enter(tree, "d/x.md", lock, clock, held=(parent,)) as fence:
            assert fence.folder == str(tree / "d")
        other = os.open(tree / "d", os.O_RDONLY)
        with pytest.raises(BlockingIOError):  # Leaving the block did not let go of the caller's mutex.
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
        with pytest.raises(FileBusyError), enter(tree, "d/x.md", lock, clock):
            pytest.fail("somebody else holds it")
        fcntl.flock(parent, fcntl.LOCK_UN)
        with enter(tree, "d/x.md", lock, clock), pytest.raises(BlockingIOError):
            fcntl.flock(parent, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(parent, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(parent)
    lock.release()


def test_the_mutex_is_let_go_when_the_write_fails(tree: Path, clock: ToldClock) -> None:
    """An error in the guard's block leaves the folder usable."""
    lock = hold(tree / "d", clock)
    with pytest.raises(ZeroDivisionError), enter(tree, "d/x.md", lock, clock):
        raise ZeroDivisionError
    lock.renew()
    lock.release()


def test_a_folder_locked_since_the_look_is_seen_by_the_second_look(tree: Path, clock: ToldClock) -> None:
    """Not promised for subfolders without it; with it the window is short."""
    with enter(tree, "d/sub/x.md", None, clock) as fence:
        lock = hold(tree / "d", clock)
        with pytest.raises(LockContention):
            fence.look_again()
    lock.release()


def test_a_lock_that_cannot_be_read_is_not_free(
    tree: Path, clock: ToldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-003: what cannot be looked at keeps writers out, with a clear error."""
    lock = hold(tree / "d", clock)
    from noclobber.errors import AccessDeniedError
    from noclobber.lock import lock_file

    def denied(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(lock_file, "read", denied)
    with pytest.raises(AccessDeniedError, match="counts as locked"), enter(tree, "d/x.md", None, clock):
        pytest.fail("unreadable was taken for free")
    monkeypatch.undo()
    lock.release()


def test_the_root_itself_may_be_the_deliverable(tree: Path, clock: ToldClock) -> None:
    """One lock on the root covers everything below it."""
    lock = hold(tree, clock)
    with pytest.raises(LockContention), enter(tree, "d/sub/x.md", None, clock):
        pass
    with enter(tree, "d/sub/x.md", lock, clock):
        pass
    lock.release()


def test_a_child_of_lock_run_writes_under_its_parents_lock(tree: Path) -> None:
    """N-fence: the id in the environment is enough to be the holder."""
    lock = DeliverableLock(tree / "d", holder="run").acquire()
    code = """
import sys
from noclobber.guard.fence import WriteFence
with WriteFence(sys.argv[1]).guarding(sys.argv[1] + "/d/x.md"): open(sys.argv[1] + "/d/x.md", "w").write("child")
"""
    env = {"NOCLOBBER_LOCK_ID": lock.lock_id, "NOCLOBBER_LOCK_FOLDER": str(tree / "d")}
    returned, _, complaint = finish(python(code, tree, env=env))
    assert returned == 0, complaint
    lock.assert_held()
    lock.release()
    assert finish(python(code, tree, env=env))[0] == 1, "the lock it speaks for is released"
    assert signal.SIGTERM


# -- one fence for the library, the hooks and the MCP server ----------------------------------------------------


Write = Callable[[Path], str]


@pytest.fixture
def workspaces() -> Iterator[Workspaces]:
    workspaces = Workspaces()
    yield workspaces
    workspaces.close()


@pytest.fixture(params=["library", "hook", "mcp"])
def write(
    request: pytest.FixtureRequest,
    tree: Path,
    tmp_path: Path,
    workspaces: Workspaces,
    monkeypatch: pytest.MonkeyPatch,
) -> Write:
    """Writes a file below `tree` and returns "written" or the code of the refusal."""
    (tree / ".noclobber").mkdir()
    if request.param == "library":

        def by_library(path: Path) -> str:
            with noclobber.Workspace(tree) as workspace, workspace.turn(agent_id="x") as turn:
                try:
                    turn.write_file(str(path), b"x")
                except noclobber.NoclobberError as error:
                    return error.code
            return "written"

        return by_library
    if request.param == "mcp":
        connection = ClientConnection(workspaces, Roots([str(tree)]), is_session=True, is_process=True)

        def by_mcp(path: Path) -> str:
            answer = dispatch.call(
                connection, "write_file", {"path": str(path), "content": "x"}, lambda *_: None
            )
            return answer.structured["error_type"] if answer.is_error and answer.structured else "written"

        return by_mcp
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "runtime").mkdir(mode=0o700)
    rig = HookRig(tree, tmp_path / "runtime")

    def by_hook(path: Path) -> str:
        answer = rig.write(path, "x")
        if not answer:
            return "written"
        return str(refusal(answer)["error_type"])

    return by_hook


def test_a_lock_above_the_workspace_counts(tree: Path, write: Write) -> None:
    """finding S6: the walk goes up to the root of the filesystem, in library, hooks and MCP alike."""
    with DeliverableLock(tree.parent, holder="above"):
        assert write(tree / "d/x.md") == "LOCK_CONTENTION"
        assert not (tree / "d/x.md").exists()
    assert write(tree / "d/x.md") == "written"


def test_an_agent_that_carries_a_lock_writes_inside_its_folder_only(
    tree: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding S6: `noclobber lock run` gives the lock to the command, and every door asks for it."""
    with DeliverableLock(tree / "d", holder="run") as lock:
        monkeypatch.setenv("NOCLOBBER_LOCK_ID", str(lock.lock_id))
        monkeypatch.setenv("NOCLOBBER_LOCK_FOLDER", str(tree / "d"))
        assert write(tree / "other/x.md") == "OUTSIDE_SCOPE"
        assert write(tree / "d/x.md") == "written"
    assert write(tree / "d/y.md") == "LOCK_LOST"
    assert write(tree / "other/x.md") in ("LOCK_LOST", "OUTSIDE_SCOPE")
    shutil.rmtree(tree / "d")
    assert write(tree / "other/x.md") in ("LOCK_LOST", "OUTSIDE_SCOPE")
    assert not (tree / "other/x.md").exists()


@pytest.mark.parametrize("content", [b"", b"4711", b"{"])
def test_other_programs_files_above_the_workspace_are_left_alone(
    tree: Path, write: Write, content: bytes
) -> None:
    """finding S6: pytest and uv have files called `.lock`; they lock no deliverable, and stay."""
    theirs = tree.parent / ".lock"
    theirs.write_bytes(content)
    assert write(tree / "d/x.md") == "written"
    assert theirs.read_bytes() == content
    assert os.listdir(tree.parent).count(".lock-ledger.jsonl") == 0


def test_an_orphan_above_the_workspace_does_not_stop_a_write_and_is_left_to_the_next_acquire(
    tree: Path, write: Write
) -> None:
    """REQ-LOCK-008: a guarded write changes nothing outside its workspace, not even an orphaned lock."""
    put_record(tree.parent, dead_process(), acquired=iso8601(time.time()))
    before = (tree.parent / ".lock").read_bytes()
    assert write(tree / "d/x.md") == "written"
    assert (tree.parent / ".lock").read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files can only be made by root")
def test_another_users_lock_in_a_folder_that_everybody_may_write_to_locks_nothing_below(
    tree: Path, clock: ToldClock
) -> None:
    """finding S6: otherwise one `.lock` in `/tmp` would lock everybody's projects there."""
    hold(tree.parent, clock).detach()
    tree.parent.chmod(0o777)
    assert locked_folder(str(tree / "d/x.md"), str(tree), clock) == str(tree.parent)
    os.chown(tree.parent / ".lock", 65534, 65534)
    assert locked_folder(str(tree / "d/x.md"), str(tree), clock) is None
    tree.parent.chmod(0o755)
    assert locked_folder(str(tree / "d/x.md"), str(tree), clock) == str(tree.parent)


def test_a_fence_loads_nothing_of_the_lock_where_nothing_is_locked(tree: Path) -> None:
    """N-speed: a hook is a process for each tool call."""
    code = """
import sys
from noclobber.guard.fence import WriteFence
WriteFence(sys.argv[1]).check(sys.argv[1] + "/d/x.md")
print(*sorted(name for name in sys.modules if name.startswith("noclobber.lock.")))
"""
    returned, said, complaint = finish(python(code, tree))
    assert (returned, said) == (0, "noclobber.lock.locked_folder noclobber.lock.names"), complaint


def test_an_agents_own_claim_does_not_stop_it(tree: Path) -> None:
    """N-claim: a hook claims the file before it asks the fence."""
    (tree / ".noclobber").mkdir()
    path = str(tree / "d/x.md")
    claims.acquire(str(tree), path, "me", "call-1")
    WriteFence(str(tree), owner="me").check(path)
    with pytest.raises(ClaimedError):
        WriteFence(str(tree), owner="somebody else").check(path)


def test_contention_is_one_flat_object_everywhere(
    tree: Path, workspaces: Workspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding D4: the same object in the library, the command line, MCP (text and structured) and hooks."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    target = tree / "d/sub/x.md"
    connection = ClientConnection(workspaces, Roots([str(tree)]), is_session=True, is_process=True)
    told: dict[str, dict[str, Any]] = {}
    with DeliverableLock(tree / "d", deliverable_id="D-1", holder="builder-1"):
        with noclobber.Workspace(tree) as workspace, workspace.turn(agent_id="x") as turn:
            with pytest.raises(LockContention) as refused:
                turn.write_file(str(target), b"x")
            told["library"] = refused.value.to_report()
            told["library, as a refusal"] = refused.value.to_refusal()
            told["library, as JSON"] = json.loads(noclobber.to_json(refused.value))
        for tool, arguments in (
            ("write_file", {"path": str(target), "content": "x"}),
            ("lock_acquire", {"path": str(tree / "d"), "deliverable_id": "D-1"}),
        ):
            answer = dispatch.call(connection, tool, arguments, lambda *_: None)
            check_answer(tool, answer.content, answer.structured, answer.is_error)
            told[f"mcp {tool}"] = answer.structured
            told[f"mcp {tool}, text"] = json.loads(answer.content[0]["text"])
        told["hook"] = refusal(HookRig(tree, tmp_path).write(target, "x"))
        returned, printed, _ = command("lock", "acquire", tree / "d", "--deliverable-id", "D-1", "--json")
        assert returned == 75
        told["command line"] = json.loads(printed)
    for where, value in told.items():
        jsonschema.validate(value, noclobber.schema("lock-contention"))
        assert (where, value["deliverable_id"], value["holder"]) == (where, "D-1", "builder-1")
    assert not target.exists()


def test_the_ledger_names_the_file_of_a_write_that_was_refused_for_a_lock(tree: Path, write: Write) -> None:
    """finding D4: the file, and not the locked folder; the message says which folder is locked."""
    target = tree / "d/sub/x.md"
    with DeliverableLock(tree / "d", holder="builder-1"):
        assert write(target) == "LOCK_CONTENTION"
    (event,) = noclobber.AgentTraceLedger(tree / ".noclobber/agent_trace.jsonl").events()
    assert event["result"]["error_type"] == "LOCK_CONTENTION"
    named = event["payload"]["target_file"]
    assert named in (str(target), "d/sub/x.md")


def test_a_write_refused_for_a_lost_lock_names_the_file_and_the_folder(tree: Path, clock: ToldClock) -> None:
    """finding D4: so that ledger and agent know which write it was."""
    lock = hold(tree / "d", clock)
    (tree / "d/.lock").unlink()
    for _ in range(2):
        with (
            pytest.raises(LockLost, match=f"lock.*{tree / 'd'}") as refused,
            enter(tree, "d/x.md", lock, clock),
        ):
            pytest.fail("a former holder got in")
        assert refused.value.path == str(tree / "d/x.md")


def test_a_lock_above_the_files_folder_is_found_on_entering_and_its_mutex_taken_in_order(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-fence: nobody looks before the mutex; who finds a lock inside begins again with both mutexes."""
    plan = tree / "d/sub/plan.md"
    plan.write_text("v1")
    order: list[str] = []
    take = mutex.hold

    def told(descriptor: int, **given: Any) -> bool:
        order.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return take(descriptor, **given)

    with (
        DeliverableLock(tree / "d", holder="me") as lock,
        noclobber.Workspace(tree).turn(agent_id="me", lock=lock) as turn,
    ):
        turn.read_file("d/sub/plan.md")
        monkeypatch.setattr(mutex, "hold", told)
        turn.write_file("d/sub/plan.md", "v2")
        monkeypatch.undo()

    folders = [name for name in order if name in (str(tree / "d"), str(tree / "d/sub"))]
    by_inode = sorted((str(tree / "d"), str(tree / "d/sub")), key=lambda name: os.stat(name).st_ino)
    assert folders == [str(tree / "d/sub"), *by_inode]
    assert plan.read_text() == "v2"
