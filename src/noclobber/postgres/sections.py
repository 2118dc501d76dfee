"""
Guarded writes on a volume that several machines have mounted: the server orders them, a rename lands them.

    stage the new versions → begin (on record before it happens) → look → rename → settle

The server says who is next. It cannot see the volume, and a file system has no fencing tokens. What makes
this safe is that every rename can be revoked (`volume`). A writer that is held up after `begin`, for however
long, is found overdue by the next one, who takes its staged file away, settles its section, and goes on. When
the late rename comes, there is nothing to rename.

- One file: the rename is the commit. Overdue: the staged file is still there, and is taken away; or it is
  gone, and so the write has landed.
- Several files: nothing is renamed before the server has been told that it is decided. Overdue before that:
  the server is told that it is revoked. After that: whoever finds it does the renames that are missing.

Promised (level `section`): guarded writers on any machine lose nothing. Other programs are where they are at
`plain`: what they put in place between the last look and the rename is lost. What they save after a crash
stays, and our version is kept aside.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.values import Recovered
from noclobber.disk.processes import GONE, ProcessIdentity, fate, identify
from noclobber.disk.steps import reached
from noclobber.errors import (
    ABSENT,
    ConfigError,
    CoordinatorUnavailableError,
    FileBusyError,
    LockLost,
    NotAFileError,
    StaleFileError,
    StorageError,
    claimed_error,
)
from noclobber.lock import messages
from noclobber.lock.record import hash_of, public_id
from noclobber.postgres.asking import judge_dead, judged_process
from noclobber.postgres.hashed_aside import HashedAside
from noclobber.postgres.section_recovery import (
    DELETE,
    ID_CHARS,
    OLD_VIEW_NAPS_S,
    WRITE,
    SectionRecovery,
    old_view,
)
from noclobber.postgres.workspace_name import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noclobber.core.clock import Clock
    from noclobber.postgres.connection import ServerConnection
    from noclobber.postgres.volume import SeenFile, Volume
    from noclobber.postgres.workspace_name import SharedFolder

SECTION_S = 10.0  # After so long a writer that has not settled is found overdue.
POLL_S = 0.25  # Behind a notice that did not come.


class SectionFile(NamedTuple):
    """One file of a section."""

    path: str
    """Canonical."""
    data: bytes | None
    """None: delete it."""
    expected: str | None
    """A hash, `ABSENT`, or None for whatever is there."""
    mode: int | None = None
    """For a file that comes: its permissions."""
    like: str | None = None
    """For a file that comes: one that is there, whose owner, mode and attributes it gets."""


class LandedFile(NamedTuple):
    """What became of one file."""

    previous: str
    sha256: str
    not_kept: tuple[str, ...]
    content_before: bytes | None


class CarriedLock(NamedTuple):
    """The lock that a writer works under."""

    path: str
    """The folder, from the root."""
    lock_id: str


class Sections(SectionRecovery):
    """Writes the files of one workspace, in the order that the server gives."""

    def __init__(
        self,
        connection: ServerConnection,
        place: SharedFolder,
        volume: Volume,
        clock: Clock,
        wait_s: float,
        claim_wait_s: float = 0.0,
    ) -> None:
        """`wait_s` is for other writers, `claim_wait_s` for what hosts write."""
        super().__init__(connection, place, volume, clock)
        self._wait_s, self._claim_wait_s = wait_s, claim_wait_s
        self._tree_id: str | None = None

    def land(
        self, files: Sequence[SectionFile], locks: Collection[CarriedLock] = (), owner: str | None = None
    ) -> tuple[list[LandedFile], list[Recovered]]:
        """
        Carry out a write of one file or of several, all of them or none; say what was recovered, too.

        `locks` are the writer's own, each with a file in its folder. `owner` is the agent that writes; its
        own claims do not stop it.
        """
        if self._tree_id is None:
            self._volume.prepare()
            self._tree_id = self._volume.tree_id()
        recovered: list[Recovered] = []
        deadline_s = self._clock.monotonic_s() + self._wait_s
        ordered, carried = sorted(files, key=lambda file: file.path), sorted(set(locks))
        while True:
            attempt = _Attempt(self, ordered, owner)
            try:
                landed = attempt.run(carried, deadline_s, recovered)
            finally:
                attempt.tidy()
            if landed is not None:
                by_path = dict(zip((file.path for file in ordered), landed, strict=True))
                return [by_path[file.path] for file in files], recovered
            # Revoked: we were held up for longer than a section may take, and somebody else went on. Nothing
            # of ours has happened. What we expect may still be true.
            if self._clock.monotonic_s() >= deadline_s:
                raise FileBusyError(
                    ordered[0].path, "writes to it take too long here; gave up. Try again later"
                )


class _Attempt:
    """One section, from the staged files to the end."""

    def __init__(self, sections: Sections, files: Sequence[SectionFile], owner: str | None) -> None:
        self._sections, self._files, self._owner = sections, files, owner
        self._volume = sections._volume
        self.section_id = os.urandom(ID_CHARS // 2).hex()
        self._rows: list[dict[str, Any]] = []
        self._hashed = HashedAside([file.data for file in files])
        self._may_tidy = True
        self._is_left = False  # True: not over, and for whoever finds it overdue.

    def run(
        self, locks: Sequence[CarriedLock], deadline_s: float, recovered: list[Recovered]
    ) -> list[LandedFile] | None:
        """Return what landed; None if somebody revoked it. A refusal is raised."""
        not_kept, before = self._stage()
        try:
            begun = self._begin(locks, before, deadline_s, recovered)
            reached("section-begun")
            seen = [self._check(file, head) for file, head in zip(self._files, begun["heads"], strict=True)]
            self._give_second_names(seen)
            for file, was, now in zip(self._files, before, seen, strict=True):
                if (
                    now.sha256 != was.sha256
                ):  # Between our two looks. Whoever asked for no check gets another try.
                    if file.expected is not None:
                        raise _stale(file, now)
                    self._settle("refused")
                    return None
            reached("section-checked")
            landed = self._rename() if len(self._files) == 1 else self._rename_all()
        except CoordinatorUnavailableError:
            self._may_tidy = False  # It is not known what was decided. Whoever comes next finds out.
            raise
        except BaseException:
            self._give_up()
            raise
        if not landed:
            return None
        return [
            LandedFile(was.sha256, new_hash, kept, was.content)
            for was, new_hash, kept in zip(seen, self._hashed.all(), not_kept, strict=True)
        ]

    def tidy(self) -> None:
        """Remove what is left of our staged files."""
        if self._may_tidy:
            for number in range(len(self._files)):
                self._volume.drop(f"{self.section_id}.{number}")

    def _stage(self) -> tuple[list[tuple[str, ...]], list[SeenFile]]:
        not_kept: list[tuple[str, ...]] = []
        before: list[SeenFile] = []
        for number, file in enumerate(self._files):
            seen, name = self._first_look(file), f"{self.section_id}.{number}"
            _refuse_other_kinds(file, seen)
            before.append(seen)
            like = file.path if seen.is_there else file.like
            try:
                if file.data is None:
                    self._volume.stage_deletion(name)
                    not_kept.append(())
                else:
                    not_kept.append(self._volume.stage(name, file.data, like, file.mode))
            except OSError as error:
                # Nothing has begun. A network volume fails here in its own ways (ESTALE, EIO after a cut).
                raise _failed(error, file.path) from error
        reached("section-staged")
        return not_kept, before

    def _first_look(self, file: SectionFile) -> SeenFile:
        """
        What stands there before the section begins. It is read only if its hash is needed: of one file that
        is to be as expected, `_check` reads it, and nothing lands if it is not. A mount's caches are dropped
        before each reading, so reading it here as well took as long again.
        """
        if len(self._files) == 1 and file.data is not None and file.expected is not None:
            return self._volume.glance(file.path, file.expected)
        return self._volume.look(file.path)

    def _begin(
        self,
        locks: Sequence[CarriedLock],
        before: list[SeenFile],
        deadline_s: float,
        recovered: list[Recovered],
    ) -> dict[str, Any]:
        sections, process = self._sections, identify()
        rows = [
            {
                "path": sections._relative(file.path),
                "action": DELETE if file.data is None else WRITE,
                "from": seen.sha256,
                "to": new_hash,
            }
            for file, seen, new_hash in zip(self._files, before, self._hashed.all(), strict=True)
        ]
        self._rows = rows
        judged: dict[str, Any] = {}
        claims_end_s = sections._clock.monotonic_s() + sections._claim_wait_s
        while True:
            answer = sections._ask(
                "begin_section(%s,%s,%s,%s::jsonb,%s::text[],%s::text[],%s,%s::jsonb,%s::jsonb,%s,%s)",
                *(sections._place.workspace, sections._tree_id, self.section_id, _json(rows)),
                *([lock.path for lock in locks], [hash_of(lock.lock_id) for lock in locks]),
                *(f"pid {process.pid} on {process.host}", judged_process(process), _json(judged), SECTION_S),
                self._owner,
            )
            outcome = answer["outcome"]
            if outcome == "begun":
                return answer  # type: ignore[no-any-return]
            if outcome == "other_tree":
                raise other_tree(sections._place)
            if outcome == "settled":  # Swept away as a leftover, because we were held up for so long.
                raise FileBusyError(self._files[0].path, "this process was stopped for too long; try again")
            if outcome in ("lost", "refused"):
                row = answer["lock"]
                if outcome == "refused" and is_gone(row["process"]):
                    judge_dead(row, judged)
                    continue
                raise self._locked(answer, locks)
            if outcome == "claimed":
                left_s = claims_end_s - sections._clock.monotonic_s()
                self._wait_for_claim(answer["claim"], judged, left_s)
                continue
            left_s = deadline_s - sections._clock.monotonic_s()
            if not answer["is_overdue"] and is_gone(answer["process"]):
                judged.setdefault("intents", []).append(answer["section_id"])
                continue
            if answer["is_overdue"]:
                recovered += sections.recover(answer)
                continue
            if left_s <= 0:
                raise FileBusyError(
                    sections._absolute(answer["path"]),
                    f"{messages.plain(answer['writer'])} is writing it; gave up. Try again later",
                )
            sections._connection.wait(notice_key(sections._place), min(left_s, POLL_S))

    def _wait_for_claim(self, claim: dict[str, Any], judged: dict[str, Any], left_s: float) -> None:
        """Another machine's host is about to write: find that nothing came of it, or wait, or give up."""
        from noclobber.postgres.server_claims import may_take_over  # Here: it is made of this module.

        path = self._sections._absolute(claim["path"])
        if may_take_over(self._volume, path, claim):
            judged.setdefault("claims", []).append(claim["claim_id"])
            return
        if left_s <= 0:
            raise claimed_error(path, messages.plain(claim["owner"]), float(claim["remaining_s"]))
        take_over_in_s = float(claim["take_over_in_s"])
        at_most_s = min(left_s, POLL_S, take_over_in_s if take_over_in_s > 0 else POLL_S)
        self._sections._connection.wait(notice_key(self._sections._place), at_most_s)

    def _locked(self, answer: dict[str, Any], locks: Sequence[CarriedLock]) -> Exception:
        row = answer["lock"]
        holder = messages.plain(row.get("holder") or "")
        folder = self._sections._absolute(row["path"]).rstrip("/")
        if answer["outcome"] == "lost":
            # Two ids for one folder: another thread of the client has just taken it anew.
            lock = next(lock for lock in locks if lock.path == row["path"])
            path = next(file.path for file in self._files if file.path.startswith(f"{folder}/"))
            by = None if row.get("is_free", True) else holder
            why = "it was released, or recovered by somebody" if by is None else f"it was taken over by {by}"
            lost: LockLost = messages.lost(path, public_id(hash_of(lock.lock_id)), why, by)
            return lost
        path = self._sections._absolute(answer["path"])
        left_s = max(0, round(float(row["remaining_s"])))
        return messages.contention(
            path, holder, row["deliverable_id"], left_s, self._sections._clock.now_s(), where=folder
        )

    def _check(self, file: SectionFile, head: dict[str, Any]) -> SeenFile:
        """
        Return what stands there, and raise if it is not what is expected.

        A mount may show an old version for a while. What the server knows for an earlier version is not
        believed: a write that is checked against it would undo the newer one.
        """
        seen = self._volume.look(file.path)
        names = self._volume.second_names
        if (
            seen.sha256 == ABSENT != head["head"]
            and names.is_marked(file.path)
            and names.put_back(file.path, head["head"])
        ):
            seen = self._volume.look(file.path)  # The late rename of a machine that was cut off took it.
        for nap_s in OLD_VIEW_NAPS_S:
            is_old = seen.sha256 != head["head"] and seen.sha256 in head["former"]
            if not is_old:
                break
            self._sections._clock.sleep(nap_s)
            seen = self._volume.look(file.path)
        else:
            raise old_view(file.path)
        _refuse_other_kinds(file, seen)
        if file.expected is not None and seen.sha256 != file.expected:
            raise _stale(file, seen)
        return seen

    def _give_second_names(self, seen: list[SeenFile]) -> None:
        """Before the renames: nothing that is there, and nothing that comes, may be lost by half of one."""
        names = self._volume.second_names
        if not names.are_needed:
            return
        for number, (file, was) in enumerate(zip(self._files, seen, strict=True)):
            if file.data is None:
                continue
            try:
                names.give(file.path, was.sha256)
                if names.is_marked(file.path):
                    staged = f"{self._volume.folder}/{self.section_id}.{number}"
                    names.give(file.path, self._hashed.all()[number], staged)
            except OSError as error:  # Nothing was renamed.
                raise _failed(error, file.path) from error

    def _take_back_second_names(self) -> None:
        """It is settled: the versions that were replaced need no name any more."""
        for file, row in zip(self._files, self._rows, strict=True):
            if row["from"] != row["to"]:
                self._volume.second_names.take_back(file.path, row["from"])

    def _rename(self) -> bool:
        [file], name = self._files, f"{self.section_id}.0"
        try:
            if file.data is None:
                self._volume.take_away(file.path, name)
            else:
                reached("section-ready")
                self._volume.put(name, file.path)
        except FileNotFoundError:
            if file.data is None and self._volume.look(file.path).sha256 == ABSENT:
                raise StaleFileError(file.path, file.expected or "", "DELETED") from None
            # Revoked; or this very rename was carried out, and its answer got lost. If nothing is left to
            # see, whoever revoked it has tidied up, and the server knows: its first answer stands.
            try:
                is_revoked = self._sections._revoke(self.section_id, self._kind())
            except OSError as error:
                raise StorageError(
                    file.path,
                    f"the volume failed ({error.strerror}) before it could be seen whether this write has "
                    "landed. Read the file, and write again if it has not",
                ) from error
            if self._settle("revoked" if is_revoked else "landed") != "landed":
                return False
        except OSError as error:
            raise _failed(error, file.path) from error
        reached("section-renamed")
        if file.data is None:
            taken = self._volume.read_taken(name)
            if file.expected is not None and taken.sha256 != file.expected and taken.content is not None:
                try:
                    self._sections._put_back(name, file.path, taken)
                except OSError as error:
                    self._may_tidy, self._is_left = False, True
                    raise StorageError(
                        file.path,
                        "another program saved it at the same time, and the volume failed "
                        f"({error.strerror}) before its version was put back. The next guarded "
                        "write to this file does that",
                    ) from error
                raise _stale(file, taken)
        _flush_name(file.path)
        if file.data is None or self._volume.second_names.are_needed:
            self._settle_landed()  # What is tidied up afterwards counts on it.
        else:
            # Told and not asked: whoever waits for this file hears of it as soon, and nobody here needs the
            # answer. If it gets lost with this process, the staged file is gone, which says the same.
            self._may_tidy = False  # The one staged file has become the file.
            with suppress(CoordinatorUnavailableError):  # Of what was told before this, by another thread.
                self._sections._connection.tell(
                    "SELECT noclobber.settle_section(%s, %s)", (self.section_id, "landed")
                )
        return True

    def _rename_all(self) -> bool:
        sections = self._sections
        state = sections._ask("decide_section(%s, %s)", self.section_id, "decided")
        if state not in ("decided", "landed"):
            self._settle("revoked")
            return False
        reached("section-decided")
        try:
            for number, row in enumerate(self._rows):
                sections._roll_forward(self.section_id, number, row)
                reached("section-one-renamed")
            sections._check_taken(self.section_id, self._rows, may_come_late=True)
            for file in self._files:
                _flush_name(file.path)
        except OSError as error:
            # It is decided, so it will land: whoever comes next does what is missing.
            self._may_tidy = False
            raise StorageError(
                self._files[0].path,
                f"the volume failed in the middle of a write that is decided ({error.strerror}). The next "
                "guarded write to one of its files finishes it",
            ) from error
        self._settle_landed()
        return True

    def _kind(self) -> dict[str, Any]:
        return {"action": DELETE if self._files[0].data is None else WRITE}

    def _settle(self, outcome: str) -> str | None:
        settled: str | None = self._sections._ask("settle_section(%s, %s)", self.section_id, outcome)
        return settled

    def _settle_landed(self) -> None:
        try:
            self._settle("landed")
            self._take_back_second_names()
        except CoordinatorUnavailableError:
            # It has landed, and nobody can revoke it any more. Whoever comes next tells the server.
            self._may_tidy = False

    def _give_up(self) -> None:
        """Nothing of ours may happen any more, and the server is told so. Raises nothing."""
        if self._is_left:
            return
        try:
            outcome = "refused"
            if len(self._files) > 1:
                state = self._sections._ask("decide_section(%s, %s)", self.section_id, "revoked")
                if state == "decided":  # It will land. Whoever comes next does what is missing.
                    self._may_tidy = False
                    return
            elif not self._sections._revoke(self.section_id, self._kind()):
                outcome = "landed"
            self._settle(outcome)
        except Exception:
            # Others find it overdue. Our staged files stay: one that is gone would mean that it has landed.
            self._may_tidy = False


def _refuse_other_kinds(file: SectionFile, seen: SeenFile) -> None:
    if seen.sha256 == "NOT_A_FILE":
        raise NotAFileError(file.path, "this is not a file")
    if seen.sha256 == "UNREADABLE":
        raise StorageError(file.path, "it cannot be read here; check its permissions and the mount")
    if seen.links > 1:
        raise NotAFileError(
            file.path,
            "it has several names (hard links), and on a shared volume only one of them would change",
        )


def other_tree(place: SharedFolder) -> ConfigError:
    """The error for a workspace's name that stands for another tree of files."""
    return ConfigError(
        VARIABLE,
        f"the workspace {place.workspace!r} is another tree of files than {place.root}. Give each tree that "
        "machines share a name of its own",
    )


def _stale(file: SectionFile, seen: SeenFile) -> StaleFileError:
    actual = "DELETED" if seen.sha256 == ABSENT else seen.sha256
    return StaleFileError(file.path, file.expected or "", actual)


def _failed(error: OSError, path: str) -> Exception:
    from noclobber.disk.system_errors import commit_failed

    return commit_failed(error, path)


def _flush_name(path: str) -> None:
    """The new name is on the server's disk before the end is on record."""
    try:
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # Not every network file system can; those that cannot are as safe as their server is.
    finally:
        os.close(descriptor)


def is_gone(process: dict[str, Any] | None) -> bool:
    """True if a process of this machine no longer runs."""
    return process is not None and fate(ProcessIdentity(**process)) == GONE


def _json(value: Any) -> str:
    import json

    return json.dumps(value)


def notice_key(place: SharedFolder) -> str:
    """What is said on the server's channel when a section or a claim of this workspace has ended."""
    from hashlib import md5

    return md5(f"{place.workspace}/sections".encode(), usedforsecurity=False).hexdigest()
