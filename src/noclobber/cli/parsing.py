"""
The parser of every command and subcommand: one way to be called wrongly, and a suggestion for what was meant.

argparse prints its complaint and leaves. Ours raises `WrongCallError`, so that the command line can say it as
text to people and as a JSON object to programs. Abbreviated options are off everywhere: one that works today
is ambiguous when an option is added.
"""

from __future__ import annotations

import argparse
import os
import re
from argparse import ArgumentParser
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from noclobber.core.project import existing_folder, find_project
from noclobber.text.visible import fold

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator
    from typing import Any

_UNKNOWN = "unrecognized arguments: "
_ALIKE = 0.7  # The two dashes alone make short words alike by a third.
# A password on the command line was a mistake already. Errors end in logs, and do not repeat it.
_SECRET = re.compile(r"(\w+://[^\s:/]*:)\S*(?=@)|(password=)\S+")


class WrongCallError(Exception):
    """The words on the command line make no sense; `usage` says which would."""

    def __init__(self, program: str, usage: str, message: str) -> None:
        super().__init__(message)
        self.program, self.usage, self.message = program, usage, message


class CommandParser(ArgumentParser):
    """A parser that raises, and suggests. Subcommands get one of the same kind."""

    def __init__(self, *given: Any, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", FoldedHelp)
        super().__init__(*given, **options)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        if message.startswith(_UNKNOWN):
            for word in message.removeprefix(_UNKNOWN).split():
                near = get_close_matches(word.partition("=")[0], set(_options_of(self)), n=1, cutoff=_ALIKE)
                if word.startswith("--") and near:
                    message = f"{message}. Did you mean {near[0]}?"
                    break
        if "://" in message and "coordinator" in self.prog:
            message = f"{message}. A server's address belongs in the variable NOCLOBBER_COORDINATOR"
        raise WrongCallError(self.prog, self.format_usage(), _SECRET.sub(r"\1\2…", message))

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        raise argparse.ArgumentError(
            action, f"invalid choice: {value!r} (choose from {', '.join(known)}).{meant(str(value), known)}"
        )


def meant(word: str, known: Iterable[str]) -> str:
    """Return the question whether another word was meant, after a space; empty if none is like it."""
    known = list(known)
    near = [each for each in known if len(word) > 2 and each.startswith(word)]
    near += get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


_NARROW_INDENT = "    "


class FoldedHelp(argparse.RawDescriptionHelpFormatter):
    """Examples stay as they are written, and are folded at words where the terminal is narrower."""

    def _format_usage(self, *given: Any, **named: Any) -> str:
        # argparse puts options below the command's name, also where that leaves no room for them.
        lines = super()._format_usage(*given, **named).split("\n")
        wide = [line for line in lines if len(line) > self._width]
        if not wide:
            return "\n".join(lines)
        first, *rest = lines
        return fold(
            "\n".join([first, *(_NARROW_INDENT + line.lstrip() if line else "" for line in rest)]),
            self._width,
        )

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return fold(super()._fill_text(text, width, indent), self._width)


def _options_of(parser: ArgumentParser) -> Iterator[str]:
    """Yield every option of a parser and of what is below it: the top one reports what nobody knew."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _options_of(below)


# Arguments that many commands have


def add_root(parser: ArgumentParser) -> None:
    """Declare `--root`."""
    parser.add_argument(
        "--root", metavar="DIR", help="the project (default: the nearest one upward from here)"
    )


def root_of(args: Namespace) -> str:
    """Return the canonical root of the project that is meant."""
    return existing_folder(args.root) if args.root is not None else find_project(os.getcwd())
