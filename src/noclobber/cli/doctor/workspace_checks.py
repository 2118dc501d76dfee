"""
What `doctor` looks at that is not the lock's or a host's: what a write is worth here, the options, the
record.

The level is found by a real guarded write in a scratch folder on the same filesystem, because no name of a
filesystem tells what it does. What crashes left behind has a room of its own, `aftermath`.

A finding that is merely a limit of this place is `ok`, with a remedy that says what is not promised.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from noclobber.core.findings import Finding
from noclobber.core.project import ledger_path
from noclobber.disk import hashing, paths
from noclobber.disk.commit.committer import LADDER, Committer
from noclobber.errors import BrokenChainError, ConfigError, NoclobberError

if TYPE_CHECKING:
    from collections.abc import Callable

SCRATCH_PREFIX = f"{paths.BESIDE_PREFIX}doctor-"

PROMISES = {
    "lease+exchange": "nobody loses an update, neither other agents nor editors, shells and git",
    "exchange": "agents lose nothing among themselves; what an editor or a shell loses is kept and reported",
    "plain": "agents lose nothing among themselves; who saves in the very moment of a write is overwritten",
}


def check_level(root: str) -> list[Finding]:
    """Make a guarded write in a scratch folder, and say what its level is worth."""
    try:
        root.encode()
    except UnicodeEncodeError:
        # The ledger is JSON, so what is in here could not be put on record; the guard refuses it for that.
        return [
            Finding("level", False, "the folder's path is not UTF-8, so every write is refused", "rename it")
        ]
    try:
        scratch = tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=root)
    except OSError as error:
        remedy = "run as a user who may write here; until then no guarded write can succeed"
        return [Finding("level", False, f"nothing can be written here ({error.strerror})", remedy)]
    try:
        committer = Committer(os.path.realpath(scratch))
        committer.replace("probe", "ABSENT", b"before")
        level = committer.replace("probe", hashing.of_bytes(b"before"), b"after").level
    except (OSError, NoclobberError) as error:
        remedy = "no guarded write can succeed here; look at the disk and at the folder's permissions"
        return [Finding("level", False, f"a guarded write failed: {error}", remedy)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    limit = "" if level == "lease+exchange" else "work on a local filesystem for more, or keep editors away"
    findings = [Finding("level", level != "plain", f"{level}: {PROMISES.get(level, '')}", limit)]
    if asked := os.environ.get("NOCLOBBER_LEVEL"):
        detail = f"NOCLOBBER_LEVEL={asked} holds every process that has it to that level"
        if asked not in LADDER:
            detail = f"NOCLOBBER_LEVEL={asked} is no level, so every workspace refuses to open"
        findings.append(Finding("level asked for", asked in LADDER, detail, "unset it for the full promise"))
    owner = os.stat(root).st_uid
    if os.geteuid() not in (0, owner) and level.startswith("lease"):
        limit = "files of other owners are written at the level `exchange`: leases are for one's own"
        findings.append(Finding("owner", True, f"this folder belongs to user {owner}", limit))
    return findings


# Options and record


def check_config(root: str) -> list[Finding]:
    """Is the file of options right?"""
    from noclobber.core.options_file import load

    try:
        loaded = load(root)
    except ConfigError as error:
        return [Finding("options", False, str(error), "mend the file; until then every turn is refused")]
    return [Finding("options", True, loaded.path or "no file, so the defaults hold")]


def check_ledger(root: str, progress: Callable[[int, int, int], None]) -> list[Finding]:
    """Does the chain hold, and what did crashes tear off?"""
    from noclobber.ledger import AgentTraceLedger

    path = ledger_path(root)
    if not os.path.lexists(path):
        return [Finding("ledger", True, "nothing is on record yet")]
    try:
        report = AgentTraceLedger(path).verify(progress=progress)
    except BrokenChainError as error:
        remedy = (
            "move it away as evidence and a new one begins; `noclobber ledger show` shows what still reads"
        )
        return [Finding("ledger", False, str(error), remedy)]
    except NoclobberError as error:
        remedy = "until it can be written, every guarded write is refused"
        return [Finding("ledger", False, str(error), remedy)]
    findings = [Finding("ledger", True, f"{report.event_count} events, head {report.head}")]
    if not os.access(path, os.W_OK):
        remedy = "until it can be written, every guarded write of this user is refused"
        findings.append(Finding("ledger", False, f"{path} may not be written by this user", remedy))
    if report.torn_bytes:
        detail = f"a crash tore the last line ({report.torn_bytes} bytes)"
        findings.append(Finding("ledger's end", True, detail, "the next append sets it aside"))
    for aside in report.set_aside:
        findings.append(Finding("torn line", True, f"{aside}, from a crash", "delete it once looked at"))
    return findings
