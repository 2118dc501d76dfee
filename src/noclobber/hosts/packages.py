"""
Our hooks as a package of each host's own kind: a plugin or an extension.

The hooks in a package are those that `install` writes into a configuration; only what is around them differs.
A package is for all projects of a user, is switched on and off by the host's own commands, and is loaded
where hooks of a project are not: in a folder that the user has not trusted.

    FOLDER/claude-code/.claude-plugin/plugin.json, hooks/hooks.json
    FOLDER/codex/.codex-plugin/plugin.json, hooks/hooks.json
    FOLDER/copilot/plugin.json, hooks.json
    FOLDER/gemini/gemini-extension.json, hooks/hooks.json
    FOLDER/qwen/qwen-extension.json, hooks/hooks.json
    FOLDER/opencode/package.json, noclobber.js
    FOLDER/.claude-plugin/marketplace.json     a list of packages, as Claude Code wants it,
    FOLDER/.agents/plugins/marketplace.json    as Codex does,
    FOLDER/.github/plugin/marketplace.json     and as Copilot CLI does

Nothing of a host is run from here: `steps()` says which of its commands take the package over.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Any

import noclobber
from noclobber.errors import BadRequestError, RefusalError
from noclobber.hosts import command_line, load, traits
from noclobber.hosts.install import ConfigChange, read_text, remove_empty_folders, write
from noclobber.hosts.traits import NAME, SIGNED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noclobber.hosts.traits import Package

READ_ME = """\
# noclobber for {host}

Refuses a write to a file that has changed since the agent read it, and tells the model to read it again.
Reads are remembered, and every write and every refusal is on record in `.noclobber/agent_trace.jsonl` of the
project.

The hooks in this package run `{command}`. {needs} `noclobber doctor` says whether they work. Written by
`noclobber install {host} --as plugin`; run that again after an upgrade of noclobber.
"""
DESCRIPTION = "Refuses a write to a file that has changed since the agent read it."


BY_HAND = "delete the line that names noclobber from `plugin` in its configuration."


def default_folder() -> str:
    """Return where packages are kept for this user."""
    data = os.environ.get("XDG_DATA_HOME", "")
    if not data.startswith("/"):
        data = os.path.expanduser("~/.local/share")
    return f"{data}/noclobber/packages"


def contents(host: str, *, portable: bool) -> dict[str, str]:
    """Return the files of a host's package: name below the package's folder, and text."""
    kind = _kind(host)
    ours = load(host).hooks("", "user", portable)
    command = shlex.join(command_line.hook_words(host, "check", portable=portable))
    needs = "It must be on the PATH." if portable else "These paths are those of one machine."
    read_me = {"README.md": READ_ME.format(host=host, command=command, needs=needs)}
    about = {"name": NAME, "version": noclobber.__version__, "description": DESCRIPTION, **kind.about}
    hooks = ours.whole
    if hooks is None:
        events: dict[str, list[Any]] = {}
        for entry in ours.entries:
            events.setdefault(entry.event, []).append(entry.value)
        hooks = _spelled({**dict(ours.preamble), "hooks": events})
    return {kind.manifest: _spelled(about), kind.hooks: hooks, **read_me}


def _kind(host: str) -> Package:
    kind = traits.of(host).package
    if kind is None:
        raise BadRequestError(
            "", f"{host} has no packages that hooks can be in. Use `noclobber install {host}`."
        )
    return kind


def marketplace(host: str) -> dict[str, str]:
    """Return the file that lists the package, for a host that installs from such a list; empty for others."""
    kind = _kind(host)
    if not kind.marketplace:
        return {}
    if kind.listing:
        listed: dict[str, Any] = {"name": NAME, "plugins": [{"name": NAME, **kind.listing}]}
    else:
        plugin = {"name": NAME, "source": f"./{host}", "description": DESCRIPTION}
        about = {"name": NAME, "owner": SIGNED["author"], "metadata": {"description": DESCRIPTION}}
        listed = {**about, "plugins": [plugin]}
    return {kind.marketplace: _spelled(listed)}


def steps(host: str, folder: str) -> list[list[str]]:
    """Return the host's own commands that install a package from a folder."""
    where = {"folder": folder, "package": f"{folder}/{host}"}
    return [[word.format(**where) for word in line.split()] for line in _kind(host).add]


def steps_back(host: str) -> list[list[str]]:
    """Return the host's own commands that remove an installed package."""
    return [line.split() for line in _kind(host).remove]


def plan(host: str, folder: str, *, portable: bool, uninstall: bool = False) -> list[ConfigChange]:
    """Return what has to change in a folder so that it has, or has no longer, a host's package."""
    files = {f"{host}/{name}": text for name, text in contents(host, portable=portable).items()}
    files |= marketplace(host)
    changes = []
    for name, text in files.items():
        path = f"{folder}/{name}"
        before = read_text(path)
        if before is not None and NAME not in before:
            raise RefusalError(path, "this file is not noclobber's. Name another folder with --to.")
        changes.append(ConfigChange(path, before, None if uninstall else text))
    return changes


def carry_out(changes: Iterable[ConfigChange], folder: str) -> None:
    """Write or remove the files of a package; folders that are empty then go as well."""
    for change in changes:
        if not change.is_needed:
            continue
        write(change)
        if change.after is None:
            remove_empty_folders(change.path, os.path.relpath(change.path, folder).count("/"))


def _spelled(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
