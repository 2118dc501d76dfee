"""
`noclobber config show`: the options in force, and where each comes from.

What a program passes to `Workspace` or `turn()` beats all of this and cannot be seen from here.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_OK
from noclobber.cli.parsing import add_root, root_of
from noclobber.cli.tables import table
from noclobber.cli.terminal import Cell, add_json, print_json, say, visible

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

EXAMPLES = """\
examples:
  noclobber config show                  every option of this workspace
  noclobber config show --root ~/project --json

Options are set in noclobber.toml, or in [tool.noclobber] of pyproject.toml, in the project's root.
docs/options.md explains each:

  unread = "deny"              # writes to files that the turn has not read are refused
  write_scope = ["docs"]       # and so is everything outside this folder
"""

MOST_SHOWN = 3  # Of a list.

# Not an option, because it lowers what is promised; but whoever wonders about a level must find it here.
ENVIRONMENT = ("NOCLOBBER_LEVEL",)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommands."""
    subcommands = parser.add_subparsers(
        title="subcommands", metavar="SUBCOMMAND", dest="subcommand", required=True
    )
    show = subcommands.add_parser("show", help="show every option", description="Show every option.")
    add_root(show)
    add_json(show)


def run(args: Namespace) -> int:
    """Show the options. A file that is wrong is refused with what is wrong with it (exit code 3)."""
    from noclobber.core.options import DEFAULTS, flat, options, without
    from noclobber.core.options_file import load
    from noclobber.core.trust import ignored, told

    root = root_of(args)
    loaded = load(root)
    not_counted = ignored(root)
    given = without(flat(loaded.given), not_counted)
    effective = options(given, DEFAULTS)._asdict()
    rows = [(name, value, loaded.path if name in given else None) for name, value in effective.items()]
    set_here = {name: os.environ[name] for name in ENVIRONMENT if os.environ.get(name)}
    if args.json:
        print_json(
            {
                "root": root,
                "file": loaded.path,
                "options": {
                    name: {"value": value, "source": path or "default"} for name, value, path in rows
                },
                "ignored": not_counted,
                "environment": set_here,
            }
        )
        return EXIT_OK
    file = loaded.path or "none; noclobber.toml would be read"
    say(f"workspace  {visible(root)}\nfile       {visible(file)}\n")
    shown = [
        [
            name,
            Cell(_shortened(value), "strong" if path else ""),
            os.path.basename(path) if path else Cell("default", "faint"),
        ]
        for name, value, path in rows
    ]
    shown += [[name, Cell(value, "warn"), "environment"] for name, value in set_here.items()]
    print(table(("option", "value", "from"), shown), end="")
    if not_counted:
        say(f"\n{visible(told(not_counted))}")
    return EXIT_OK


def _shortened(value: Any) -> str:
    """A long list would fill the table; `--json` has all of it."""
    if isinstance(value, (list, tuple)) and len(value) > MOST_SHOWN:
        shown = ", ".join(_spell(each) for each in value[:MOST_SHOWN])
        return f"[{shown}, … {len(value)} in all]"
    return _spell(value)


def _spell(value: Any) -> str:
    """Spell a value as TOML does, except for what TOML has no word for."""
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False)
