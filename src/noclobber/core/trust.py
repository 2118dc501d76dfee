"""
Which folders the user trusts (ruling 34): what weakens the guard, or runs a program, counts only from there.

Options of a project that weaken the guard come with the folder, so somebody else may have written them. They
count only if the user has looked at these very options in this very folder. What is trusted is kept in the
user's own state (`own_state`), by the folder's real path, its inode and owner, and the options themselves: a
`git pull` that changes one of them, a copy of the folder, or another folder in its place has to be looked at
again. Options that tighten count always, and a change of those changes nothing here.

Who is asked, and where it is said that something does not count, is the business of the command line
(`cli/trust`) and of hooks. An option that is ignored is never an error: the guard is stricter, that is all.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core import own_state
from noclobber.core.options import flat, loosening
from noclobber.core.options_file import load
from noclobber.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

TRUSTED = "trusted"


class Trusted(NamedTuple):
    """A folder that the user trusts, and the options that were looked at."""

    name: str
    folder: str
    options: dict[str, Any]


def weakening(root: str) -> dict[str, Any]:
    """Return the options of a project's file that weaken the guard. `ConfigError` if the file is wrong."""
    return loosening(flat(load(root).given))


def is_trusted(root: str, loose: Mapping[str, Any] | None = None) -> bool:
    """True if the user trusts a folder with the options that weaken the guard there now (or given ones)."""
    try:
        return own_state.has(TRUSTED, _key(root, weakening(root) if loose is None else loose))
    except OSError:
        return False


def ignored(root: str) -> dict[str, Any]:
    """Return the options of a project's file that weaken the guard and do not count."""
    loose = weakening(root)
    return {} if not loose or is_trusted(root, loose) else loose


def told(loose: Mapping[str, Any]) -> str:
    """Return in a sentence that some options do not count, and what to do. Their names are ours alone."""
    return (
        "Options of this folder that weaken the guard do not count, because the user has not looked at them: "
        f"{', '.join(sorted(loose))}. `noclobber trust` shows them, and asks."
    )


def trust(root: str, loose: Mapping[str, Any]) -> None:
    """Trust a folder with these options, and with no others that it was trusted with before."""
    distrust(root)
    shown = {"folder": os.path.realpath(root), "options": dict(loose)}
    own_state.add(TRUSTED, _key(root, loose), json.dumps(shown).encode("utf-8", "surrogateescape"))


def distrust(folder: str) -> bool:
    """Trust a folder no longer, whether it is still there or not; False if it was not trusted."""
    places = {os.path.abspath(folder), os.path.realpath(folder)}
    gone = [one for one in listed() if one.folder in places]
    for one in gone:
        own_state.remove(TRUSTED, one.name)
    return bool(gone)


def listed() -> list[Trusted]:
    """Return the folders that the user trusts."""
    found = []
    for name, shown in own_state.listed(TRUSTED):
        try:
            value = json.loads(shown.decode("utf-8", "surrogateescape"))
            found.append(Trusted(name, str(value["folder"]), dict(value["options"])))
        except (ValueError, KeyError, TypeError):
            continue  # Not written by us, so it is nobody's trust: no entry has such a name.
    return sorted(found, key=lambda one: one.folder)


def is_still(one: Trusted) -> bool:
    """True if a folder is what it was when it was trusted, and so are its options."""
    try:
        return own_state.name_of(_key(one.folder, weakening(one.folder))) == one.name
    except (OSError, ConfigError):
        return False


def _key(root: str, loose: Mapping[str, Any]) -> bytes:
    real = os.path.realpath(root)
    status = os.stat(real)
    facts = [real, status.st_ino, status.st_uid, sorted(loose.items())]
    return json.dumps(facts).encode("utf-8", "surrogateescape")
