"""
What differs between hosts beside their events: the values that `traits()` in a host's file returns.

Used by `install`, `start` and `doctor`. A hook call does not load this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.hosts import HOSTS, load

if TYPE_CHECKING:
    from noclobber.hosts.installations import Installation
    from noclobber.hosts.loading import NotLoaded

    InstalledPackages = Callable[[str, str], list[str]]
    Untrusted = Callable[[Installation, str], NotLoaded | None]

NAME = "noclobber"
SIGNED = {
    "author": {"name": "noclobber contributors"},
    "homepage": "https://github.com/noclobber/noclobber",
    "license": "Apache-2.0",
}


class Recommendation(NamedTuple):
    """The way of installing that works best in a host: `install` says it, and docs/hosts repeats it."""

    form: str
    """`hooks`, `user` (hooks for all projects) or `plugin`."""
    why: str
    """A sentence."""

    def advice(self, chosen: str) -> str:
        """Return what to tell a user who has chosen one of these ways."""
        if chosen == self.form:
            return f"this is the best way to install it here. {self.why}"
        if (chosen, self.form) == ("user", "plugin"):
            return f"this works as well as `--as plugin`. {self.why}"
        better = {"hooks": "without `--user`", "user": "`--user`", "plugin": "`--as plugin`"}[self.form]
        return f"{better} works better. {self.why}"


class Package(NamedTuple):
    """How a host wants a plugin or an extension with hooks in it (`packages`)."""

    manifest: str
    hooks: str
    add: tuple[str, ...]
    """The host's own commands that install it. `{folder}` has all packages, `{package}` is this one's."""
    remove: tuple[str, ...]
    about: Mapping[str, Any] = {}
    """What its manifest says beside name, version and description."""
    marketplace: str = ""
    """The file that lists packages, for a host that installs from such a list."""
    listing: Mapping[str, Any] = {}
    """What that file has for this host, if it is not what Claude Code wants."""


def _none(home: str, project: str) -> list[str]:
    return []


def _trusted(one: Installation, project: str) -> None:
    return None


class Traits(NamedTuple):
    """One host."""

    recommended: Recommendation
    home: str
    """The folder in which it keeps what belongs to the user."""
    package: Package | None = None
    installed_packages: InstalledPackages = _none
    """Given that folder and a project: the files with hooks of packages that the host has installed."""
    untrusted: Untrusted = _trusted
    """Why the host skips an installation that nobody has trusted; None if it does not."""
    managed: tuple[str, ...] = ()
    """Settings of the whole machine, which may switch hooks off."""
    hook_shell: tuple[str, ...] = ("/bin/sh", "-c")
    """By which it runs its hooks, as seen in real runs."""
    hook_variables: Mapping[str, str] = {}
    """Which variables it sets for them; `{folder}` is the project."""
    program: str = ""
    """Its program, if `noclobber start` can bring its shell to us (`launched`)."""
    words: tuple[str, ...] = ()
    """What that has to be told on its command line, ..."""
    variables: Mapping[str, str] = {}
    """... and in its environment."""


def of(host: str) -> Traits:
    """Return the traits of a host."""
    return load(host).traits()


def all_with_packages() -> dict[str, Package]:
    """Return the packages of all hosts that have any."""
    return {host: kind for host in HOSTS if (kind := of(host).package) is not None}


def all_to_start() -> dict[str, str]:
    """Return the hosts that `noclobber start` can start, each with the name of its program."""
    return {host: program for host in HOSTS if (program := of(host).program)}
