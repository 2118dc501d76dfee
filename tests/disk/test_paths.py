"""Where a path may lead, and what cannot name a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noclobber.disk import paths
from noclobber.disk.file_guard import FileGuard
from noclobber.errors import (
    BadPathError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    OutsideWorkspaceError,
)
from tests.conftest import AtStep, sha256


@pytest.mark.parametrize("path", ["../out.md", "/etc/passwd", "sub/../../out.md", "/"])
def test_paths_outside_the_workspace_are_refused(guard: FileGuard, root: Path, path: str) -> None:
    """N-paths: neither read nor written, and nothing is created out there."""
    with pytest.raises((OutsideWorkspaceError, NotAFileError)):
        guard.read(path)
    with pytest.raises((OutsideWorkspaceError, NotAFileError)):
        guard.write(path, b"x", expected=None)
    assert not (root.parent / "out.md").exists()


def test_a_link_out_of_the_workspace_is_not_followed(guard: FileGuard, root: Path, tmp_path: Path) -> None:
    """N-paths: through links too, to files and to folders."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "file").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    for path in ("file", "folder/secret", "folder/new"):
        with pytest.raises(OutsideWorkspaceError):
            guard.read(path)
        with pytest.raises(OutsideWorkspaceError):
            guard.write(path, b"x", expected=None)
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_folder_swapped_for_a_link_in_between_leads_nowhere(
    guard: FileGuard, root: Path, tmp_path: Path, at_step: AtStep
) -> None:
    """N-paths: the folder was pinned before it was judged, so the swap comes too late."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_bytes(b"v1")
    (root / "sub").mkdir()
    (root / "sub/a.md").write_bytes(b"v1")

    def swap() -> None:
        os.rename(root / "sub", root / "was")
        (root / "sub").symlink_to(outside)

    seen = at_step("entered", swap)
    guard.write("sub/a.md", b"agent", expected=sha256(b"v1"))
    assert seen
    assert (outside / "a.md").read_bytes() == b"v1"
    assert (root / "was/a.md").read_bytes() == b"agent"


@pytest.mark.parametrize("path", [".noclobber/agent_trace.jsonl", ".noclobber/notes/x", "a/.noclobber/x"])
def test_our_own_records_are_out_of_reach(guard: FileGuard, root: Path, path: str) -> None:
    """N-paths: an agent cannot read or edit its own trace."""
    (root / "a").mkdir()
    with pytest.raises((OutsideWorkspaceError, MissingFileError)):
        guard.read(path)
    with pytest.raises(OutsideWorkspaceError):
        guard.write(path, b"x", expected=None)


def test_a_link_into_our_own_records_is_out_of_reach(guard: FileGuard, root: Path) -> None:
    """N-paths."""
    guard.write("a.md", b"x", expected=None)
    (root / "door").symlink_to(".noclobber")
    with pytest.raises(OutsideWorkspaceError):
        guard.write("door/agent_trace.jsonl", b"x", expected=None)


@pytest.mark.parametrize(
    "path",
    ["a\0b", "", "x" * 300, "/".join(["d" * 200] * 30), "bad\udcff.md", b"bytes"],
    ids=["nul", "empty", "long name", "long path", "not utf-8", "bytes"],
)
def test_paths_that_cannot_name_a_file_are_refused_by_name(guard: FileGuard, root: Path, path: Any) -> None:
    """N-paths: the error names the path and the reason, and prints."""
    for call in (guard.read, lambda p: guard.write(p, b"x", expected=None)):
        with pytest.raises((BadPathError, MissingFileError)) as refused:
            call(path)
        assert str(refused.value).encode()
    with pytest.raises(BadPathError):
        guard.write(path, b"x", expected="0" * 64)


def test_links_in_a_circle_are_refused(guard: FileGuard, root: Path) -> None:
    """N-links."""
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(BadPathError):
        guard.read("a")


@contextmanager
def namespace_with_mount(folder: Path) -> Iterator[str]:
    """`/proc/PID/root` of a process that has a filesystem of its own mounted at a folder."""
    if sys.platform != "linux":
        pytest.skip("mount namespaces are Linux's")
    script = (
        'mount -t tmpfs none "$1" && mkdir -p "$1/sub" "$1/deep" && echo secret > "$1/secret" && '
        'echo secret > "$1/sub/secret" && echo up && cat'
    )
    # A user namespace for those who are not root.
    command = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    process = subprocess.Popen(
        [*command, "sh", "-c", script, "sh", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"up\n":
            pytest.skip("no mount namespace can be made here")
        yield f"/proc/{process.pid}/root"
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


@pytest.fixture
def other_namespace(root: Path) -> Iterator[str]:
    """A namespace that has another filesystem at the workspace's `sub`."""
    (root / "sub").mkdir()
    with namespace_with_mount(root / "sub") as path:
        yield path


def test_a_folder_of_another_mount_namespace_is_not_inside_for_its_name(
    root: Path, other_namespace: str
) -> None:
    """finding S14: the kernel calls it `ROOT/sub`, and that name leads to another folder here."""
    (root / "link").symlink_to(f"{other_namespace}{root}/sub")
    guard = FileGuard(root)

    for attempt in (
        lambda: guard.read("link/secret"),
        lambda: guard.write("link/secret", b"mine", expected=None),
        lambda: guard.write("link/new", b"mine", expected=None),
        lambda: guard.delete("link/secret", expected=None),
    ):
        with pytest.raises(NoclobberError):
            attempt()

    there = Path(f"{other_namespace}{root}/sub")
    assert (there / "secret").read_bytes() == b"secret\n"
    assert sorted(one.name for one in there.iterdir()) == ["deep", "secret", "sub"]


def test_a_folder_there_that_has_no_namesake_here_is_refused_too(root: Path, other_namespace: str) -> None:
    """finding S14: `ROOT/sub/deep` exists in that namespace only; a link in the last place leads there."""
    (root / "file").symlink_to(f"{other_namespace}{root}/sub/deep/new")
    (root / "folder").symlink_to(f"{other_namespace}{root}/sub/deep")
    guard = FileGuard(root)

    for name in ("file", "folder/a/b"):
        with pytest.raises(NoclobberError):
            guard.write(name, b"mine", expected=None)

    assert list(Path(f"{other_namespace}{root}/sub/deep").iterdir()) == []
    assert not (root / "sub/deep").exists()


@pytest.mark.parametrize("name", ["sub", "sub/deeper"])
def test_a_link_into_another_namespace_cannot_confirm_its_own_name(root: Path, name: str) -> None:
    """finding S14: `ROOT/sub` is a link to what is called `ROOT/sub` there, so that name leads there, too."""
    guard = FileGuard(root)
    with namespace_with_mount(root) as other:
        there = Path(f"{other}{root}/sub")
        (there / "deeper").mkdir()
        (there / "deeper" / "secret").write_bytes(b"secret\n")
        (root / "sub").symlink_to(there)

        for attempt in (
            lambda: guard.read(f"{name}/secret"),
            lambda: guard.write(f"{name}/new", b"mine", expected=None),
            lambda: guard.write(f"{name}/secret", b"mine", expected=None),
            lambda: guard.delete(f"{name}/secret", expected=None),
        ):
            with pytest.raises(NoclobberError):
                attempt()

        found = sorted(str(one.relative_to(there)) for one in there.rglob("*"))
        assert found == ["deeper", "deeper/secret", "secret"]
        assert (there / "secret").read_bytes() == b"secret\n"


def test_what_the_kernel_calls_a_folder_must_lead_to_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding S14, where there are no namespaces to be had: the name is of a namesake."""
    namesake = root / "namesake"
    namesake.mkdir()
    monkeypatch.setattr(paths, "_kernel_name", lambda *_: str(namesake))

    with pytest.raises(BadPathError, match="namespace"):
        FileGuard(root).write("a.md", b"x", expected=None)

    assert list(namesake.iterdir()) == []


def test_a_folder_that_was_deleted_while_it_was_open_is_missing(root: Path) -> None:
    """N-paths: its name then ends in `(deleted)`, which is no name."""
    gone = root / "gone"
    gone.mkdir()
    descriptor = os.open(gone, paths.OPEN_FOLDER)
    gone.rmdir()
    try:
        with pytest.raises(FileNotFoundError):
            paths.folder_name(descriptor, str(gone))
    finally:
        os.close(descriptor)
    with pytest.raises(MissingFileError):
        FileGuard(root).read("gone/a.md")


@pytest.mark.parametrize("name", [".noclobber/x", ".NoClobber/x", ".NOCLOBBER-notes/x", "a/.noClobber"])
def test_reserved_names_fold_case_everywhere(root: Path, name: str) -> None:
    """finding S20: FAT, SMB and casefolded ext4 folders do not tell cases apart either."""
    assert paths.is_reserved(f"{root}/{name}", str(root))
    with pytest.raises(OutsideWorkspaceError):
        FileGuard(root).write(name, b"x", expected=None)
