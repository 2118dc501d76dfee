"""
The doctor's checks of a workspace: the level that writes have here, the options, the ledger.

The level is found by a real guarded write in a scratch folder on the same filesystem, and is explained in the
words of `disk.filesystems.PROMISES`, as in docs/levels.md. What crashes left behind is in `crash_leftovers`.

A finding that is only a limit of this filesystem is `ok`, and its remedy says what is not promised.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.findings import Finding, remedy_of
from noclobber.core.options import DEFAULTS, load_options
from noclobber.core.project import BESIDE_PREFIX, STATE_FOLDER, ledger_path
from noclobber.disk import filesystems, hashing
from noclobber.disk.commit.committer import LADDER, Committer
from noclobber.disk.reach import REACHES, reach_of
from noclobber.disk.versions import Versions, VersionsUnusableError
from noclobber.errors import BrokenChainError, ConfigError, NoclobberError
from noclobber.guard.who_commits import why_no_view
from noclobber.ledger.chosen import is_on_server, ledger_of
from noclobber.shell.level import GUARDED, WATCHED, ShellLevel, probe
from noclobber.shell.roots import why_no_record, why_not

if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.core.values import Level

SCRATCH_PREFIX = f"{BESIDE_PREFIX}doctor-"
MOST_LOST = 100


ONE_MOUNT = "let all that write here use one mount of one machine, or set NOCLOBBER_COORDINATOR"
CUT_OFF = (
    "not promised: that nothing is lost if a machine is cut off in the middle of a write for longer than the"
    " server keeps its locks (90 s by default); NOCLOBBER_COORDINATOR prevents that, too"
)


def check_level(root: str) -> list[Finding]:
    """Make a guarded write in a scratch folder, and say what its level promises."""
    try:
        root.encode()
    except UnicodeEncodeError:
        # The ledger is JSON, so writes here could not be recorded, and the guard refuses them.
        return [
            Finding("level", False, "the folder's path is not UTF-8, so every write is refused", "rename it")
        ]
    try:
        scratch = tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=root)
    except OSError as error:
        remedy = "run as a user who may write here; this user's guarded writes cannot succeed"
        return [Finding("level", False, f"nothing can be written here ({error.strerror})", remedy)]
    try:
        committer = Committer(os.path.realpath(scratch))
        committer.replace("probe", "ABSENT", b"before")
        level = committer.replace("probe", hashing.of_bytes(b"before"), b"after").level
        if is_on_server() and (found := _level_with_a_coordinator(root)) is not None:
            level = found
    except (OSError, NoclobberError) as error:
        return [Finding("level", False, f"a guarded write failed: {error}", _remedy(root, error))]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    limit = "" if level in ("lease+exchange", "section") else "use a local filesystem for a stronger promise"
    kind = filesystems.filesystem_type(root)
    if filesystems.is_remote(kind) and level != "section":
        limit += f"; {filesystems.OTHER_SIDE}"
    _, guarded, outsiders = filesystems.PROMISES[level]
    promise = f"{level} on {kind}: other guarded writers {guarded}; editors, shells, git: {outsiders}"
    # Between machines `plain` keeps what it promises, or the next finding says that it does not.
    findings = [Finding("level", level != "plain" or filesystems.is_remote(kind), promise, limit)]
    if filesystems.is_remote(kind) and level != "section":
        findings.append(_other_machines(root))
    if asked := os.environ.get("NOCLOBBER_LEVEL"):
        detail = f"NOCLOBBER_LEVEL={asked} limits every process that has it to that level"
        if asked not in LADDER:
            detail = f"NOCLOBBER_LEVEL={asked} is not a level, so no workspace can be opened"
        findings.append(Finding("level asked for", asked in LADDER, detail, "unset it for more"))
    owner = os.stat(root).st_uid
    if os.geteuid() not in (0, owner) and level.startswith("lease"):
        limit = "files of other owners are written at the level `exchange`: leases are for one's own"
        findings.append(Finding("owner", True, f"this folder belongs to user {owner}", limit))
    return findings


def check_commands(root: str) -> list[Finding]:
    """Say which level `noclobber run` gives to commands here, and why it is not more. It is really tried."""
    name, page = (
        "noclobber run",
        "docs/shell.md says what is guarded, docs/shell-in-hooks.md what watched means",
    )
    reason = why_not(root) or why_no_view(root)
    if reason is None:
        # In a folder of its own: the project may have no state folder yet, and the filesystem is what counts.
        try:
            with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=root) as scratch:
                os.mkdir(f"{scratch}/{STATE_FOLDER}", 0o700)
                found = probe(os.path.realpath(scratch))
        except OSError as error:
            found = ShellLevel(WATCHED, error.strerror or str(error))
        if found.name == GUARDED:
            return [Finding(name, True, "guarded: a command's changes land together, or not at all")]
        reason = found.why
    if why_no_record(root) is not None:
        return [Finding(name, True, f"plain: commands are not looked at here ({reason})", page)]
    return [Finding(name, True, f"watched: there can be no private view here ({reason})", page)]


def _remedy(root: str, error: Exception) -> str:
    if filesystems.object_store(root) is not None:
        return "guarded writes are refused here; keep the project on a local disk or an NFS volume"
    return remedy_of(error, "no guarded write can succeed here; check the disk and the folder's permissions")


def _other_machines(root: str) -> Finding:
    """Who else writes here without this kernel, and does a guarded write exclude them?"""
    try:
        reach = reach_of(root)
    except OSError as error:
        return Finding("other machines", False, f"it cannot be told ({error.strerror})", ONE_MOUNT)
    detail = f"guarded writes exclude those of {REACHES[reach]}"
    if reach == "mount":
        return Finding("other machines", False, f"not promised: {detail}; each may lose updates", ONE_MOUNT)
    return Finding("other machines", True, detail, CUT_OFF)


def _level_with_a_coordinator(root: str) -> Level | None:
    """On a volume that machines share: `section`, if its renames are what they must be."""
    from noclobber.postgres.shared_volume import is_shared_volume
    from noclobber.postgres.volume import Volume

    if not is_shared_volume(root):
        return None
    Volume(root, SYSTEM_CLOCK).prepare()
    return "section"


# Options and ledger


def check_config(root: str) -> list[Finding]:
    """Check that the options file is valid."""
    from noclobber.core import trust
    from noclobber.core.options import options
    from noclobber.core.options_file import load

    try:
        loaded, not_counted = load(root), trust.ignored(root)
    except ConfigError as error:
        return [Finding("options", False, str(error), "fix the file; until then every turn is refused")]
    chosen = options(loaded.given)
    stale = "merged if nothing of either side is lost" if chosen.on_stale == "merge" else "refused"
    told = {"diff": "with a short diff", "names": "by name", "off": "not"}[chosen.notices]
    return [
        Finding("options", True, loaded.path or "no options file; the defaults apply"),
        *([Finding("trust", True, trust.told(not_counted))] if not_counted else []),
        Finding("stale writes", True, f'{stale} (on_stale = "{chosen.on_stale}")'),
        Finding(
            "notices", True, f'agents are told of others\' changes {told} (notices = "{chosen.notices}")'
        ),
    ]


def check_ledger(root: str, progress: Callable[[int, int, int], None]) -> list[Finding]:
    """Verify the chain, and report lines that crashes cut off and versions that they took away."""
    from noclobber.ledger.lost_versions import find_lost_versions

    path, on_server = ledger_path(root), is_on_server()
    if not on_server and not os.path.lexists(path):
        return [Finding("ledger", True, "nothing recorded yet")]
    try:
        ledger = ledger_of(root)
        report = ledger.verify(progress=progress)
    except BrokenChainError as error:
        remedy = "move it aside as evidence, and a new one begins; `noclobber ledger show` prints the rest"
        return [Finding("ledger", False, str(error), remedy)]
    except NoclobberError as error:
        remedy = "fix that; until then every guarded write is refused"
        return [Finding("ledger", False, str(error), remedy)]
    events = "event" if report.event_count == 1 else "events"
    findings = [Finding("ledger", True, f"{report.event_count} {events}, head {report.head}")]
    if not on_server and not os.access(path, os.W_OK):
        remedy = "make it writable; until then every guarded write of this user is refused"
        findings.append(Finding("ledger", False, f"{path} is not writable for this user", remedy))
    if report.torn_bytes:
        detail = f"a crash cut off the last line ({report.torn_bytes} bytes)"
        findings.append(Finding("ledger's end", True, detail, "the next append sets it aside"))
    for aside in report.set_aside:
        findings.append(Finding("torn line", True, f"{aside}, from a crash", "look at it, then delete it"))
    for lost in find_lost_versions(ledger.events(), root)[:MOST_LOST]:
        detail = f"{lost.path} has a version before the one that event {lost.seq} recorded"
        remedy = "a power cut took it away, or somebody put the earlier one back; look, and write it again"
        findings.append(Finding("lost version", True, detail, remedy))
    return findings


def check_versions(root: str, *, repair: bool) -> list[Finding]:
    """Say how much is kept; with `repair`, remove what is too old or too much."""
    try:
        options = load_options(root)
    except ConfigError:
        options = DEFAULTS  # Another check says what is wrong with the file.
    try:
        versions = Versions(root, make=False)
    except FileNotFoundError:
        return []
    except VersionsUnusableError as error:
        return [Finding("versions", False, "past versions cannot be kept here", str(error))]
    if unusable := versions.unusable_parts():
        names = ", ".join(unusable[:3])
        remedy = f"{names} in {versions.path}: no folder, but a link or a file. Remove it."
        return [Finding("versions", False, "some past versions cannot be kept here", remedy)]
    if repair:
        versions.prune(SYSTEM_CLOCK.now_s(), options.versions_days, options.versions_bytes)
    sizes = [each.size_bytes for each in versions]
    detail = f"{len(sizes)} past versions, {sum(sizes) / (1 << 20):.1f} MiB"
    if options.versions == "off" and sizes:
        return [Finding("versions", True, detail, "the option is off: `noclobber versions prune --all`")]
    return [Finding("versions", True, detail)]
