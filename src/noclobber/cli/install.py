"""`noclobber install`: install the hooks of coding agents, show what changes, or remove them again."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.terminal import add_json, print_json, say
from noclobber.core.project import OPTIONS_NAME, existing_folder, find_project, no_project
from noclobber.hosts import HOSTS, traits

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from noclobber.hosts.hook_entries import ConfigFile

EPILOG = """\
examples:
  noclobber install                          every coding agent found in this project or for this user
  noclobber install claude-code              this project; --portable: in the file that a team shares
  noclobber install codex --user             all projects of this user
  noclobber install cursor --dry-run         show the change only
  noclobber install gemini --uninstall       remove our hooks, leave the rest as it is
  noclobber install --on-stale merge         and let stale writes land if nothing of either side is lost
  noclobber install gemini --as plugin       as a package of the host's own kind, for all projects
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Describe the command line."""
    from noclobber.cli.parsing import FoldedHelp

    parser.formatter_class = FoldedHelp
    parser.epilog = EPILOG
    parser.add_argument("host", nargs="*", metavar="HOST", help=f"one or more of: {', '.join(HOSTS)}")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--user", action="store_true", help="for all projects of this user")
    scope.add_argument("--project", action="store_true", help="for this project only (the default)")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
    parser.add_argument("--diff", action="store_true", help="show every line that is changed, or would be")
    parser.add_argument("--uninstall", action="store_true", help="remove our hooks again")
    parser.add_argument(
        "--portable",
        action="store_true",
        help="call `noclobber` from the PATH, for a file that a team shares; each call is a little slower",
    )
    parser.add_argument(
        "--as",
        dest="form",
        choices=["hooks", "plugin"],
        default="hooks",
        help="hooks in the host's configuration (the default), or a package that the host installs",
    )
    parser.add_argument(
        "--on-stale",
        choices=["refuse", "merge"],
        help="what the project does about a stale write: the option on_stale in its noclobber.toml",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="let options of the project count that weaken the guard; without it you are asked at a terminal",
    )
    parser.add_argument("--to", metavar="FOLDER", help="with --as plugin: where to write the package")
    parser.add_argument(
        "--root",
        metavar="FOLDER",
        help="the folder that agents are started in (default: the project, upward from here)",
    )
    add_json(parser)


def run(args: Namespace) -> int:
    """Install or remove the hooks, and show what changed."""
    from noclobber.errors import BadRequestError
    from noclobber.hosts.hook_entries import find_hosts

    project = find_project(os.getcwd()) if args.root is None else existing_folder(args.root)
    hosts = args.host or find_hosts(project)
    for host in hosts:
        if host not in HOSTS:
            from noclobber.cli.parsing import meant

            raise BadRequestError(
                "", f"There is no host {host!r}.{meant(host, HOSTS)} There are: {', '.join(HOSTS)}."
            )
    if not args.user and not args.uninstall and args.form == "hooks" and (what := no_project(project)):
        raise BadRequestError(
            project,
            f"this is {what}, not a project. `noclobber install --user` guards what agents write in all "
            f"your projects; or go into one of them first. (A folder with a {OPTIONS_NAME} is a project.)",
        )
    if not hosts:
        if args.json:
            print_json([])
        say(f"Found no coding agent's configuration in {project} or in your home folder.", sys.stderr)
        say(f"Name one: noclobber install {{{','.join(HOSTS)}}}", sys.stderr)
        return EXIT_NO
    if args.to and args.form != "plugin":
        raise BadRequestError("", "--to needs --as plugin.")
    if args.on_stale and (args.user or args.uninstall):
        raise BadRequestError(
            "", "--on-stale is an option of a project; it goes with neither --user nor --uninstall."
        )
    if args.form == "plugin":
        return _packages(args, hosts)
    _refuse_short_lived(args)
    rows: list[dict[str, Any]] = []
    is_well = True
    for host in hosts:
        made = _hooks_of(host, project, args)
        rows += made
        is_well = is_well and all(row.get("trouble", "") == "" for row in made)
    if not args.uninstall and not args.user:
        rows += _stale_writes(args, find_project(project))
    if not args.uninstall and not args.user and not args.dry_run:
        _trust(args, find_project(project))
    if args.json:
        print_json(rows)
    elif args.dry_run:
        say("Nothing was changed: this was a dry run.")
    elif not args.uninstall:
        from noclobber.cli import other_machines

        if not args.user and (said := other_machines.warning(project)):
            print(f"not promised: {said}")
        scope = " --user" if args.user else ""
        say(f"undo: noclobber install {' '.join(hosts)}{scope} --uninstall")
    return EXIT_OK if is_well else EXIT_NO


def _trust(args: Namespace, root: str) -> None:
    """Ask about options of the project that weaken the guard, if somebody can be asked; else say so."""
    from noclobber.cli.trust import ask
    from noclobber.core import trust

    if not (loose := trust.ignored(root)):
        return
    is_asked = sys.stdin is not None and sys.stdin.isatty() and not args.json
    if not ((args.trust or is_asked) and ask(root, loose, is_answered=args.trust)) and not args.json:
        say(trust.told(loose))


def _refuse_short_lived(args: Namespace) -> None:
    """Refuse to write paths into configurations that will lead nowhere (finding U4)."""
    from noclobber.errors import BadRequestError
    from noclobber.hosts.machine_paths import short_lived

    why = "" if args.uninstall or args.portable or args.dry_run else short_lived()
    if why:
        raise BadRequestError(
            "",
            f"Hooks need a noclobber that stays: {why}, and every write would be refused afterwards. Install "
            "it first: `uv tool install noclobber`, `pipx install noclobber`, or pip in an environment. Then "
            "`noclobber install` again.",
        )


def _hooks_of(host: str, project: str, args: Namespace) -> list[dict[str, Any]]:
    """Install the hooks of one host, or remove them; print a line or two about it."""
    from noclobber.hosts.hook_entries import hook_file
    from noclobber.hosts.install import carry_out, plan
    from noclobber.hosts.machine_paths import (
        FileStep,
        is_portable,
        keep_private,
        no_longer_private,
        steps,
        temporary_folder,
    )

    if args.user:
        steps_here = [FileStep(hook_file(host, "user", project, portable=args.portable), args.uninstall)]
    else:
        steps_here = steps(host, project, portable=args.portable, uninstall=args.uninstall)
    rows: list[dict[str, Any]] = []
    is_new = False
    for where, uninstall in steps_here:
        if not args.user:
            _refuse_to_lead_out(where.path, project)
        is_new = not os.path.lexists(where.path)
        change = (plan if args.dry_run else carry_out)(where, uninstall=uninstall)
        row = {"host": host, "path": where.path, "changed": change.is_needed, "diff": change.diff()}
        rows.append(row)
        if not uninstall and not args.dry_run:
            row["trouble"] = _trial(where)
        if not args.dry_run and not args.user and (uninstall or is_portable(where)):
            no_longer_private(where, project)
        if not args.json:
            _print_change(host, where.path, row, args, uninstall=uninstall)
    if args.uninstall or args.dry_run or args.json:
        if not args.uninstall and not args.dry_run and not args.user and not is_portable(where):
            keep_private(where, project, is_new=is_new)
        return rows
    if rows[-1]["changed"]:
        advice = traits.of(host).recommended.advice("user" if args.user else "hooks")
        say(f"{host}: {advice} {_next_step(host)}")
    advice = "" if args.user or is_portable(where) else keep_private(where, project, is_new=is_new)
    if folder := "" if args.portable else temporary_folder():
        advice = f"{advice} noclobber itself is in {folder}: when it is removed, every write is refused."
    if advice:
        say(f"{host}: {advice.strip()}")
    return rows


def _print_change(host: str, path: str, row: dict[str, Any], args: Namespace, *, uninstall: bool) -> None:
    """Say in a line what became of a file, and whether the hooks in it work."""
    tried = ""
    if "trouble" in row:
        tried = "; a dry event went through the hooks: they work" if not row["trouble"] else ""
    if not row["changed"]:
        is_gone = uninstall and not os.path.lexists(path)
        state = "does not exist; there is nothing to remove" if is_gone else "is up to date"
        say(f"{host}: {path} {state}{tried}.")
    else:
        verb = "removed" if uninstall and not os.path.lexists(path) else "changed"
        verb = "would change" if args.dry_run else verb
        say(f"{host}: {verb} {path}" + ("" if args.diff else f" ({_count(row['diff'])}){tried}"))
        if args.diff:
            print(row["diff"], end="")
    if row.get("trouble"):
        say(f"{host}: the hooks do not run, so every write will be refused: {row['trouble']}")
        say(f"{host}: repair that, or remove them again: noclobber install {host} --uninstall")


def _trial(where: ConfigFile) -> str:
    """Send a dry event through every command that was written; return what is wrong, empty if nothing is."""
    from noclobber.hook.dry_event import trouble_with
    from noclobber.hosts.command_line import command
    from noclobber.hosts.installations import Installation

    written = Installation(where.host, "project", where.path, where.entries).commands()
    lines = dict.fromkeys(line for _, line in written) or {command(where.host, "check"): None}
    return next((trouble for line in lines if (trouble := trouble_with(where.host, line))), "")


def _stale_writes(args: Namespace, root: str) -> list[dict[str, Any]]:
    """Set what the project does about stale writes, if asked to; say what it does."""
    from noclobber.core.options import load_options
    from noclobber.hosts import set_option

    if args.on_stale:
        change = (set_option.plan if args.dry_run else set_option.carry_out)(root, "on_stale", args.on_stale)
        if not args.json:
            if change.is_needed:
                say(f"options: {'would change' if args.dry_run else 'changed'} {change.path}")
            print(change.diff(), end="")
        row = {"option": "on_stale", "value": args.on_stale, "path": change.path}
        rows = [{**row, "changed": change.is_needed, "diff": change.diff()}]
    else:
        rows = []
    if not args.json:
        is_merged = (args.on_stale or load_options(root).on_stale) == "merge"
        say(f"stale writes: {MERGED if is_merged else REFUSED}")
    return rows


MERGED = 'merged with what others changed, if nothing of either side is lost (on_stale = "merge")'
REFUSED = "refused. `noclobber install --on-stale merge` lets them land if nothing of either side is lost"


def _packages(args: Namespace, hosts: list[str]) -> int:
    """Write packages, or remove them, and say which commands of the hosts belong to it."""
    import os
    import shlex

    from noclobber.hosts import packages

    folder = os.path.abspath(args.to) if args.to else packages.default_folder()
    rows = []
    for host in hosts if args.host else [host for host in hosts if host in traits.all_with_packages()]:
        changes = packages.plan(host, folder, portable=args.portable, uninstall=args.uninstall)
        if not args.dry_run:
            packages.carry_out(changes, folder)
        commands = packages.steps_back(host) if args.uninstall else packages.steps(host, folder)
        is_needed = any(change.is_needed for change in changes)
        rows.append(
            {
                "host": host,
                "path": f"{folder}/{host}",
                "changed": is_needed,
                "diff": "".join(change.diff() for change in changes),
                "commands": commands,
            }
        )
        if args.json:
            continue
        verb = "would change" if args.dry_run else "changed"
        say(f"{host}: {verb} {folder}/{host}" if is_needed else f"{host}: {folder}/{host} is up to date.")
        if args.diff:
            print(rows[-1]["diff"], end="")
        say(f"{host}: now run" if commands else f"{host}: {packages.BY_HAND}")
        for words in commands:
            say(f"    {shlex.join(words)}")
        if not args.uninstall:
            say(f"{host}: {traits.of(host).recommended.advice('plugin')}")
    if args.json:
        print_json(rows)
    return EXIT_OK


def _refuse_to_lead_out(path: str, project: str) -> None:
    """Refuse a settings file that leads out of the project: a repository may bring such a link."""
    from noclobber.errors import OutsideWorkspaceError

    real = os.path.realpath(path)
    if not real.startswith(f"{project.rstrip('/')}/"):
        raise OutsideWorkspaceError(
            path,
            f"it leads out of the project, to {real}, so it was not changed. Replace the link by a file, or "
            "install for all your projects with --user.",
        )


def _count(diff: str) -> str:
    """Say in a few words how much was changed."""
    lines = [line for line in diff.splitlines() if not line.startswith(("+++", "---"))]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"{added} lines added, {removed} removed; --diff shows them"


def _next_step(host: str) -> str:
    if host == "codex":
        return "Start it once and trust the hooks when it asks (/hooks); until then it ignores them."
    shell = "Its shell commands run as `noclobber run` does. " if host == "claude-code" else ""
    return f"{shell}It takes effect in the next session."
