"""What a command did to a tree, in one commit: all of it, or nothing, whatever happens in the middle."""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from noclobber.disk import ordering, steps
from noclobber.disk.commit.change_set import TreeRow, commit_changes, expected_of
from noclobber.disk.commit.committer import Committer
from noclobber.errors import NoclobberError, StaleFileError
from tests.conftest import sha256

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the guarded shell")

Picture = dict[str, tuple[str, object]]


def picture(root: Path) -> Picture:
    """Everything below a root but the state folder: kinds, bytes, targets and permissions."""
    found: Picture = {}
    for folder, names, files in os.walk(root):
        if folder == str(root):
            names.remove(".noclobber")
        for name in [*names, *files]:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                found[str(path.relative_to(root))] = ("link", os.readlink(path))
            elif stat.S_ISDIR(mode):
                found[str(path.relative_to(root))] = ("folder", stat.S_IMODE(mode))
            else:
                found[str(path.relative_to(root))] = ("file", (path.read_bytes(), stat.S_IMODE(mode)))
    return found


@pytest.fixture
def tree(root: Path) -> Path:
    for folder in ("sub", "going/deep", ".noclobber/run/1/upper"):
        (root / folder).mkdir(parents=True)
    for name in ("changed", "sub/changed", "gone", "mode", "turns", "going/f", "going/deep/g"):
        (root / name).write_text(f"{name} before\n")
        os.chmod(root / name, 0o644)
    os.symlink("gone", root / "link-gone")
    os.symlink("one", root / "link-turns")
    return root


def rows(root: Path) -> list[TreeRow]:
    """Every kind of row there is. A file becomes a folder, a folder a file, and a link leads elsewhere."""
    upper = root / ".noclobber/run/1/upper"

    def staged(name: str, text: str = "") -> str:
        path = upper / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or f"{name} after\n")
        return str(path)

    def at(name: str) -> str:
        return str(root / name)

    (upper / "turns/inner").mkdir(parents=True)
    (upper / "turns/inner/f").write_text("in it\n")
    (upper / "empty").mkdir()
    os.symlink("two", upper / "link-turns")
    os.symlink("nowhere", upper / "link-new")
    return [
        TreeRow("write", "file", at("changed"), expected_of(at("changed")), staged("changed")),
        TreeRow("create", "folder", at("empty"), None, str(upper / "empty")),
        TreeRow("delete", "folder", at("going"), expected_of(at("going"))),
        TreeRow("create", "file", at("going"), None, staged("going", "a file now\n")),
        TreeRow("delete", "file", at("gone"), expected_of(at("gone"))),
        TreeRow("create", "link", at("link-new"), None, str(upper / "link-new")),
        TreeRow("delete", "link", at("link-gone"), expected_of(at("link-gone"))),
        TreeRow("delete", "link", at("link-turns"), expected_of(at("link-turns"))),
        TreeRow("create", "link", at("link-turns"), None, str(upper / "link-turns")),
        TreeRow("mode", "file", at("mode"), expected_of(at("mode")), "", 0o755, 0o644),
        TreeRow("create", "file", at("new"), None, staged("new")),
        TreeRow("write", "file", at("sub/changed"), expected_of(at("sub/changed")), staged("sub/changed")),
        TreeRow("create", "file", at("sub/new"), None, staged("sub/new")),
        TreeRow("delete", "file", at("turns"), expected_of(at("turns"))),
        TreeRow("create", "folder", at("turns"), None, str(upper / "turns")),
    ]


def no_rubbish(root: Path, committer: Committer) -> bool:
    committer.sweep()
    committer.close()
    return os.listdir(root / ".noclobber/swap") == [] and os.listdir(root / ".noclobber/kept") == []


def act_at(number: int, act: Callable[[], object]) -> list[str]:
    """Act at the n-th named step of the next commit; return the list that the steps go to."""
    seen: list[str] = []

    def observe(step: str) -> None:
        seen.append(step)
        if len(seen) == number:
            act()

    steps.observer = observe
    return seen


@pytest.fixture(autouse=True)
def nobody_looks() -> object:
    yield
    steps.observer = None


def how_many_steps(tree: Path) -> int:
    seen = act_at(-1, lambda: None)
    commit_changes(Committer(str(tree)), rows(tree))
    steps.observer = None
    return len(seen)


def test_every_kind_of_change_lands(tree: Path) -> None:
    """N-shell: what is there afterwards, and a result for each row."""
    committer = Committer(str(tree))
    results = commit_changes(committer, rows(tree))
    assert picture(tree) == {
        "changed": ("file", (b"changed after\n", 0o644)),
        "empty": ("folder", 0o755),
        "going": ("file", (b"a file now\n", 0o644)),
        "link-new": ("link", "nowhere"),
        "link-turns": ("link", "two"),
        "mode": ("file", (b"mode before\n", 0o755)),
        "new": ("file", (b"new after\n", 0o644)),
        "sub": ("folder", 0o755),
        "sub/changed": ("file", (b"sub/changed after\n", 0o644)),
        "sub/new": ("file", (b"sub/new after\n", 0o644)),
        "turns": ("folder", 0o755),
        "turns/inner": ("folder", 0o755),
        "turns/inner/f": ("file", (b"in it\n", 0o644)),
    }
    by_path = {result.path.removeprefix(f"{tree}/"): result for result in results[:1] + results[4:5]}
    assert by_path["changed"].sha256 == sha256(b"changed after\n")
    assert by_path["changed"].level == "lease+exchange"
    assert by_path["gone"].sha256 == "DELETED"
    assert no_rubbish(tree, committer)


def test_killed_at_any_step_it_is_the_old_tree_or_the_new_one(tmp_path: Path, tree: Path) -> None:
    """N-shell: `kill -9` at every named step; the next commit finishes it or takes all of it back."""
    before = picture(tree)
    count = how_many_steps(tree)
    after = picture(tree)
    outcomes = set()
    for number in range(1, count + 1):
        root = fresh(tmp_path, f"k{number}")
        pid = os.fork()
        if pid == 0:
            act_at(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
            try:
                commit_changes(Committer(str(root)), rows(root))
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status)
        committer = Committer(str(root))
        committer.replace(str(root / "unrelated"), "ABSENT", b"")
        committer.replace(str(root / "sub/unrelated"), "ABSENT", b"")
        (root / "unrelated").unlink()
        (root / "sub/unrelated").unlink()
        found = picture(root)
        assert found in (before, after), number
        outcomes.add(found == after)
        kept = os.listdir(root / ".noclobber/kept")
        assert kept == [], (number, kept)
    assert outcomes == {True, False}


def killed_when_everything_was_exchanged(root: Path) -> None:
    """The note says `S`, and every row is done."""
    pid = os.fork()
    if pid == 0:
        wanted = rows(root)
        left = [len(wanted)]

        def observe(step: str) -> None:
            left[0] -= step == "one-visible"
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        steps.observer = observe
        try:
            commit_changes(Committer(str(root)), wanted)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)


def test_a_recovery_that_cannot_remove_a_folder_takes_nothing_back(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell, N-faults: half of it was removed, so it looked changed, and everything was taken back to that."""
    how_many_steps(tree)
    after = picture(tree)
    root, real = fresh(tmp_path, "k"), os.rmdir
    killed_when_everything_was_exchanged(root)

    def fail(*args: object, **more: object) -> None:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "rmdir", fail)
    with pytest.raises(NoclobberError):
        Committer(str(root)).replace(str(root / "sub/unrelated"), "ABSENT", b"")
    monkeypatch.setattr(os, "rmdir", real)
    committer = Committer(str(root))
    committer.replace(str(root / "sub/unrelated"), "ABSENT", b"")
    (root / "sub/unrelated").unlink()
    assert picture(root) == after
    assert os.listdir(root / ".noclobber/kept") == []


@pytest.mark.parametrize("call", ["fstat", "stat"])
def test_a_tree_that_has_landed_is_not_refused_and_one_that_was_refused_has_not_landed(
    tmp_path: Path, call: str
) -> None:
    """N-shell, N-faults: whichever call fails; after the commit point there were errors that said "refused"."""
    pytest.importorskip("torture.fault_pairs")
    from torture.fault_pairs import run
    from torture.faults import Faults

    with Faults().installed() as faults:
        for number in range(1, 300, 2):
            folder = tmp_path / str(number)
            folder.mkdir()
            _, calls = run(folder, faults, "tree", {number: errno.EIO}, only=call)
            if number > calls:
                return
    raise AssertionError("it has no end")


@pytest.mark.parametrize("is_stripped", [False, True], ids=["as it is", "made ready"])
@pytest.mark.parametrize("durable", [False, True])
def test_the_files_in_a_new_folder_are_written_before_it_gets_its_name(
    tree: Path, monkeypatch: pytest.MonkeyPatch, durable: bool, is_stripped: bool
) -> None:
    """N-shell, R1: a power cut must not leave the folder's name with empty files in it."""
    wanted = [row._replace(is_stripped=is_stripped and row.kind == "folder") for row in rows(tree)]
    inner = os.stat(tree / ".noclobber/run/1/upper/turns/inner/f").st_ino
    waited: list[int] = []
    real_wait, real_fsync = ordering.wait, os.fsync

    def wait(descriptor: int, kind: str) -> None:
        waited.append(os.fstat(descriptor).st_ino)
        real_wait(descriptor, kind)

    def fsync(descriptor: int) -> None:
        waited.append(os.fstat(descriptor).st_ino)
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    if not durable:
        monkeypatch.setattr(ordering, "wait", wait)
    commit_changes(Committer(str(tree), durable=durable), wanted)
    assert inner in waited


WAITS = {
    # Which rows: the file's own bytes, the note before the first step and after the last, and the names.
    "changed": (True, False, False),
    "sub/changed changed": (True, True, True),
    "gone": (False, True, True),
    "new": (True, True, True),
}


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("which", WAITS)
def test_one_file_with_new_content_waits_for_its_bytes_and_for_nothing_else(
    tree: Path, monkeypatch: pytest.MonkeyPatch, which: str, durable: bool
) -> None:
    """Ruling 15, N-power, N-speed: one exchange is done or not done; what takes more steps has its note first."""
    wanted = [row for row in rows(tree) if row.path.removeprefix(f"{tree}/") in which.split()]
    assert len(wanted) == len(which.split())
    waited: list[int] = []
    flushed: list[int] = []
    synced: list[int] = []
    real_wait, real_flush, real_fsync = ordering.wait, ordering.flush_names, os.fsync

    def wait(descriptor: int, kind: str) -> None:
        waited.append(os.fstat(descriptor).st_ino)
        real_wait(descriptor, kind)

    def flush(folders: Iterable[int], kind: str) -> None:
        folders = list(folders)
        flushed.extend(os.fstat(folder).st_ino for folder in folders)
        real_flush(folders, kind)

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real_fsync(descriptor)

    monkeypatch.setattr(ordering, "wait", wait)
    monkeypatch.setattr(ordering, "flush_names", flush)
    monkeypatch.setattr(os, "fsync", fsync)
    states: list[bytes] = []
    notes = tree / ".noclobber/notes"

    def observe(step: str) -> None:
        if step == "noted":
            [note] = notes.iterdir() if len(wanted) == 1 else [next(notes.iterdir())]
            states.append(note.read_bytes()[:1])

    monkeypatch.setattr(steps, "observer", observe)
    commit_changes(Committer(str(tree), durable=durable), wanted)
    has_bytes, has_note, has_names = WAITS[which]
    own = {os.stat(row.path).st_ino for row in wanted if os.path.lexists(row.path)}
    noted = {note.stat().st_ino for note in notes.iterdir()}
    assert bool(own & set(synced if durable else waited)) is has_bytes
    assert bool(noted & set(waited)) is has_note
    assert (os.stat(tree).st_ino in flushed) is (has_names or durable)  # Durable: the name, in any case.
    assert states == [b"S"] or len(wanted) > 1  # A killed process is recovered all the same.


def fresh(tmp_path: Path, name: str) -> Path:
    root = tmp_path / name
    (root / ".noclobber").mkdir(parents=True)
    build: Callable[[Path], Path] = tree.__wrapped__  # type: ignore[attr-defined]
    return build(root)


def _rename_over(root: Path) -> None:
    (root / "t").write_text("theirs")
    os.rename(root / "t", root / "sub/changed")


def _point_elsewhere(root: Path) -> None:
    (root / "link-turns").unlink()
    os.symlink("theirs", root / "link-turns")


def _make_folder(root: Path) -> None:
    if not (root / "turns").exists():
        (root / "turns").mkdir()


SAVES: dict[str, Callable[[Path], object]] = {
    "over": lambda root: (root / "changed").write_text("theirs"),
    "rename": _rename_over,
    "create": lambda root: (root / "new").write_text("theirs"),
    "inside": lambda root: (root / "going/deep/theirs").write_text("theirs"),
    "deleted": lambda root: (root / "gone").write_text("theirs"),
    "link": _point_elsewhere,
    "folder": _make_folder,
}


def saved_somewhere(root: Path) -> bool:
    """True if what the outsider saved is at its name, or kept anywhere."""
    for folder, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(folder, name)
            if path.is_symlink():
                if os.readlink(path) == "theirs":
                    return True
            elif path.is_file() and path.read_bytes() == b"theirs":
                return True
    return False


def outsider(root: Path, kind: str) -> int:
    """Save as another process, which our own leases do stop; return its pid."""
    pid = os.fork()
    if pid == 0:
        steps.observer = None
        signal.alarm(5)
        try:
            SAVES[kind](root)
            os._exit(0)
        except OSError:
            os._exit(1)
    for _ in range(10):  # It may wait for us inside open(): then we go on.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        signal.sigtimedwait([], 0.002)
    return pid


def test_whoever_saves_at_any_step_loses_nothing(tmp_path: Path, tree: Path) -> None:
    """N-shell, 009-SC-001: their version is at its name or kept, and the tree is never a mixture."""
    count = how_many_steps(tree)
    kinds = list(SAVES)
    for number in range(1, count + 1):
        for kind in kinds if os.environ.get("NOCLOBBER_ALL_STEPS") else [kinds[number % len(kinds)]]:
            root = fresh(tmp_path, f"s{number}-{kind}")
            before = picture(root)
            pids: list[int] = []
            act_at(number, lambda root=root, kind=kind, pids=pids: pids.append(outsider(root, kind)))  # type: ignore[misc]
            committer = Committer(str(root), wait_s=0.05)
            landed = True
            try:
                commit_changes(committer, rows(root))
            except NoclobberError:
                landed = False
            steps.observer = None
            committer.close()
            (pid,) = pids
            _, status = os.waitpid(pid, 0)
            now = picture(root)
            if status == 0 and kind != "folder":
                assert saved_somewhere(root), (number, kind, landed)
            if not landed:
                different = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
                assert len(different) <= 1, (number, kind, different)


def test_a_stale_row_refuses_all_and_gives_everything_back(tree: Path) -> None:
    """N-shell: what the command wrote can still be shown."""
    wanted = rows(tree)
    (tree / "sub/changed").write_text("theirs")
    before = picture(tree)
    upper = tree / ".noclobber/run/1/upper"
    wrote = sorted(os.listdir(upper))
    with pytest.raises(StaleFileError) as refused:
        commit_changes(Committer(str(tree)), wanted)
    assert refused.value.path == str(tree / "sub/changed")
    assert picture(tree) == before
    assert sorted(os.listdir(upper)) == wrote
