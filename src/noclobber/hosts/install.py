"""
Add our hooks to a host's configuration, and remove them again.

The file belongs to the user. Everything in it that is not ours stays byte for byte. Our hooks are replaced if
they are out of date, so installing twice changes nothing. Removing them gives back the file as it was: an
empty file, an empty `"hooks"` or an empty folder is not taken for ours (see `before_install`).

The file is written with the library's own compare-and-swap: if another program saves it at the same moment,
we read it again and start over, and no change is lost.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from noclobber.core import own_state
from noclobber.core.switches import INSTALLED
from noclobber.disk import hashing
from noclobber.disk.commit.committer import replace_if_unchanged
from noclobber.errors import ABSENT, AccessDeniedError, NotAFileError, RefusalError, StaleFileError
from noclobber.hosts import before_install, json_edit
from noclobber.hosts.hook_entries import MARK, ConfigFile, HookEntry, is_our_member, is_ours
from noclobber.hosts.installations import read_plain
from noclobber.hosts.json_edit import BadConfigurationError

ROUNDS = 50
_NEW = "{}\n"


class ConfigChange(NamedTuple):
    """A configuration's text before and after. None: there is no file."""

    path: str
    before: str | None
    after: str | None

    @property
    def is_needed(self) -> bool:
        """True if the text changes."""
        return self.before != self.after

    def diff(self) -> str:
        """Return the change for a person to read."""
        from difflib import unified_diff

        before, after = (text or "" for text in (self.before, self.after))
        lines = unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            "/dev/null" if self.before is None else self.path,
            "/dev/null" if self.after is None else self.path,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def plan(file: ConfigFile, *, uninstall: bool = False) -> ConfigChange:
    """Read a configuration and return what has to change."""
    before = read_text(file.path)
    try:
        after = _without(file, before) if uninstall else _with(file, before)
    except BadConfigurationError as error:
        raise BadConfigurationError(
            file.path,
            f"this is not a valid configuration ({error.message}). It was not changed. Fix it, then install "
            "again.",
        ) from None
    return ConfigChange(file.path, before, after)


def carry_out(file: ConfigFile, *, uninstall: bool = False) -> ConfigChange:
    """Change a configuration, if needed; start over if another program changed it meanwhile."""
    for _ in range(ROUNDS):
        change = plan(file, uninstall=uninstall)
        if not change.is_needed:
            return change
        try:
            write(change)
            if change.after is None:
                _remove_our_folders(change)
            return change
        except StaleFileError:
            continue
    raise StaleFileError(file.path, ABSENT, ABSENT)


def read_text(path: str) -> str | None:
    """Return a configuration's text, None if there is none; the error says why it cannot be read."""
    try:
        return read_plain(path).decode()
    except FileNotFoundError:
        return None
    except PermissionError:
        raise AccessDeniedError(path, "it cannot be read by this user. Check its permissions.") from None
    except UnicodeDecodeError:
        raise BadConfigurationError(path, "this is not UTF-8 text. It was not changed.") from None
    except OSError as error:
        raise NotAFileError(path, f"it cannot be read ({error.strerror}).") from None


def write(change: ConfigChange) -> None:
    """
    Make a change; `StaleFileError` if the text is no longer what it was.

    The file is on the list of what was installed from then on, so that no agent changes it, wherever it is.
    """
    place = os.fsencode(os.path.realpath(change.path))
    if change.after is None:
        _delete(change)
        own_state.remove(INSTALLED, own_state.name_of(place))
        return
    expected = ABSENT if change.before is None else hashing.of_bytes(change.before.encode())
    if change.before is not None and not os.access(change.path, os.W_OK):
        # Replacing the file would ignore its mode. A user made it read-only on purpose.
        raise AccessDeniedError(
            change.path, "it is read-only, so it was not changed. Make it writable first."
        )
    replace_if_unchanged(change.path, expected, change.after.encode())
    try:
        own_state.add(INSTALLED, place, place)
    except OSError:
        pass  # A home that cannot be written to: then the usual names have to do.


def _delete(change: ConfigChange) -> None:
    from noclobber.disk.commit import change_set
    from noclobber.disk.commit.committer import Committer

    committer = Committer(None)
    change_set.delete(committer, change.path, hashing.of_bytes((change.before or "").encode()))
    committer.sweep()  # What the deletion set aside is in the folder, which may be ours as well.


def _remove_our_folders(change: ConfigChange) -> None:
    """Remove the folders that the installation made, if nothing else is in them by now."""
    before = change.before or ""
    facts = before_install.recall_comment(before)
    if not before.startswith(MARK):
        facts = before_install.recall(_ours(before)) or {}
    remove_empty_folders(change.path, before_install.folders_made(facts))


def remove_empty_folders(path: str, most: int) -> None:
    """Remove folders above a path, from the nearest on, until one has something in it."""
    for _ in range(most):
        path = os.path.dirname(path)
        try:
            os.rmdir(path)
        except OSError:
            break


# -- what the text should be ---------------------------------------------------------------------------


def _with(file: ConfigFile, before: str | None) -> str:
    if file.whole is not None:
        if before is not None and not before.startswith(MARK):
            raise RefusalError(file.path, "this file is not noclobber's plugin. Move it away first.")
        facts = (
            before_install.observe(file, None) if before is None else before_install.recall_comment(before)
        )
        return file.whole + before_install.comment(facts)
    text = before if before is not None and before.strip() else _NEW
    present = _ours(text)
    facts = before_install.observe(file, before)
    if present:
        facts = before_install.recall(present) or {}
    wanted = before_install.remember(file.entries, facts)
    if [(entry.event, entry.value) for entry in present] == _in_file_order(text, wanted):
        text = _with_members(file, text, facts)
        return before if before is not None and text == before else text
    text = _with_members(file, _strip(text, facts), facts)
    for key, value in file.preamble:
        if _root(text).get(key) is None:
            text = json_edit.add_member(text, _root(text), key, value)
    for entry in wanted:
        text = _add(text, entry)
    return text


def _in_file_order(text: str, wanted: list[HookEntry]) -> list[tuple[str, Any]]:
    """Return the entries in the order in which the file would have them: by event."""
    hooks = _root(text).get("hooks")
    order = [str(key) for key, _, _ in hooks.children] if hooks else []
    known = [entry for entry in wanted if entry.event in order]
    return [
        (entry.event, entry.value) for entry in sorted(known, key=lambda entry: order.index(entry.event))
    ] + [(entry.event, entry.value) for entry in wanted if entry.event not in order]


def _without(file: ConfigFile, before: str | None) -> str | None:
    if before is None:
        return None
    if file.whole is not None:
        return None if before.startswith(MARK) else before
    if not before.strip():
        return before
    present = _ours(before)
    if not present:
        return before
    facts = before_install.recall(present)
    known = facts or {}
    text = _without_members(file, _strip(before, known), known)
    for key in known.get("added", "").split():
        if (key, _root(text).value.get(key)) in file.preamble:
            text = json_edit.remove(text, _root(text), key)
    root = _root(text)
    is_made_by_us = facts is None or "made" in facts
    is_ours_alone = all(member in file.preamble for member in root.value.items())
    if is_ours_alone and "//" not in text and "/*" not in text:
        if "file" in known:
            return known["file"]
        if is_made_by_us:
            return None
    return text if root.children else before_install.emptied(text, root, known.get("root", ""))


def _with_members(file: ConfigFile, text: str, facts: before_install.Facts) -> str:
    """Add our members, unless the user has such a member: then theirs stays."""
    for table_name, key, value in file.members:
        table = _root(text).get(table_name)
        present = None if table is None else table.get(key)
        if table is not None and not isinstance(table.value, dict):
            raise BadConfigurationError("", f'"{table_name}" must be an object')
        if present is not None and (present.value == value or not is_our_member(present.value)):
            continue
        if present is not None:  # Of another version: replaced.
            text = _without_members(file, text, facts)
            table = _root(text).get(table_name)
        if value is None:
            continue
        if table is None:
            text = json_edit.add_member(text, _root(text), table_name, {key: value})
        else:
            text = json_edit.add_member(text, table, key, value)
    return text


def _without_members(file: ConfigFile, text: str, facts: before_install.Facts) -> str:
    """Remove our members, and the table if it came with them."""
    for table_name, key, _ in file.members:
        table = _root(text).get(table_name)
        if table is None or not isinstance(table.value, dict) or not is_our_member(table.value.get(key)):
            continue
        if len(table.children) > 1 or f"table.{table_name}" in facts:
            text = json_edit.remove(text, table, key)
            if len(table.children) == 1:
                member = _member(table_name, None, text)
                text = before_install.emptied(text, member, facts[f"table.{table_name}"])
        else:
            text = json_edit.remove(text, _root(text), table_name)
    return text


def _root(text: str) -> json_edit.JsonNode:
    root = json_edit.parse(text)
    if not isinstance(root.value, dict):
        raise BadConfigurationError("", "line 1: the configuration must be an object")
    return root


def _ours(text: str) -> list[HookEntry]:
    """Return our entries in a configuration, in its order."""
    hooks = _hooks(text)
    found = []
    for event, _, groups in hooks.children if hooks else ():
        found += [HookEntry(str(event), node.value) for _, _, node in groups.children if is_ours(node.value)]
    return found


def _hooks(text: str) -> json_edit.JsonNode | None:
    hooks = _root(text).get("hooks")
    if hooks is None:
        return None
    if not isinstance(hooks.value, dict) or not all(
        isinstance(value, list) for value in hooks.value.values()
    ):
        raise BadConfigurationError("", '"hooks" must be an object with a list for each event')
    return hooks


def _strip(text: str, facts: before_install.Facts) -> str:
    """Remove our hooks, and the lists and objects that came with them."""
    while True:
        hooks = _hooks(text)
        found = next(
            (
                (event, groups, index)
                for event, _, groups in (hooks.children if hooks else ())
                for index, _, node in groups.children
                if is_ours(node.value)
            ),
            None,
        )
        if hooks is None or found is None:
            return text
        event, groups, index = found
        if len(groups.children) > 1 or f"list.{event}" in facts:
            text = json_edit.remove(text, groups, index)
            if len(groups.children) == 1:
                text = before_install.emptied(
                    text, _member("hooks", str(event), text), facts[f"list.{event}"]
                )
        elif len(hooks.children) > 1 or "hooks" in facts:
            text = json_edit.remove(text, hooks, event)
            if len(hooks.children) == 1:
                text = before_install.emptied(text, _member("hooks", None, text), facts["hooks"])
        else:
            text = json_edit.remove(text, _root(text), "hooks")


def _member(key: str, below: str | None, text: str) -> json_edit.JsonNode:
    """Return a member of the root, or a member of that."""
    found = _root(text).get(key)
    if found is not None and below is not None:
        found = found.get(below)
    assert found is not None
    return found


def _add(text: str, entry: HookEntry) -> str:
    hooks = _hooks(text)
    if hooks is None:
        return json_edit.add_member(text, _root(text), "hooks", {entry.event: [entry.value]})
    groups = hooks.get(entry.event)
    if groups is None:
        return json_edit.add_member(text, hooks, entry.event, [entry.value])
    return json_edit.add_item(text, groups, entry.value)
