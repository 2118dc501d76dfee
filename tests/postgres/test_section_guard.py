"""A client that holds several deliverables and writes files of more than one of them in one call."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import noclobber
from noclobber.disk import steps
from noclobber.errors import LockContention, LockLost
from noclobber.guard.fence import WriteFence
from noclobber.postgres import sections, shared_volume
from noclobber.postgres.coordinator import _connection
from tests.rigs import postgres


@pytest.fixture(params=["files", "server", "volume"])
def project(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A project with locks in files, on a server, and on a server that orders the writes of a shared volume, too."""
    if request.param != "files":
        monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
        monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"team-{os.urandom(4).hex()}")
    monkeypatch.setattr(shared_volume, "is_shared_volume", lambda root: request.param == "volume")
    for folder in ("p/.noclobber", "p/a/in", "p/b", "p/free"):
        (tmp_path / folder).mkdir(parents=True)
    yield tmp_path / "p"
    _connection.cache_clear()


class Client:
    """Holds locks by their ids, as a connection of the MCP server does."""

    def __init__(self, project: Path, *folders: str) -> None:
        self.project, self.stack = project, ExitStack()
        self.workspace = self.stack.enter_context(noclobber.Workspace(project))
        self.held: dict[str, str] = {}
        self.locks: dict[str, noclobber.DeliverableLock] = {}
        for name in folders:
            self.hold(name)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stack.close()

    def hold(self, name: str, *, is_carried: bool = True) -> None:
        """Take a folder's lock; `is_carried`: it is the client's own, and not that of somebody else."""
        lock = noclobber.DeliverableLock(self.project / name, holder=name, held_ids=list(self.held))
        self.locks[name] = lock.acquire()
        self.stack.callback(lambda: lock.held and lock.release())
        if is_carried:
            assert lock.lock_id is not None
            self.held[lock.lock_id] = lock.folder

    def turn(self) -> noclobber.Turn:
        """A turn that carries what is held."""
        turn = self.stack.enter_context(self.workspace.turn())
        turn.fence = WriteFence(turn.root, owner=turn.owner, held_locks=self.held)
        return turn


def contents(project: Path) -> dict[str, str]:
    """Return every file of the project that is not ours."""
    return {
        str(path.relative_to(project)): path.read_text()
        for path in project.rglob("*")
        if path.is_file() and ".noclobber" not in path.parts and not path.name.startswith(".lock")
    }


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (("a", "b"), ("a/x", "b/x")),
        (("a", "b"), ("b/x", "a/x")),
        (("a",), ("a/x", "free/x")),
        (("a",), ("free/x", "a/x")),
        (("a", "a/in"), ("a/x", "a/in/x")),
        (("a", "a/in", "b"), ("a/in/x", "free/x", "a/x", "b/x")),
    ],
)
def test_files_of_several_own_locks_land_in_one_call(
    project: Path, folders: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """N-machines, REQ-LOCK-007: a client was refused by its own lock, that of any file but the last."""
    with Client(project, *folders) as client:
        client.turn().write_files(dict.fromkeys(names, "new\n"))
        assert contents(project) == dict.fromkeys(names, "new\n")


def test_a_file_moves_from_one_own_deliverable_to_another(project: Path) -> None:
    """N-machines, REQ-LOCK-007: a move is about two files, and each has its own lock."""
    with Client(project, "a", "b") as client:
        turn = client.turn()
        turn.write_file("a/x", "new\n", expected_hash="ABSENT")
        turn.move_file("a/x", "b/x")
        assert contents(project) == {"b/x": "new\n"}


@pytest.mark.parametrize("names", [("b/x", "a/x"), ("a/x", "b/x")])
def test_one_of_several_own_locks_that_was_lost_stops_all_of_the_files(
    project: Path, names: tuple[str, ...]
) -> None:
    """N-machines, REQ-LOCK-007: each of them has to be the writer's own, and all of the files land or none."""
    with Client(project, "a", "b") as client:
        turn = client.turn()
        client.locks["a"].release()
        with pytest.raises(LockLost) as lost:
            turn.write_files(dict.fromkeys(names, "new\n"))
        assert str(lost.value.path) == str(project / "a/x")
        assert contents(project) == {}


@pytest.mark.parametrize("project", ["volume"], indirect=True)
def test_a_lock_that_is_lost_after_it_was_looked_up_is_found_lost_by_the_section(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines, REQ-LOCK-007: the fence and the write are one transaction's decision, for each of the locks."""
    with Client(project, "a", "b") as client:
        turn = client.turn()
        monkeypatch.setattr(
            steps, "observer", lambda step: step == "section-staged" and client.locks["b"].release()
        )
        with pytest.raises(LockLost) as lost:
            turn.write_files({"a/x": "new\n", "b/x": "new\n"})
        assert str(lost.value.path) == str(project / "b/x")
        assert contents(project) == {}


@pytest.mark.parametrize("project", ["volume"], indirect=True)
def test_two_ids_for_one_folder_of_which_one_is_lost_are_a_lost_lock(project: Path) -> None:
    """N-machines, REQ-LOCK-007: a thread of the client took the folder anew between two of its files."""
    with Client(project, "a") as client:
        ids = [client.locks["a"].lock_id or "", "0" * 32]
        files = [sections.SectionFile(str(project / f"a/{name}"), b"new\n", "ABSENT") for name in "xy"]
        for order in (ids, ids[::-1]):
            with pytest.raises(LockLost):
                client.workspace.guard._sections.land(  # type: ignore[attr-defined]
                    files, [sections.CarriedLock("a", lock_id) for lock_id in order]
                )
        assert contents(project) == {}


@pytest.mark.parametrize("names", [("a/x", "b/x"), ("b/x", "a/x"), ("b/x", "free/x")])
def test_an_own_lock_does_not_open_the_folder_of_somebody_else(project: Path, names: tuple[str, ...]) -> None:
    """N-machines, REQ-LOCK-007: a lock counts for the files in its folder, and the error names the one that is not."""
    with Client(project, "a") as client:
        client.hold("b", is_carried=False)
        with pytest.raises(LockContention) as refused:
            client.turn().write_files(dict.fromkeys(names, "new\n"))
        assert str(refused.value.path) == str(project / "b/x")
        assert contents(project) == {}


@pytest.mark.parametrize("names", [("a/x", "a/in/x"), ("a/in/x", "a/x")])
def test_the_lock_of_an_inner_folder_does_not_open_the_one_around_it(
    project: Path, names: tuple[str, ...]
) -> None:
    """N-machines, REQ-LOCK-007: whoever works for the holder of the whole has its own part only."""
    with Client(project, "a", "a/in") as client:
        del client.held[client.locks["a"].lock_id or ""]
        with pytest.raises(LockContention) as refused:
            client.turn().write_files(dict.fromkeys(names, "new\n"))
        assert str(refused.value.path) == str(project / "a/x")
        assert contents(project) == {}


def test_own_locks_whose_leases_have_ended_are_renewed_by_the_write(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines, REQ-LOCK-007: nobody has taken them over, so they are held, both of them."""
    if "NOCLOBBER_COORDINATOR" not in os.environ:
        pytest.skip("about the server's clock")
    with Client(project, "a", "b") as client:
        postgres.pass_time(postgres.coordinator(), 7200)
        client.turn().write_files({"a/x": "new\n", "b/x": "new\n"})
        assert contents(project) == {"a/x": "new\n", "b/x": "new\n"}
        assert {client.locks[name].status().state for name in "ab"} == {"live"}
