"""Guarded writes on a volume that several machines share: order, crashes, late writers, locks, bad volumes."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import noclobber
from noclobber import cli
from noclobber.disk import steps
from noclobber.errors import (
    ConfigError,
    CoordinatorUnavailableError,
    FileBusyError,
    LockContention,
    NoclobberError,
    NotAFileError,
    StaleFileError,
    StorageError,
)
from noclobber.postgres import schema, section_recovery, sections, shared_volume
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection
from tests.rigs import postgres
from torture import sections as torture_sections

STEPS = ("section-staged", "section-begun", "section-checked", "section-renamed")
STEPS_OF_SEVERAL = (*STEPS[:3], "section-decided", "section-one-renamed")

# Another machine, as far as the volume is concerned: it is killed, or stopped, when it comes to a step.
PROGRAM = """
import os, signal, sys
from noclobber import Workspace
from noclobber.disk import steps
from noclobber.postgres import sections, shared_volume
shared_volume.is_shared_volume = lambda root: True
sections.SECTION_S = 0.2
root, what, step, how = sys.argv[1:]
workspace = Workspace(root)
def at(name):
    if name == step:
        steps.observer = None
        os.kill(os.getpid(), getattr(signal, how))
with workspace.turn(agent_id="other") as turn:
    turn.read_file("a.txt")
    steps.observer = at
    try:
        if what == "write": turn.write_file("a.txt", "theirs\\n")
        if what == "create": turn.write_file("new.txt", "theirs\\n", expected_hash="ABSENT")
        if what == "delete": turn.delete_file("a.txt")
        if what == "move": turn.move_file("a.txt", "new.txt")
        if what == "several": turn.write_files({"a.txt": "theirs\\n", "new.txt": "theirs\\n"})
        print("landed")
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that counts as a shared volume, with one file in it."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    monkeypatch.setattr(shared_volume, "is_shared_volume", lambda root: True)
    monkeypatch.setattr(sections, "SECTION_S", 0.2)
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    (tmp_path / "p/a.txt").write_text("first\n")
    yield tmp_path / "p"
    _connection.cache_clear()


def other(volume: Path, what: str, step: str = "", how: str = "SIGKILL") -> tuple[int, str]:
    """Let another machine's writer run to its end; return its exit code and what it said."""
    words = [sys.executable, "-c", PROGRAM, str(volume), what, step, how]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


@contextmanager
def stopped_other(volume: Path, what: str) -> Iterator[subprocess.Popen[str]]:
    """Another machine's writer that is stopped right before its rename."""
    words = [sys.executable, "-c", PROGRAM, str(volume), what, "section-checked", "SIGSTOP"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            os.waitpid(process.pid, os.WUNTRACED)
            yield process
        finally:
            process.kill()


def test_every_kind_of_change_lands_in_a_section(volume: Path) -> None:
    """N-machines: create, replace, several, move and delete; the level says how, and nothing is left behind."""
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        results = [
            turn.write_file("a.txt", "second\n"),
            turn.write_file("made/b.txt", "b\n", expected_hash="ABSENT"),
            *turn.write_files({"a.txt": "third\n", "c.txt": "c\n"}).values(),
            turn.move_file("c.txt", "d.txt"),
            turn.delete_file("d.txt"),
        ]
        assert {result.level for result in results} == {"section"}
        assert workspace.ledger.verify().event_count == 6
    assert (volume / "a.txt").read_text() == "third\n"
    assert (volume / "made/b.txt").read_text() == "b\n"
    assert not (volume / "c.txt").exists()
    assert not (volume / "d.txt").exists()
    assert os.listdir(volume / ".noclobber/sections") == ["tree_id"]


def test_a_replacement_keeps_mode_and_attributes(volume: Path) -> None:
    """N-machines, REQ-LOCK-007: a section's new version looks like the old one."""
    (volume / "a.txt").chmod(0o640)
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        turn.write_file("a.txt", "second\n")
        turn.move_file("a.txt", "b.txt")
    assert (volume / "b.txt").stat().st_mode & 0o777 == 0o640


def test_what_another_machine_wrote_since_is_not_overwritten(volume: Path) -> None:
    """N-machines, finding R2: the second of two writers is refused, and told who was first."""
    with noclobber.Workspace(volume) as workspace, workspace.turn(agent_id="late") as turn:
        turn.read_file("a.txt")
        assert other(volume, "write") == (0, "landed\n")
        with pytest.raises(StaleFileError) as refused:
            turn.write_file("a.txt", "mine\n")
        assert "other" in str(refused.value.written_by)
        with pytest.raises(StaleFileError):
            turn.write_files({"a.txt": "mine\n", "b.txt": "mine\n"})
    assert (volume / "a.txt").read_text() == "theirs\n"
    assert not (volume / "b.txt").exists()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", ["write", "create", "delete"])
def test_a_killed_write_of_one_file_has_happened_or_never_will(volume: Path, what: str, step: str) -> None:
    """N-machines: the next writer finds out which, the record says so, and nothing is left behind."""
    assert other(volume, what, step)[0] == -signal.SIGKILL
    with noclobber.Workspace(volume) as workspace, workspace.turn(unread="allow") as turn:
        name = "new.txt" if what == "create" else "a.txt"
        turn.write_files({name: "next\n", "more.txt": "next\n"})
        has_landed = step == "section-renamed"
        before = next(e for e in workspace.ledger.events() if e["action_type"] == "MUTATION")["payload"]
        found = [e["payload"]["outcome"] for e in workspace.ledger.events() if "outcome" in e["payload"]]
    assert found == ([] if step == "section-staged" else ["landed" if has_landed else "discarded"])
    expected = {"write": ("theirs\n", "first\n"), "create": ("theirs\n", None), "delete": (None, "first\n")}
    text = expected[what][0 if has_landed else 1]
    assert before["before_hash"] == (
        "ABSENT" if text is None else f"sha256:{torture_sections._sha256(text.encode())}"
    )
    assert (volume / name).read_text() == "next\n"


@pytest.mark.parametrize("step", STEPS_OF_SEVERAL)
@pytest.mark.parametrize("what", ["several", "move"])
def test_a_killed_write_of_several_files_lands_whole_or_not_at_all(
    volume: Path, what: str, step: str
) -> None:
    """N-machines: before the decision none of it, after the decision all of it, whoever carries it out."""
    assert other(volume, what, step)[0] == -signal.SIGKILL
    with noclobber.Workspace(volume) as workspace, workspace.turn(unread="allow") as turn:
        turn.write_file("new.txt", "next\n") if what == "several" else turn.write_file("a.txt", "next\n")
    has_landed = step in ("section-decided", "section-one-renamed")
    if what == "several":
        assert (volume / "a.txt").read_text() == ("theirs\n" if has_landed else "first\n")
    else:
        assert (volume / "new.txt").exists() == has_landed
    left = sorted(os.listdir(volume / ".noclobber/sections"))
    assert left == ["tree_id"] or step == "section-staged"


@pytest.mark.parametrize("what", ["write", "delete", "several", "move"])
def test_the_late_rename_of_a_writer_that_was_stopped_changes_nothing(volume: Path, what: str) -> None:
    """N-machines: it was revoked meanwhile; the writer looks again and is refused, because the file has changed."""
    with (
        stopped_other(volume, what) as stopped,
        noclobber.Workspace(volume) as workspace,
        workspace.turn(unread="allow") as turn,
    ):
        assert turn.write_file("a.txt", "mine\n").recovered
        os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.communicate()[0] == "StaleFileError\n"
        turn.write_file("a.txt", "mine again\n")
    assert (volume / "a.txt").read_text() == "mine again\n"
    assert not (volume / "new.txt").exists()


def test_a_write_into_somebodys_locked_folder_is_refused_by_the_section_itself(volume: Path) -> None:
    """N-machines, REQ-LOCK-007: the fence and the write are one transaction's decision."""
    (volume / "report").mkdir()
    held = noclobber.DeliverableLock(volume / "report", holder="builder")
    with held as lock, noclobber.Workspace(volume) as workspace:
        with workspace.turn() as turn, pytest.raises(LockContention):
            turn.write_file("report/x.md", "x\n", expected_hash="ABSENT")
        with workspace.turn(lock=lock) as turn:
            assert turn.write_file("report/x.md", "x\n", expected_hash="ABSENT").level == "section"


def test_a_write_that_has_landed_is_not_called_a_failure_because_of_what_was_told_before(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: another thread's end of a write was owed, and the server was away for a moment."""

    def away(connection: ServerConnection, *_: object) -> None:
        raise CoordinatorUnavailableError("server", "away while it was told of another write")

    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        with monkeypatch.context() as patch:
            patch.setattr(ServerConnection, "tell", away)
            assert turn.write_file("a.txt", "second\n").level == "section"
        assert workspace.ledger.verify().event_count == 1
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        turn.write_file("a.txt", "third\n")
    assert (volume / "a.txt").read_text() == "third\n"
    assert os.listdir(volume / ".noclobber/sections") == ["tree_id"]


@pytest.mark.parametrize("name", [".github", "..d", "d", "."])
def test_the_holder_of_a_folder_writes_in_it_whatever_it_is_called(volume: Path, name: str) -> None:
    """N-machines, REQ-LOCK-007: a folder whose name begins with a dot was looked for without it."""
    folder = volume / name
    folder.mkdir(exist_ok=True)
    with (
        noclobber.Workspace(volume) as workspace,
        noclobber.DeliverableLock(folder, holder="a") as lock,
        workspace.turn(lock=lock) as turn,
    ):
        assert turn.write_file(str(folder / "b.txt"), "b\n", expected_hash="ABSENT").level == "section"


def test_what_another_program_saved_is_not_lost_with_a_deletion_on_a_full_volume(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: it was moved away with the file, and could neither be put back nor be kept: it was removed."""

    def save(step: str) -> None:
        if step == "section-checked":
            (volume / "a.txt").write_text("of another program\n")

    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        with monkeypatch.context() as patch:
            patch.setattr(steps, "observer", save)
            patch.setattr(section_recovery, "keep_bytes", full)
            patch.setattr(os, "link", full)
            with pytest.raises(StorageError, match="put back"):
                turn.delete_file("a.txt")
        with pytest.raises(NoclobberError):
            turn.write_file("a.txt", "mine\n", expected_hash="ABSENT")
    assert (volume / "a.txt").read_text() == "of another program\n"
    assert os.listdir(volume / ".noclobber/sections") == ["tree_id"]


def test_a_lock_waits_for_a_write_that_is_under_way_and_revokes_one_that_is_overdue(volume: Path) -> None:
    """N-machines: a folder is not locked while a write that was let through before may still land in it."""
    lock = noclobber.DeliverableLock(volume, holder="builder")
    with stopped_other(volume, "write") as stopped, lock.acquire(timeout_s=20):
        os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.communicate()[0] == "LockContention\n"
        assert (volume / "a.txt").read_text() == "first\n"


def test_one_name_for_two_trees_is_refused(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: a workspace is one tree of files; the second is told so before anything is written."""
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"team-{os.urandom(4).hex()}")
    (tmp_path / "q/.noclobber").mkdir(parents=True)
    for root in (volume, tmp_path / "q"):
        with noclobber.Workspace(root) as workspace, workspace.turn() as turn:
            if root == volume:
                turn.write_file("b.txt", "b\n", expected_hash="ABSENT")
                continue
            with pytest.raises(ConfigError, match="another tree"):
                turn.write_file("b.txt", "b\n", expected_hash="ABSENT")
    assert not (tmp_path / "q/b.txt").exists()


def test_an_old_view_of_a_mount_is_not_believed(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-machines: a version that stood there before the last one is what a cache shows; a write waits, then stops."""
    monkeypatch.setattr(sections, "OLD_VIEW_NAPS_S", (0.0,) * 3)
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        turn.write_file("a.txt", "second\n")
        turn.write_file("a.txt", "third\n")
        (volume / "a.txt").write_text("second\n")  # As a mount shows it that has not noticed.
        turn.read_file("a.txt")
        with pytest.raises(FileBusyError, match="earlier version"):
            turn.write_file("a.txt", "fourth\n", expected_hash=torture_sections._sha256(b"second\n"))
    assert (volume / "a.txt").read_text() == "second\n"


def test_a_file_with_several_names_is_refused(volume: Path) -> None:
    """N-machines: a rename would leave the other names behind."""
    os.link(volume / "a.txt", volume / "b.txt")
    with (
        noclobber.Workspace(volume) as workspace,
        workspace.turn(unread="allow") as turn,
        pytest.raises(NotAFileError, match="several names"),
    ):
        turn.write_file("a.txt", "x\n")


def test_a_volume_on_which_a_rename_is_two_steps_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: libfuse moves an open file away before it is replaced; such a file could vanish."""
    if torture_sections.why_not():
        pytest.skip(torture_sections.why_not() or "")
    under, mount = tmp_path / "under", tmp_path / "mount"
    (under / ".noclobber").mkdir(parents=True)
    mount.mkdir()
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"team-{os.urandom(4).hex()}")
    if subprocess.run(["bindfs", str(under), str(mount)], capture_output=True).returncode:
        pytest.skip("bindfs cannot mount here")
    try:
        with (
            noclobber.Workspace(mount) as workspace,
            workspace.turn() as turn,
            pytest.raises(ConfigError, match="hard_remove"),
        ):
            turn.write_file("b.txt", "b\n", expected_hash="ABSENT")
    finally:
        _connection.cache_clear()
        subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=False)
    assert sorted(os.listdir(under)) == [".noclobber"]


def test_leftovers_of_writers_that_never_began_are_swept(volume: Path) -> None:
    """N-machines: the server is told first, so that a writer that wakes up late cannot begin with them."""
    assert other(volume, "several", "section-staged")[0] == -signal.SIGKILL
    folder = volume / ".noclobber/sections"
    assert len(os.listdir(folder)) == 3
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    with noclobber.Workspace(volume) as workspace, workspace.turn():
        pass
    assert os.listdir(folder) == ["tree_id"]


def test_tables_of_version_one_are_migrated() -> None:
    """N-machines: a server that an earlier version has set up is brought up to date, and keeps what it has."""
    server = postgres.started()
    try:
        with psycopg.connect(server.address()) as link:
            link.execute(schema._text("tables_1.sql"))
            link.execute(
                schema._text("functions.sql").replace(b"noclobber.section_inside", b"noclobber.covers")
            )
            link.execute("INSERT INTO noclobber.chain VALUES ('w', 7, repeat('1', 64))")
        assert schema.install(server.address()) == schema.VERSION
        with psycopg.connect(server.address()) as link:
            assert schema.installed_version(link) == schema.VERSION
            assert link.execute("SELECT seq FROM noclobber.chain").fetchall() == [(7,)]
    finally:
        server.remove()


def test_a_migration_leaves_one_way_to_begin_a_section() -> None:
    """N-machines: with two of them the server would choose by the kinds of values that it is asked with."""
    server = postgres.started()
    begun = "FROM pg_proc WHERE proname = 'begin_section'"
    try:
        schema.install(server.address())
        with psycopg.connect(server.address()) as link:
            link.execute(
                "CREATE FUNCTION noclobber.begin_section(text, text, text, jsonb, text, text, text, jsonb, jsonb,"
                " float8, text) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb'"
            )
            link.execute("DROP TABLE noclobber.steady; ALTER TABLE noclobber.lock DROP COLUMN taken")
            link.execute("UPDATE noclobber.schema_version SET version = 6")
        assert schema.install(server.address()) == schema.VERSION
        with psycopg.connect(server.address()) as link:
            assert link.execute(f"SELECT count(*) {begun}").fetchone() == (1,)
    finally:
        server.remove()


def test_two_mounts_of_one_folder_lose_nothing() -> None:
    """N-machines: a short run of `make hosts`' proof, with kills, stops and a server that crashes."""
    if shutil.which("bindfs") is None or torture_sections.why_not():
        pytest.skip(torture_sections.why_not() or "no bindfs")
    for seed in (7, 8, 9):  # On a busy machine nothing may have landed by then: once more.
        found = torture_sections.chaos(8, seed)
        assert found.ok, found
        if found.acknowledged:
            return
    pytest.fail("nothing was acknowledged")


def test_doctor_names_the_level_of_a_shared_volume(
    volume: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines, finding R2: `doctor`, the README and the results say the same word."""
    monkeypatch.chdir(volume)
    cli.main(["doctor"])
    assert "section on " in capsys.readouterr().out


def test_a_volume_that_fails_while_a_version_is_staged_is_an_error_with_a_code(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: found on NFS between kernels; "Stale file handle" came out raw."""
    from noclobber.postgres.volume import Volume

    def stale(*_: object) -> tuple[str, ...]:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        monkeypatch.setattr(Volume, "stage", stale)
        with pytest.raises(noclobber.NoclobberError, match="try again"):
            turn.write_file("a.txt", "second\n")
    assert (volume / "a.txt").read_text() == "first\n"


def test_a_copy_of_a_volume_under_the_same_name_is_refused(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines, N-input: its id is copied with it, so the name stood for two trees, each of which spoiled the other."""
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"copied-{os.urandom(4).hex()}")
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.write_file("b.txt", "original\n")
    subprocess.run(["cp", "-a", str(volume), str(tmp_path / "copy")], check=True)
    with (
        noclobber.Workspace(tmp_path / "copy") as workspace,
        workspace.turn() as turn,
        pytest.raises(ConfigError, match="a copy of another one"),
    ):
        turn.write_file("c.txt", "in the copy\n")
    assert not (tmp_path / "copy/c.txt").exists()
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"copy-{os.urandom(4).hex()}")
    (tmp_path / "copy/.noclobber/sections/tree_id").unlink()
    with noclobber.Workspace(tmp_path / "copy") as workspace, workspace.turn() as turn:
        assert turn.write_file("c.txt", "in the copy\n").level == "section"


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "nothing that is meant"])
def test_what_stands_in_the_place_of_a_trees_id_is_an_error_and_is_not_waited_for(
    volume: Path, kind: str
) -> None:
    """N-machines, N-input: what comes with a folder; a FIFO was waited for for ever."""
    folder = volume / ".noclobber/sections"
    folder.mkdir(mode=0o700)
    path = folder / "tree_id"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        (folder / "elsewhere").write_text("0" * 32)
        path.symlink_to(folder / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff" * 40)
    with (
        noclobber.Workspace(volume) as workspace,
        workspace.turn() as turn,
        pytest.raises(NoclobberError, match="tree"),
    ):
        turn.write_file("b.txt", "x\n")
    assert not (volume / "b.txt").exists()


def test_a_link_in_the_place_of_staged_files_is_refused(volume: Path, tmp_path: Path) -> None:
    """N-machines, N-input: every byte that is written would pass through a folder of somebody's choice."""
    (tmp_path / "elsewhere").mkdir()
    (volume / ".noclobber/sections").symlink_to(tmp_path / "elsewhere")
    with (
        noclobber.Workspace(volume) as workspace,
        workspace.turn() as turn,
        pytest.raises(StorageError, match="no folder"),
    ):
        turn.write_file("b.txt", "x\n")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "meant"), [(0o755, 0o700), (0o2775, 0o2770), (0o777, 0o2777), (0o1777, 0o2770)]
)
def test_who_may_write_in_the_root_may_end_what_another_user_left(
    volume: Path, mode: int, meant: int
) -> None:
    """N-machines: colleagues have user ids of their own, and the first one's folder shut out the others."""
    volume.chmod(mode)
    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.write_file("b.txt", "x\n")
    folder = volume / ".noclobber/sections"
    assert folder.stat().st_mode & 0o7777 == meant
    assert (folder / "tree_id").stat().st_mode & 0o044 == meant & 0o044


def test_a_folder_that_cannot_be_used_is_an_error_with_a_code(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines, finding R10: another user's folder or a full disk was an error of the system, and a traceback."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with noclobber.Workspace(volume) as workspace, workspace.turn() as turn:
        turn.read_file("a.txt")
        monkeypatch.setattr("noclobber.postgres.volume.os.mkdir", full)
        with pytest.raises(StorageError, match="disk is full"):
            turn.write_file("a.txt", "x\n")
    assert (volume / "a.txt").read_text() == "first\n"
