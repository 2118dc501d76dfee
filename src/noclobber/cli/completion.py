"""
`noclobber completion SHELL`: a script that completes commands, options and their values, by argcomplete.

At a tab the script calls `noclobber` with `_ARGCOMPLETE` set, and `answer` reads the parsers. So completion
knows what `--help` knows, and what only the project knows: agents, sessions, versions, refused commands.

Those words are other people's text, and a shell expands what it completes with: an agent called `$(…)` would
run a command. Only words of plain letters are offered.
"""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, _SubParsersAction
from typing import TYPE_CHECKING

from noclobber.cli import COMMANDS, EXIT_OK, fill
from noclobber.cli.parsing import CommandParser
from noclobber.cli.terminal import add_json, print_json
from noclobber.core.project import find_project
from noclobber.errors import BadRequestError
from noclobber.hosts import HOSTS
from noclobber.ledger.kinds import KINDS

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace
    from collections.abc import Callable, Iterable
    from typing import Any

EXAMPLES = """\
examples:
  eval "$(noclobber completion bash)"                                     in ~/.bashrc
  noclobber completion zsh > "${fpath[1]}/_noclobber"                      once
  noclobber completion fish > ~/.config/fish/completions/noclobber.fish    once
"""

SHELLS = ("bash", "zsh", "fish")
MAX_WORDS = 200
MAX_LETTERS = 100
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    add_json(parser)


def run(args: Namespace) -> int:
    """Print the script."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError as error:
        hint = "pip install 'noclobber[completion]' (in a checkout: pip install '.[completion]')"
        raise BadRequestError(
            "", f"Completion needs the extra 'completion'. Install it with: {hint}"
        ) from error
    script = shellcode(["noclobber"], shell=args.shell)
    if args.json:
        print_json({"shell": args.shell, "script": script})
    else:
        sys.stdout.write(script)
    return EXIT_OK


def answer(**options: Any) -> None:
    """Tell the shell what may come next, and leave. It asks again after an update, so nothing gets old."""
    try:
        import argcomplete
    except ImportError:  # It was removed after the script was printed; a prompt is no place for an error.
        sys.exit(1)
    argcomplete.autocomplete(_parser(os.environ.get("COMP_LINE", "").split()), **options)


def _parser(line: list[str]) -> ArgumentParser:
    """Return the parser of the whole command line; of the command that was typed, if one was."""
    top = CommandParser(prog="noclobber")
    top.add_argument("-V", "--version", action="store_true", help="show the version")
    below = top.add_subparsers()
    typed = [name for name in line[1:2] if name in COMMANDS]
    for name, (_, summary) in COMMANDS.items():
        parser = below.add_parser(name, help=summary)
        if name in typed:
            fill(parser, name)
            _add_completers(parser)
    return top


def _add_completers(parser: ArgumentParser) -> None:
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    by_word = {
        **dict.fromkeys(("DIR", "FOLDER", "ROOT"), DirectoriesCompleter()),
        **dict.fromkeys(("PATH", "FILE"), FilesCompleter()),
        "HOST": lambda **_: list(HOSTS),
        "KIND": lambda **_: list(KINDS),
        "COMMAND": _kept_runs,
    }
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for below in action.choices.values():
                _add_completers(below)
        elif action.nargs != 0 and not action.choices and action.help != SUPPRESS:
            word = str(action.metavar or action.dest).upper()
            action.completer = by_word.get(word) or _of_project(action)  # type: ignore[attr-defined]


def _of_project(action: Action) -> Callable[..., list[str]]:
    kind = _WORDS_OF.get(action.dest, lambda root: ())
    return lambda **_: words(kind)


def _kept_runs(parsed_args: Namespace, **_: object) -> list[str]:
    """`noclobber run show ID` and the like, which the parser of `run` leaves to `run` itself."""
    typed = parsed_args.command or []
    if not typed:
        return ["list", "show", "diff", "rerun", "drop"]
    return words(_runs) if typed[0] in ("show", "diff", "rerun", "drop") else []


def words(kind: Callable[[str], Iterable[str]]) -> list[str]:
    """Return what can be completed here; nothing if the project cannot be read."""
    try:
        found = kind(find_project(os.getcwd()))
        return [word for word in dict.fromkeys(found) if _is_plain(word)][:MAX_WORDS]
    except Exception:  # Whatever is wrong, the next command will say it. A completion must not.
        return []


def _is_plain(word: str) -> bool:
    return 0 < len(word) <= MAX_LETTERS and _PLAIN.issuperset(word) and not word.startswith("-")


def _identities(name: str) -> Callable[[str], Iterable[str]]:
    def of(root: str) -> Iterable[str]:
        from noclobber.view.workspace_state import last_events

        for event in reversed(last_events(root, [])):
            identity = event.get("identity")
            if isinstance(identity, dict) and isinstance(identity.get(name), str):
                yield identity[name]

    return of


def _versions(root: str) -> Iterable[str]:
    from noclobber.disk.versions import Versions

    with Versions(root, make=False) as versions:
        newest = sorted(versions, key=lambda each: each.kept_at_s, reverse=True)
        return [each.sha256[:12] for each in newest]


def _runs(root: str) -> Iterable[str]:
    from noclobber.shell import runs

    return reversed(runs.all_ids(root))


def _kept(root: str) -> Iterable[str]:
    from noclobber.guard import kept_versions

    return [os.path.basename(each.path).partition("~")[0] for each in kept_versions.listed(root)]


# What the project knows, by the argument's name.
_WORDS_OF: dict[str, Callable[[str], Iterable[str]]] = {
    **{name: _identities(f"{name}_id") for name in ("agent", "session", "turn", "call")},
    "version": _versions,
    "against": _versions,
    "name": _kept,
}
