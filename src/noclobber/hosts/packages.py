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
from typing import TYPE_CHECKING, Any, NamedTuple

import noclobber
from noclobber.errors import BadRequestError, RefusalError
from noclobber.hosts import command_line, load
from noclobber.hosts.install import ConfigChange, read_text, remove_empty_folders, write

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "noclobber"
READ_ME = """\
# noclobber for {host}

Refuses a write to a file that has changed since the agent read it, and tells the model to read it again.
Reads are remembered, and every write and every refusal is on record in `.noclobber/agent_trace.jsonl` of the
project.

The hooks in this package run `{command}`. {needs} `noclobber doctor` says whether they work. Written by
`noclobber install {host} --as plugin`; run that again after an upgrade of noclobber.
"""
DESCRIPTION = "Refuses a write to a file that has changed since the agent read it."
AUTHOR = "noclobber contributors"
HOME_PAGE = "https://github.com/noclobber/noclobber"


BY_HAND = "delete the line that names noclobber from `plugin` in its configuration."


class PackageFormat(NamedTuple):
    """How a host wants its packages."""

    manifest: str
    hooks: str
    marketplace: str = ""


FORMATS = {
    "claude-code": PackageFormat(
        ".claude-plugin/plugin.json", "hooks/hooks.json", ".claude-plugin/marketplace.json"
    ),
    "codex": PackageFormat(
        ".codex-plugin/plugin.json", "hooks/hooks.json", ".agents/plugins/marketplace.json"
    ),
    "copilot": PackageFormat("plugin.json", "hooks.json", ".github/plugin/marketplace.json"),
    "gemini": PackageFormat("gemini-extension.json", "hooks/hooks.json"),
    "opencode": PackageFormat("package.json", "noclobber.js"),
    "qwen": PackageFormat("qwen-extension.json", "hooks/hooks.json"),
}


def default_folder() -> str:
    """Return where packages are kept for this user."""
    data = os.environ.get("XDG_DATA_HOME", "")
    if not data.startswith("/"):
        data = os.path.expanduser("~/.local/share")
    return f"{data}/noclobber/packages"


def contents(host: str, *, portable: bool) -> dict[str, str]:
    """Return the files of a host's package: name below the package's folder, and text."""
    if host not in FORMATS:
        raise BadRequestError(
            "", f"{host} has no packages that hooks can be in. Use `noclobber install {host}`."
        )
    kind = FORMATS[host]
    ours = load(host).hooks("", "user", portable)
    command = shlex.join(command_line.hook_words(host, "check", portable=portable))
    needs = "It must be on the PATH." if portable else "These paths are those of one machine."
    read_me = {"README.md": READ_ME.format(host=host, command=command, needs=needs)}
    manifest = {"name": NAME, "version": noclobber.__version__, "description": DESCRIPTION}
    if host == "opencode":
        manifest = {**manifest, "name": "noclobber-opencode", "type": "module", "main": f"./{kind.hooks}"}
        return {kind.manifest: _spelled(manifest), kind.hooks: ours.whole or "", **read_me}
    about: dict[str, Any] = dict(manifest)
    if host in ("claude-code", "codex", "copilot"):
        about |= {"author": {"name": AUTHOR}, "homepage": HOME_PAGE, "license": "Apache-2.0"}
    if host == "copilot":
        about["hooks"] = kind.hooks
    events: dict[str, list[Any]] = {}
    for entry in ours.entries:
        events.setdefault(entry.event, []).append(entry.value)
    hooks = _spelled({**dict(ours.preamble), "hooks": events})
    return {kind.manifest: _spelled(about), kind.hooks: hooks, **read_me}


def marketplace(host: str) -> dict[str, str]:
    """Return the file that lists the package, for a host that installs from such a list; empty for others."""
    where = FORMATS[host].marketplace
    if not where:
        return {}
    if host == "codex":
        policy = {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}
        listed = {"name": NAME, "source": {"source": "local", "path": f"./{host}"}, "policy": policy}
        return {where: _spelled({"name": NAME, "plugins": [{**listed, "category": "Coding"}]})}
    plugin = {"name": NAME, "source": f"./{host}", "description": DESCRIPTION}
    about = {"name": NAME, "owner": {"name": AUTHOR}, "metadata": {"description": DESCRIPTION}}
    return {where: _spelled({**about, "plugins": [plugin]})}


def steps(host: str, folder: str) -> list[list[str]]:
    """Return the host's own commands that install a package from a folder."""
    package = f"{folder}/{host}"
    return {
        "claude-code": [
            ["claude", "plugin", "marketplace", "add", folder],
            ["claude", "plugin", "install", f"{NAME}@{NAME}"],
        ],
        "codex": [
            ["codex", "plugin", "marketplace", "add", folder],
            ["codex", "plugin", "add", f"{NAME}@{NAME}"],
        ],
        "copilot": [
            ["copilot", "plugin", "marketplace", "add", folder],
            ["copilot", "plugin", "install", f"{NAME}@{NAME}"],
        ],
        "gemini": [["gemini", "extensions", "install", "--consent", package]],
        "opencode": [["opencode", "plugin", "--global", f"file://{package}"]],
        "qwen": [["qwen", "extensions", "install", "--consent", package]],
    }[host]


def steps_back(host: str) -> list[list[str]]:
    """Return the host's own commands that remove an installed package."""
    return {
        "claude-code": [
            ["claude", "plugin", "uninstall", f"{NAME}@{NAME}"],
            ["claude", "plugin", "marketplace", "remove", NAME],
        ],
        "codex": [
            ["codex", "plugin", "remove", f"{NAME}@{NAME}"],
            ["codex", "plugin", "marketplace", "remove", NAME],
        ],
        "copilot": [
            ["copilot", "plugin", "uninstall", f"{NAME}@{NAME}"],
            ["copilot", "plugin", "marketplace", "remove", NAME],
        ],
        "gemini": [["gemini", "extensions", "uninstall", NAME]],
        "opencode": [],  # It has no such command: the line in its configuration is deleted by hand.
        "qwen": [["qwen", "extensions", "uninstall", NAME]],
    }[host]


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
