"""
`noclobber completion SHELL`: a script that completes commands, options and their values.

It is made from the parsers, so it knows what `--help` knows. Commands, options and fixed values are in the
script itself, so that completing them starts no Python. For what only a project knows (agents, sessions,
versions, refused commands) it asks `noclobber completion --values KIND`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from noclobber.cli import COMMANDS, EXIT_OK, parser_of
from noclobber.cli.completion_values import KINDS_OF_WORDS, words
from noclobber.cli.terminal import add_json, print_json
from noclobber.errors import BadRequestError
from noclobber.hosts import HOSTS
from noclobber.ledger.kinds import KINDS

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace
    from collections.abc import Callable, Iterator

EXAMPLES = """\
examples:
  eval "$(noclobber completion bash)"                                     in ~/.bashrc
  noclobber completion zsh > "${fpath[1]}/_noclobber"                      once
  noclobber completion fish > ~/.config/fish/completions/noclobber.fish    once
"""

# What is known without looking at the project, by the word that `--help` uses for it.
_FIXED = {"HOST": tuple(HOSTS), "KIND": tuple(KINDS)}
# What the project knows, by the argument's name.
_LIVE = {
    "agent": "agents",
    "session": "sessions",
    "turn": "turns",
    "call": "calls",
    "version": "versions",
    "against": "versions",
    "name": "kept",
}
_FOLDER_WORDS = frozenset(("DIR", "FOLDER", "ROOT"))
_FILE_WORDS = frozenset(("PATH", "FILE"))


class Option(NamedTuple):
    """An option, or a positional argument if it has no flags."""

    flags: tuple[str, ...]
    summary: str
    value: str
    """`none`, `file`, `folder`, `choice`, `live` or `text`."""
    choices: tuple[str, ...] = ()
    live: str = ""
    """Which words of the project, for `completion --values`."""


class CommandNode(NamedTuple):
    """One place on the command line: what may follow there."""

    path: tuple[str, ...]
    subcommands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    positionals: tuple[Option, ...]


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", metavar="SHELL", nargs="?", choices=list(SHELLS), help=", ".join(SHELLS))
    parser.add_argument(
        "--values",
        choices=list(KINDS_OF_WORDS),
        metavar="KIND",
        help=f"print words of this project instead: {', '.join(KINDS_OF_WORDS)}",
    )
    add_json(parser)


def run(args: Namespace) -> int:
    """Print the script."""
    if args.values is not None:
        found = words(args.values)
        if args.json:
            print_json({"kind": args.values, "words": found})
        else:
            sys.stdout.writelines(f"{word}\n" for word in found)
        return EXIT_OK
    if args.shell is None:
        raise BadRequestError("", f"Name the shell: {', '.join(SHELLS)}.")
    script = SHELLS[args.shell]([*nodes(), *_kept_commands()])
    if args.json:
        print_json({"shell": args.shell, "script": script})
    else:
        sys.stdout.write(script)
    return EXIT_OK


# The command line as data


def nodes() -> Iterator[CommandNode]:
    """Yield every place on the command line, the top first."""
    top = (
        Option(("-h", "--help"), "show the help", "none"),
        Option(("-V", "--version"), "show the version", "none"),
    )
    commands = tuple((name, summary) for name, (_, summary) in COMMANDS.items())
    yield CommandNode((), commands, top, ())
    for name in COMMANDS:
        yield from _nodes_of(parser_of(name), (name,))


def _kept_commands() -> Iterator[CommandNode]:
    """`noclobber run show ID` and the like, which the parser of `run` leaves to `run` itself."""
    for verb in ("show", "diff", "rerun", "drop"):
        yield CommandNode(("run", verb), (), (), (Option((), "a refused command", "live", live="runs"),))


def _nodes_of(parser: ArgumentParser, path: tuple[str, ...]) -> Iterator[CommandNode]:
    import argparse

    subcommands: dict[str, ArgumentParser] = {}
    summaries: tuple[tuple[str, str], ...] = ()
    options, positionals = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            subcommands = dict(action.choices)
            summaries = tuple((choice.dest, choice.help or "") for choice in action._choices_actions)
        elif action.help == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            options.append(_option(action))
        else:
            positionals.append(_option(action))
    yield CommandNode(path, summaries, tuple(options), tuple(positionals))
    for name, below in subcommands.items():
        yield from _nodes_of(below, (*path, name))


def _option(action: Action) -> Option:
    word = str(action.metavar or action.dest).upper()
    if action.nargs == 0:
        value = "none"
    elif action.choices:
        value = "choice"
    else:
        value = "folder" if word in _FOLDER_WORDS else "file" if word in _FILE_WORDS else "text"
    choices = tuple(str(choice) for choice in action.choices or ())
    live = ""
    if value == "text":
        choices = _FIXED.get(word, ())
        live = _LIVE.get(action.dest, "")
        value = "choice" if choices else "live" if live else "text"
    return Option(tuple(action.option_strings), _one_line(action.help or ""), value, choices, live)


def _one_line(text: str) -> str:
    return " ".join(text.replace("%%", "%").split())


def _words(node: CommandNode) -> list[str]:
    names = [name for name, _ in node.subcommands]
    names += [choice for option in node.positionals for choice in option.choices]
    return names + [flag for option in node.options for flag in option.flags]


def _valued(found: list[CommandNode]) -> list[tuple[CommandNode, Option]]:
    return [(node, option) for node in found for option in node.options if option.value != "none"]


# bash

_BASH = """\
# Completion of noclobber for bash: eval "$(noclobber completion bash)"
_noclobber() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" at="" word i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        case "$at $word" in
{paths}
        esac
    done
    case "$at $prev" in
{values}
    esac
    case "$at" in
{words}
    esac
}}
# If there is no match, bash completes file names, with spaces quoted.
complete -o default -F _noclobber noclobber
"""


def _bash(found: list[CommandNode]) -> str:
    paths = [f'            "{" ".join(["", *node.path])}") at="$at $word" ;;' for node in found if node.path]
    values = []
    for node, option in _valued(found):
        answer = f'COMPREPLY=($(compgen -W "{_bash_words(option)}" -- "$cur"))' if _known(option) else ":"
        values += [
            f'        "{" ".join(["", *node.path, flag])}") {answer}; return ;;' for flag in option.flags
        ]
    words = [
        f'        "{" ".join(["", *node.path])}") '
        f'COMPREPLY=($(compgen -W "{" ".join([*_words(node), *_live_words(node)])}" -- "$cur")) ;;'
        for node in found
    ]
    return _BASH.format(paths="\n".join(paths), values="\n".join(values), words="\n".join(words))


def _known(option: Option) -> bool:
    return bool(option.choices or option.live)


def _bash_words(option: Option) -> str:
    return " ".join(option.choices) if option.choices else _asked(option.live)


def _live_words(node: CommandNode) -> list[str]:
    return [_asked(option.live) for option in node.positionals if option.live]


def _asked(live: str) -> str:
    """The words of the project, in every shell's spelling; only plain words come back."""
    return f"$(noclobber completion --values {live} 2>/dev/null)"


# zsh


def _zsh(found: list[CommandNode]) -> str:
    lines = ["#compdef noclobber", "# Completion of noclobber for zsh."]
    for node in found:
        lines += _zsh_function(node)
    lines += [
        'if [ "$funcstack[1]" = "_noclobber" ]; then',
        '    _noclobber "$@"',
        "else",
        "    compdef _noclobber noclobber",
        "fi",
    ]
    return "\n".join(lines) + "\n"


def _zsh_name(path: tuple[str, ...]) -> str:
    return "_".join(["_noclobber", *(part.replace("-", "_") for part in path)])


def _zsh_function(node: CommandNode) -> list[str]:
    specs = []
    for option in node.options:
        text = _zsh_text(option.summary)
        value = {
            "none": "",
            "folder": ":folder:_files -/",
            "file": ":file:_files",
            "choice": f":value:({' '.join(option.choices)})",
            "live": f":value:{_zsh_live(option)}",
            "text": ":value:",
        }[option.value]
        specs += [f"'{flag}[{text}]{value}'" for flag in option.flags]
    for number, option in enumerate(node.positionals, 1):
        values = {"folder": "_files -/", "file": "_files", "choice": f"({' '.join(option.choices)})"}
        values["live"] = _zsh_live(option)
        specs.append(f"'{number}::argument:{values.get(option.value, '')}'")
    if not node.subcommands:
        body = " \\\n        ".join(["_arguments -s", *specs])
        return [f"{_zsh_name(node.path)}() {{", f"    {body}", "}"]
    names = "\n".join(f"        '{name}:{_zsh_text(summary)}'" for name, summary in node.subcommands)
    cases = "\n".join(
        f"            {name}) {_zsh_name((*node.path, name))} ;;" for name, _ in node.subcommands
    )
    body = " \\\n        ".join(["_arguments -C", *specs, "'1: :->name'", "'*:: :->rest'"])
    return [
        f"{_zsh_name(node.path)}() {{",
        "    local context state state_descr line",
        "    typeset -A opt_args",
        f"    {body}",
        "    case $state in",
        "    name)",
        "        local -a names",
        f"        names=(\n{names}\n        )",
        "        _describe command names ;;",
        "    rest)",
        f"        case $line[1] in\n{cases}\n        esac ;;",
        "    esac",
        "}",
    ]


def _zsh_live(option: Option) -> str:
    return f'{{compadd -- ${{(f)"{_asked(option.live)}"}}}}'


def _zsh_text(text: str) -> str:
    for letter in "\\[]:":
        text = text.replace(letter, f"\\{letter}")
    return text.replace("'", "'\\''")


# fish

_FISH = """\
# Completion of noclobber for fish.
function __noclobber_at --description 'the commands typed so far are exactly these'
    set -l known {known}
    set -l at
    for word in (commandline -opc)[2..-1]
        set -l next (string join ' ' -- $at $word)
        if contains -- $next $known
            set at $at $word
        end
    end
    test "$at" = "$argv"
end
complete -c noclobber -f
"""


def _fish(found: list[CommandNode]) -> str:
    known = " ".join(f"'{' '.join(node.path)}'" for node in found if node.path)
    lines = [_FISH.format(known=known)]
    for node in found:
        condition = f"-n '__noclobber_at {' '.join(node.path)}'"
        for name, summary in node.subcommands:
            lines.append(f"complete -c noclobber {condition} -a {name} -d {_fish_text(summary)}\n")
        for option in node.options:
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
            )
            text = _fish_text(option.summary)
            lines.append(f"complete -c noclobber {condition} {flags}{_fish_value(option)} -d {text}\n")
        for option in node.positionals:
            if option.value in ("file", "folder", "choice", "live"):
                value = _fish_value(option).removeprefix(" -r").removeprefix(" -x")
                lines.append(f"complete -c noclobber {condition}{value}\n")
    return "".join(lines)


def _fish_value(option: Option) -> str:
    return {
        "none": "",
        "folder": " -r -a '(__fish_complete_directories)'",
        "file": " -r -F",
        "choice": f" -x -a '{' '.join(option.choices)}'",
        "live": f" -x -a '{_asked(option.live)[1:]}'",
        "text": " -x",
    }[option.value]


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SHELLS: dict[str, Callable[[list[CommandNode]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
