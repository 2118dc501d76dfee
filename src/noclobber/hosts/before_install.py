"""
What a configuration looked like before our hooks came into it, as far as removing them does not show it.

Taking our hooks out of a file leaves several questions open: was there an empty `"hooks"` before, an empty
file, no file, no folder? The answers are kept in our own command line, in the word that `/bin/sh` takes for
the name of the script: `'noclobber?root=%0A&added=version'`. So they are where the hooks are: in another
checkout, on another machine, after an upgrade. Where there is nothing to remember, the word is `noclobber`.

| name | what it says |
|---|---|
| `made` | there was no file; the number of folders that the installation made for it |
| `file` | the file had no value in it, only this white space |
| `root` | the object was empty: what was between its braces |
| `hooks` | the same of the user's own `"hooks"` |
| `list.EVENT` | the same of an event's list in it |
| `table.NAME` | the same of another table that has a member of ours |
| `added` | a member that the host requires, and that the file did not have |
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from noclobber.hosts import json_edit
from noclobber.hosts.hook_entries import HookEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from noclobber.hosts.hook_entries import ConfigFile

_MARKED = re.compile(r"'noclobber\?([^' ]*)'")
_PLAIN = "' noclobber '"  # Between the script and what is said if the hook fails.

Facts = dict[str, str]


def observe(file: ConfigFile, before: str | None) -> Facts:
    """Return what has to be remembered about a configuration that has no hooks of ours."""
    facts: Facts = {}
    if before is None:
        return {"made": str(_missing_folders(file.path))}
    if not before.strip():
        return {"file": before}
    root = json_edit.parse(before)
    if not root.children:
        facts["root"] = inner(before, root)
    hooks = root.get("hooks")
    if hooks is not None and not hooks.children:
        facts["hooks"] = inner(before, hooks)
    for event, _, groups in hooks.children if hooks else ():
        if not groups.children:
            facts[f"list.{event}"] = inner(before, groups)
    for name in {member.table for member in file.members}:
        table = root.get(name)
        if table is not None and not table.children:
            facts[f"table.{name}"] = inner(before, table)
    missing_members = [key for key, _ in file.preamble if root.get(key) is None]
    if missing_members:
        facts["added"] = " ".join(missing_members)
    return facts


def recall(entries: Iterable[HookEntry]) -> Facts | None:
    """Return what our installed hooks remember; None for those of a version that remembered nothing."""
    lines = [line for entry in entries for line in _commands(entry.value)]
    found = next((found for line in lines if (found := _MARKED.search(line))), None)
    if found is None:
        return {} if any(_PLAIN in line for line in lines) else None
    return dict(parse_qsl(found[1], keep_blank_values=True))


def remember(entries: Iterable[HookEntry], facts: Mapping[str, str]) -> list[HookEntry]:
    """Return hooks of which the first remembers."""
    wanted = list(entries)
    if not facts:
        return wanted
    word = f"' 'noclobber?{urlencode(facts, quote_via=quote)}' '"
    for at, entry in enumerate(wanted):
        marked = HookEntry(
            entry.event, _each_command(entry.value, lambda line: line.replace(_PLAIN, word, 1))
        )
        if marked != entry:
            wanted[at] = marked
            break
    return wanted


def unmarked(line: str) -> str:
    """Return a command line as it is where nothing has to be remembered."""
    return _MARKED.sub("noclobber", line, count=1)


def comment(facts: Mapping[str, str]) -> str:
    """Return the same as a line of a script that is ours alone."""
    return f"// 'noclobber?{urlencode(facts, quote_via=quote)}'\n" if facts else ""


def recall_comment(text: str) -> Facts:
    """Return what such a script remembers."""
    found = _MARKED.search(text)
    return dict(parse_qsl(found[1], keep_blank_values=True)) if found else {}


def folders_made(facts: Mapping[str, str]) -> int:
    """Return how many folders above the file are ours."""
    found = facts.get("made", "0")
    return int(found) if found.isdecimal() and len(found) < 3 else 0


def inner(text: str, container: json_edit.JsonNode) -> str:
    """Return what is between a container's brackets."""
    return text[container.start + 1 : container.end - 1]


def emptied(text: str, container: json_edit.JsonNode, remembered: str) -> str:
    """Return the text with a container that has no members left as it was remembered."""
    now = inner(text, container)
    if now.split() != remembered.split():  # Comments were written meanwhile: they are the user's.
        return text
    return text[: container.start + 1] + remembered + text[container.end - 1 :]


def _missing_folders(path: str) -> int:
    count, folder = 0, os.path.dirname(path)
    while folder not in ("", "/") and not os.path.lexists(folder):
        count, folder = count + 1, os.path.dirname(folder)
    return count


def _commands(value: Any) -> list[str]:
    found: list[str] = []

    def note(line: str) -> str:
        found.append(line)
        return line

    _each_command(value, note)
    return found


def _each_command(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {
            key: change(member)
            if key in ("command", "bash") and isinstance(member, str)
            else _each_command(member, change)
            for key, member in value.items()
        }
    return [_each_command(member, change) for member in value] if isinstance(value, list) else value
