"""Past versions by hash: complete or absent, bounded, for their owner only, and never believed by their name."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest

from noclobber.core.project import STATE_FOLDER
from noclobber.disk.versions import DAY_S, Versions, VersionsUnusableError


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def versions(root: Path) -> Versions:
    (root / STATE_FOLDER).mkdir()
    return Versions(str(root))


def place(versions: Versions, sha256: str) -> Path:
    return Path(versions.path) / sha256[:1] / sha256[1:]


def older_place(versions: Versions, sha256: str) -> Path:
    return Path(versions.path) / sha256[:2] / sha256[2:]


def test_bytes_that_are_kept_can_be_had_back_by_their_hash(versions: Versions) -> None:
    """N-versions."""
    kept = versions.put(b"one\n")

    assert kept == sha(b"one\n")
    assert versions.read(kept) == b"one\n"
    assert versions.read(sha(b"other")) is None
    assert versions.find(kept[:8]) == [kept]


def test_keeping_the_same_bytes_twice_keeps_them_once_and_longer(versions: Versions) -> None:
    """N-versions: content by SHA-256."""
    kept = versions.put(b"one\n")
    os.utime(place(versions, kept), (1.0, 1.0))

    versions.put(b"one\n")

    [version] = versions
    assert version.kept_at_s > 1.0


@pytest.mark.parametrize("planted", ["other bytes", "a link", "a folder", "half", "a pipe"])
def test_what_does_not_have_its_hash_is_not_used(versions: Versions, tmp_path: Path, planted: str) -> None:
    """N-versions: a name that is not its content's hash is not used, whatever is under it."""
    name = sha(b"whole\n")
    versions.put(b"whole\n")
    file = place(versions, name)
    file.unlink()
    if planted == "other bytes":
        file.write_bytes(b"forged\n")
    elif planted == "half":
        file.write_bytes(b"who")
    elif planted == "a link":
        (tmp_path / "elsewhere").write_bytes(b"whole\n")
        file.symlink_to(tmp_path / "elsewhere")
    elif planted == "a pipe":
        os.mkfifo(file)
    else:
        file.mkdir()

    assert versions.read(name) is None


def test_a_name_that_is_no_hash_leads_nowhere(versions: Versions) -> None:
    """N-input: a hash may come from a ledger that somebody else wrote."""
    for name in ("../../secret", "ab/../..", "", "A" * 64, "0" * 63, "0" * 64 + "/x"):
        assert versions.read(name) is None
        assert versions.find(name) == []


def test_the_folder_is_for_its_owner_only(versions: Versions) -> None:
    """N-versions: readable by its owner only."""
    versions.put(b"secret\n")

    assert os.stat(versions.path).st_mode & 0o777 == 0o700


@pytest.mark.parametrize("planted", ["a link", "a file", "open to others"])
def test_a_folder_that_is_not_ours_alone_is_not_used(root: Path, tmp_path: Path, planted: str) -> None:
    """N-versions, N-input: someone else's folder, or one that leads elsewhere."""
    (root / STATE_FOLDER).mkdir()
    folder = root / STATE_FOLDER / f"versions.{os.geteuid()}"
    if planted == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif planted == "a file":
        folder.write_bytes(b"")
    else:
        folder.mkdir()
        folder.chmod(0o777)

    with pytest.raises(VersionsUnusableError, match=r"[Rr]emove it"):
        Versions(str(root))


def test_the_oldest_go_first_until_the_rest_fits(versions: Versions) -> None:
    """N-versions: bounded in bytes and in days."""
    for age, name in enumerate((b"newest", b"second", b"third!", b"fourth")):
        kept = versions.put(name)
        os.utime(place(versions, kept), (1000 * DAY_S - age * DAY_S,) * 2)
    half_written = Path(versions.path) / "new-0011"
    half_written.write_bytes(b"x")
    os.utime(half_written, (1.0, 1.0))

    told: list[tuple[int, int]] = []
    pruned = versions.prune(1000 * DAY_S, 2.5, 12, lambda done, total: told.append((done, total)))
    assert told == [(number, pruned.removed + pruned.left) for number in range(len(told))]  # finding U11
    assert len(told) == pruned.removed + pruned.left

    assert pruned == (2, 12, 2, 12)
    assert versions.read(sha(b"newest")) == b"newest"
    assert versions.read(sha(b"third!")) is None
    assert not half_written.exists()


def test_small_versions_are_bounded_by_their_number(versions: Versions) -> None:
    """Finding R18: 38 213 files in ten minutes, and few bytes."""
    for age in range(6):
        kept = versions.put(b"%d" % age)
        os.utime(place(versions, kept), (1000 * DAY_S - age,) * 2)
    assert versions.prune(1000 * DAY_S, 7, 1 << 20, max_versions=4)[:3] == (2, 2, 4)
    assert [versions.read(sha(b"%d" % age)) is not None for age in range(6)] == [True] * 4 + [False] * 2


def test_a_kill_while_keeping_leaves_a_whole_version_or_none(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-versions: crash-safe, with a real process killed before and after each step."""
    data = os.urandom(50_000)
    for call in ("open", "write", "rename"):
        for when in ("before", "after"):
            child = os.fork()
            if child == 0:
                _die_at(call, when)
                versions.put(data)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            assert versions.read(sha(data)) in (None, data)
    versions.put(data)
    assert versions.read(sha(data)) == data


def _die_at(call: str, when: str) -> None:
    real = getattr(os, call)

    def killed(*args: object, **kwargs: object) -> object:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, call, killed)


def test_an_error_while_keeping_leaves_nothing(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-versions: a full disk."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)

    with pytest.raises(OSError, match="No space"):
        versions.put(b"one\n")

    assert list(versions) == []
    assert os.listdir(versions.path) == []


def test_a_torn_version_is_replaced_by_a_sound_one(versions: Versions) -> None:
    """N-versions: after a power cut a version may hold anything; keeping it again repairs it."""
    kept = versions.put(b"two\n")
    place(versions, kept).write_bytes(b"\0\0\0\0")

    versions.put(b"two\n")

    assert versions.read(kept) == b"two\n"


def put_as_before(versions: Versions, data: bytes) -> str:
    """Keep bytes where an older noclobber kept them: in one of 256 folders."""
    kept = versions.put(data)
    older_place(versions, kept).parent.mkdir(mode=0o700, exist_ok=True)
    place(versions, kept).rename(older_place(versions, kept))
    return kept


def test_versions_of_an_older_noclobber_are_used_from_where_they_are(versions: Versions) -> None:
    """N-versions: found, listed, believed by their content only, kept longer, and removed with the others."""
    kept, forged = put_as_before(versions, b"one\n"), put_as_before(versions, b"two\n")
    older_place(versions, forged).write_bytes(b"forged\n")
    os.utime(older_place(versions, kept), (1.0, 1.0))

    assert versions.read(kept) == b"one\n"
    assert versions.read(forged) is None
    assert versions.find(kept[:2]) == [kept]
    assert {version.sha256 for version in versions} == {kept, forged}

    versions.put(b"one\n")
    assert not place(versions, kept).exists(), "it was kept a second time"
    assert older_place(versions, kept).stat().st_mtime > 1.0

    versions.put(b"two\n")
    assert versions.read(forged) == b"two\n"
    assert [version.sha256 for version in versions].count(forged) == 1

    assert versions.prune(DAY_S * 30_000, 1.0, 1 << 30).left == 0
    assert list(versions) == []
    assert not older_place(versions, forged).exists()


def test_a_young_project_makes_few_folders_for_versions(versions: Versions) -> None:
    """N-versions: making a folder costs as much as a small write."""
    for number in range(60):
        versions.put(b"%d" % number)

    assert sum(path.is_dir() for path in Path(versions.path).iterdir()) <= 16


def test_a_link_in_the_place_of_a_folder_of_versions_is_not_followed(
    versions: Versions, tmp_path: Path
) -> None:
    """N-versions, N-input: it may come with a project, and lead file contents out or have others removed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = sha(b"secret\n")
    place(versions, secret).parent.symlink_to(outside)
    (outside / sha(b"theirs\n")[1:]).write_bytes(b"theirs\n")

    with pytest.raises(OSError, match="Not a directory"):
        versions.put(b"secret\n")
    assert versions.unusable_parts() == [secret[:1]]
    place(versions, sha(b"theirs\n")).parent.unlink(missing_ok=True)
    place(versions, sha(b"theirs\n")).parent.symlink_to(outside)
    assert versions.read(sha(b"theirs\n")) is None
    assert not versions._remove(sha(b"theirs\n"))
    assert os.listdir(outside) == [sha(b"theirs\n")[1:]]


def test_a_version_that_is_kept_twice_is_as_old_as_the_younger(versions: Versions) -> None:
    """N-versions: the one that was used last may be at the older place, and the other torn."""
    kept = versions.put(b"one\n")
    older_place(versions, kept).parent.mkdir(mode=0o700, exist_ok=True)
    older_place(versions, kept).write_bytes(b"one\n")
    place(versions, kept).write_bytes(b"")
    os.utime(place(versions, kept), (1.0, 1.0))
    versions.put(b"one\n")
    assert versions.prune(older_place(versions, kept).stat().st_mtime + DAY_S, 7, 1 << 20).removed == 0
    assert versions.read(kept) == b"one\n"
