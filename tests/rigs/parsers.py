"""The command line as data, from its parsers: every place on it, and what may follow there."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from typing import NamedTuple

from noclobber.cli import COMMANDS, parser_of


class Option(NamedTuple):
    """An option."""

    flags: tuple[str, ...]


class CommandNode(NamedTuple):
    """One place on the command line."""

    path: tuple[str, ...]
    subcommands: tuple[str, ...]
    options: tuple[Option, ...]


def nodes() -> Iterator[CommandNode]:
    """Every place on the command line, the top first."""
    top = (Option(("-h", "--help")), Option(("-V", "--version")))
    yield CommandNode((), tuple(COMMANDS), top)
    for name in COMMANDS:
        yield from _nodes_of(parser_of(name), (name,))


def _nodes_of(parser: ArgumentParser, path: tuple[str, ...]) -> Iterator[CommandNode]:
    below: dict[str, ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            below = dict(action.choices)
    options = [
        Option(tuple(action.option_strings))
        for action in parser._actions
        if action.option_strings and action.help != SUPPRESS
    ]
    yield CommandNode(path, tuple(below), tuple(options))
    for name, subparser in below.items():
        yield from _nodes_of(subparser, (*path, name))
