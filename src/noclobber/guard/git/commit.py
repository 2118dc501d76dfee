"""
Make a git commit of exactly what one agent wrote (`noclobber commit --mine`).

The tree is made in an index of our own, from HEAD's tree and what `mine.plan()` says. Then, in this order:

1. git's own lock on the index (`index.lock`), so that nobody stages or commits from here on. The new index is
   prepared beside it: entries of the committed paths move on, and what others have staged stays staged.
2. A prepared transaction on HEAD, with the commit that the plan was made for as the old value. If HEAD has
   moved, everything is given up and planned again.
3. The new index gets its name.
4. The transaction is committed.

The index comes before HEAD. The other way round, a kill in between would leave an index without our changes
under a HEAD that has them, and the next `git commit` of anybody would revert them. This way round they are
staged and not committed; and nobody can commit them meanwhile, because the transaction holds HEAD.

Several of these at once wait for each other on a lock of the repository's folder. That is for speed only.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from noclobber.errors import CannotCommitError
from noclobber.guard.git.digest import MOST_BEHIND, renew
from noclobber.guard.git.mine import Mine, MinePlan, plan
from noclobber.guard.git.real_index import IndexLock, index_locked, put_forward
from noclobber.guard.git.repository import GitEntry, GitFailedError, Repository, in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from noclobber.guard.git.mine import CommitObstacle

MOST_ATTEMPTS = 50
OPTIMISTIC_ATTEMPTS = 3
AGENT_TRAILER, SESSION_TRAILER = "Noclobber-Agent", "Noclobber-Session"


class CommitMade(NamedTuple):
    """What was committed; or, without a commit, what would be."""

    commit: str | None
    plan: MinePlan


class _HeadMovedError(Exception):
    """Somebody committed in between."""


def commit_mine(
    root: str,
    mine: Mine,
    message: str,
    *,
    folder: str | None = None,
    paths: Iterable[str] | None = None,
    dry_run: bool = False,
    verify: bool = True,
) -> CommitMade:
    """
    Commit what these agents or sessions wrote in the work tree around `folder`, and nothing else.

    `CannotCommitError` names what is in the way, and nothing is changed then. No commit is made if there is
    nothing to commit. Without `verify` the hooks `pre-commit` and `commit-msg` are not run, as in git.
    """
    if not any(mine.agents) and not any(mine.sessions):
        raise CannotCommitError("", "Say whose changes: an agent or a session.")
    if not message.strip() and not dry_run:
        raise CannotCommitError("", "A commit needs a message: -m MESSAGE.")
    paths = None if paths is None else tuple(paths)
    try:
        repository = Repository(folder or root, to_commit=not dry_run)
        repository.refuse_in_progress()
        if dry_run:
            return CommitMade(None, plan(root, repository, mine, paths))
        with _one_at_a_time(repository):
            attempts = _CommitAttempts(root, repository, mine, message, paths, verify=verify)
            try:
                return attempts.result()
            finally:
                attempts.renew_digest()
    except GitFailedError as error:
        raise CannotCommitError(folder or root, f"git says: {error}") from error


def refusal(obstacles: Sequence[CommitObstacle]) -> CannotCommitError:
    """Return the error for a plan with obstacles."""
    first = obstacles[0]
    more = f" (and {len(obstacles) - 1} more)" if len(obstacles) > 1 else ""
    lines = ", ".join(f"{start + 1}-{max(end, start + 1)}" for start, end in first.lines)
    return CannotCommitError(
        first.path,
        f"{first.reason}{more} Nothing was committed.",
        owners=", ".join(first.owners) or None,
        lines=lines or None,
    )


@contextmanager
def _one_at_a_time(repository: Repository) -> Iterator[None]:
    """Wait for other commits of this kind: each that came in between would mean planning again."""
    descriptor = os.open(repository.git_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _CommitAttempts:
    """Plans and commits until HEAD holds still."""

    def __init__(
        self,
        root: str,
        repository: Repository,
        mine: Mine,
        message: str,
        paths: tuple[str, ...] | None,
        *,
        verify: bool,
    ) -> None:
        self._root, self._repository, self._mine = root, repository, mine
        self._message, self._paths, self._verify = message, paths, verify
        self._subject = message.strip().partition("\n")[0]
        self._planned: MinePlan | None = None

    def result(self) -> CommitMade:
        """Commit, or say that there is nothing to commit."""
        for number in range(MOST_ATTEMPTS):
            # Where others commit faster than we plan, they have to wait for once.
            with (
                index_locked(self._repository.index)
                if number >= OPTIMISTIC_ATTEMPTS
                else nullcontext() as lock
            ):
                try:
                    return self._attempt(lock)
                except _HeadMovedError:
                    continue
        raise CannotCommitError(
            self._repository.top,
            f"HEAD kept moving; gave up after {MOST_ATTEMPTS} attempts. Try again.",
        )

    def renew_digest(self) -> None:
        """Spare the next ones what had to be read, if it was much."""
        if self._planned is not None and self._planned.behind >= MOST_BEHIND:
            renew(self._root, self._repository, is_whole=self._planned.was_whole)

    def _attempt(self, lock: IndexLock | None) -> CommitMade:
        planned = self._planned = plan(self._root, self._repository, self._mine, self._paths)
        if planned.obstacles:
            raise refusal(planned.obstacles)
        return CommitMade(self._commit(planned, lock) if planned.files else None, planned)

    def _commit(self, planned: MinePlan, lock: IndexLock | None) -> str:
        repository = self._repository
        entries = {
            each.path: None if each.after is None else GitEntry(each.mode, repository.keep(each.after))
            for each in planned.files
        }
        with repository.private_index() as index, self._message_file(_trailers(planned)) as text:
            repository.run(*("read-tree", planned.head or "--empty"), index=index)
            repository.put_into(index, entries)
            tree = repository.run("write-tree", index=index).decode().strip()
            self._run_hooks(index, tree, text)
            commit = self._commit_object(planned.head, tree, text)
            self._land(planned, entries, commit, lock)
        self._hook("post-commit", index=None)
        return commit

    # -- the message and the hooks ----------------------------------------------------------------------

    @contextmanager
    def _message_file(self, trailers: Sequence[str]) -> Iterator[str]:
        """The message in a file of its own, with the trailers that name the agents."""
        plain = self._repository.run("stripspace", stdin=self._message.encode("utf-8", "surrogateescape"))
        words = [word for trailer in trailers for word in ("--trailer", trailer)]
        whole = self._repository.committing(
            "interpret-trailers", "--if-exists", "addIfDifferent", *words, stdin=plain
        )
        path = f"{self._repository.git_folder}/noclobber-message-{os.urandom(8).hex()}"
        try:
            with open(path, "xb") as file:
                file.write(whole)
            yield path
        finally:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def _run_hooks(self, index: str, tree: str, message_path: str) -> None:
        """Run what git would run before a commit. A hook that changes what is committed cannot be obeyed."""
        if self._verify and self._repository.has_hook("pre-commit"):
            self._hook("pre-commit", index=index, must_pass=True)
            if self._repository.run("write-tree", index=index).decode().strip() != tree:
                raise CannotCommitError(
                    self._repository.top,
                    "The pre-commit hook changed what is to be committed, and whose those changes are is not "
                    "known. Let it run on the files first, or commit with --no-verify.",
                )
        self._hook("prepare-commit-msg", message_path, "message", index=index, must_pass=True)
        if self._verify:
            self._hook("commit-msg", message_path, index=index, must_pass=True)

    def _hook(self, name: str, *words: str, index: str | None, must_pass: bool = False) -> None:
        if not self._repository.has_hook(name):
            return
        done = self._repository.committed(
            *("hook", "run", "--ignore-missing", name, "--", *words), index=index
        )
        if done.returncode != 0 and must_pass:
            said = (done.stdout + done.stderr).decode("utf-8", "backslashreplace").strip()
            raise CannotCommitError(
                self._repository.top, f"The {name} hook said no: {said or 'it gave no reason'}"
            )

    def _commit_object(self, head: str | None, tree: str, message_path: str) -> str:
        repository = self._repository
        with open(message_path, "rb") as file:
            message = repository.run("stripspace", stdin=file.read())
        if not message.strip():
            raise CannotCommitError(repository.top, "The message is empty. Nothing was committed.")
        words = ["-S"] if repository.is_set("commit.gpgsign") else []
        words += ["-p", head] if head is not None else []
        made = repository.committing("commit-tree", *words, "-F", "-", tree, stdin=message)
        return made.decode().strip()

    # -- landing ----------------------------------------------------------------------------------------

    def _land(
        self, planned: MinePlan, entries: dict[str, GitEntry | None], commit: str, held: IndexLock | None
    ) -> None:
        repository = self._repository
        with (
            index_locked(repository.index) if held is None else nullcontext(held) as lock,
            repository.private_index() as prepared,
        ):
            put_forward(repository, prepared, planned.files, entries)
            with _HeadUpdate(repository, commit, planned.head, self._subject) as update:
                lock.replace(prepared)
                update.commit()


def _trailers(planned: MinePlan) -> list[str]:
    """Return lines that name the agents and their sessions: one line each, whatever the names hold."""
    agents = sorted({" ".join((by.agent_id or "").split()) for by in planned.authors} - {""})
    sessions = sorted({" ".join((by.session_id or "").split()) for by in planned.authors} - {""})
    return [f"{AGENT_TRAILER}: {name}" for name in agents] + [
        f"{SESSION_TRAILER}: {name}" for name in sessions
    ]


class _HeadUpdate:
    """A transaction on HEAD and its branch: prepared when entered, given up unless committed."""

    def __init__(self, repository: Repository, commit: str, old: str | None, subject: str) -> None:
        self._said: str | None = None
        self._line = f"update HEAD {commit} {old or repository.no_commit}\n"
        words = ("update-ref", "-m", f"commit (noclobber): {subject}", "--stdin")
        self._process = repository.begun(*words, more={"LC_ALL": "C"})

    def __enter__(self) -> _HeadUpdate:
        if not self._say(f"start\n{self._line}prepare\n", answers=2):
            said = self._end()
            # "is at … but expected …", "reference already exists", "Unable to create … .lock".
            if "cannot lock ref" in said:
                raise _HeadMovedError(said)
            raise GitFailedError(f"HEAD could not be moved: {said}")
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def commit(self) -> None:
        """HEAD moves on."""
        if not self._say("commit\n", answers=1):
            raise GitFailedError(
                f"HEAD could not be moved: {self._end()}. The changes are staged and not committed"
            )

    def _say(self, text: str, *, answers: int) -> bool:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(text.encode())
            stdin.flush()
        except BrokenPipeError:
            return False
        return all(stdout.readline().endswith(b": ok\n") for _ in range(answers))

    def _end(self) -> str:
        if self._said is None:
            self._said = in_one_line(self._process.communicate()[1])
        return self._said
