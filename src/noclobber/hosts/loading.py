"""
Why a host would not load hooks that are in place: they are switched off, or the user has not trusted them.

Each host's rules were found out by running it; docs/hosts says with which version. A rule that is not known
here makes `doctor` too hopeful, so it also says how to see for yourself.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.hosts import traits
from noclobber.hosts.hook_entries import hook_file
from noclobber.hosts.installations import read, read_json, read_plain

if TYPE_CHECKING:
    from noclobber.hosts.installations import Installation

SESSION_END_MOST_S = 3  # Codex shortens a longer time, before it computes the hash that is trusted.


class NotLoaded(NamedTuple):
    """Something that keeps a host from running our hooks."""

    detail: str
    remedy: str


def switched_off(host: str, project: str) -> NotLoaded | None:
    """Return the setting that switches a host's hooks off."""
    for path in _settings(host, project):
        text = read(path)
        if text is None:
            continue
        value = read_json(path)
        # In its plainest spelling as well: a key may be written with escapes.
        if found := _OFF.search(f"{text}\n{'' if value is None else json.dumps(value)}"):
            setting = " ".join(found[0].split())
            return NotLoaded(
                f"switched off: {path} has {setting}, so no write is checked",
                "Remove that setting, or uninstall the hooks.",
            )
        if name := _disabled_by_name(value):
            return NotLoaded(
                f"switched off: {path} lists {name!r} as disabled, so not every write is checked",
                "Remove it from that list, or uninstall the hooks.",
            )
    return None


# -- switches --------------------------------------------------------------------------------------------

# As a settings file spells it, in JSON or TOML.
_OFF = re.compile(
    r""""(disableAllHooks|disable_all_hooks|allowManagedHooksOnly)"\s*:\s*true|"""
    r""""(enableHooks|hooksEnabled)"\s*:\s*false|"""
    r""""hooks(?:Config)?"\s*:\s*\{[^{}\[\]]*"enabled"\s*:\s*false|"""
    r"""^\s*(?:features\.)?(?:codex_)?hooks\s*=\s*false""",
    re.M,
)


def _settings(host: str, project: str) -> list[str]:
    files = [hook_file(host, scope, project).path for scope in ("project", "user")]
    about = traits.of(host)
    folders = [os.path.dirname(path) for path in files] + [about.home]
    names = ("settings.json", "settings.local.json", "config.toml", "config.json")
    files += [f"{folder}/{name}" for folder in folders for name in names]
    return list(dict.fromkeys((*files, *about.managed)))


def _disabled_by_name(value: Any) -> str | None:
    """Return the name of a hook of ours that a list of disabled hooks has (Gemini CLI and Qwen Code)."""
    for key in ("hooksConfig", "hooks"):
        about = value.get(key) if isinstance(value, dict) else None
        listed = about.get("disabled") if isinstance(about, dict) else None
        for name in listed if isinstance(listed, list) else ():
            if isinstance(name, str) and "noclobber" in name:
                return name if len(name) < 60 else "noclobber's command"
    return None


# -- trust -----------------------------------------------------------------------------------------------


def untrusted_by_gemini(one: Installation, project: str) -> NotLoaded | None:
    """Gemini CLI and Qwen Code: folders that the user was asked about, the nearest answer counts."""
    if one.form != "project":
        return None  # What is the user's own is loaded everywhere.
    host, home = one.host, traits.of(one.host).home
    settings = read_json(f"{home}/settings.json")
    for key in ("security", "folderTrust", "enabled"):
        settings = settings.get(key) if isinstance(settings, dict) else None
    if not (settings if isinstance(settings, bool) else host == "gemini"):  # Qwen Code asks only if told to.
        return None
    given = os.environ.get("GEMINI_CLI_TRUSTED_FOLDERS_PATH") if host == "gemini" else None
    file = given or f"{home}/trustedFolders.json"
    rules = read_json(file)
    answer, nearest = "", -1
    for folder, rule in rules.items() if isinstance(rules, dict) else ():
        folder = os.path.realpath(folder)
        if rule == "TRUST_PARENT":
            folder = os.path.dirname(folder)
        if _is_within(project, folder) and len(folder) > nearest:
            answer, nearest = str(rule), len(folder)
    if answer.startswith("TRUST_"):
        return None
    extra = ", for example with --skip-trust" if host == "gemini" else ""
    return NotLoaded(
        f"not loaded: this folder is not trusted ({file}), so {host} ignores the project's hooks{extra}",
        f"Start {host} here and trust the folder, or install for all folders: "
        f"noclobber install {host} --as plugin (or --user)",
    )


def untrusted_by_copilot(one: Installation, project: str) -> NotLoaded | None:
    """Copilot CLI: folders that the user has trusted, and what is below them."""
    if one.form != "project":
        return None
    home = traits.of(one.host).home
    trusted: list[Any] = []
    for name in ("config.json", "settings.json"):
        value = read_json(f"{home}/{name}")
        for key in ("trustedFolders", "trusted_folders"):
            listed = value.get(key) if isinstance(value, dict) else None
            trusted += listed if isinstance(listed, list) else []
    if any(isinstance(folder, str) and _is_within(project, os.path.realpath(folder)) for folder in trusted):
        return None
    return NotLoaded(
        "not loaded: this folder is not trusted, so copilot ignores the project's hooks, for example with -p",
        "Start copilot here and trust the folder, or install for all folders: "
        "noclobber install copilot --as plugin (or --user)",
    )


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def untrusted_by_codex(one: Installation, project: str) -> NotLoaded | None:
    """Codex runs a hook only if its configuration has the hash of exactly this hook."""
    import tomllib

    home = traits.of(one.host).home
    remedy = "Start codex in this project, and trust the hooks when it asks (or /hooks)."
    try:
        value: Any = tomllib.loads(read_plain(f"{home}/config.toml").decode())
    except FileNotFoundError:
        value = {}
    except (OSError, ValueError) as error:
        return NotLoaded(f"probably untrusted: its configuration cannot be read ({error})", remedy)
    if one.form == "plugin":
        plugins = value.get("plugins")
        named = plugins if isinstance(plugins, dict) else {}
        if not any(
            name.startswith("noclobber@") and isinstance(about, dict) and about.get("enabled") is not False
            for name, about in named.items()
        ):
            return NotLoaded(
                "switched off: the plugin is not enabled in config.toml",
                "codex plugin add noclobber@noclobber",
            )
    hooks = value.get("hooks")
    states = hooks.get("state") if isinstance(hooks, dict) else None
    wanted = _hashes(one)
    known = {
        key: state
        for key, state in (states.items() if isinstance(states, dict) else ())
        if isinstance(state, dict) and _is_about(key, one)
    }
    trusted = {state.get("trusted_hash") for state in known.values()}
    if any(state.get("enabled") is False for state in known.values()):
        return NotLoaded(
            f"switched off: {home}/config.toml disables one of the hooks", "Enable it in /hooks."
        )
    missing = [event for event, found in wanted if found not in trusted]
    if not missing:
        return None
    if not known:
        return NotLoaded("untrusted: Codex skips them", remedy)
    return NotLoaded(
        f"untrusted: Codex skips what has changed since it was trusted ({', '.join(dict.fromkeys(missing))})",
        remedy,
    )


def _is_about(key: str, one: Installation) -> bool:
    return key.startswith("noclobber@") if one.form == "plugin" else key.startswith(f"{one.path}:")


def _hashes(one: Installation) -> list[tuple[str, str]]:
    """Return each hook's event, and the hash of it that Codex keeps once it is trusted."""
    from noclobber.disk import hashing

    found = []
    for entry in one.entries:
        label = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in entry.event)[1:]
        for hook in entry.value.get("hooks", ()):
            most = SESSION_END_MOST_S if entry.event == "SessionEnd" else 600
            handler = {
                "type": "command",
                "command": hook.get("command"),
                "timeout": min(hook.get("timeout", most), most),
                "async": hook.get("async", False),
            }
            identity: dict[str, Any] = {"event_name": label, "hooks": [handler]}
            if "matcher" in entry.value:
                identity["matcher"] = entry.value["matcher"]
            text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            found.append((entry.event, f"sha256:{hashing.of_bytes(text.encode())}"))
    return found
