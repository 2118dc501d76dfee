"""What a dead process left: finished by the next call, and never a way to change anything else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber import replace_if_unchanged
from noclobber.disk.commit import leftovers
from noclobber.disk.commit.change_set import Change, commit_changes
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.store import MOST_OPEN_NOTES
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import NoclobberError, StaleFileError
from tests.conftest import sha256

CHILD = """
import os, signal, sys
from noclobber.disk import steps
from noclobber.disk.commit import restore
from noclobber.disk.commit.change_set import Change, commit_changes
from noclobber.disk.commit.committer import Committer
root, step, nth, save_at, half = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
rows = sys.argv[6:]
count = 0
def observe(reached):
    global count
    if reached == save_at:
        with open(rows[0] + ".theirs", "wb") as file:
            file.write(b"THEIRS" * 1000)
        os.rename(rows[0] + ".theirs", rows[0])
    if reached == step:
        count += 1
        if count == nth:
            os.kill(os.getpid(), signal.SIGKILL)
steps.observer = observe
if half:
    def copy_half(source, destination):
        os.pwrite(destination, os.pread(source, int(half), 0), 0)
        os.kill(os.getpid(), signal.SIGKILL)
    original = restore.copy_all
    restore._copy_back = lambda swap: copy_half(swap.old_fd, swap.new_fd)
changes = [Change(rows[i], rows[i + 1].encode(), rows[i + 2]) for i in range(0, len(rows), 3)]
commit_changes(Committer(root or None), changes)
"""


def killed(
    root: Path | None, step: str, *rows: tuple[Path, bytes], nth: int = 1, save_at: str = "", half: str = ""
) -> None:
    """Have another process write some files, and die at a step of it."""
    parts = [
        part
        for path, new in rows
        for part in (str(path), new.decode(), sha256(path.read_bytes()) if path.exists() else "ABSENT")
    ]
    command = [sys.executable, "-c", CHILD, str(root or ""), step, str(nth), save_at, half, *parts]
    assert subprocess.run(command, check=False).returncode == -9


def look_at(root: Path, name: str) -> bytes:
    """Make one guarded read."""
    return FileGuard(root).read(name).content


def tree(root: Path) -> dict[str, bytes]:
    """Everything of the user's in a folder."""
    found = {}
    for path in sorted(root.rglob("*")):
        relative = str(path.relative_to(root))
        if not any(part.startswith(".noclobber") for part in Path(relative).parts):
            found[relative] = path.read_bytes() if path.is_file() else b""
    return found


def notes(root: Path) -> list[Path]:
    folder = root / ".noclobber/notes"
    return [path for path in folder.iterdir() if "book" not in path.name and "ignored" not in path.name]


def rewrite_record(note: Path, change: object) -> None:
    """Change what a note says about its file, in place, as somebody could who may write to it."""
    page = bytearray(note.read_bytes())
    end = page.index(b"\n", 1024)
    rows = json.loads(page[1024:end])
    change(rows)  # type: ignore[operator]
    record = json.dumps(rows).encode() + b"\n"
    page[1024 : 1024 + len(record)] = record
    with open(note, "r+b") as file:
        file.write(page)


# S1: notes that are not ours.


def test_a_note_that_came_with_a_copy_of_a_project_changes_nothing_anywhere(tmp_path: Path) -> None:
    """finding S1: a cloned repository may ship `.noclobber`, with notes that name somebody else's files."""
    theirs, clone = tmp_path / "theirs", tmp_path / "clone"
    theirs.mkdir()
    (theirs / "a").write_bytes(b"old")
    killed(theirs, "exchanged", (theirs / "a", b"new"))
    (theirs / "a").unlink()

    def change(rows: list[list[object]]) -> None:
        rows[0][0], rows[0][3] = "create", "ABSENT"  # Then a recovery makes a file of the swap file.

    rewrite_record(notes(theirs)[0], change)
    shutil.copytree(theirs, clone)
    (clone / "a").write_bytes(b"of the clone")
    status = clone.stat()
    for name in (f"{status.st_dev:x}-{status.st_ino:x}", f"{status.st_ino:x}"):
        shutil.copy(notes(theirs)[0], clone / ".noclobber/notes" / name)
    before = list((theirs / ".noclobber/swap").iterdir())
    assert look_at(clone, "a") == b"of the clone"
    Committer(str(clone)).replace("a", sha256(b"of the clone"), b"next")
    assert (clone / "a").read_bytes() == b"next"
    assert not (theirs / "a").exists()
    assert list((theirs / ".noclobber/swap").iterdir()) == before


def test_a_note_beside_a_file_that_came_with_a_repository_is_not_believed(tmp_path: Path) -> None:
    """finding S1: `.claude/.noclobber-note` in a repository, and `noclobber install` beside it."""
    theirs, clone = tmp_path / "theirs", tmp_path / "clone"
    theirs.mkdir()
    (theirs / "settings").write_bytes(b"old")
    killed(None, "exchanged", (theirs / "settings", b"new"))
    shutil.copytree(theirs, clone)
    (clone / "settings").write_bytes(b"of the user")
    note = next(path for path in clone.iterdir() if "note" in path.name)
    shutil.copy(note, clone / ".noclobber-note")
    replace_if_unchanged(clone / "settings", sha256(b"of the user"), b"next")
    assert (clone / "settings").read_bytes() == b"next"
    assert (theirs / "settings").read_bytes() == b"new"  # Not finished from over there.


@pytest.mark.parametrize("outside", ["absolute", "dots", "link", "state", "name"])
def test_a_note_leads_nowhere_outside_the_root(tmp_path: Path, outside: str) -> None:
    """finding S1: an agent that is confined to the project must not write elsewhere through its notes."""
    root, victim = tmp_path / "root", tmp_path / "victim"
    root.mkdir()
    victim.mkdir()
    (root / "sub").mkdir()
    (root / "sub/a").write_bytes(b"old")
    (root / "link").symlink_to(victim)
    killed(root, "exchanged", (root / "sub/a", b"new"))

    def change(rows: list[list[object]]) -> None:
        folder, name = {
            "absolute": (str(victim), "a"),
            "dots": ("../victim", "a"),
            "link": ("link", "a"),
            "state": (".noclobber/kept", "a"),
            "name": ("sub", "../../victim/a"),
        }[outside]
        rows[0][1], rows[0][2] = folder, name
        if outside != "name":
            rows[0][8:] = [victim.stat().st_ino][: len(rows[0]) - 8]
        rows[0][0] = "create"  # A file that was about to get its name.
        rows[0][3] = "ABSENT"

    (note,) = notes(root)
    rewrite_record(note, change)
    look_at(root, "sub/a")
    with pytest.raises(StaleFileError):
        Committer(str(root)).replace("sub/a", sha256(b"no such version"), b"x")
    assert list(victim.iterdir()) == []
    assert list((root / ".noclobber/kept").iterdir()) == []


@pytest.mark.parametrize("swap", ["../../../victim/key", "a", "swap-1", ".noclobber-swap-0123456789ab-x~a"])
def test_a_note_names_swap_files_of_one_shape_only(root: Path, swap: str) -> None:
    """finding S1: "swap files" are deleted and exchanged. Nobody else's files may pass for them."""
    victim = root.parent / "victim"
    victim.mkdir(exist_ok=True)
    (victim / "key").write_bytes(b"secret")
    (root / "a").write_bytes(b"old")
    killed(root, "exchanged", (root / "a", b"new"))
    (note,) = notes(root)
    rewrite_record(note, lambda rows: rows[0].__setitem__(5, swap))
    look_at(root, "a")
    assert (victim / "key").read_bytes() == b"secret"
    assert (root / "a").read_bytes() == b"new"


@pytest.mark.parametrize("trick", ["hard link", "link", "writable", "owner"])
def test_what_is_no_note_of_this_user_is_put_out_of_the_way_and_reported(
    root: Path, trick: str, is_root: bool
) -> None:
    """finding S1: a note has one name, one owner, and one who may write it."""
    if trick == "owner" and not is_root:
        pytest.skip("needs root, to be somebody else")
    (root / "sub").mkdir()
    (root / "sub/a").write_bytes(b"old")
    killed(root, "exchanged", (root / "sub/a", b"new"))
    (note,) = notes(root)
    if trick == "hard link":
        os.link(note, root / "elsewhere")
    elif trick == "link":
        note.rename(root / "elsewhere")
        note.symlink_to(root / "elsewhere")
    elif trick == "writable":
        note.chmod(0o666)
    else:
        os.chown(note, 65534, -1)
    assert leftovers.ignored_in(str(root / ".noclobber")) == [f"notes/{note.name}"]
    assert look_at(root, "sub/a") == b"new"
    Committer(str(root)).replace("sub/a", sha256(b"new"), b"next")
    assert (root / "sub/a").read_bytes() == b"next"
    assert len(leftovers.ignored_in(str(root / ".noclobber"))) == 1
    assert not note.is_symlink()


def test_root_does_not_follow_a_users_note_into_its_own_folders(root: Path, is_root: bool) -> None:
    """finding S1: root believes the notes of a project's owner, about that owner's folders only."""
    if not is_root:
        pytest.skip("needs root, to be somebody else")
    (root / "mine").mkdir()
    (root / "mine/a").write_bytes(b"old")
    killed(root, "exchanged", (root / "mine/a", b"new"))
    next((root / ".noclobber/swap").iterdir()).write_bytes(b"planted")
    for each in [root, *root.rglob("*")]:
        if "mine" not in each.parts:
            os.chown(each, 65534, 65534, follow_symlinks=False)
    assert look_at(root, "mine/a") == b"new"  # Put back, it would be what the user has planted.


def test_a_state_folder_of_another_user_above_says_nothing(tmp_path: Path, is_root: bool) -> None:
    """finding S1: anybody may make `.noclobber` in a world-writable folder above somebody's project."""
    if not is_root:
        pytest.skip("needs root, to be somebody else")
    public = tmp_path / "public"
    (public / "project").mkdir(parents=True)
    (public / "project/a").write_bytes(b"old")
    killed(public, "exchanged", (public / "project/a", b"new"))
    next((public / ".noclobber/swap").iterdir()).write_bytes(b"planted")
    for each in [public / ".noclobber", *(public / ".noclobber").rglob("*")]:
        os.chown(each, 65534, 65534)
    assert look_at(public / "project", "a") == b"new"
    assert Committer(str(public)).open_store() is None


def test_a_book_that_is_too_large_or_not_ours_is_not_read(root: Path) -> None:
    """finding S1: one strict and bounded reader, also for the record of several files."""
    for name in ("a", "b"):
        (root / name).write_bytes(b"old")
    killed(root, "one-visible", (root / "a", b"new"), (root / "b", b"new"))
    (book,) = (root / ".noclobber/notes").glob("*book*")
    with open(book, "r+b") as file:
        file.truncate(1 << 40)
    look_at(root, "a")
    assert tree(root) == {"a": b"new", "b": b"old"}


# R4: what is saved after the crash.


@pytest.mark.parametrize("step", ["restoring", "set-ours-aside", "copied-back"])
def test_what_a_person_saves_after_a_crash_while_restoring_stays(root: Path, step: str) -> None:
    """finding R4: the next guarded read took it back to the version before the crash."""
    (root / "a").write_bytes(b"old")
    killed(root, step, (root / "a", b"new"), save_at="before-exchange")
    with open(root / "a", "r+b") as person:  # In place: the inode is the dead process's own.
        person.write(b"person")
        person.truncate()
    assert look_at(root, "a") == b"person"
    with pytest.raises(StaleFileError):
        Committer(str(root)).replace("a", sha256(b"old"), b"x")
    assert (root / "a").read_bytes() == b"person"
    Committer(str(root)).sweep()
    everything = [path.read_bytes() for path in (root / ".noclobber").rglob("*") if path.is_file()]
    assert b"THEIRS" * 1000 in everything  # Which nobody but its writer has seen.


@pytest.mark.parametrize("half", ["1", "5", "4000", "6000"])
@pytest.mark.parametrize("new", [b"new", b"new " * 3000])
@pytest.mark.parametrize("saves", [False, True])
def test_a_restore_that_was_cut_off_half_way_is_finished_unless_somebody_has_saved_since(
    root: Path, half: str, new: bytes, saves: bool
) -> None:
    """finding R4: a mixture of our bytes and theirs is ours to replace; a save is not."""
    (root / "a").write_bytes(b"old")
    killed(root, "never", (root / "a", new), save_at="before-exchange", half=half)
    if saves:
        with open(root / "a", "ab") as person:
            person.write(b", said a person")
    mixture = (root / "a").read_bytes()
    found = look_at(root, "a")
    assert found == (mixture if saves else b"THEIRS" * 1000)
    assert not [path for path in (root / ".noclobber/swap").iterdir() if path.name.endswith("=")]


@pytest.mark.parametrize("left", [0, 2])
def test_a_file_that_somebody_has_cut_off_after_a_crash_while_restoring_stays_cut_off(
    root: Path, left: int
) -> None:
    """finding R4: an empty file is a save, too, although it holds nothing but bytes of ours."""
    (root / "a").write_bytes(b"old")
    killed(root, "never", (root / "a", b"new " * 3000), save_at="before-exchange", half="1")
    os.truncate(root / "a", left)
    assert look_at(root, "a") == b"Te"[:left]


KEEPER = """
import os, signal, sys
from noclobber.disk.commit.store import Store
from noclobber.disk.file_guard import FileGuard
keep = Store.keep
def keep_and_die(store, name):
    keep(store, name)
    os.kill(os.getpid(), signal.SIGKILL)
Store.keep = keep_and_die
FileGuard(sys.argv[1]).read("a")
"""


def test_a_recovery_that_is_killed_right_after_it_kept_a_file_is_finished_by_the_next(root: Path) -> None:
    """finding R4: the note still says that the file is to be kept; before, nobody could write there any more."""
    (root / "a").write_bytes(b"old")
    killed(root, "never", (root / "a", b"new " * 3000), save_at="before-exchange", half="1")
    with open(root / "a", "ab") as person:
        person.write(b", said a person")
    there = (root / "a").read_bytes()
    assert subprocess.run([sys.executable, "-c", KEEPER, str(root)], check=False).returncode == -9

    assert look_at(root, "a") == there
    replace_if_unchanged(root / "a", sha256(there), b"next")
    assert [path.read_bytes() for path in (root / ".noclobber/kept").iterdir()] == [b"THEIRS" * 1000]


# R5: other names for the same places.


def two(root: Path) -> tuple[tuple[Path, bytes], ...]:
    for folder in ("x", "y"):
        (root / folder).mkdir(parents=True)
        (root / folder / "a").write_bytes(b"old")
    return (root / "x/a", b"new"), (root / "y/a", b"new")


@pytest.mark.parametrize("step", ["noted", "one-visible", "decided"])
@pytest.mark.parametrize("seen_from", ["x/a", "y/a"])
def test_a_project_that_was_moved_after_a_crash_is_finished_where_it_is_now(
    tmp_path: Path, step: str, seen_from: str
) -> None:
    """finding R5: half of a `write_files` stayed."""
    root = tmp_path / "before"
    killed(root, step, *two(root))
    root = root.rename(tmp_path / "after")
    look_at(root, seen_from)
    done = b"new" if step == "decided" else b"old"
    assert {name: data for name, data in tree(root).items() if data} == {"x/a": done, "y/a": done}


def test_a_folder_that_was_moved_after_a_crash_is_still_the_same_folder(root: Path) -> None:
    """finding R5: it is known by its inode."""
    killed(root, "one-visible", *two(root))
    (root / "x").rename(root / "z")
    look_at(root, "z/a")
    assert {name: data for name, data in tree(root).items() if data} == {"z/a": b"old", "y/a": b"old"}


@pytest.mark.parametrize("caller", ["nested root", "no root"])
def test_a_crash_is_found_from_a_nested_root_and_without_one(root: Path, caller: str) -> None:
    """finding R5: the folder's mutex is the same, so whoever holds it finishes the job."""
    killed(root, "one-visible", *two(root))
    with pytest.raises(StaleFileError):
        Committer(str(root / "y") if caller == "nested root" else None).replace(
            root / "y/a", sha256(b"no such version"), b"x"
        )
    assert {name: data for name, data in tree(root).items() if data} == {"x/a": b"old", "y/a": b"old"}


def test_a_crash_beside_a_file_is_found_by_a_workspace(root: Path) -> None:
    """finding R5: `replace_if_unchanged` in a folder of a workspace."""
    (root / "a").write_bytes(b"old")
    killed(None, "exchanged", (root / "a", b"new"), save_at="before-exchange")
    assert (root / "a").read_bytes() == b"new"
    assert look_at(root, "a") == b"THEIRS" * 1000


IN_MOUNTS = """
import os, subprocess, sys
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.change_set import Change, commit_changes
from noclobber.disk.file_guard import FileGuard
from noclobber.disk.commit import section
root = sys.argv[1]
def mount(*words):
    subprocess.run(["mount", *words], check=True)
mount("--make-rprivate", "/")
"""


def in_mounts(root: Path, body: str, *arguments: str) -> str:
    """Run Python in a mount namespace of its own, where it may mount."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("cannot make a mount namespace here")
    command = ["unshare", "-m", sys.executable, "-c", IN_MOUNTS + body, str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_under_two_names_is_one_folder(root: Path) -> None:
    """finding R5: every write through a bind mount waited 10 s for itself, and was refused."""
    for folder in ("real", "also"):
        (root / folder).mkdir()
    (root / "real/a").write_bytes(b"old")
    (root / "real/b").write_bytes(b"old")
    body = """
mount("--bind", f"{root}/real", f"{root}/also")
old = FileGuard(root).read("also/a").sha256
committer = Committer(root, mutex_wait_s=2.0)
committer.replace("also/a", old, b"1")
commit_changes(committer, [Change("also/a", b"2", None), Change("real/b", b"2", None)])
from noclobber.errors import BadRequestError
try:
    commit_changes(committer, [Change("also/a", b"3", None), Change("real/a", b"3", None)])
    raise SystemExit("the same file twice")
except BadRequestError:
    pass
"""
    in_mounts(root, body)
    assert tree(root) == {"also": b"", "real": b"", "real/a": b"2", "real/b": b"2"}


def test_a_crash_under_one_name_is_found_under_the_other(root: Path) -> None:
    """finding R5: the note is the folder's, whatever the folder is called."""
    (root / "real").mkdir()
    (root / "also").mkdir()
    (root / "real/a").write_bytes(b"old")
    killed(root, "exchanged", (root / "real/a", b"new"), save_at="before-exchange")
    body = """
mount("--bind", f"{root}/real", f"{root}/also")
sys.stdout.write(FileGuard(root).read("also/a").content[:6].decode())
"""
    assert in_mounts(root, body) == "THEIRS"


def test_a_crash_is_found_after_a_remount_with_another_device_number(tmp_path: Path) -> None:
    """finding R5: device numbers are given out anew at every boot."""
    if not shutil.which("mkfs.ext4"):
        pytest.skip("needs mkfs.ext4")
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    body = """
import os
image, child, python = sys.argv[2:5]
try:
    mount("-o", "loop", image, root)
except subprocess.CalledProcessError:
    print("no loop")
    raise SystemExit
os.mkdir(f"{root}/p")
for name in ("x", "y"):
    os.mkdir(f"{root}/p/{name}")
    open(f"{root}/p/{name}/a", "wb").write(b"old")
first = os.stat(f"{root}/p").st_dev
rows = [part for name in ("x", "y") for part in (f"{root}/p/{name}/a", "new", sys.argv[5])]
command = [python, "-c", child, f"{root}/p", "one-visible", "1", "", "", *rows]
assert subprocess.run(command).returncode == -9
subprocess.run(["umount", root], check=True)
other = root + "-other"
os.mkdir(other)
open(f"{root}-spare", "wb").truncate(16 << 20)
subprocess.run(["mkfs.ext4", "-q", "-F", f"{root}-spare"], check=True)
mount("-o", "loop", f"{root}-spare", other)  # It takes the first device.
mount("-o", "loop", image, root)
assert os.stat(f"{root}/p").st_dev != first
FileGuard(f"{root}/p").read("y/a")
print(open(f"{root}/p/x/a").read(), open(f"{root}/p/y/a").read())
"""
    said = in_mounts(mount, body, str(image), CHILD, sys.executable, sha256(b"old"))
    if said == "no loop\n":
        pytest.skip("no loop devices here")
    assert said == "old old\n"


# R6: more folders than notes are kept open for.


def test_a_commit_over_more_folders_than_notes_stay_open_for(root: Path) -> None:
    """finding R6: `ValueError: mmap closed or invalid`."""
    names = [f"{number}/a" for number in range(2 * MOST_OPEN_NOTES)]
    committer = Committer(str(root))
    commit_changes(committer, [Change(name, b"1", "ABSENT") for name in names])
    commit_changes(committer, [Change(name, b"2", sha256(b"1")) for name in names])
    assert {data for data in tree(root).values() if data} == {b"2"}


def test_other_commits_meanwhile_do_not_close_a_note_in_use(root: Path) -> None:
    """finding R6: in a program with threads, 64 other folders between the exchange and the check."""
    from noclobber.disk import steps

    committer = Committer(str(root))
    committer.replace("a", "ABSENT", b"1")
    done: list[str] = []

    def observe(step: str) -> None:
        if step == "exchanged" and not done:
            done.append(step)
            for number in range(2 * MOST_OPEN_NOTES):
                committer.replace(f"{number}/a", "ABSENT", b"1")

    steps.observer = observe
    try:
        committer.replace("a", sha256(b"1"), b"2")
    finally:
        steps.observer = None
    assert done
    assert (root / "a").read_bytes() == b"2"


def test_a_short_write_of_a_note_is_continued(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding R10: a raw `ValueError`, because the note was shorter than its mapping."""
    pwrite = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[: max(1, len(data) // 2)], at)
    )
    Committer(str(root)).replace("a", "ABSENT", b"1")
    assert (root / "a").read_bytes() == b"1"


def test_a_note_that_cannot_be_written_leaves_none_behind(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R10: a full disk is an error of ours, and the next call does not find half a note."""

    def full(fd: int, data: object, at: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(NoclobberError):
        Committer(str(root)).replace("a", "ABSENT", b"1")
    assert notes(root) == []
