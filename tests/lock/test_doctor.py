"""The lock's self-test: everything tried for real (X-002)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from noclobber.disk import filesystems
from noclobber.lock import doctor
from noclobber.lock.doctor import check

TRIED = {
    "filesystem", "flock", "link", "exchange-rename", "leases", "xattrs", "fsync", "clock", "lock cycle", "recovery",
}  # fmt: skip


def test_a_healthy_folder_passes_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    """X-002: every primitive, contention between two processes, recovery of a killed holder."""
    findings = check(str(tmp_path))
    assert {finding.name for finding in findings} == TRIED
    assert [finding for finding in findings if not finding.ok] == []
    assert list(tmp_path.iterdir()) == []


def test_a_mutex_that_excludes_nobody_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-002: the call that succeeds on FUSE and NFS and does nothing."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    flock = {finding.name: finding for finding in check(str(tmp_path))}["flock"]
    assert not flock.ok
    assert "excludes nobody" in flock.detail
    assert "not promised" in flock.remedy


def test_a_filesystem_without_hard_links_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-002: locks are published with link()."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    findings = {finding.name: finding for finding in check(str(tmp_path))}
    assert not findings["link"].ok
    assert not findings["lock cycle"].ok
    assert findings["link"].remedy == doctor.MUST_WORK


def test_what_a_network_filesystem_does_not_promise_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-002: it cannot be tried from one machine, so it is said by name."""
    for kind in ("nfs4", "fuse.sshfs", "overlay", "never-heard-of"):
        monkeypatch.setattr(doctor, "filesystem_type", lambda _, kind=kind: kind)
        finding = check(str(tmp_path))[0]
        assert finding.detail == kind
        assert "not " in finding.remedy


def test_leases_that_do_not_see_the_other_side_are_said_not_to_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding R3: FUSE grants them, and `doctor` said that the kernel tells who has a file open."""
    monkeypatch.setattr(filesystems, "kind_of", lambda _: "fuse")
    leases = {finding.name: finding for finding in check(str(tmp_path))}["leases"]
    assert leases.ok
    assert "not used" in leases.detail


def test_a_folder_that_cannot_be_tried_is_a_finding(tmp_path: Path) -> None:
    """X-002: no traceback."""
    findings = check(str(tmp_path / "missing"))
    assert not findings[-1].ok
    assert "cannot create" in findings[-1].detail


def test_the_filesystem_below_a_folder_is_named(tmp_path: Path) -> None:
    """By mount point: a tmpfs is a tmpfs, wherever it is mounted."""
    assert filesystems.filesystem_type("/proc") == "proc"
    assert filesystems.filesystem_type(str(tmp_path)) not in ("unknown", "proc")
    assert filesystems.filesystem_type(str(tmp_path / "not there")) == filesystems.filesystem_type(
        str(tmp_path)
    )
