"""
What the ledger tells of every file, without reading it from the beginning for each commit.

A digest has, up to some line of the ledger: every file's names and authors, and either the version that it
ended with, if all of that was committed then, or a weave of what was not (`Weave.condensed`). A commit begins
there and reads only the lines behind: it costs what has happened since and what is open, not what ever was.

It is for speed alone, and nothing is believed that is not proven again:

- It names the ledger's line where it ends. If that line is not there any more, there is no digest.
- A weave that cannot explain the version in HEAD exactly (HEAD went back, or has lines from elsewhere) raises
  `LedgerNeededError`, and everything is read. So it does where bytes of the versions are missing, in binary
  files, and in files that git's filters change.
- It is for its owner only, and one that is not as it was written is as good as none.

The last writes before the end are always left behind it: events are recorded just after their write, so one
that landed before the digest's line may be recorded behind it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.options import load_options
from noclobber.core.project import DIGEST_PREFIX, state_folder
from noclobber.disk import hashing, small_file
from noclobber.disk.reading import open_path, read_all
from noclobber.disk.version_keeper import VersionKeeper
from noclobber.disk.versions import Versions
from noclobber.errors import ABSENT, NoclobberError
from noclobber.guard.git.lineage import (
    OUTSIDER,
    Earlier,
    Lineage,
    Rename,
    WrittenBy,
    in_landing_order,
    lineages,
    linked,
    outside_link,
    steps,
)
from noclobber.guard.git.repository import EXECUTABLE, FILE, GitFailedError
from noclobber.guard.git.woven_file import committed_hunks, go_on, version_lines
from noclobber.guard.past_bytes import find_kept
from noclobber.ledger.history import landed_behind, landed_writes
from noclobber.ledger.reader import LedgerPlace
from noclobber.text.merge import is_binary
from noclobber.text.weave import Weave

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from noclobber.guard.git.lineage import FileVersion, VersionLink
    from noclobber.guard.git.repository import Cleaner, Repository

MOST_BEHIND = 256
"""With so many landed writes behind it a digest is made anew."""
LEFT_BEHIND = 64
"""So many are left behind the new one."""
MOST_BYTES = 1 << 20
"""A larger file that has uncommitted changes is read from the ledger's beginning."""
_VERSION = 2  # 1 had files of git's own.
_MOST_DIGEST_BYTES = 64 << 20


class LedgerNeededError(Exception):
    """The digest is not enough: the whole ledger has to be read."""


class Recorded(NamedTuple):
    """Every file on record."""

    files: list[Lineage]
    behind: int
    """How many landed writes are behind the digest."""
    is_whole: bool
    """True if all of it comes from the ledger."""


class _Digest(NamedTuple):
    place: LedgerPlace
    files: list[Lineage]


def read_recorded(root: str, *, is_whole: bool = False) -> Recorded:
    """Return what is on record: from the digest and the lines behind it, or from the ledger alone."""
    digest = None if is_whole else _load(root)
    behind = None if digest is None else landed_behind(root, digest.place)
    if digest is None or behind is None:
        writes = list(landed_writes(root))
        return Recorded(lineages(writes), len(writes), is_whole=True)
    writes = [write for write, _ in behind]
    return Recorded(lineages(writes, digest.files), len(writes), is_whole=False)


def begin_again(earlier: Earlier, repository: Repository) -> Weave | None:
    """Return the weave that a file's later versions go on from; None if the ledger has to be read."""
    if earlier.is_lost:
        return None
    if earlier.weave is not None:
        return Weave.taken_up(earlier.weave, lambda who: WrittenBy(*who))
    return Weave(version_lines(None if earlier.blob is None else repository.blob(earlier.blob)))


def renew(root: str, repository: Repository, *, is_whole: bool) -> None:
    """
    Make a new digest. Nobody else may make one meanwhile; if it fails, the present one stays.

    `is_whole`: without the present one, because that lacks something.
    """
    try:
        _renew(root, repository, is_whole=is_whole)
    except (OSError, GitFailedError, NoclobberError):
        pass  # A full disk, for example: the next commit reads more, and that is all.


def _renew(root: str, repository: Repository, *, is_whole: bool) -> None:
    digest = None if is_whole else _load(root)
    behind = landed_behind(root, None if digest is None else digest.place)
    if behind is None:
        return
    writes = list(behind)
    old, young = writes[:-LEFT_BEHIND], writes[-LEFT_BEHIND:]
    if not old:
        return
    files = lineages((write for write, _ in old), [] if digest is None else digest.files)
    # As they are at the digest's line; what follows changes names, too.
    ends = [(file, file.name, len(file.renames), len(file.writes)) for file in files]
    authors = {file: file.authors for file in files}
    lineages((write for write, _ in young), files)
    spelled = []
    with _Folding(root, repository, [file for file, _, _, count in ends if count]) as folding:
        for file, name, renames, count in ends:
            earlier = folding.folded(file, count) if count else file.earlier
            lost = Earlier(ABSENT, is_lost=True)
            spelled.append(_spelled(name, earlier or lost, authors[file], file.renames[:renames]))
    _save(root, {"version": _VERSION, "place": list(old[-1][1]), "files": spelled})


class _Folding:
    """Makes of a file's writes what a digest has of them, against the present HEAD."""

    def __init__(self, root: str, repository: Repository, files: list[Lineage]) -> None:
        self._root, self._repository = root, repository
        try:
            self._kept: Versions | None = Versions(root, make=False)
        except OSError:
            self._kept = None
        options = load_options(root)
        self._keeper = VersionKeeper(root, options, SYSTEM_CLOCK) if options.versions == "on" else None
        self._head = repository.head()
        names = [name for file in files if (name := self._name(file)) is not None]
        self._tree = repository.tree(self._head, names)
        self._ignored = repository.ignored([name for name in names if name not in self._tree])
        self._blobs = repository.blobs(
            entry.oid for entry in self._tree.values() if entry.mode in (FILE, EXECUTABLE)
        )
        self._cleaners = repository.cleaners(names)

    def __enter__(self) -> _Folding:
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.close()

    def _name(self, file: Lineage) -> str | None:
        """Return how git calls it; None if it is not in this work tree."""
        name = self._repository.below_top(file.name)
        return None if name is None or self._repository.is_nested(name) else name

    def folded(self, file: Lineage, count: int) -> Earlier:
        """Return what is to be known of the first `count` writes of a file."""
        left = None if file.earlier is None else file.earlier.last
        ordered = in_landing_order(file.writes, left)
        lost = Earlier(ABSENT, is_lost=True)
        if {each.entry for each in ordered[:count]} != {each.entry for each in file.writes[:count]}:
            return lost  # One that was recorded late belongs before the end; the next digest will have it.
        old = linked(ordered[:count], left)
        last = old[-1].sha256
        name = self._name(file)
        if name is None or name in self._ignored:
            return lost  # If that changes, it is read again.
        entry = self._tree.get(name)
        if entry is None and last == ABSENT:
            return Earlier(ABSENT)
        in_head = None if entry is None else self._blobs.get(entry.oid)
        if entry is not None and in_head is None:
            return lost  # A link or a submodule.
        if entry is not None and in_head is not None and hashing.of_bytes(in_head) == last:
            return Earlier(last, blob=entry.oid)
        weave = self._weave(file, name, old, linked(ordered[count:], last), in_head, self._cleaners[name])
        return lost if weave is None else Earlier(last, weave=weave)

    def _weave(
        self,
        file: Lineage,
        name: str,
        old: list[VersionLink],
        young: list[VersionLink],
        in_head: bytes | None,
        cleaner: Cleaner,
    ) -> dict[str, Any] | None:
        """Return the weave at the end of the old versions; None if it cannot be made."""
        try:
            current = _content(file.name)
        except OSError:
            return None
        links = [*young, *outside_link((young or old)[-1].sha256, current)]
        versions, later = self._steps(file, old, current, in_head), self._steps(file, links, current, in_head)
        if versions is None or later is None or not cleaner.is_plain:
            return None
        contents = [each.content for each in (*versions, *later) if each.content is not None]
        if any(is_binary(each) or len(each) > MOST_BYTES for each in (*contents, in_head or b"")):
            return None
        # A weave has lines of the file: none are put away of a file whose versions are not to be kept.
        if self._keeper is None or not self._keeper.wants(file.name, max(map(len, contents), default=0)):
            return None
        for weave in self._beginnings(file, name, versions):
            go_on(weave, versions, cleaner)
            first = len(weave.hunks)
            go_on(weave, later, cleaner)
            present = committed_hunks(weave, version_lines(in_head))
            if present is not None:
                return weave.condensed(present, first).put_away(_plain)
        return None

    def _beginnings(self, file: Lineage, name: str, versions: list[FileVersion]) -> Iterator[Weave]:
        if file.earlier is not None:
            weave = begin_again(file.earlier, self._repository)
            if weave is not None:
                yield weave
            return
        # What the first version had beyond the last commit of that time was an outsider's.
        if versions[0].by == OUTSIDER:
            yield Weave(version_lines(self._repository.file_at(self._head, versions[0].time, name)))
            yield Weave(version_lines(versions[0].content))

    def _steps(
        self, file: Lineage, links: list[VersionLink], current: bytes | None, in_head: bytes | None
    ) -> list[FileVersion] | None:
        known = {hashing.of_bytes(each): each for each in (current, in_head) if each is not None}

        def find(sha256: str) -> bytes | None:
            found = known.get(sha256)
            return find_kept(self._kept, self._root, file.name, sha256) if found is None else found

        return steps(links, find)


def _plain(author: Hashable) -> list[str | None]:
    assert isinstance(author, WrittenBy)
    return list(author)


def _content(path: str) -> bytes | None:
    try:
        descriptor = open_path(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return read_all(descriptor)
    finally:
        os.close(descriptor)


# -- the file ----------------------------------------------------------------------------------------------


def _path(root: str) -> str:
    return f"{state_folder(root)}/{DIGEST_PREFIX}{os.geteuid()}"


def _spelled(name: str, earlier: Earlier, authors: set[WrittenBy], renames: list[Rename]) -> dict[str, Any]:
    return {
        "name": name,
        "earlier": list(earlier),
        "authors": sorted(map(list, authors), key=str),
        "renames": [[source, destination, list(by)] for source, destination, by in renames],
    }


def _save(root: str, digest: dict[str, Any]) -> None:
    body = json.dumps(digest, separators=(",", ":")).encode()
    small_file.publish(_path(root), hashing.of_bytes(body).encode() + b"\n" + body)


def _load(root: str) -> _Digest | None:
    """Return the digest; None if there is none that can be used."""
    try:
        said = small_file.read(_path(root), most_bytes=_MOST_DIGEST_BYTES, private=True)
    except OSError:
        return None
    seal, _, body = said.partition(b"\n")
    if hashing.of_bytes(body).encode() != seal:
        return None
    digest = json.loads(body)
    if digest["version"] != _VERSION:
        return None
    return _Digest(LedgerPlace(*digest["place"]), [_file(each) for each in digest["files"]])


def _file(spelled: dict[str, Any]) -> Lineage:
    authors = [WrittenBy(*author) for author in spelled["authors"]]
    file = Lineage(spelled["name"], Earlier(*spelled["earlier"]), authors)
    file.renames = [
        Rename(source, destination, WrittenBy(*by)) for source, destination, by in spelled["renames"]
    ]
    return file
