"""
The guarded shell against the same commands run plainly.

`noclobber run -- true` and one `sed -i`, by the milliseconds that they add to `sh -c`; then commands that
look at many files, and commands that change many. Each pair is run in turns, on one folder.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import noclobber
from bench import Row, in_turns, spelled
from noclobber.shell.namespace import UnavailableError, library

ROUNDS = 21
FEW_ROUNDS = 7
MANY_FILES = 20_000
CHANGED_FILES = 1_000
ADDED_MS_TRUE, ADDED_MS_SED = 20.0, 30.0
MOST_LOOKING, MOST_CHANGING = 3.0, 2.5
MOST_APPENDING = 1.0
LARGE_BYTES = 1 << 30

CREATE = f"mkdir new && cd new && for i in $(seq {CHANGED_FILES}); do echo $i > f$i; done"
CHANGE = "for f in old/*; do echo changed > $f; done"
REMOVE = "rm -r gone"
INSTALL = "cp -r ../packages node_modules"


def rows() -> Iterator[Row]:
    """Every figure of the guarded shell."""
    try:
        library()
    except UnavailableError:
        return
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        _install(Path(folder, "installed"))
        root = Path(folder, "project")
        root.mkdir()
        yield _added(root, "`noclobber run -- true`", "true", ADDED_MS_TRUE)
        (root / "plan.md").write_text("one\n")
        yield _added(
            root, "`sed -i` of one file", "sed -i s/$/x/ plan.md", ADDED_MS_SED
        )  # Changes it each time.
        yield from _looking(Path(folder, "many"))
        yield _changing(Path(folder, "changed"))
        yield _installing(Path(folder, "many"), Path(folder, "with-packages"))
        yield _appending(Path(folder, "large"))


def _install(folder: Path) -> None:
    """Install it as `uv tool install` does: nothing else in the environment, compiled, with its script."""
    venv.create(folder, with_pip=False)
    [packages] = folder.glob("lib/python*/site-packages")
    shutil.copytree(
        Path(noclobber.__file__).parent,
        packages / "noclobber",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    subprocess.run([folder / "bin/python", "-m", "compileall", "-q", packages], check=True)
    script = (Path(__file__).parents[1] / "bin/noclobber").read_text()
    program = folder / "bin/noclobber"
    program.write_text(script.replace("#!python", f"#!{folder}/bin/python", 1))
    program.chmod(0o755)


def _run(root: Path, text: str, *, guarded: bool) -> None:
    words = [str(root.parent / "installed/bin/noclobber"), "run", "--"] if guarded else []
    subprocess.run(
        [*words, "sh", "-c", text], cwd=root, env=_ENVIRONMENT, stdout=subprocess.DEVNULL, check=True
    )


# What a developer has set would be in the way: the installed package is meant, not the one in the checkout.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _added(root: Path, what: str, text: str, bar_ms: float) -> Row:
    _run(root, text, guarded=True)  # Makes the state folder, once.
    ours_s, peer_s, _ = in_turns(
        lambda: _run(root, text, guarded=True), lambda: _run(root, text, guarded=False), rounds=ROUNDS
    )
    added_ms = (ours_s - peer_s) * 1000
    return Row(
        what=f"{what}: added ms",
        against=f"`sh -c`, {spelled(peer_s)}",
        ratio=added_ms,
        bar=f"<= {bar_ms:g} ms",
        ok=added_ms <= bar_ms,
        detail=spelled(ours_s),
    )


def _looking(root: Path) -> Iterator[Row]:
    for number in range(MANY_FILES):
        path = root / f"d{number % 200}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    git = "git init -q . && git config gc.auto 0 && git config user.name a && git config user.email a@b"
    git += " && git add . && git commit -qm a"
    subprocess.run(["sh", "-c", git], cwd=root, check=True)
    for what, text in (("git status", "git status --porcelain"), ("grep -r", "grep -r needle . ; true")):
        _run(root, text, guarded=True)
        ours_s, peer_s, ratio = in_turns(
            lambda text=text: _run(root, text, guarded=True),  # type: ignore[misc]
            lambda text=text: _run(root, text, guarded=False),  # type: ignore[misc]
            rounds=FEW_ROUNDS,
        )
        yield Row(
            what=f"`{what}` in {MANY_FILES} files",
            against=f"plainly, {spelled(peer_s)}",
            ratio=ratio,
            bar=f"<= {MOST_LOOKING:g} x",
            ok=ratio <= MOST_LOOKING,
            detail=spelled(ours_s),
        )


def _changing(root: Path) -> Row:
    """
    Create, change and remove a thousand files; making the folder anew for each round is not counted.

    No two files have the same content, as in a project: each version that is replaced is one to be kept.
    """
    rounds = itertools.count()

    def prepare() -> None:
        shutil.rmtree(root / "new", ignore_errors=True)
        begun = next(rounds)
        for name in ("old", "gone"):
            (root / name).mkdir(parents=True, exist_ok=True)
            for number in range(CHANGED_FILES):
                (root / name / f"f{number}").write_text(f"{begun} {name} {number}\n")
        os.sync()

    prepare()
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(FEW_ROUNDS):
        for guarded in (True, False):
            prepare()
            begun_s = time.perf_counter()
            for text in (CREATE, CHANGE, REMOVE):
                _run(root, text, guarded=guarded)
            times[guarded].append(time.perf_counter() - begun_s)
    ours_s, peer_s = (sorted(times[guarded])[FEW_ROUNDS // 2] for guarded in (True, False))
    ratio = ours_s / peer_s
    return Row(
        what=f"{CHANGED_FILES} files created, changed, removed",
        against=f"plainly, {spelled(peer_s)}",
        ratio=ratio,
        bar=f"<= {MOST_CHANGING:g} x",
        ok=ratio <= MOST_CHANGING,
        detail=spelled(ours_s),
    )


def _installing(packages: Path, root: Path) -> Row:
    """Create as many files as `npm install` does, in a folder that is not checked."""
    shutil.rmtree(packages / ".git")
    shutil.rmtree(packages / ".noclobber")
    packages.rename(root.parent / "packages")
    root.mkdir()
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(3):
        for guarded in (True, False):
            shutil.rmtree(root / "node_modules", ignore_errors=True)
            os.sync()
            begun_s = time.perf_counter()
            _run(root, INSTALL, guarded=guarded)
            times[guarded].append(time.perf_counter() - begun_s)
    ours_s, peer_s = (sorted(times[guarded])[1] for guarded in (True, False))
    return Row(
        what=f"{MANY_FILES} files created in `node_modules`",
        against=f"plainly, {spelled(peer_s)}",
        ratio=ours_s / peer_s,
        bar=f"<= {MOST_CHANGING:g} x",
        ok=ours_s <= MOST_CHANGING * peer_s,
        detail=spelled(ours_s),
    )


def _appending(root: Path) -> Row:
    """Append a byte to a large file. It is copied once, and both versions are hashed."""
    root.mkdir()
    with (root / "large").open("wb") as file:
        for _ in range(LARGE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    os.sync()
    _run(root, "true", guarded=True)
    ours: list[float] = []
    copies: list[float] = []
    for _ in range(3):
        for times, text, guarded in (
            (ours, "printf x >> large", True),
            (copies, "cp large copy; sha256sum copy; rm copy", False),
        ):
            begun_s = time.perf_counter()
            _run(root, text, guarded=guarded)
            times.append(time.perf_counter() - begun_s)
    ours_s, copy_s = sorted(ours)[1], sorted(copies)[1]
    return Row(
        what=f"one byte appended to {LARGE_BYTES >> 30} GiB",
        against=f"a copy of the file and its hash, {spelled(copy_s)}",
        ratio=ours_s / copy_s,
        bar=f"<= {MOST_APPENDING:g} x",
        ok=ours_s <= MOST_APPENDING * copy_s,
        detail=spelled(ours_s),
    )
