"""
The user's own index after a commit that was made without it.

Its entries of the committed paths must move on to what was committed, or `git status` would show the commit
as undone, and the next `git commit` would undo it. What others have staged stays staged: where a path has
something staged, the committed change is merged into it. If that is a conflict, nothing is committed.

`index.lock` is git's own lock, so no git process writes the index meanwhile.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from noclobber.errors import CannotCommitError, FileBusyError
from noclobber.guard.git.repository import GitEntry
from noclobber.text.merge import merge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noclobber.guard.git.mine import FileCommit
    from noclobber.guard.git.repository import Repository

PATIENCE_S = 30.0
LOOK_AGAIN_S = 0.01


class IndexLock:
    """git's lock on the index, held."""

    def __init__(self, index: str) -> None:
        self._index, self.path = index, f"{index}.lock"
        self._is_held = True

    def replace(self, prepared: str) -> None:
        """The prepared index takes the place of the present one, and the lock is gone."""
        os.replace(prepared, self.path)
        os.replace(self.path, self._index)
        self._is_held = False

    def release(self) -> None:
        """Give the lock back, if it is still held."""
        if self._is_held:
            os.unlink(self.path)
            self._is_held = False


@contextmanager
def index_locked(index: str) -> Iterator[IndexLock]:
    """Hold git's lock on an index; wait for a git process that has it."""
    path = f"{index}.lock"
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            break
        except FileExistsError:
            if time.monotonic() > deadline_s:
                raise FileBusyError(
                    path,
                    f"Another git process has held the index for {PATIENCE_S:.0f} s. If none runs, one was "
                    "killed: remove this file. Nothing was changed.",
                ) from None
            time.sleep(LOOK_AGAIN_S)
    lock = IndexLock(index)
    try:
        yield lock
    finally:
        lock.release()


def put_forward(
    repository: Repository, prepared: str, files: Iterable[FileCommit], entries: dict[str, GitEntry | None]
) -> None:
    """Make `prepared` the present index with the committed paths moved on. Call it with the index locked."""
    try:
        # With its times: to git an entry that is as young as the index may have changed since.
        shutil.copy2(repository.index, prepared)
    except FileNotFoundError:
        repository.run("read-tree", "--empty", index=prepared)
    staged = repository.staged(entries, index=prepared)
    repository.put_into(
        prepared, {each.path: _moved_on(repository, each, entries, staged.get(each.path)) for each in files}
    )


def _moved_on(
    repository: Repository,
    file: FileCommit,
    entries: dict[str, GitEntry | None],
    staged: GitEntry | None,
) -> GitEntry | None:
    """Return what the index has to have at a path after the commit."""
    new = entries[file.path]
    if staged in (file.old, new):
        return new
    if staged is None and file.old is not None:
        return None  # Its deletion is staged, and stays so.
    conflict = CannotCommitError(
        f"{repository.top}/{file.path}",
        "Other changes of the same lines are staged. Commit them first, or unstage them: "
        f"git restore --staged -- {file.path}. Nothing was changed.",
    )
    if staged is None or new is None or file.after is None:
        raise conflict
    merged = merge(file.before or b"", file.after, repository.blob(staged.oid), equal_once=True)
    if merged.content is None:
        raise conflict
    mode = new.mode if file.old is None or staged.mode == file.old.mode else staged.mode
    return GitEntry(mode, repository.keep(merged.content))
