"""
The guard's own switches: files that an agent must not change, because they say whether and how it is checked.

| switch | why |
|---|---|
| `noclobber.toml` of the project | the rules |
| the hook configuration of coding agents, in the project and at home | whether the hooks run at all |
| the runtime folder | what agents are known to have seen |
| noclobber's own code | what is done about it |

Rules in `pyproject.toml` are not protected: agents have to change that file for other reasons. Git's own
files are not ours to forbid, either. `switches = "open"` lets agents change all of this; `reserved` names
more files and folders.

No imports beyond the smallest: a hook asks on every write.
"""

from __future__ import annotations

import os
import stat

from noclobber.core.project import OPTIONS_NAME

# Below the project's root and below the user's home. A test holds every host's own place against these.
HOOK_FILES = (
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".codex/config.toml",
    ".codex/hooks.json",
    ".cursor/hooks.json",
    ".gemini/settings.json",
    ".qwen/settings.json",
)
HOOK_FOLDERS = (
    ".cline/plugins",
    ".config/opencode/plugin",
    ".copilot/hooks",
    ".github/hooks",
    ".opencode/plugin",
)


def runtime_folder() -> str:
    """Return where hooks keep what agents saw. Nothing is created."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given.startswith("/"):
        try:
            if os.stat(given).st_uid == os.geteuid():  # Not root's own under `sudo -E`, for one.
                return f"{given}/noclobber"
        except OSError:
            pass
    return f"{os.environ.get('TMPDIR') or '/tmp'}/noclobber-{os.geteuid()}"  # noqa: S108 - private, and checked


def is_switch(path: str, root: str) -> bool:
    """
    True if an absolute path is one of the guard's own switches, seen from a project.

    Below the project and the home, case is folded: some filesystems open `.claude/settings.json` for
    `.Claude/Settings.JSON`, and no honest file has such a name.
    """
    folded = path.casefold()
    if "noclobber" not in folded and "/." not in folded:
        return False  # Every switch has one of the two in its path, and most files have neither.
    if folded == f"{root}/{OPTIONS_NAME}".casefold():
        return True
    for base in {root, *_spellings(os.path.expanduser("~"))}:
        if folded.startswith(f"{base}/.".casefold()):
            below = path[len(base) + 1 :].casefold()
            if below in HOOK_FILES or any(is_below(below, folder) for folder in HOOK_FOLDERS):
                return True
    package_folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if any(is_below(path, folder) for folder in _spellings(runtime_folder())):
        return True
    return is_below(path, package_folder)


def is_another_name(path: str, root: str, reserved: tuple[str, ...], *, with_switches: bool) -> bool:
    """
    True if a file is a hard link to a switch, or to a file that `reserved` names.

    To write to it is to write to the switch, whatever it is called here. Only a file with several names is
    looked into, so for all others this is one system call.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if status.st_nlink < 2 or stat.S_ISDIR(status.st_mode):
        return False
    places = [os.path.join(root, name) for name in reserved]
    if with_switches:
        places += _places(root)
    return any(_has_inode(place, status) for place in places)


def _has_inode(place: str, wanted: os.stat_result) -> bool:
    """True if a file, or one in a folder, is the wanted one."""
    left = [place]
    while left:
        here = left.pop()
        try:
            found = os.lstat(here)
            if os.path.samestat(found, wanted):
                return True
            if stat.S_ISDIR(found.st_mode):
                left += [f"{here}/{name}" for name in os.listdir(here)]
        except OSError:
            continue  # Not there, or nobody may look.
    return False


def _places(root: str) -> list[str]:
    """Return where all switches are, or would be."""
    bases = {root, *_spellings(os.path.expanduser("~"))}
    package_folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    places = [f"{root}/{OPTIONS_NAME}", package_folder, *_spellings(runtime_folder())]
    return places + [f"{base}/{name}" for base in bases for name in (*HOOK_FILES, *HOOK_FOLDERS)]


def holds_switch(folder: str, root: str) -> bool:
    """True if a switch is, or would be, somewhere below a folder, so that moving the folder moves it."""
    return any(is_below(switch, folder) for switch in _places(root))


def _spellings(folder: str) -> set[str]:
    """Return a folder's name without detours, and as the disk has it: the environment may name a link."""
    return {os.path.normpath(folder), os.path.realpath(folder)}


def is_below(path: str, folder: str) -> bool:
    """True if a path is a folder, or somewhere in it."""
    return path == folder or path.startswith(f"{folder}/")
