"""
Check that this checkout can be released: version, changelog, tag, packages, and a fresh installation.

Run it before the tag is made and again after it (docs/releasing.md). Without a tag on this commit the
changelog may still say "unreleased"; with one, everything must be final. Nothing is uploaded, and nothing
is written outside a scratch folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]

# What a user's program needs besides the Python files.
MUST_CONTAIN = ("noclobber/py.typed", "noclobber/core/schemas/stale-file-agent.schema.json")


class NotReady(Exception):  # noqa: N818 - it is a verdict, not a failure of this program
    """The checkout cannot be released as it is; the text says what to change."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program; return what it printed, or say what went wrong."""
    # The checkout must not stand in for the installed package.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd or PROJECT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        shown = " ".join(str(word) for word in command[:4])
        raise NotReady(f"`{shown} …` failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def version() -> str:
    """Return the version from the one place where it is written."""
    source = (PROJECT / "src/noclobber/__init__.py").read_text()
    found = re.search(r'^__version__ = "(\d+\.\d+\.\d+[\w.]*)"$', source, re.M)
    if not found:
        raise NotReady('src/noclobber/__init__.py has no line `__version__ = "X.Y.Z"`.')
    return found.group(1)


def release_tags() -> list[str]:
    """Return the version tags of this commit."""
    return [tag for tag in run("git", "tag", "--points-at", "HEAD").split() if re.match(r"v\d", tag)]


def check_changelog(number: str, *, tagged: bool) -> str:
    """The changelog has this version; once it is tagged, with a date."""
    text = (PROJECT / "CHANGELOG.md").read_text()
    found = re.search(rf"^## {re.escape(number)}, (.+)$", text, re.M)
    if not found:
        raise NotReady(f"CHANGELOG.md has no heading `## {number}, <date>`.")
    if tagged and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", found.group(1)):
        raise NotReady(
            f"CHANGELOG.md calls {number} {found.group(1)!r}. Write the date (YYYY-MM-DD) before the tag."
        )
    return found.group(0)


def check_tag(number: str) -> str:
    """A tag on this commit names this version, and the checkout has no changes of its own."""
    tags = release_tags()
    if not tags:
        return f"none yet; the tag will be v{number}"
    if tags != [f"v{number}"]:
        raise NotReady(f"This commit has the tag {', '.join(tags)}, but the version is {number}.")
    if changes := run("git", "status", "--porcelain"):
        raise NotReady(f"The checkout differs from the tag:\n{changes}")
    return tags[0]


def check_packages(number: str, folder: Path) -> str:
    """Both packages build, have the version and what must be in them, and pass `twine check`."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, PROJECT)
    wheel, source = folder / f"noclobber-{number}-py3-none-any.whl", folder / f"noclobber-{number}.tar.gz"
    for package in (wheel, source):
        if not package.exists():
            raise NotReady(f"The build made {sorted(os.listdir(folder))}, not {package.name}.")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    with zipfile.ZipFile(wheel) as archive:
        missing = set(MUST_CONTAIN) - set(archive.namelist())
    with tarfile.open(source) as archive:
        missing |= {
            name for name in MUST_CONTAIN if f"noclobber-{number}/src/{name}" not in archive.getnames()
        }
    if missing:
        raise NotReady(f"The packages lack {', '.join(sorted(missing))}.")
    return f"{wheel.name}, {source.name}"


def check_installation(number: str, folder: Path) -> str:
    """The wheel works where nothing else is: `noclobber --version`, and the README's Python block."""
    environment = folder / "fresh"
    venv.create(environment, with_pip=True)
    [wheel] = folder.glob("*.whl")
    # The package has no dependencies, so no index is asked.
    run(environment / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", wheel, cwd=folder)
    said = run(environment / "bin/noclobber", "--version", cwd=folder)
    if said != f"noclobber {number}":
        raise NotReady(f"`noclobber --version` says {said!r}.")
    blocks = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.S)
    if not blocks:
        raise NotReady("README.md has no Python block.")
    for block in blocks:
        run(environment / "bin/python", "-c", block, cwd=folder)
    return f"{said}; {len(blocks)} README block runs"


def main() -> int:
    """Run every check in order; stop at the first that fails."""
    with tempfile.TemporaryDirectory(prefix="noclobber-release-") as scratch:
        folder = Path(scratch)
        try:
            number = version()
            checks: list[tuple[str, Callable[[], str]]] = [
                ("changelog", lambda: check_changelog(number, tagged=bool(release_tags()))),
                ("tag", lambda: check_tag(number)),
                ("packages", lambda: check_packages(number, folder)),
                ("installation", lambda: check_installation(number, folder)),
            ]
            print(f"version       {number}")
            for name, check in checks:
                print(f"{name:<13} {check()}", flush=True)
        except NotReady as reason:
            print(f"not ready: {reason}", file=sys.stderr)
            return 1
    print("ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
