"""
Move branches and tags back to where they were before an agent's commands, by git itself.

Everything else that a command did in a repository stays: objects may be part of others' commits, and HEAD,
the index, the stash and remote branches are shared by all who work there. The plan of an undo says so.

A ref is moved by git's own compare-and-swap, and only if it is where the agent's command left it. So a commit
of somebody else on top keeps it where it is. The index follows in those paths that are still as the commit
had them: what others have staged stays staged. A branch that is checked out is not removed, and one that is
checked out in another work tree is not moved.

No hook, filter or other program that a repository can name is run (`reading.quiet_git`).
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import hashing
from noclobber.disk.git_folders import is_repository
from noclobber.errors import ABSENT, DELETED, FileBusyError
from noclobber.guard.git.reading import quiet_git
from noclobber.guard.git.real_index import index_locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noclobber.ledger.history import LandedWrite

_NOTES = frozenset(("COMMIT_EDITMSG", "FETCH_HEAD", "ORIG_HEAD", "logs"))
MOST_COMMITS = 1000
"""How far back a branch's earlier place is searched, where its log does not have it."""


class RefUndo(NamedTuple):
    """A branch or tag that goes back, if it is still where the last of these writes left it."""

    repository: str
    """The repository's own folder: `…/.git`."""
    ref: str
    now: str | None
    """The object's name; None: there is no such ref, ..."""
    then: str | None
    """... or there will be none."""
    writes: tuple[LandedWrite, ...]

    @property
    def path(self) -> str:
        """Where the ledger has it."""
        return f"{self.repository}/{self.ref}"


class LeftAlone(NamedTuple):
    """What stays as it is, and why."""

    path: str
    reason: str


def plan_refs(writes: Iterable[LandedWrite]) -> tuple[tuple[RefUndo, ...], tuple[LeftAlone, ...]]:
    """Work out which refs go back, and what stays. `writes`: those to repositories, the newest first."""
    by_ref: dict[tuple[str, str], list[LandedWrite]] = {}
    others: dict[str, set[str]] = {}
    for write in writes:
        place = _ref_at(write.path)
        if place is not None:
            by_ref.setdefault(place, []).append(write)
        else:
            folder, name = _kind_of(write.path)
            others.setdefault(folder, set()).add(name)
    moved, left = [], []
    for (repository, ref), of_ref in by_ref.items():
        found = _planned(repository, ref, of_ref)
        if isinstance(found, RefUndo):
            moved.append(found)
            others.get(repository, set()).discard("index")
        else:
            left.append(LeftAlone(f"{repository}/{ref}", found))
    left += [
        LeftAlone(folder, f"{', '.join(sorted(names))} are git's and stay; `git reflog` has what was.")
        for folder, every in others.items()
        if (names := every - _NOTES)
    ]
    return tuple(moved), tuple(left)


def _ref_at(path: str) -> tuple[str, str] | None:
    for kind in ("heads", "tags"):
        repository, mark, name = path.partition(f"/refs/{kind}/")
        if mark and not name.endswith(".lock") and is_repository(repository):
            return repository, f"refs/{kind}/{name}"
    return None


def _kind_of(path: str) -> tuple[str, str]:
    """Return the repository that a path is in, and in a word what it is there."""
    above, mark, inside = path.partition("/.git/")
    if mark:
        folder = f"{above}/.git"
    else:  # A `.git` file, or a bare repository.
        folder = os.path.dirname(path)
        while not is_repository(folder) and os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
        folder, inside = (folder, path[len(folder) + 1 :]) if folder != "/" else (path, "it")
    first = inside.split("/")[0]
    return folder, "/".join(inside.split("/")[:2]) if first in ("refs", "modules", "worktrees") else first


def _planned(repository: str, ref: str, writes: Sequence[LandedWrite]) -> RefUndo | str:
    """Return how a ref goes back, or why it stays."""
    now = at = _object(repository, ref)
    used = []
    for write in writes:
        if _spelled(at) != _word(write.after):
            break
        found = _before(repository, ref, at, _word(write.before))
        if found is None:
            return "It stays: git does not know any more where it was before."
        used.append(write)
        at = found or None
    if not used:
        return "It stays: others have moved it since."
    trees = _checked_out(repository, ref)
    if trees is None or (trees and at is None) or trees - {_main_tree(repository)}:
        return "It stays: it is checked out."
    return RefUndo(repository, ref, now, at, tuple(used))


def _before(repository: str, ref: str, at: str | None, before: str) -> str | None:
    """Return the object's name that a ref had, "" if there was no ref; None: that is not known."""
    if before == ABSENT:
        # A ref without a file of its own may have been among the packed ones, and has been since.
        packed = _packed(repository, ref)
        return None if packed is not None and packed == at else packed or ""
    return next((oid for oid in _candidates(repository, ref, at) if _spelled(oid) == before), None)


def _candidates(repository: str, ref: str, at: str | None) -> list[str]:
    """Return where a ref may have been: what logs have, and the commits below it."""
    found = []
    for name in (ref, "HEAD"):
        try:
            with open(f"{repository}/logs/{name}", "rb") as log:
                found += [word.decode("ascii", "replace") for line in log for word in line.split(b" ")[:2]]
        except OSError:
            continue
    if at is not None:
        listed = quiet_git(repository, "rev-list", f"--max-count={MOST_COMMITS}", at, "--") or b""
        found += listed.decode("ascii", "replace").split()
    return found


def _packed(repository: str, ref: str) -> str | None:
    try:
        with open(f"{repository}/packed-refs", "rb") as file:
            for line in file:
                oid, _, name = line.rstrip(b"\n").partition(b" ")
                if name == os.fsencode(ref):
                    return oid.decode("ascii", "replace")
    except OSError:
        pass
    return None


def _object(repository: str, ref: str) -> str | None:
    said = quiet_git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
    return None if said is None else said.decode().strip()


def _checked_out(repository: str, ref: str) -> set[str] | None:
    """Return the work trees that have a branch checked out; None: git does not say."""
    said = quiet_git(repository, "worktree", "list", "--porcelain")
    if said is None:
        return None
    found, tree = set(), ""
    for line in said.decode("utf-8", "surrogateescape").splitlines():
        word, _, rest = line.partition(" ")
        if word == "worktree":
            tree = rest
        elif word == "branch" and rest == ref:
            found.add(tree)
    return found


def _main_tree(repository: str) -> str:
    said = quiet_git(repository, "worktree", "list", "--porcelain") or b""
    return said.split(b"\n")[0].decode("utf-8", "surrogateescape").removeprefix("worktree ")


# -- doing it ----------------------------------------------------------------------------------------------


def move_back(ref: RefUndo) -> bool:
    """Move one ref, and the index with it; False if somebody has moved it meanwhile, or git is at work."""
    head = quiet_git(ref.repository, "symbolic-ref", "--quiet", "HEAD") or b""
    index = f"{ref.repository}/index"
    is_here = head.decode("utf-8", "surrogateescape").strip() == ref.ref and os.path.lexists(index)
    if not is_here or ref.now is None or ref.then is None:
        return _swapped(ref)
    try:
        with index_locked(index) as lock:
            if not _swapped(ref):
                return False
            prepared = f"{index}-noclobber-{os.urandom(8).hex()}"
            try:
                shutil.copy2(index, prepared)
                if _follows(ref.repository, ref.now, ref.then, prepared):
                    lock.replace(prepared)
            finally:
                for name in (prepared, f"{prepared}.lock"):
                    if os.path.lexists(name):
                        os.unlink(name)
    except FileBusyError:
        return False
    return True


def _swapped(ref: RefUndo) -> bool:
    """git compares and swaps in one step. Nobody's commit that came in between is lost."""
    nothing = "0" * len(ref.now or ref.then or "")
    if ref.then is None:
        words = ["-d", ref.ref, ref.now or nothing]
    else:
        words = [ref.ref, ref.then, ref.now or nothing]
    return quiet_git(ref.repository, "update-ref", "-m", "noclobber undo", "--no-deref", *words) is not None


def _follows(repository: str, now: str, then: str, index: str) -> bool:
    """Put what a commit had into an index, where that has what the present commit has."""
    differ = quiet_git(repository, "diff-tree", "-r", "-z", "--no-renames", now, then)
    staged = quiet_git(repository, "ls-files", "--stage", "-z", index=index)
    if differ is None or staged is None:
        return False
    here = {name: about for about, _, name in (each.partition(b"\t") for each in staged.split(b"\0")[:-1])}
    lines = b""
    fields = differ.split(b"\0")[:-1]
    for about, name in zip(fields[::2], fields[1::2], strict=True):
        old_mode, mode, old_oid, oid, _ = about.lstrip(b":").split(b" ")
        is_as_committed = here.get(name) == b"%s %s 0" % (old_mode, old_oid)
        if is_as_committed or (old_mode == b"000000" and name not in here):
            gone = mode == b"000000"
            lines += b"%s %s\t%s\0" % (b"0" if gone else mode, oid, name)
    return quiet_git(repository, "update-index", "-z", "--index-info", stdin=lines, index=index) is not None


def _spelled(oid: str | None) -> str:
    """Return the hash of the file that git keeps a ref in."""
    return ABSENT if oid is None else hashing.of_bytes(oid.encode() + b"\n")


def _word(sha256: str) -> str:
    return ABSENT if sha256 == DELETED else sha256


def ref_hashes(ref: RefUndo) -> tuple[str, str]:
    """Return what goes on record of a moved ref: the hashes of its file before and after."""
    return _spelled(ref.now), DELETED if ref.then is None else _spelled(ref.then)
