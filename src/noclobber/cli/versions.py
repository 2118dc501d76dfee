"""
`noclobber versions`: past versions of files that guarded writes replaced, or that agents saw.

Versions are kept by the hash of their content. The ledger says which file a hash belongs to, who wrote it and
when. A version that no event names was somebody else's, or its event is gone.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.parsing import add_root, root_of
from noclobber.cli.tables import table
from noclobber.cli.terminal import Cell, add_json, is_terminal, moment, print_json, say, visible
from noclobber.cli.working import Working
from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.core.project import state_folder
from noclobber.disk.commit.leftovers import displaced_in
from noclobber.disk.reading import look_at
from noclobber.disk.versions import PastVersion, Versions
from noclobber.errors import BadRequestError, MissingFileError, NoclobberError
from noclobber.guard.past_bytes import find_kept
from noclobber.ledger.history import LandedWrite, landed_writes

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

EXAMPLES = """\
examples:
  noclobber versions list                      everything that is kept
  noclobber versions list plan.md              the versions of one file, the newest last
  noclobber versions show 3a7bd3e2             print one, by the first digits of its hash
  noclobber versions restore 3a7bd3e2 plan.md  put it back; what is there now is kept in turn
  noclobber versions prune                     remove what is too old or too much now
  noclobber versions prune --all               remove everything

How long and how much, and which files are left out: docs/versions.md.
"""


class KnownVersion(NamedTuple):
    """A version of a file: from the ledger, from what is kept, or both."""

    sha256: str
    path: str | None
    """None: the ledger does not know."""
    written: str
    """When it was written, where the ledger knows."""
    by: str
    kept: PastVersion | None


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands."""
    subcommands = parser.add_subparsers(
        title="subcommands", metavar="SUBCOMMAND", dest="subcommand", required=True
    )
    listed = subcommands.add_parser("list", help="list versions", description="List what is kept.")
    listed.add_argument("file", metavar="FILE", nargs="?", help="only of this file")
    show = subcommands.add_parser("show", help="print a version", description="Print a version's bytes.")
    restore = subcommands.add_parser(
        "restore", help="put a version back", description="Make a version the content of a file again."
    )
    prune = subcommands.add_parser(
        "prune", help="remove old versions", description="Remove what is too old or too much."
    )
    for each in (show, restore):
        each.add_argument("version", metavar="HASH", help="its SHA-256, or the first 4 digits or more")
    restore.add_argument("file", metavar="FILE", help="the file")
    restore.add_argument("--any", action="store_true", help="also a version of another file")
    prune.add_argument("--all", action="store_true", help="remove every version")
    for each in (listed, show, restore, prune):
        add_root(each)
        add_json(each)


def run(args: Namespace) -> int:
    """List, show, put back or remove versions."""
    root = root_of(args)
    commands = {"list": _list, "show": _show, "restore": _restore, "prune": _prune}
    return commands[args.subcommand](args, root)


# -- list ------------------------------------------------------------------------------------------------


def _list(args: Namespace, root: str) -> int:
    path = os.path.realpath(args.file) if args.file is not None and "\0" not in args.file else args.file
    found = known_versions(root, path)
    if args.json:
        print_json({"root": root, "versions": [_as_json(each) for each in found]})
        return EXIT_OK
    if not found:
        say("No versions are kept." if path is None else f"No versions of {visible(path)} are known.")
        return EXIT_OK
    rows = [
        [
            each.sha256[:12],
            Cell(_size(each.kept.size_bytes)) if each.kept else Cell(_where(each, root), "faint"),
            moment(each.written or (iso8601(each.kept.kept_at_s) if each.kept else "")),
            visible(each.by),
            visible(os.path.relpath(each.path, root)) if each.path else Cell("(not on record)", "faint"),
        ]
        for each in found
    ]
    print(table(("version", "size", "time", "by", "file"), rows), end="")
    return EXIT_OK


def known_versions(root: str, path: str | None) -> list[KnownVersion]:
    """Return the versions of one file in the order in which they were written; or everything that is kept."""
    kept = {each.sha256: each for each in _all(root)}
    found: dict[tuple[str, str], KnownVersion] = {}
    for write in landed_writes(root, path):
        for sha256, by, time in _mentioned(write):
            if sha256 in kept or path is not None:
                key = (sha256, write.path)
                known = found.pop(key, None)
                if known is None or by:
                    known = KnownVersion(sha256, write.path, time, by or "an outsider", kept.get(sha256))
                found[key] = known
    if path is not None:
        return list(found.values())
    named = {each.sha256 for each in found.values()}
    strangers = [
        KnownVersion(sha, None, "", "", version) for sha, version in kept.items() if sha not in named
    ]
    return sorted([*found.values(), *strangers], key=_kept_at_s)


def _mentioned(write: LandedWrite) -> list[tuple[str, str, str]]:
    """The versions that an event names: what was there before, whoever wrote it, and what was written."""
    named = [(write.before, "", ""), (write.after, write.who, write.time)]
    return [each for each in named if len(each[0]) == 64]


def _kept_at_s(each: KnownVersion) -> float:
    return each.kept.kept_at_s if each.kept else 0.0


def _as_json(each: KnownVersion) -> dict[str, Any]:
    return {
        "sha256": each.sha256,
        "file": each.path,
        "written": each.written or None,
        "by": each.by or None,
        "size_bytes": each.kept.size_bytes if each.kept else None,
        "kept_at": iso8601(each.kept.kept_at_s) if each.kept else None,
    }


def _where(each: KnownVersion, root: str) -> str:
    """Say of a version that is not kept whether it is what the file has now."""
    try:
        found = look_at(each.path or root, root, clock=SYSTEM_CLOCK).sha256
    except (NoclobberError, OSError, ValueError):  # A path in a ledger may lead anywhere.
        found = ""
    return "in the file" if found == each.sha256 else "gone"


def _size(size_bytes: int) -> str:
    for unit, factor in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"


def _all(root: str) -> list[PastVersion]:
    """Everything that can be restored: what is kept, and what turns that are still open will put away."""
    displaced = displaced_in(state_folder(root))  # First: what is put away meanwhile is seen below.
    found = {each.sha256: PastVersion(*each[1:]) for each in displaced}
    try:
        with Versions(root, make=False) as versions:
            found.update((each.sha256, each) for each in versions)
    except FileNotFoundError:
        pass
    return list(found.values())


# -- show, restore, prune ----------------------------------------------------------------------------------


def _show(args: Namespace, root: str) -> int:
    sha256, content = find(root, args.version)
    if args.json:
        print_json({"sha256": sha256, "size_bytes": len(content), **spelled(content)})
        return EXIT_OK
    if is_terminal():
        for line in content.decode("utf-8", "replace").splitlines():
            print(visible(line))
        return EXIT_OK
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    return EXIT_OK


def spelled(content: bytes) -> dict[str, str]:
    """Return bytes as JSON can have them."""
    try:
        return {"encoding": "utf-8", "content": content.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"encoding": "base64", "content": b64encode(content).decode()}


def find(root: str, text: str) -> tuple[str, bytes]:
    """Return the one version that is meant, with its hash."""
    wanted = text.strip().lower().removeprefix("sha256:").rstrip("….")
    if not 4 <= len(wanted) <= 64 or set(wanted) - set("0123456789abcdef"):
        raise BadRequestError(
            "", f"A version is named by its SHA-256, at least 4 digits of it, not {text!r}."
        )
    waiting = {each.sha256: each.path.partition("~")[2] for each in displaced_in(state_folder(root))}
    versions: Versions | None = None
    try:
        versions = Versions(root, make=False)
    except FileNotFoundError:
        if not waiting:
            raise MissingFileError("", "No versions are kept in this project yet.") from None
    found = {sha256 for sha256 in waiting if sha256.startswith(wanted)}
    found.update(versions.find(wanted) if versions else ())
    if len(found) > 1:
        raise BadRequestError("", f"{len(found)} versions begin with {wanted}; give more digits.")
    sha256 = found.pop() if found else ""
    content = find_kept(versions, root, waiting.get(sha256, ""), sha256) if sha256 else None
    if content is None:
        raise MissingFileError(
            "", f"No version {wanted} is kept. `noclobber versions list` shows what is; versions expire."
        )
    return sha256, content


def _restore(args: Namespace, root: str) -> int:
    from noclobber.guard.workspace import Workspace

    sha256, content = find(root, args.version)
    path = os.path.abspath(args.file) if "\0" not in args.file else args.file
    if not args.any and sha256 not in {each.sha256 for each in known_versions(root, os.path.realpath(path))}:
        raise BadRequestError(
            path, f"Version {sha256[:12]} is not on record as one of this file. --any writes it all the same."
        )
    with Workspace(root) as workspace, workspace.turn(agent_id="noclobber versions restore") as turn:
        try:
            before = turn.read_file(path).sha256
        except MissingFileError:
            before = None
        is_same = before == sha256
        if not is_same:
            turn.write_file(path, content)
    if args.json:
        print_json({"path": path, "sha256": sha256, "previous_sha256": before, "changed": not is_same})
    elif is_same:
        say(f"{visible(path)} already has this content.")
    else:
        say(f"{visible(path)} is version {sha256[:12]} again.")
        if before is not None:
            say(f"What was there is kept: noclobber versions restore {before[:12]} {visible(args.file)}")
    return EXIT_OK


def _prune(args: Namespace, root: str) -> int:
    from noclobber.core.options import load_options

    options = load_options(root)
    days, most_bytes = (0.0, 0) if args.all else (options.versions_days, options.versions_bytes)
    try:
        versions = Versions(root, make=False)
    except FileNotFoundError:
        if args.json:
            print_json({"removed": 0, "removed_bytes": 0, "left": 0, "left_bytes": 0})
        else:
            say("No versions are kept.")
        return EXIT_OK
    with Working("removing old versions") as work:
        pruned = versions.prune(SYSTEM_CLOCK.now_s(), days, most_bytes, work.share)
    if args.json:
        print_json(pruned._asdict())
    else:
        say(
            f"Removed {pruned.removed} versions ({_size(pruned.removed_bytes)}); "
            f"{pruned.left} are left ({_size(pruned.left_bytes)})."
        )
    return EXIT_NO if args.all and pruned.left else EXIT_OK
