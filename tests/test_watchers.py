"""Who watches a project's files is told of every change that lands: by the kernel, in an order that says so."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noclobber.disk import renames
from noclobber.shell.roots import why_not
from tests.rigs.landings import FILES, LANDINGS, lay_out

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
HEADER = struct.Struct("iIII")


class Watch:
    """The kernel's own account of what happens in some folders, in order."""

    def __init__(self, *folders: Path) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0, os.strerror(ctypes.get_errno())
        mask = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE
        self._folders = {
            library.inotify_add_watch(self._descriptor, os.fsencode(folder), mask): folder
            for folder in folders
        }
        assert -1 not in self._folders, os.strerror(ctypes.get_errno())

    def events(self) -> Iterator[tuple[Path, int]]:
        """Every event since the last call. The kernel has them all before the call that made them returns."""
        while True:
            try:
                read = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return
            while read:
                watch, mask, _, length = HEADER.unpack_from(read)
                name = read[HEADER.size : HEADER.size + length].rstrip(b"\0")
                yield self._folders[watch] / os.fsdecode(name), mask
                read = read[HEADER.size + length :]

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def watching(*folders: Path) -> Iterator[Watch]:
    watch = Watch(*folders)
    try:
        yield watch
    finally:
        watch.close()


def as_parcel_tells(watch: Watch) -> dict[Path, str]:
    """What @parcel/watcher (VS Code's) tells of one batch of events: src/linux/InotifyBackend.cc and src/Event.hh."""
    is_created: dict[Path, bool] = {}
    is_deleted: dict[Path, bool] = {}
    for path, mask in watch.events():
        is_created.setdefault(path, False)
        is_deleted.setdefault(path, False)
        if mask & (CREATE | MOVED_TO):
            if is_deleted[path]:
                is_deleted[path] = False
            else:
                is_created[path] = True
        elif mask & (DELETE | MOVED_FROM):
            is_deleted[path] = True
    told = {}
    for path in is_created:
        if is_created[path] and is_deleted[path]:
            continue  # "It came and went."
        told[path] = "create" if is_created[path] else "delete" if is_deleted[path] else "update"
    return told


def as_the_last_event_tells(watch: Watch) -> dict[Path, str]:
    """What a watcher tells that passes every event on (nsfw, watchdog): the last one counts."""
    return {path: "delete" if mask & (DELETE | MOVED_FROM) else "there" for path, mask in watch.events()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if (reason := why_not(str(tmp_path))) is not None:
        pytest.skip(reason)
    lay_out(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", LANDINGS)
def test_a_watcher_is_told_of_every_file_that_a_change_touched(project: Path, name: str) -> None:
    """
    Finding G9: replaced files came and then went, by the order of events, so VS Code's watcher said nothing.

    A file that is there afterwards is told as created or updated, one that is gone as deleted.
    """
    landing = LANDINGS[name]
    landing.prepare(project)
    with watching(project, project / "sub") as batch, watching(project, project / "sub") as each:
        landing.do(project)
        told, last = as_parcel_tells(batch), as_the_last_event_tells(each)
    for change in landing.changes:
        path = project / change
        if path.exists():
            assert told.get(path) in ("create", "update"), (change, told)
            assert last.get(path) == "there", (change, last)
        else:
            assert told.get(path) == "delete", (change, told)
            assert last.get(path) == "delete", (change, last)
    untouched = {project / file for file in FILES} - {project / change for change in landing.changes}
    assert not untouched & set(told), "nothing is told of files that stayed as they were"


def test_an_exchange_tells_that_the_watched_name_went_and_then_came(tmp_path: Path) -> None:
    """Finding G9: the two halves of an exchange, in the order that every watcher understands."""
    aside, seen = tmp_path / "aside", tmp_path / "seen"
    for folder in (aside, seen):
        folder.mkdir()
        (folder / "f").write_text(folder.name)
    aside_fd, seen_fd = os.open(aside, os.O_RDONLY), os.open(seen, os.O_RDONLY)
    try:
        with watching(seen) as watch:
            renames.exchange(aside_fd, "f", seen_fd, "f")
            assert [mask for _, mask in watch.events()] == [MOVED_FROM, MOVED_TO]
            assert renames.Flip(aside_fd, "f", seen_fd, "f")()
            assert [mask for _, mask in watch.events()] == [MOVED_FROM, MOVED_TO]
    finally:
        os.close(aside_fd)
        os.close(seen_fd)
