"""
The options of a workspace and of a turn: names, values, and errors that say what was meant.

A new option is a change of this file alone: a field of `Options` with the sentence that explains it, the same
name in `OptionValues` for type checkers, a check in `_CHECKS`, and in `_LOOSE` if a value weakens the guard.
Tests hold them together, and
docs/options.md has the sentences as a table.

`Options` is on a hook's path, so nothing slow is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypedDict

from noclobber.core.project import OPTIONS_NAME, SHARED_OPTIONS_NAME, STATE_FOLDER, UNCHECKED
from noclobber.core.secret_names import SECRET_NAMES
from noclobber.errors import BadRequestError


class OptionValues(TypedDict, total=False):
    """What `Workspace(…)` and `turn(…)` take, for type checkers: a typo is an error before the run."""

    rebaseline: Literal["on-read", "after-conflict"]
    unread: Literal["allow", "deny"]
    partial: Literal["allow", "deny"]
    explicit: Literal["allow", "require"]
    explicit_hash: Literal["any", "seen"]
    resubmitted: Literal["allow", "deny"]
    on_stale: Literal["refuse", "merge"]
    never_merge: Iterable[str]
    notices: Literal["off", "names", "diff"]
    switches: Literal["reserved", "open"]
    reserved: Iterable[str | os.PathLike[str]] | None
    scope: Literal["turn", "session"]
    write_scope: Iterable[str | os.PathLike[str]] | None
    layout: Literal["follow", "refuse"]
    formatters: Iterable[str]
    shell: Literal["guarded", "watched", "off"]
    unchecked: Iterable[str]
    hard_links: Literal["write", "refuse"]
    durable: bool
    wait_s: float
    busy: Literal["refuse", "exchange"]
    retained_file_bytes: int
    retained_turn_bytes: int
    versions: Literal["on", "off"]
    versions_exclude: Iterable[str]
    versions_ignored: Literal["skip", "keep"]
    versions_days: float
    versions_bytes: int


LONGEST_WAIT_S = 3600.0
LONGEST_DAYS = 36_500.0
RETAINED_FILE_BYTES = 1 << 20
RETAINED_TURN_BYTES = 64 << 20
NEVER_MERGED = (
    "*.json",
    "*.ipynb",
    "*.lock",
    "*-lock.yaml",
    "*.lockb",
    "go.sum",
    "gradle.lockfile",
)
"""JSON, notebooks, and what package managers write: correct lines do not make a correct file."""
VERSIONS_DAYS = 7.0
VERSIONS_BYTES = 256 << 20


_NEVER_UNCHECKED = (".", "..", ".git", STATE_FOLDER)


class Options(NamedTuple):
    """What a workspace or a turn was asked to do. Build one with `options()`, which checks."""

    rebaseline: Literal["on-read", "after-conflict"] = "on-read"
    """After which reads a changed file may be written again: any whole read, or one after `STALE_FILE`."""
    unread: Literal["allow", "deny"] = "allow"
    """Whether an agent may write to an existing file that it has not read."""
    partial: Literal["allow", "deny"] = "allow"
    """Whether an agent that has read only part of a file may replace all of it."""
    explicit: Literal["allow", "require"] = "allow"
    """Whether a change of an existing file must itself say which version it was made from."""
    explicit_hash: Literal["any", "seen"] = "any"
    """Which versions a change may name as the one it was made from: any, or those that the agent saw."""
    resubmitted: Literal["allow", "deny"] = "allow"
    """Whether the bytes that were refused as stale may be written unchanged after a re-read."""
    on_stale: Literal["refuse", "merge"] = "refuse"
    """Whether a stale write is refused, or merged with what others changed if that loses nothing."""
    never_merge: tuple[str, ...] = NEVER_MERGED
    """Names of files that are not merged, because they are only right as a whole."""
    notices: Literal["off", "names", "diff"] = "diff"
    """Hooks: whether an agent hears which files that it has read others changed, and is shown how."""
    switches: Literal["reserved", "open"] = "reserved"
    """Whether agents may change noclobber's own options files, hooks, memory and code, in whatever folder."""
    reserved: tuple[str, ...] | None = None
    """More files and folders that agents may read and not change."""
    scope: Literal["turn", "session"] = "turn"
    """How long what an agent has read counts as read: to the end of the turn or of the session."""
    write_scope: tuple[str, ...] | None = None
    """The folders that agents may write in; without it, the whole project."""
    layout: Literal["follow", "refuse"] = "follow"
    """Hooks: whether a proven change of layout, right after an agent's own write, is followed or stale."""
    formatters: tuple[str, ...] = ()
    """Hooks: formatters to run again on an agent's write, to know what they made; only in trusted folders."""
    shell: Literal["guarded", "watched", "off"] = "guarded"
    """Hooks: how shell commands that may write are treated: as a transaction, watched, or not at all."""
    unchecked: tuple[str, ...] = ()
    """Guarded shell: more names of folders that land without a check; with ! in front, names that do not."""
    hard_links: Literal["write", "refuse"] = "write"
    """Whether a file with several hard links may be changed; the change shows under all of its names."""
    durable: bool = False
    """Whether a write is reported as done only when it is on the disk, so that it survives a power cut."""
    wait_s: float = 1.0
    """How many seconds to wait for a program that has the file open for writing, before `FILE_BUSY`."""
    busy: Literal["refuse", "exchange"] = "refuse"
    """What happens then: `exchange` replaces the file; what the program writes to the old one is kept."""
    retained_file_bytes: int = RETAINED_FILE_BYTES
    """How much of one file that was read is kept in memory, so that a diff can be shown."""
    retained_turn_bytes: int = RETAINED_TURN_BYTES
    """How much of all files that a turn has read is kept in memory, so that diffs can be shown."""
    versions: Literal["on", "off"] = "on"
    """Whether the versions that guarded writes replace are kept for a while, so that they can be had back."""
    versions_exclude: tuple[str, ...] = SECRET_NAMES
    """Names of files of which no versions are kept."""
    versions_ignored: Literal["skip", "keep"] = "skip"
    """Whether versions of files that git ignores are kept."""
    versions_days: float = VERSIONS_DAYS
    """How many days versions are kept."""
    versions_bytes: int = VERSIONS_BYTES
    """How many bytes the versions of a project may take; the oldest go first."""


DEFAULTS = Options()
HOOK_DEFAULTS = DEFAULTS._replace(scope="session")  # A coding agent's model remembers earlier turns.


def options(given: Mapping[str, Any], base: Options = DEFAULTS) -> Options:
    """Return `base` with the given options changed; `BadRequestError` names what is wrong with them."""
    checked: dict[str, Any] = {}
    for name, value in flat(given).items():
        check = _CHECKS.get(name)
        if check is None:
            raise BadRequestError("", _unknown(name), option=name)
        try:
            checked[name] = check(value)
        except _NotAcceptedError as refused:
            shown = repr(value)
            shown = shown if len(shown) <= 80 else f"{shown[:79]}…"
            raise BadRequestError(
                "", f"The option {name} must be {refused}, not {shown}.", option=name
            ) from None
    return base._replace(**checked)


def flat(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """In a TOML file the table `[versions]` with `exclude` is the option `versions_exclude`, and so on."""
    table = given.get("versions")
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table):
        return given
    flat = {name: value for name, value in given.items() if name != "versions"}
    return flat | {f"versions_{name}": value for name, value in table.items()}


def load_options(root: str, base: Options = DEFAULTS) -> Options:
    """Return `base` with what the options file in a project's root changes. `ConfigError` if it is wrong."""
    if not has_file(root):
        return base
    from noclobber.core.options_file import load

    given = flat(load(root).given)
    if loose := loosening(given):
        from noclobber.core.trust import is_trusted

        given = given if is_trusted(root, loose) else without(given, loose)
    return options(given, base) if given else base


def has_file(root: str) -> bool:
    """True if there is a file in a project's root that options may be in."""
    return any(os.path.lexists(f"{root}/{name}") for name in (OPTIONS_NAME, SHARED_OPTIONS_NAME))


def loosening(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a file's options that weaken the guard (ruling 34), as they are written."""
    return {name: value for name, value in given.items() if name in _LOOSE and _LOOSE[name](value)}


def without(given: Mapping[str, Any], loose: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those that weaken the guard; of `unchecked`, what tightens stays."""
    left = {name: value for name, value in given.items() if name not in loose}
    if "unchecked" in loose:
        left["unchecked"] = [name for name in given["unchecked"] if name.startswith("!")]
    return left


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, Options._fields, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(Options._fields)}."
    return f"There is no option {name!r}.{hint}"


# -- checks: each returns the value to use, or raises what would have been accepted -------------------------


class _NotAcceptedError(ValueError):
    """A value was not accepted. The text completes the sentence "The option must be …"."""


def _one_of(*choices: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value in choices:
            return value
        raise _NotAcceptedError("one of " + ", ".join(repr(choice) for choice in choices))

    return check


def _true_or_false(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _NotAcceptedError("True or False")


def _seconds(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LONGEST_WAIT_S:
        return float(value)
    raise _NotAcceptedError(f"seconds from 0 to {LONGEST_WAIT_S:.0f}")


def _days(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LONGEST_DAYS:
        return float(value)
    raise _NotAcceptedError(f"days from 0 to {LONGEST_DAYS:.0f}")


def _byte_count(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise _NotAcceptedError("a number of bytes, 0 or more")


def _folders(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    # A single string is a sequence of one-letter folders to Python, and surely not to its author.
    if not isinstance(value, (str, bytes, os.PathLike)):
        try:
            folders = tuple(os.fspath(folder) for folder in value)
        except TypeError:
            folders = (b"",)
        if all(isinstance(folder, str) and folder and "\0" not in folder for folder in folders):
            return folders
    raise _NotAcceptedError("a list of folders or files, or None")


def _patterns(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (str, bytes)):
        try:
            patterns = tuple(value)
        except TypeError:
            patterns = (None,)
        if all(isinstance(pattern, str) and pattern and "\0" not in pattern for pattern in patterns):
            return patterns
    raise _NotAcceptedError("a list of file names with * and ?")


def _commands(value: Any) -> tuple[str, ...]:
    try:
        commands = _patterns(value)
    except _NotAcceptedError:
        commands = ("",)
    if all("{file}" in command or "{copy}" in command for command in commands):
        return commands
    raise _NotAcceptedError(
        'a list of commands that format a text from their input, as "prettier --stdin-filepath {file}" does, '
        'or a copy in place, as "gofmt -w {copy}" does'
    )


def _no_patterns(value: Any) -> tuple[str, ...] | None:
    """Refuse what looks like a pattern: taken as a name it would protect nothing, without a word."""
    names = _folders(value)
    if any("*" in name or "?" in name for name in names or ()):
        raise _NotAcceptedError(
            "a list of folders or files; patterns are not supported, so name the folder that they are in"
        )
    return names


def _unchecked(value: Any) -> tuple[str, ...]:
    """Refuse what is the name of no such folder: it would change nothing, without a word."""
    try:
        names = (None,) if isinstance(value, (str, bytes, dict)) else tuple(value)
    except TypeError:
        names = (None,)
    if not all(isinstance(name, str) and name not in ("", "!") and "\0" not in name for name in names):
        raise _NotAcceptedError("a list of names of folders")
    bare = [name.removeprefix("!") for name in names]
    if any(sign in name for name in bare for sign in "/*?"):
        raise _NotAcceptedError("a list of names of folders, which count at every depth, without /, * and ?")
    if any(name in _NEVER_UNCHECKED for name in bare):
        raise _NotAcceptedError(f"a list of names of folders other than {', '.join(_NEVER_UNCHECKED)}")
    if any(name.startswith("!") and name[1:] not in UNCHECKED for name in names):
        known = ", ".join(sorted(UNCHECKED))
        raise _NotAcceptedError(f"a list of names of folders, with ! before built-in ones only ({known})")
    return names


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "rebaseline": _one_of("on-read", "after-conflict"),
    "unread": _one_of("allow", "deny"),
    "partial": _one_of("allow", "deny"),
    "explicit": _one_of("allow", "require"),
    "explicit_hash": _one_of("any", "seen"),
    "resubmitted": _one_of("allow", "deny"),
    "on_stale": _one_of("refuse", "merge"),
    "never_merge": _patterns,
    "notices": _one_of("off", "names", "diff"),
    "switches": _one_of("reserved", "open"),
    "reserved": _no_patterns,
    "scope": _one_of("turn", "session"),
    "write_scope": _no_patterns,
    "layout": _one_of("follow", "refuse"),
    "formatters": _commands,
    "shell": _one_of("guarded", "watched", "off"),
    "unchecked": _unchecked,
    "hard_links": _one_of("write", "refuse"),
    "durable": _true_or_false,
    "wait_s": _seconds,
    "busy": _one_of("refuse", "exchange"),
    "retained_file_bytes": _byte_count,
    "retained_turn_bytes": _byte_count,
    "versions": _one_of("on", "off"),
    "versions_exclude": _patterns,
    "versions_ignored": _one_of("skip", "keep"),
    "versions_days": _days,
    "versions_bytes": _byte_count,
}
_LOOSE: dict[str, Callable[[Any], bool]] = {
    "switches": lambda value: value != DEFAULTS.switches,
    "formatters": bool,
    "shell": lambda value: value != DEFAULTS.shell,
    "unchecked": lambda value: any(not name.startswith("!") for name in value),
    "versions": lambda value: value != DEFAULTS.versions,
    "versions_exclude": lambda value: set(value) != set(SECRET_NAMES),  # Secrets are kept, or too little is.
    "versions_ignored": lambda value: value != DEFAULTS.versions_ignored,
    "versions_days": lambda value: value < VERSIONS_DAYS,
    "versions_bytes": lambda value: value < VERSIONS_BYTES,
}
"""Which values of an option weaken the guard. An option that is not here has none."""
