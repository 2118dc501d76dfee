"""
What becomes of a section whose writer is dead, stopped or cut off.

Whoever finds it overdue makes sure that it has happened or never will (`sections` says why that can be done),
and settles it. Any number of machines may do that at once; the server's first answer stands.

- One file: its staged version is taken away; if it is gone already, the write has landed.
- Several files, not decided: the server is told that it is revoked. Decided: the missing renames are done.
- Staged files that no section names are swept away after an hour, and the server is told first.

Any client can begin a section, and leave it for others to finish. So a section is believed only if it could
be its writer's: files below the root, staged versions with the hashes that it names, and in folders that
whoever staged them may write in. Nobody's rights are lent.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from noclobber.core.values import Recovered
from noclobber.disk import filesystems, paths
from noclobber.disk.commit.kept import keep_bytes
from noclobber.disk.steps import reached
from noclobber.errors import ABSENT, ConfigError, FileBusyError, NoclobberError, NotAFileError, StorageError
from noclobber.ledger.root import relative

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.postgres.connection import ServerConnection
    from noclobber.postgres.volume import SeenFile, Volume
    from noclobber.postgres.workspace_name import SharedFolder

WRITE, DELETE = "write", "delete"
OLD_VIEW_NAPS_S = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0, 2.0)
BRING_BACK_NAPS_S = (0.01, 0.05, 0.2, 0.5)
LEFTOVER_S = 3600.0
ID_CHARS = 24
_ID = re.compile(f"[0-9a-f]{{{ID_CHARS}}}")
_HASH = re.compile(f"[0-9a-f]{{64}}|{ABSENT}")


class SectionRecovery:
    """Ends what others have left, in one workspace."""

    def __init__(
        self, connection: ServerConnection, place: SharedFolder, volume: Volume, clock: Clock
    ) -> None:
        self._connection, self._place, self._volume, self._clock = connection, place, volume, clock

    def recover_overdue(self) -> list[Recovered]:
        """Finish what dead or cut off writers have left; for whoever tidies up."""
        found: list[Recovered] = []
        while True:
            section = self._ask("overdue_section(%s)", self._place.workspace)
            if section is None:
                return found
            found += self.recover(section)

    def recover(self, section: dict[str, Any]) -> list[Recovered]:
        """Make an overdue section a settled one: after this it has happened, or it never will."""
        try:
            return self._recover(section)
        except OSError as error:
            if isinstance(error, NoclobberError):
                raise
            # It is not settled, so whoever comes next begins with it again: every step may be done twice.
            raise StorageError(
                self._absolute(section["files"][0]["path"]),
                f"the volume failed ({error.strerror}) while a write was ended that another process has left "
                "unfinished. Nothing is lost; the next guarded write tries again",
            ) from error

    def _recover(self, section: dict[str, Any]) -> list[Recovered]:
        _refuse_forged(section, self._place.root)
        section_id, files, state = section["section_id"], section["files"], section["state"]
        written = [file for file in files if file["action"] != DELETE]
        for file in written:
            self._volume.second_names.mark(self._absolute(file["path"]))
        if state == "direct":
            outcome = "revoked" if self._revoke(section_id, files[0]) else "landed"
        else:
            # Its writer may be about to decide. Whoever the server hears first is right.
            state = self._ask("decide_section(%s, %s)", section_id, "revoked")
            outcome = "landed" if state in ("decided", "landed") else "revoked"
            if state == "decided":
                for number, file in enumerate(files):
                    self._refuse_others(f"{section_id}.{number}", file)
                for number, file in enumerate(files):
                    self._roll_forward(section_id, number, file)
        reached("section-revoked")
        for file in written:
            self._secure(file, outcome)
        if outcome == "landed":
            self._check_taken(section_id, files, may_come_late=state == "decided")
        settled = self._ask("settle_section(%s, %s)", section_id, outcome)
        for number in range(len(files)):
            self._volume.drop(f"{section_id}.{number}")
        word = "landed" if settled == "landed" else "discarded"
        return [Recovered(self._absolute(file["path"]), word) for file in files]

    def _secure(self, file: dict[str, Any], outcome: str) -> None:
        """
        What stands there gets a second name. If nothing does, the version that counts now is put back.

        A writer that was killed between its two steps took the old one away. But if its write has landed, its
        own version was taken by somebody's late rename: the old one in its place would undo a write that its
        writer may have been told of.
        """
        path, names = self._absolute(file["path"]), self._volume.second_names
        if not names.are_needed:
            return
        seen, counts = self._volume.look(path), file["to" if outcome == "landed" else "from"]
        if seen.sha256 == ABSENT != counts and names.put_back(path, counts):
            seen = self._volume.look(path)
        if seen.content is not None:
            names.give(path, seen.sha256)

    def bring_back(self, path: str) -> None:
        """For a reader that finds nothing: if a late rename took the newest version away, put it back."""
        names = self._volume.second_names
        if not names.is_marked(path):
            return
        for nap_s in BRING_BACK_NAPS_S:
            if os.path.lexists(path):
                return
            kept = {self._volume.look(name).sha256 for name in names.of(path)} - {ABSENT}
            newest = [
                sha256
                for sha256 in kept
                if not self._ask("is_former(%s, %s, %s)", self._place.workspace, self._relative(path), sha256)
            ]
            # Two: somebody is writing it right now, and one of them will stand there in a moment.
            if len(newest) == 1 and names.put_back(path, newest[0]):
                return
            self._clock.sleep(nap_s)
            filesystems.refresh(os.path.dirname(path))

    def sweep(self) -> None:
        """Remove staged files that nobody will ever land: of processes that were killed before they began."""
        names_of_late = self._volume.second_names.leftovers()
        for name in names_of_late:
            # A version's second name goes when its mark has gone, which all machines know of by then.
            mark = f"late-{name.removeprefix('kept-').partition('.')[0]}"
            if self._is_old(name) and (name.startswith("late-") or mark not in names_of_late):
                self._volume.drop(name)
        try:
            names = os.listdir(self._volume.folder)
        except OSError:
            return
        for name in names:
            section_id, _, number = name.partition(".")
            if not number or len(section_id) != ID_CHARS or not self._is_old(name):
                continue
            # The server must know first: a writer that was stopped for an hour may be about to begin.
            if self._ask("sweep_section(%s)", section_id):
                self._volume.drop(name.removesuffix(".revoked"))

    def _is_old(self, name: str) -> bool:
        try:
            changed_at_s = os.lstat(f"{self._volume.folder}/{name}").st_mtime
        except OSError:
            return False
        return self._clock.now_s() - changed_at_s > LEFTOVER_S

    # -- parts ---------------------------------------------------------------------------------------------

    def _refuse_others(self, name: str, file: dict[str, Any]) -> None:
        """Raise if what is staged is not the section's, or would land where who staged it may not write."""
        path, volume = self._absolute(file["path"]), self._volume
        try:
            staged = volume.owner_of(name)
        except FileNotFoundError:
            return  # It has landed.
        if file["action"] != DELETE and volume.look(f"{volume.folder}/{name}").sha256 not in (
            file["to"],
            ABSENT,
        ):
            raise StorageError(
                path,
                f"what is staged for it ({volume.folder}/{name}) is not what its section says. Nothing was "
                "written. Keep that file if you need it. The owner of the database deletes the section",
            )
        folder, there = _status_above(volume, path), None
        try:
            with volume.opened(path) as (folder_fd, leaf):
                there = os.stat(leaf, dir_fd=folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            pass
        if not _may_write(staged, folder, there):
            raise StorageError(
                path,
                f"user {staged.st_uid} has left a write unfinished, in a folder where that user may not "
                f"write. Nothing was written. A guarded write by user {staged.st_uid} ends it, or the owner "
                "of the database deletes the section",
            )

    def _revoke(self, section_id: str, file: dict[str, Any]) -> bool:
        name = f"{section_id}.0"
        revoke = self._volume.revoke_deletion if file["action"] == DELETE else self._volume.revoke
        return revoke(name)

    def _roll_forward(self, section_id: str, number: int, file: dict[str, Any]) -> None:
        """Do one rename of a decided section, if it is missing. Any number of machines may do it at once."""
        name, path = f"{section_id}.{number}", self._absolute(file["path"])
        actual = self._look_at_either(path, file, name)
        try:
            if file["action"] == DELETE:
                if actual == file["from"]:
                    # If somebody else has done it, and a new file stands there by now, the folder is gone:
                    # this late rename finds no place to go to.
                    self._volume.take_away(path, name)
                return
            if actual in (file["from"], file["to"]):
                self._volume.put(name, path)
                return
            # Another program saved here after the decision. It is as if it had saved after our write, which
            # it never saw: its version stays, and ours is kept aside.
            staged = self._volume.look(f"{self._volume.folder}/{name}").content
            if staged is not None:
                keep_bytes(self._volume.root, path, staged, name)
        except FileNotFoundError:
            pass  # It was done already.

    def _look_at_either(self, path: str, file: dict[str, Any], name: str) -> str:
        """Return what stands there, when it is not an earlier version that this mount still shows."""
        for nap_s in OLD_VIEW_NAPS_S:
            actual = self._volume.look(path).sha256
            if actual in (file["from"], file["to"]) or not os.path.lexists(f"{self._volume.folder}/{name}"):
                return actual
            if not self._ask("is_former(%s, %s, %s)", self._place.workspace, file["path"], actual):
                return actual
            self._clock.sleep(nap_s)
        raise old_view(path)

    def _check_taken(self, section_id: str, files: list[dict[str, Any]], *, may_come_late: bool) -> None:
        """
        Before the end: what was moved away must be what was to be deleted. Another version goes back.

        `may_come_late`: somebody else may be about to do the same rename, and would delete a file that comes
        after the end. So the folder goes before the end. Where there is one rename only, the folder is how
        the next one sees that it was done, and stays until the end.
        """
        for number, file in enumerate(files):
            if file["action"] != DELETE:
                continue
            name = f"{section_id}.{number}"
            taken = self._volume.read_taken(name)
            if taken.sha256 not in (file["from"], ABSENT) and taken.content is not None:
                path = self._absolute(file["path"])
                self._put_back(name, path, taken)
            if may_come_late:
                self._volume.drop(name)

    def _put_back(self, name: str, path: str, taken: SeenFile) -> str:
        """Another program saved between the last look and the rename. Give it back, or keep it aside."""
        try:
            self._volume.give_back(name, path)
            return ""
        except OSError:
            assert taken.content is not None
            return keep_bytes(self._volume.root, path, taken.content, name)

    def _ask(self, call: str, *arguments: Any) -> Any:
        return self._connection.value(f"SELECT noclobber.{call}", arguments)

    def _relative(self, path: str) -> str:
        name = relative(self._place.root, path)
        try:
            name.encode()
        except UnicodeEncodeError:
            raise NotAFileError(
                path, "a name that is not UTF-8 has no place on the server. Rename it"
            ) from None
        return name

    def _absolute(self, path: str) -> str:
        return f"{self._place.root.rstrip('/')}/{path}"


def _refuse_forged(section: dict[str, Any], root: str) -> None:
    """Raise for a section that no writer begins. The server refuses them; it may be another one by now."""
    files = section["files"]
    if (
        not isinstance(section["section_id"], str)
        or _ID.fullmatch(section["section_id"]) is None
        or not isinstance(files, list)
        or not files
        or not all(_is_row(file) for file in files)
    ):
        raise ConfigError(
            root,
            "the coordinator has a write on record that nobody can have begun "
            f"({section['section_id']!r:.60}, by {section.get('writer')!r:.60}): its files are not inside of "
            "this folder. Nothing was written. "
            "Let the owner of the database delete it from noclobber.section, and look who has the role",
        )


def _is_row(file: Any) -> bool:
    return (
        isinstance(file, dict)
        and all(isinstance(file.get(name), str) for name in ("path", "action", "from", "to"))
        and file["action"] in (WRITE, DELETE)
        and all(_HASH.fullmatch(file[name]) is not None for name in ("from", "to"))
        and not any(part in ("", ".", "..") for part in file["path"].split("/"))
        and "\0" not in file["path"]
        and not paths.is_reserved(file["path"], None)
    )


def _status_above(volume: Volume, path: str) -> os.stat_result:
    """The nearest folder above a path that is there."""
    while True:
        try:
            with volume.opened(path) as (folder_fd, _):
                return os.fstat(folder_fd)
        except FileNotFoundError:
            path = os.path.dirname(path)


def _may_write(staged: os.stat_result, folder: os.stat_result, there: os.stat_result | None) -> bool:
    """True if the user who staged something may do by itself what we are asked to do for it."""
    if staged.st_uid in (os.geteuid(), 0) or (there is not None and there.st_uid == staged.st_uid):
        return True
    if staged.st_uid == folder.st_uid:
        return bool(folder.st_mode & stat.S_IWUSR)
    if folder.st_mode & stat.S_IWGRP and (
        staged.st_gid == folder.st_gid or _is_member(staged.st_uid, folder.st_gid)
    ):
        return True
    return bool(folder.st_mode & stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX


def _is_member(user_id: int, group_id: int) -> bool:
    import pwd

    try:
        user = pwd.getpwuid(user_id)
    except KeyError:
        return False
    return group_id in os.getgrouplist(user.pw_name, user.pw_gid)


def old_view(path: str) -> FileBusyError:
    """The error for a mount that shows an earlier version and does not stop."""
    return FileBusyError(
        path,
        "this machine's mount shows an earlier version than the last one that was written. Wait for its "
        "caches, or mount it again. If somebody put the earlier version back on purpose, save it with any "
        "difference",
    )
