"""
The guard's own switches: files that an agent must not change, because they say whether and how it is checked.

| switch | why |
|---|---|
| `noclobber.toml` | the rules |
| the hook configuration, plugins and extensions of coding agents | whether the hooks run at all |
| what `noclobber install` wrote | the same, wherever it is |
| the runtime folder | what agents are known to have seen |
| the user's own state | which folders the user trusts |
| noclobber's own code | what is done about it |

They are known by what they are, and not only by where they are (finding S26): `noclobber.toml` and a host's
folder count in every folder, because a folder may be somebody's project tomorrow. A name that the environment
gives to a host's folder counts, and so does the file behind a link: dotfiles are kept so.

A command may make, and remove, a whole folder with such files in it, as `git clone` does: nobody works there
yet (`base_of`).

Rules in `pyproject.toml` are not protected: agents have to change that file for other reasons. Git's own
files are not ours to forbid, either. `switches = "open"` lets agents change all of this; `reserved` names
more files and folders.

What cannot be looked at is not taken for "no switch" (finding S32): `StorageError`, and the write is refused.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from functools import lru_cache

from noclobber.core import own_state
from noclobber.core.project import OPTIONS_NAME
from noclobber.errors import StorageError

HOSTS = {
    ".claude": ("settings.json", "settings.local.json", "plugins", "session-env"),
    ".cline": ("plugins",),
    ".codex": ("config.toml", "hooks.json", "plugins"),
    ".config/opencode": ("opencode.json", "opencode.jsonc", "plugin", "plugins"),
    ".copilot": ("config.json", "settings.json", "hooks", "installed-plugins"),
    ".cursor": ("hooks.json",),
    ".gemini": ("settings.json", "trustedFolders.json", "extensions"),
    ".github": ("hooks",),
    ".opencode": ("plugin", "plugins"),
    ".qwen": ("settings.json", "trustedFolders.json", "extensions"),
}
"""Folders of coding agents, in a project and at home, and the files and folders in each that are switches."""
_ELSEWHERE = {
    "CLAUDE_CONFIG_DIR": ".claude",
    "CODEX_HOME": ".codex",
    "COPILOT_HOME": ".copilot",
    "GEMINI_CLI_HOME": ".gemini",
    "OPENCODE_CONFIG_DIR": ".config/opencode",
    "QWEN_HOME": ".qwen",
    "XDG_CONFIG_HOME": ".config",
}
"""Variables that put a host's folder into another place, or under another name."""
_FILES = (
    "CLAUDE_ENV_FILE",
    "GEMINI_CLI_TRUSTED_FOLDERS_PATH",
    "GEMINI_CLI_SYSTEM_SETTINGS_PATH",
    "OPENCODE_CONFIG",
)
_ASKED = ("HOME", "TMPDIR", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", *_ELSEWHERE, *_FILES)
FRESH_S = 1.0
MAX_FOUND = 64
_found_places: dict[tuple[str | None, ...], tuple[float, frozenset[str]]] = {}
INSTALLED = "installed"
"""The list of what `noclobber install` wrote, in the user's own state."""
_CODE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_ENVIRONMENTS = {sys.prefix}
if _CODE.endswith("-packages/noclobber"):  # Of lib/python3/site-packages, whatever interpreter runs us.
    _ENVIRONMENTS.add(os.path.normpath(f"{_CODE}/../../../.."))
_OURS = (_CODE, *(f"{prefix}/bin/noclobber" for prefix in _ENVIRONMENTS))
_ONLY_NAMED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
_KINDS = tuple((f"/{host}/", tuple(name.casefold() for name in names)) for host, names in HOSTS.items())
_OPTIONS = f"/{OPTIONS_NAME}"
# What nobody can reach by this name: it is not there, or this user may not look, and then not write either.
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG)


def runtime_folder() -> str:
    """
    Return where hooks keep what agents saw. Nothing is created.

    Anybody may make a folder of our name in the temporary folder. Then ours is in the user's own state, and
    stays there when the other one is gone: what is known must not change with what a stranger does.
    """
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given.startswith("/"):
        try:
            if os.stat(given).st_uid == os.geteuid():  # Not root's own under `sudo -E`, for one.
                return f"{given}/noclobber"
        except OSError:
            pass
    own = f"{own_state.own_folder()}/runtime"
    if os.path.isdir(own):
        return own
    shared = f"{os.environ.get('TMPDIR') or '/tmp'}/noclobber-{os.geteuid()}"  # noqa: S108 - private, and checked
    try:
        return shared if os.lstat(shared).st_uid == os.geteuid() else own
    except OSError:
        return shared


def is_switch(path: str, root: str, places: frozenset[str] | None = None) -> bool:
    """
    True if an absolute path is one of the guard's own switches, seen from a project.

    `places`: what `places_of` says, if many are asked about. Case is folded: some filesystems open
    `.claude/settings.json` for `.Claude/Settings.JSON`, and no honest file has such a name.
    """
    folded = path.casefold()
    if base_of(folded) is not None:
        return True
    return is_at(folded, places_of(root) if places is None else places) or _is_installed(path)


@lru_cache(maxsize=1024)
def base_of(folded: str) -> str | None:
    """Return the folder whose sessions a path's content decides about, by its name alone; None: of none."""
    if folded.endswith(_OPTIONS):
        return folded[: -len(_OPTIONS)]
    for host, names in _KINDS:
        at = folded.find(host)
        while at >= 0:
            below = folded[at + len(host) :]
            if any(is_below(below, name) for name in names):
                return folded[:at]
            at = folded.find(host, at + 1)
    return None


def is_at(folded: str, places: frozenset[str]) -> bool:
    """True if a path is one of some places, or in one."""
    return any(is_below(folded, place) for place in places)


def places_of(root: str) -> frozenset[str]:
    """
    Return the places of switches that no name tells: given by the environment, or behind a link.

    What was found counts for a second: to look costs 37 system calls, a quarter of a write. An agent cannot
    make such a link in between, because its name is a switch.
    """
    asked = (root, *map(os.environ.get, _ASKED))
    now_s = time.monotonic()
    found = _found_places.get(asked)
    if found is None or now_s - found[0] > FRESH_S:
        if len(_found_places) >= MAX_FOUND:
            _found_places.clear()
        found = _found_places[asked] = (now_s, frozenset(place.casefold() for place in _untold(root)))
    return found[1]


def is_another_name(path: str, root: str, reserved: tuple[str, ...], *, with_switches: bool) -> bool:
    """
    True if a file is a hard link to a switch, or to a file that `reserved` names.

    To write to it is to write to the switch, whatever it is called here. Only a file with several names is
    looked into, so for all others this is one system call.
    """
    status = _look(path)
    if status is None or status.st_nlink < 2 or stat.S_ISDIR(status.st_mode):
        return False
    found = [os.path.join(root, name) for name in reserved]
    if with_switches:
        found += _all_places(root)
    return any(_has_inode(place, status) for place in found)


def holds_switch(folder: str, root: str) -> bool:
    """True if a switch is, or would be, somewhere below a folder, so that moving the folder moves it."""
    folded = f"{folder.casefold()}/"
    if any(folded.endswith(host) for host, _ in _KINDS):
        return True
    return any(is_below(switch.casefold(), folded[:-1]) for switch in _all_places(root))


def touches_code(path: str) -> bool:
    """True if a path is our own code as it is imported, or our command; in it, or around it."""
    return any(is_below(ours, path) or is_below(path, ours) for ours in _OURS)


def is_below(path: str, folder: str) -> bool:
    """True if a path is a folder, or somewhere in it."""
    return path == folder or path.startswith(f"{folder}/")


# -- inside ----------------------------------------------------------------------------------------------


def _untold(root: str) -> set[str]:
    places = set(_own_places())
    for variable in _FILES:
        if (given := os.environ.get(variable, "")).startswith("/"):
            places |= _spellings(given)
    for folder, names in _host_folders(root):
        places |= _behind(folder, names)
    return places | _behind(root, (OPTIONS_NAME,))


def _own_places() -> frozenset[str]:
    """Return our own folders: the runtime folder, the user's state, packages for hosts, and the code."""
    data = os.environ.get("XDG_DATA_HOME", "")
    data = data if data.startswith("/") else os.path.expanduser("~/.local/share")
    euid = os.geteuid()
    return _spelled_both_ways(
        runtime_folder(),
        f"/run/user/{euid}/noclobber",
        f"/tmp/noclobber-{euid}",  # noqa: S108 - a hook's environment may be another than this one's
        own_state.own_folder(),
        f"{data}/noclobber",
    )


@lru_cache(maxsize=32)
def _spelled_both_ways(*folders: str) -> frozenset[str]:
    # Once for a process: a third of what a write costs. Where these lead is the user's own business, and who
    # can put a link there has no need of a tool of ours.
    return frozenset(set(_OURS).union(*map(_spellings, folders)))


def _host_folders(root: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return where hosts keep their settings, and which names count there."""
    bases = {root, *_spellings(os.path.expanduser("~"))}
    found = [(f"{base}/{host}", names) for base in bases for host, names in HOSTS.items()]
    for variable, host in _ELSEWHERE.items():
        given = os.environ.get(variable, "")
        if not given.startswith("/"):
            continue
        for folder in _spellings(given):
            if host in HOSTS:
                found += [(folder, HOSTS[host])]
            found += [
                (f"{folder}/{name.removeprefix('.config/')}", names)
                for name, names in HOSTS.items()
                if name == host or name.startswith(f"{host}/")
            ]
    return found


def _behind(folder: str, names: tuple[str, ...]) -> set[str]:
    """Return the places of some names in a folder that their path does not tell."""
    places: set[str] = set()
    if base_of(f"{folder}/{names[0]}".casefold()) is None:
        places |= {f"{folder}/{name}" for name in names}
    if _look(folder) is None:
        return places
    real = _real(folder)
    for name in names:
        if real != folder:
            places.add(f"{real}/{name}")
        status = _look(f"{folder}/{name}")
        if status is not None and stat.S_ISLNK(status.st_mode):
            places.add(_real(f"{folder}/{name}"))
    return places


def _is_installed(path: str) -> bool:
    """True if `noclobber install` wrote a file, or a folder around it."""
    if _look(f"{own_state.own_folder()}/{INSTALLED}") is None:
        return False
    while path != "/":
        if _asked(path):
            return True
        path = os.path.dirname(path)
    return False


def _asked(path: str) -> bool:
    try:
        return own_state.has(INSTALLED, os.fsencode(path))
    except OSError as error:
        raise _unknown(path, error) from error


def _all_places(root: str) -> list[str]:
    """Return where all switches are, or would be."""
    places = [f"{root}/{OPTIONS_NAME}", *_untold(root)]
    try:
        places += [os.fsdecode(path) for _, path in own_state.listed(INSTALLED)]
    except OSError as error:
        raise _unknown(own_state.own_folder(), error) from error
    return places + [f"{folder}/{name}" for folder, names in _host_folders(root) for name in names]


def _has_inode(place: str, wanted: os.stat_result) -> bool:
    """True if a file, or one in a folder, is the wanted one; a link that is a switch leads to it."""
    left = [place]
    while left:
        here = left.pop()
        found = _look(here)
        if found is None:
            continue
        if os.path.samestat(found, wanted):
            return True
        if stat.S_ISDIR(found.st_mode):
            try:
                left += [f"{here}/{name}" for name in os.listdir(here)]
            except OSError as error:
                if error.errno not in _NOTHING:
                    raise _unknown(here, error) from error
    return False


def _look(path: str) -> os.stat_result | None:
    """Return what is known of a name; None if nothing is there that this user could reach."""
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno in _NOTHING:
            return None
        raise _unknown(path, error) from error


def _real(path: str) -> str:
    """Return where a name leads on the disk, or would lead if its last parts were there."""
    try:
        descriptor = os.open(path, _ONLY_NAMED)
        try:
            return os.readlink(f"/proc/self/fd/{descriptor}")  # A tenth of what `realpath` takes.
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        if _look(path) is None and path != "/":
            above, _, name = path.rpartition("/")
            return f"{_real(above or '/').rstrip('/')}/{name}"
    except OSError:
        pass  # macOS, or nobody may look; what it is, the other way says.
    try:
        return os.path.realpath(path, strict=True)
    except OSError as error:
        if error.errno not in _NOTHING:
            raise _unknown(path, error) from error
        return os.path.realpath(path)


def _unknown(path: str, error: OSError) -> StorageError:
    return StorageError(
        path,
        f"it cannot be looked at ({error.strerror}), so nobody can say whether it is one of the guard's "
        "switches, and nothing was written. Try again.",
    )


def _spellings(folder: str) -> set[str]:
    """Return a folder's name without detours, and as the disk has it: the environment may name a link."""
    return {os.path.normpath(folder), _real(folder)}
