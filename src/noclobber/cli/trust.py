"""`noclobber trust`: let options of a folder count that weaken the guard, after a look at them."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.tables import table
from noclobber.cli.terminal import add_json, print_json, say, visible
from noclobber.core.project import existing_folder, find_project

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping
    from typing import Any

EXAMPLES = """\
examples:
  noclobber trust                   show what weakens the guard here, ask, and let it count
  noclobber trust ~/project --yes   the same without a question
  noclobber trust --remove          such options count here no longer
  noclobber trust --list            every folder that you trust

Options that weaken the guard come with a folder, so they count only if you have looked at them. If they are
changed afterwards, for example by `git pull`, you are asked again. docs/options.md says which they are.
"""

BY_AGENTS = (
    *("NOCLOBBER_RUN", "CLAUDECODE", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI", "QWEN_CODE"),
    *("COPILOT_CLI", "OPENCODE", "CLINE_ACTIVE"),
)
"""One of these is set in a shell that a coding agent has started."""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help="the project; default: here")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="every folder that you trust, and with what")
    what.add_argument("--remove", action="store_true", help="trust the folder no longer")
    what.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)


def run(args: Namespace) -> int:
    """Trust a folder, or no longer, or show which ones are trusted."""
    from noclobber.core import trust

    if args.list:
        return _list(args)
    if args.remove:
        folder = find_project(os.getcwd()) if args.folder is None else os.path.abspath(args.folder)
        was = trust.distrust(folder)
        if args.json:
            print_json({"folder": folder, "trusted": False, "changed": was, "options": {}})
        else:
            say(f"{visible(folder)}: {'trusted no longer' if was else 'was not trusted'}.")
        return EXIT_OK if was else EXIT_NO
    root = find_project(os.getcwd() if args.folder is None else existing_folder(args.folder))
    loose = trust.weakening(root)
    was = trust.is_trusted(root, loose)
    is_trusted = was or ask(root, loose, is_answered=args.yes)
    if args.json:
        print_json({"folder": root, "trusted": is_trusted, "changed": is_trusted != was, "options": loose})
    elif was or not is_trusted:
        say(f"{visible(root)}: {'is trusted already' if was else 'not trusted; nothing was changed'}.")
    else:
        said = "they count from now on" if loose else "no option here weakens the guard"
        say(f"{visible(root)}: trusted; {said}. undo: noclobber trust --remove")
    return EXIT_OK if is_trusted else EXIT_NO


def ask(root: str, loose: Mapping[str, Any], *, is_answered: bool) -> bool:
    """Show what weakens the guard in a folder, ask if that is needed and possible, and trust it if so."""
    from noclobber.core import trust
    from noclobber.errors import BadRequestError, ReservedFileError

    if by := next((name for name in BY_AGENTS if os.environ.get(name)), None):
        raise ReservedFileError(
            root,
            f"agents do not decide what weakens the guard, and this shell is an agent's ({by} is set). Ask a "
            "person to run `noclobber trust` in a terminal.",
        )
    if loose and not is_answered:
        say(f"Options that weaken the guard in {visible(root)}:", sys.stderr)
        for name, value in sorted(loose.items()):
            say(f"  {visible(spelled(name, value))}", sys.stderr)
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadRequestError(
                root,
                "nobody can be asked here. Look at these options, and run it with --yes, or in a terminal.",
            )
        print("Let them count? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return False
    trust.trust(root, loose)
    return True


def spelled(name: str, value: Any) -> str:
    """Return an option as its file has it."""
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def _list(args: Namespace) -> int:
    from noclobber.core import trust

    found = trust.listed()
    if args.json:
        rows = [
            {"folder": one.folder, "options": one.options, "counts": trust.is_still(one)} for one in found
        ]
        print_json({"folders": rows})
    elif not found:
        say("You trust no folder.")
    else:
        shown = [
            (
                one.folder,
                ", ".join(spelled(*each) for each in sorted(one.options.items())) or "no option",
                "" if trust.is_still(one) else "not any more: changed, moved or gone",
            )
            for one in found
        ]
        print(table(("folder", "with", "counts"), shown), end="")
    return EXIT_OK
