"""The one reader and the one writer of small files, which may have come with a folder."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from noclobber.disk import small_file


def test_what_was_written_is_read_whole(tmp_path: Path) -> None:
    """The three ways to write leave the same file, and the last writer's bytes are all of it."""
    name = str(tmp_path / "note")
    small_file.create(name, b"first, and longer")
    assert small_file.read(name) == b"first, and longer"
    small_file.write_over(name, b"second")
    assert small_file.read(name) == b"second"
    assert small_file.append(name, b"!") == len(b"second!")
    small_file.publish(name, b"third")
    assert small_file.read(name) == b"third"
    assert os.listdir(tmp_path) == ["note"]
    assert os.stat(name).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("way", ["read", "write_over", "append", "create"])
def test_a_link_is_not_followed(tmp_path: Path, way: str) -> None:
    """The folder may have come with a repository, and a link in it leads anywhere."""
    victim, link = tmp_path / "victim", tmp_path / "note"
    victim.write_bytes(b"mine")
    link.symlink_to(victim)
    with pytest.raises(OSError, match=r"symbolic|exists"):
        getattr(small_file, way)(str(link), *([] if way == "read" else [b"x"]))
    assert victim.read_bytes() == b"mine"


def test_a_published_file_takes_the_place_of_a_link(tmp_path: Path) -> None:
    """What the link led to keeps its bytes."""
    victim, link = tmp_path / "victim", tmp_path / "note"
    victim.write_bytes(b"mine")
    link.symlink_to(victim)
    small_file.publish(str(link), b"x")
    assert victim.read_bytes() == b"mine"
    assert small_file.read(str(link)) == b"x"


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder"])
@pytest.mark.parametrize("way", ["read", "write_over", "append"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str, way: str) -> None:
    """A FIFO would wait for ever; of one with a reader at its end nothing may be written to it."""
    name, listener = str(tmp_path / "note"), None
    reader = -1
    if kind == "fifo":
        os.mkfifo(name)
        reader = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    elif kind == "socket":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name)
    else:
        os.mkdir(name)
    try:
        with pytest.raises(OSError):
            getattr(small_file, way)(name, *([] if way == "read" else [b"x"]))
        if kind == "fifo":
            assert os.read(reader, 10) == b""
    finally:
        if reader >= 0:
            os.close(reader)
        if listener is not None:
            listener.close()


def test_a_file_that_is_too_large_is_an_error_and_not_its_beginning(tmp_path: Path) -> None:
    """Half a record is no record."""
    name = str(tmp_path / "note")
    small_file.create(name, b"x" * 100)
    assert small_file.read(name, most_bytes=100) == b"x" * 100
    with pytest.raises(OSError, match="too large"):
        small_file.read(name, most_bytes=99)
    with pytest.raises(OSError, match="too large"):
        small_file.read("/proc/self/environ", most_bytes=5)  # Its status says that it is empty.


@pytest.mark.parametrize("mode", [0o640, 0o602, 0o606])
def test_a_private_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    """It may be what another user wants us to believe."""
    name = str(tmp_path / "key")
    small_file.create(name, b"secret")
    assert small_file.read(name, private=True) == b"secret"
    os.chmod(name, mode)
    with pytest.raises(PermissionError):
        small_file.read(name, private=True)


def test_a_name_that_is_taken_is_left_as_it_is(tmp_path: Path) -> None:
    """Of several that publish once, one wins; nothing is left of the others."""
    name = str(tmp_path / "id")
    results = []

    def publish(number: int) -> None:
        try:
            small_file.publish(name, b"%d" % number, once=True)
            results.append(number)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in results] == [small_file.read(name)]
    assert os.listdir(tmp_path) == ["id"]


def test_a_file_that_cannot_be_written_whole_is_not_there(tmp_path: Path) -> None:
    """A full disk: half a path may be another folder's."""
    for way in (small_file.create, small_file.publish):
        with pytest.raises(OSError, match="No space left"):
            _on_a_full_disk(lambda way=way: way(str(tmp_path / "note"), b"x" * 10))
    assert os.listdir(tmp_path) == []


def _on_a_full_disk(work: object) -> None:
    real = os.write
    calls: list[int] = []

    def write(descriptor: int, data: bytes) -> int:
        calls.append(descriptor)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[:3])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", write)
        work()  # type: ignore[operator]


def test_a_folder_behind_a_link_is_not_opened(tmp_path: Path) -> None:
    """A link in the place of our folder would have us write somewhere else."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(NotADirectoryError):
        small_file.open_folder(str(tmp_path / "link"), make=True)
    with small_file.closing(small_file.open_folder(str(tmp_path / "new"), make=True)) as folder_fd:
        small_file.create("a", b"1", folder_fd)
        assert small_file.read("a", folder_fd) == b"1"
    assert os.stat(tmp_path / "new").st_mode & 0o777 == 0o700
