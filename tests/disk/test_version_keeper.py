"""Which versions a workspace keeps: what guarded writes replace and agents saw, within the rules."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from noclobber import BadRequestError, StaleFileError, Workspace
from noclobber.disk import version_keeper
from noclobber.disk.versions import Versions
from tests.rigs.trusting import trusted_options


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def kept(root: Path) -> set[bytes]:
    try:
        found = Versions(str(root), make=False)
    except FileNotFoundError:
        return set()
    return {found.read(version.sha256) or b"" for version in found}


def rewrite(root: Path, name: str, *contents: bytes, **options: Any) -> None:
    """Write a file several times in one turn, unread."""
    with Workspace(root, **options) as ws, ws.turn() as turn:
        for content in contents:
            turn.write_file(name, content)


def test_what_guarded_writes_replace_is_kept(root: Path) -> None:
    """Ruling 19, N-versions: also what nobody had read."""
    (root / "a.md").write_bytes(b"a person's\n")

    rewrite(root, "a.md", b"one\n", b"two\n")

    assert kept(root) == {b"a person's\n", b"one\n", b"two\n"}


def test_what_an_agent_wrote_is_kept_when_its_turn_ends(root: Path) -> None:
    """Ruling 19: an outsider who overwrites it next keeps nothing, and `undo` needs it. Also if it is large."""
    rewrite(root, "a.md", b"mine\n")
    rewrite(root, "large.md", b"x" * 5000, retained_file_bytes=100)
    (root / "a.md").write_bytes(b"an outsider's\n")

    assert kept(root) == {b"mine\n", b"x" * 5000}


@pytest.mark.parametrize("durable", [False, True])
def test_every_version_of_many_writes_is_kept(root: Path, durable: bool) -> None:
    """Ruling 19: also where a durable commit writes over the version before the present one."""
    contents = [b"version %d\n" % number for number in range(12)]

    rewrite(root, "a.md", *contents, durable=durable)

    assert kept(root) == set(contents)


def test_deleted_files_and_files_with_several_names_are_kept(root: Path) -> None:
    """Ruling 19: a deletion displaces a version; in a file with several names it is overwritten in place."""
    (root / "gone.md").write_bytes(b"deleted\n")
    (root / "linked.md").write_bytes(b"before\n")
    os.link(root / "linked.md", root / "other-name.md")
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("gone.md")
        turn.delete_file("gone.md")
        turn.write_file("linked.md", b"after\n")

    assert (root / "other-name.md").read_bytes() == b"after\n"
    assert kept(root) == {b"deleted\n", b"before\n", b"after\n"}


def test_several_files_of_one_commit_are_kept(root: Path) -> None:
    """Ruling 19."""
    for name in ("a", "b"):
        (root / name).write_bytes(name.encode())
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_files({"a": b"new a", "b": b"new b"})

    assert kept(root) == {b"a", b"b", b"new a", b"new b"}


def test_what_an_agent_saw_is_kept_when_its_write_is_stale(root: Path) -> None:
    """Ruling 19: somebody who has never heard of us overwrote it, and only the agent still has the bytes."""
    (root / "a.md").write_bytes(b"seen\n")
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("a.md")
        (root / "a.md").write_bytes(b"by another\n")
        with pytest.raises(StaleFileError):
            turn.write_file("a.md", b"mine\n")

    assert kept(root) == {b"seen\n"}


@pytest.mark.parametrize("name", [".env", ".env.local", "server.pem", "id_ed25519", "x/secrets.yaml"])
def test_secrets_are_not_kept(root: Path, name: str) -> None:
    """Ruling 19: names of secrets are excluded by default."""
    (root / "x").mkdir()
    (root / name).write_bytes(b"secret\n")

    rewrite(root, name, b"other secret\n")

    assert kept(root) == set()


def test_what_git_ignores_is_not_kept(root: Path) -> None:
    """Ruling 19: by default. A change of `.gitignore` counts at once."""
    (root / ".git").mkdir()
    (root / "build").mkdir()
    (root / "build/out.txt").write_bytes(b"built\n")
    (root / ".gitignore").write_text("build/\n")

    rewrite(root, "build/out.txt", b"built again\n")
    assert kept(root) == set()

    rewrite(root, "build/out.txt", b"and again\n", versions_ignored="keep")
    assert kept(root) == {b"built again\n", b"and again\n"}

    (root / ".gitignore").unlink()
    rewrite(root, "build/out.txt", b"once more\n")
    assert kept(root) == {b"built again\n", b"and again\n", b"once more\n"}


def test_large_files_and_excluded_names_are_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ruling 19: never a file over 8 MiB, or one that the option names."""
    monkeypatch.setattr(version_keeper, "MOST_FILE_BYTES", 10)
    for name in ("large.txt", "notes.tmp", "docs.md"):
        (root / name).write_bytes(b"x" * (20 if name == "large.txt" else 5))
        rewrite(root, name, b"y" * len((root / name).read_bytes()), versions_exclude=["*.tmp"])

    assert kept(root) == {b"x" * 5, b"y" * 5}


def test_versions_can_be_switched_off(root: Path) -> None:
    """Ruling 19: `versions = "off"` keeps nothing, also by the file."""
    (root / "a.md").write_bytes(b"one\n")
    trusted_options(root, 'versions = "off"\n')

    rewrite(root, "a.md", b"two\n", b"three\n")

    assert kept(root) == set()


def test_the_table_in_the_options_file_sets_the_rules(root: Path) -> None:
    """Ruling 19 calls the option `versions.exclude`."""
    (root / "a.md").write_bytes(b"one\n")
    (root / "b.md").write_bytes(b"one of b\n")
    trusted_options(root, '[versions]\nexclude = ["a.*"]\ndays = 3\n')

    rewrite(root, "a.md", b"two\n")
    rewrite(root, "b.md", b"two\n")

    assert kept(root) == {b"one of b\n", b"two\n"}
    assert Workspace(root).options.versions_days == 3.0


def test_a_turn_has_no_rules_of_its_own(root: Path) -> None:
    """N-input: an option that would do nothing is refused."""
    with Workspace(root) as ws, pytest.raises(BadRequestError, match="workspace"):
        ws.turn(versions="off")


def test_bounds_hold_at_the_end_of_a_turn(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ruling 19: so many bytes a workspace, oldest out first."""
    monkeypatch.setattr(version_keeper, "TIDY_AFTER_BYTES", 1)
    contents = [b"%04d\n" % number for number in range(20)]

    rewrite(root, "a.md", *contents, versions_bytes=25)

    assert len(kept(root)) == 5


@pytest.mark.parametrize("trouble", ["read-only", "a file", "removed"])
def test_a_write_does_not_fail_because_its_version_cannot_be_kept(root: Path, trouble: str) -> None:
    """N-versions: full, unreadable, someone else's folder."""
    (root / "a.md").write_bytes(b"one\n")
    rewrite(root, "a.md", b"two\n")
    folder = root / ".noclobber" / f"versions.{os.geteuid()}"
    shutil.rmtree(folder)
    if trouble == "a file":
        folder.write_bytes(b"")
    elif trouble == "read-only":
        folder.mkdir(mode=0o500)

    rewrite(root, "a.md", b"three\n", b"four\n")

    assert (root / "a.md").read_bytes() == b"four\n"
    if trouble == "removed":
        assert kept(root) == {b"two\n", b"three\n", b"four\n"}


def test_no_swap_file_is_left_behind(root: Path) -> None:
    """N-versions: what is not kept is removed as ever."""
    (root / ".env").write_bytes(b"one\n")
    (root / "a.md").write_bytes(b"one\n")

    rewrite(root, ".env", b"two\n", b"three\n")
    rewrite(root, "a.md", b"two\n", b"three\n")

    assert os.listdir(root / ".noclobber" / "swap") == []


def test_threads_write_while_somebody_removes_the_versions(root: Path) -> None:
    """N-threads: keeping versions never breaks a write, and leaves no descriptor open."""
    folder = root / ".noclobber" / f"versions.{os.geteuid()}"
    failures: list[BaseException] = []
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    def work(ws: Workspace, name: str) -> None:
        try:
            for number in range(25):
                with ws.turn() as turn:
                    turn.write_file(name, b"%d\n" % number)
                if number % 5 == 0:
                    shutil.rmtree(folder, ignore_errors=True)
        except BaseException as error:
            failures.append(error)

    with Workspace(root) as ws:
        threads = [threading.Thread(target=work, args=(ws, f"{number}.md")) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert failures == []
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_many_versions_of_one_sweep_are_kept_and_nothing_stays_open(root: Path) -> None:
    """ruling 19: folders that are opened once for many versions are closed after the last."""
    contents = {f"f{number}": b"version %d\n" % number for number in range(40)}
    for name, content in contents.items():
        (root / name).write_bytes(content)
    with Workspace(root) as ws:
        with ws.turn() as turn:
            turn.write_file("first", b"opens what stays open\n")
        gc.collect()  # What earlier tests left open is closed before it is counted.
        before = sorted(os.listdir("/dev/fd"))
        with ws.turn() as turn:
            turn.write_files({name: content + b"more\n" for name, content in contents.items()})
        ws.guard.committer.tidy()
        assert sorted(os.listdir("/dev/fd")) == before

    assert set(contents.values()) <= kept(root)


def test_bounds_hold_during_a_turn_that_does_not_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding R18: an agent's turn may last for days, and its versions may be small."""
    monkeypatch.setattr(version_keeper, "TIDY_AFTER_BYTES", 8 * version_keeper.BLOCK_BYTES)
    (root / "a.md").write_bytes(b"start")
    with Workspace(root, versions_bytes=60) as ws, ws.turn() as turn:
        turn.read_file("a.md")
        for number in range(60):
            turn.write_file("a.md", b"version %02d\n" % number)
        assert len(list(Versions(str(root)))) < 40


def test_versions_that_are_removed_in_the_middle_of_many_are_made_anew_for_the_next(root: Path) -> None:
    """ruling 19: what was looked at once counts for these versions only, and nothing raises."""
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("a.md", b"one\n")
        turn.write_file("a.md", b"two\n")
        keeper = ws._keeper
        assert keeper is not None
        with keeper.many():
            assert keeper.keep("a.md", b"in time\n")
            shutil.rmtree(root / ".noclobber" / f"versions.{os.geteuid()}")
            keeper.keep("a.md", b"too late\n")
        assert keeper.keep("a.md", b"after\n")

    assert b"after\n" in kept(root)
