"""
Settings of ssh that belong to root, as ssh has to see them in a private view.

A user who is not root can map one id in a namespace, its own: root's files look as if they were nobody's. ssh
takes no file that its settings include unless that is root's or the user's ("Bad owner or permissions"), so
one file in `/etc/ssh/ssh_config.d` ended every `git fetch`. In the view, each such file has a copy of the
user's own mounted over it. Nobody else sees that, and a file that ssh would not take outside is left alone.

Light to import: every guarded command of an ordinary user loads it.
"""

from __future__ import annotations

import os
import stat

SYSTEM = "/etc/ssh/ssh_config"
MOST_LEVELS = 16  # As in ssh.
MOST_BYTES = 1 << 20


def copies() -> list[tuple[str, bytes]]:
    """Return the files of root's that ssh's settings include, and what they hold."""
    import pwd

    found: dict[str, bytes] = {}
    _look(SYSTEM, os.path.dirname(SYSTEM), found, MOST_LEVELS)
    try:
        own = f"{pwd.getpwuid(os.geteuid()).pw_dir}/.ssh"
    except KeyError:
        return list(found.items())
    _look(f"{own}/config", own, found, MOST_LEVELS)
    return list(found.items())


def _look(config: str, folder: str, found: dict[str, bytes], levels: int) -> None:
    """Look for what a file includes; names that are not absolute are in `folder`."""
    try:
        descriptor = os.open(config, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            content = os.read(descriptor, MOST_BYTES) if stat.S_ISREG(status.st_mode) else b""
        finally:
            os.close(descriptor)
    except OSError:
        return
    if levels < MOST_LEVELS and status.st_uid == 0 and not status.st_mode & 0o022:
        found[os.path.realpath(config)] = content
    if b"nclude" not in content.lower():
        return
    for line in os.fsdecode(content).splitlines():
        keyword, *names = line.replace("=", " ", 1).replace('"', " ").split() or [""]
        if keyword.lower() == "include" and levels:
            for name in names:
                path = os.path.join(folder, os.path.expanduser(name))
                for each in _matching(path):
                    _look(each, folder, found, levels - 1)


def _matching(pattern: str) -> list[str]:
    folder, _, name = pattern.rpartition("/")
    start, star, end = name.partition("*")
    if not any(sign in f"{folder}{start}{end}" for sign in "*?["):  # Most are; `glob` loads much.
        if not star:
            return [pattern]
        try:
            names = os.listdir(folder)
        except OSError:
            return []
        return [f"{folder}/{each}" for each in names if each.startswith(start) and each.endswith(end)]
    import glob

    return glob.glob(pattern)
