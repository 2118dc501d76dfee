"""Bad input to the guard: each gets a clear error, changes nothing, loses nothing, blocks on nothing."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import noclobber
from noclobber.disk import steps
from noclobber.disk.commit.rows import Change
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import (
    FileBusyError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    StaleFileError,
    StorageError,
)
from tests.conftest import AtStep, sha256

NOBODY = 65534
SOURCES = str(Path(noclobber.__file__).parents[1])


def special(root: Path, kind: str) -> Path:
    path = root / "special"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            os.chdir(root)
            server.bind("special")
    elif kind == "device":
        try:
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("making a device needs root")
    elif kind == "dangling":
        path.symlink_to("nowhere/at/all")
    return path


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["folder", "fifo", "socket", "device"])
def test_what_is_not_a_file_is_refused_and_nothing_blocks(
    guard: FileGuard, root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 12: a clear NOT_A_FILE; nothing is touched."""
    monkeypatch.chdir(root)
    path = special(root, kind)
    before = path.lstat()
    with pytest.raises(NotAFileError):
        guard.read("special")
    with pytest.raises(NotAFileError):
        guard.write("special", b"x", expected=None)
    with pytest.raises(StaleFileError) as refused:
        guard.write("special", b"x", expected=sha256(b"v1"))
    assert refused.value.actual == "NOT_A_FILE"
    with pytest.raises((NotAFileError, StaleFileError)):
        guard.delete("special", expected=None)
    assert guard.digest("special") == "NOT_A_FILE"
    assert path.lstat().st_ino == before.st_ino


def test_a_dangling_link_reads_as_missing_and_is_written_through(guard: FileGuard, root: Path) -> None:
    """N-links: a link is written through; here that creates what it points to."""
    (root / "link").symlink_to("target.md")
    with pytest.raises(MissingFileError):
        guard.read("link")
    guard.write("link", b"x", expected="ABSENT")
    assert (root / "link").is_symlink()
    assert (root / "target.md").read_bytes() == b"x"


def test_a_symlink_is_written_through_and_stays(guard: FileGuard, root: Path) -> None:
    """N-links: the link stays a link, its target gets the bytes."""
    (root / "real.md").write_bytes(b"v1")
    (root / "link.md").symlink_to("real.md")
    commit = guard.write("link.md", b"v2", expected=sha256(b"v1"))
    assert (root / "link.md").is_symlink()
    assert (root / "real.md").read_bytes() == b"v2"
    assert commit.path == str(root / "real.md")


AS_NOBODY = """
import os, sys
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import NoclobberError
os.setgid({nobody}); os.setuid({nobody})
guard = FileGuard(sys.argv[1])
try:
    {call}
except NoclobberError as error:
    print(error.code, error)
else:
    print("OK")
"""


def interpreter_for_nobody() -> str | None:
    """An interpreter that another user may run: ours may live in a private home."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        code = f"import os, sys; os.setuid({NOBODY}); import noclobber.disk.file_guard; sys.exit(sys.version_info < (3, 11))"
        probe = subprocess.run(
            [candidate, "-c", code], capture_output=True, check=False, env={"PYTHONPATH": SOURCES}
        )
        if probe.returncode == 0:
            return candidate
    return None


def as_nobody(folder: str, call: str) -> str:
    interpreter = interpreter_for_nobody()
    assert interpreter is not None
    done = subprocess.run(
        [interpreter, "-c", AS_NOBODY.format(nobody=NOBODY, call=call), folder],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": SOURCES},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture
def shared_folder() -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    if interpreter_for_nobody() is None:
        pytest.skip("no interpreter here that another user may run")
    folder = tempfile.mkdtemp(dir="/tmp")
    os.chmod(folder, 0o777)
    yield folder
    shutil.rmtree(folder)


def fill(folder: Path) -> int:
    """Fill a filesystem to the last block; return the size of the ballast."""
    ballast_fd = os.open(folder / "ballast", os.O_WRONLY | os.O_CREAT)
    size = 0
    try:
        while True:
            size += os.write(ballast_fd, b"x" * 4096)
    except OSError:
        return size
    finally:
        os.close(ballast_fd)


@pytest.mark.parametrize(
    ("mode", "owner", "call", "code"),
    [
        (0o000, NOBODY, "guard.read('a.md')", "ACCESS_DENIED"),
        (0o000, NOBODY, "guard.write('a.md', b'x', expected=None)", "ACCESS_DENIED"),
        (0o000, NOBODY, f"guard.write('a.md', b'x', expected='{'0' * 64}')", "STALE_FILE"),
        (0o444, NOBODY, "guard.write('a.md', b'x', expected=None)", "ACCESS_DENIED"),
        (0o644, 0, "guard.write('a.md', b'x', expected=None)", "ACCESS_DENIED"),
        (0o666, 0, "guard.write('a.md', b'x', expected=None)", "METADATA_NOT_KEPT"),
        (0o644, NOBODY, "guard.write('a.md', b'x', expected=None)", "OK"),
    ],
)
def test_files_that_may_not_be_written_say_why(
    shared_folder: str, mode: int, owner: int, call: str, code: str
) -> None:
    """N-permissions: unreadable, read-only, owned by someone else."""
    path = Path(shared_folder) / "a.md"
    path.write_bytes(b"v1")
    os.chown(path, owner, owner)
    path.chmod(mode)
    assert as_nobody(shared_folder, call).startswith(code)
    assert path.read_bytes() == (b"x" if code == "OK" else b"v1")
    assert path.stat().st_uid == owner


def test_empty_files_have_a_hash_and_can_be_written(guard: FileGuard, root: Path) -> None:
    """010-edge-empty, ruling 8: the SHA-256 of nothing is a hash like any other."""
    (root / "a.md").write_bytes(b"")
    assert guard.read("a.md").sha256 == sha256(b"")
    guard.write("a.md", b"x", expected=sha256(b""))
    guard.write("a.md", b"", expected=sha256(b"x"))
    assert (root / "a.md").read_bytes() == b""


@pytest.mark.slow
def test_hashing_a_large_file_takes_constant_memory(root: Path) -> None:
    """N-memory: 128 MiB on disk, a few MiB in memory."""
    with open(root / "big", "wb") as big:
        big.truncate(128 << 20)
    code = (
        "import resource, sys\nfrom noclobber.disk.file_guard import FileGuard\nguard = FileGuard(sys.argv[1])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nprint(guard.digest('big'))\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    digest, grown_mib = done.stdout.split()
    assert len(digest) == 64
    assert int(grown_mib) < 16


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A filesystem of 256 KiB."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting a small tmpfs needs root on Linux")
    folder = tempfile.mkdtemp()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=64", "none", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    yield Path(folder).resolve()
    subprocess.run(["umount", "-l", folder], check=True)
    os.rmdir(folder)


@pytest.mark.parametrize("free_kib", [0, 4, 8, 12, 16, 20, 40, 60, 100, 140])
def test_a_full_disk_at_any_stage_leaves_the_old_content(small_disk: Path, free_kib: int) -> None:
    """N-disk-full: however far it gets, the error says what happened and the old bytes stand."""
    old = b"o" * 40_000
    (small_disk / "a.md").write_bytes(old)
    (small_disk / "b.md").write_bytes(old)
    os.truncate(small_disk / "ballast", max(0, fill(small_disk) - free_kib * 1024))
    guard = FileGuard(small_disk)
    new = b"n" * 60_000
    landed = False
    try:
        guard.write("a.md", new, expected=sha256(old))
        landed = True
    except StorageError as error:
        assert "full" in str(error)
    assert (small_disk / "a.md").read_bytes() == (new if landed else old)
    both_landed = False
    current = (small_disk / "a.md").read_bytes()
    try:
        guard.commit([Change("a.md", new + b"!", sha256(current)), Change("b.md", new, sha256(old))])
        both_landed = True
    except StorageError:
        pass
    assert (small_disk / "b.md").read_bytes() == (new if both_landed else old)
    assert (small_disk / "a.md").read_bytes() == (new + b"!" if both_landed else current)
    os.unlink(small_disk / "ballast")
    guard.sweep()
    last = (small_disk / "a.md").read_bytes()
    guard.write("a.md", b"room again", expected=sha256(last))
    guard.sweep()
    assert os.listdir(small_disk / ".noclobber/swap") == []


def test_a_conflict_on_a_full_disk_still_gives_the_outsider_their_bytes(
    small_disk: Path, at_step: AtStep
) -> None:
    """009-SC-001, N-disk-full: restoring by copy needs room; then it is done by rename."""
    path = small_disk / "a.md"
    path.write_bytes(b"v1")
    guard = FileGuard(small_disk)
    guard.write("a.md", b"v2", expected=sha256(b"v1"))
    theirs = b"e" * 70_000

    def save_and_fill() -> None:
        (small_disk / "e").write_bytes(theirs)
        os.replace(small_disk / "e", path)
        fill(small_disk)

    seen = at_step("before-exchange", save_and_fill)
    with pytest.raises(StaleFileError) as refused:
        guard.write("a.md", b"agent", expected=sha256(b"v2"))
    assert seen
    assert refused.value.actual == sha256(theirs)
    assert path.read_bytes() == theirs


INTERRUPTED = """
import os, signal, sys
from noclobber.disk import leases as openers, steps
from noclobber.disk.file_guard import FileGuard
root, step, number, expected = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
if number == signal.SIGTERM:
    def stop(*_):
        raise SystemExit(143)
    signal.signal(signal.SIGTERM, stop)
def observe(reached):
    if reached == step:
        steps.observer = None
        os.kill(os.getpid(), number)
steps.observer = observe
guard = FileGuard(root)
try:
    guard.write("a.md", b"agent", expected=expected)
    print("landed")
finally:
    guard.sweep()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", ["entered", "staged", "verified", "before-exchange", "exchanged", "settled"])
def test_an_interrupt_in_the_middle_of_a_commit_waits_for_its_end(
    root: Path, step: str, number: signal.Signals
) -> None:
    """N-signals: the commit is whole, the interrupt comes right after it, nothing is left behind."""
    (root / "a.md").write_bytes(b"v1")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(root), step, str(int(number)), sha256(b"v1")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert (root / "a.md").read_bytes() == b"agent"
    assert os.listdir(root / ".noclobber/swap") == []


@pytest.mark.parametrize(
    "step", ["staged", "verified", "before-exchange", "exchanged", "settled", "released"]
)
def test_an_exception_out_of_nowhere_leaves_old_or_new_and_no_rubbish(root: Path, step: str) -> None:
    """N-signals: what a handler run by another thread's signal would do to us."""
    (root / "a.md").write_bytes(b"v1")
    guard = FileGuard(root)

    def observe(reached: str) -> None:
        if reached == step:
            steps.observer = None
            raise KeyboardInterrupt

    steps.observer = observe
    with pytest.raises(KeyboardInterrupt):
        guard.write("a.md", b"agent", expected=sha256(b"v1"))
    stands = (root / "a.md").read_bytes()
    assert stands in (b"v1", b"agent")
    guard.write("a.md", b"next", expected=sha256(stands))
    guard.sweep()
    assert os.listdir(root / ".noclobber/swap") == []


def test_a_fork_during_a_commit_blocks_nobody(root: Path, at_step: AtStep) -> None:
    """N-fork: the child holds no lease, no mutex and no writer count, however long it lives."""
    (root / "a.md").write_bytes(b"v1")
    reader, writer = os.pipe()
    children = []

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            try:
                os.close(writer)
                os.read(reader, 1)  # Live until the parent is done.
            finally:
                os._exit(0)
        children.append(pid)

    seen = at_step("before-exchange", fork)
    guard = FileGuard(root, wait_s=0.05)
    guard.write("a.md", b"v2", expected=sha256(b"v1"))
    assert seen
    guard.write("a.md", b"v3", expected=sha256(b"v2"))
    os.close(writer)
    os.waitpid(children[0], 0)
    os.close(reader)
    assert (root / "a.md").read_bytes() == b"v3"


def test_a_stopped_process_inside_its_commit_does_not_hang_the_others(root: Path) -> None:
    """N-stopped: they wait as long as they were told to, and then say who is in the way."""
    (root / "a.md").write_bytes(b"v1")
    code = (
        "import os, signal, sys\nfrom noclobber.disk import steps\nfrom noclobber.disk.file_guard import FileGuard\n"
        "def observe(s):\n"
        "    if s == 'verified': print('here', flush=True); os.kill(os.getpid(), signal.SIGSTOP)\n"
        "steps.observer = observe\nFileGuard(sys.argv[1]).write('a.md', b'stopped', expected=sys.argv[2])\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(root), sha256(b"v1")], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"here\n"
    guard = FileGuard(root)
    guard.committer.mutex_wait_s = 0.05
    with pytest.raises(FileBusyError, match="stopped"):
        guard.write("a.md", b"x", expected=sha256(b"v1"))
    os.kill(child.pid, signal.SIGCONT)
    child.communicate()
    assert (root / "a.md").read_bytes() == b"stopped"


def test_threads_committing_to_one_file_are_ordered(root: Path) -> None:
    """N-threads: each sees the other's version or is refused; nothing is lost."""
    (root / "n").write_bytes(b"0")
    guard = FileGuard(root)

    def work() -> None:
        for _ in range(25):
            while True:
                seen = guard.read("n")
                try:
                    guard.write("n", str(int(seen.content) + 1).encode(), expected=seen.sha256)
                    break
                except (StaleFileError, FileBusyError):
                    continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (root / "n").read_bytes() == b"100"


def test_the_state_folder_may_be_removed_under_our_feet(root: Path) -> None:
    """N-clean: `git clean -fdx` takes .noclobber along; the next commit makes it again."""
    guard = FileGuard(root)
    guard.write("a.md", b"v1", expected=None)
    shutil.rmtree(root / ".noclobber")
    guard.write("a.md", b"v2", expected=sha256(b"v1"))
    assert (root / "a.md").read_bytes() == b"v2"


def test_a_state_folder_that_is_a_link_is_refused(root: Path, tmp_path: Path) -> None:
    """N-paths: our records, and every staged byte, would go elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (root / ".noclobber").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NoclobberError):
        FileGuard(root).write("a.md", b"v1", expected=None)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_target_on_another_mount_is_committed_beside_it(root: Path) -> None:
    """N-mount: an exchange cannot cross mounts, so the swap file stands beside the target."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting needs root on Linux")
    (root / "mnt").mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "none", str(root / "mnt")], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("cannot mount here")
    try:
        (root / "mnt/a.md").write_bytes(b"v1")
        guard = FileGuard(root)
        commit = guard.write("mnt/a.md", b"v2", expected=sha256(b"v1"))
        assert commit.level == "lease+exchange"
        guard.sweep()
        assert os.listdir(root / "mnt") == ["a.md"]
    finally:
        subprocess.run(["umount", "-l", str(root / "mnt")], check=True)


@pytest.mark.parametrize("expected", ["abc", "sha256:" + "a" * 64, "A" * 64, "DELETED", ""])
def test_a_hash_that_is_none_is_a_mistake_and_no_conflict(tmp_path: Path, expected: str) -> None:
    """009-FR-005: a conflict sends the caller to read again, which would not help here."""
    (tmp_path / "a").write_bytes(b"v1")
    with pytest.raises(noclobber.BadRequestError):
        noclobber.replace_if_unchanged(tmp_path / "a", expected, b"v2")
    assert (tmp_path / "a").read_bytes() == b"v1"


def test_a_state_folder_that_was_moved_away_is_made_anew(root: Path) -> None:
    """N-clean: others would look for our notes in the new one."""
    guard = FileGuard(root)
    guard.write("a.md", b"v1", expected=None)
    os.rename(root / ".noclobber", root / "gone")
    guard.write("a.md", b"v2", expected=sha256(b"v1"))
    guard.sweep()
    assert os.listdir(root / ".noclobber/notes") != []
    assert os.listdir(root / "gone/swap") == []


def test_a_flush_that_fails_after_the_exchange_says_that_the_write_landed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-durable: "the old content is still there" would be wrong."""
    (root / "a.md").write_bytes(b"v1")
    guard = FileGuard(root, durable=True)
    real = os.fsync

    def fail_for_folders(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "I/O error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(StorageError, match="the file was changed") as told:
        guard.write("a.md", b"v2", expected=sha256(b"v1"))
    assert told.value.details["landed"] == sha256(b"v2")
    assert (root / "a.md").read_bytes() == b"v2"
