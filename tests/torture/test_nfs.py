"""The referee of the proof on NFS, and what is said where it cannot be run."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from torture import kernels, nfs

FIRST, SECOND = nfs.FILES


def _try(file: str, before: str, line: str) -> dict[str, Any]:
    hashes = [sha256(text.encode()).hexdigest() for text in (before, before + line)]
    return {"line": line, "file": file, "tried": hashes}


def test_the_referee_of_a_volume_convicts_what_is_lost_broken_or_made_twice() -> None:
    """N-machines: an acknowledged line that is not there, one that nobody wrote on top of that version."""
    tried = {"a\n": _try(FIRST, "", "a\n"), "b\n": _try(FIRST, "a\n", "b\n"), "c\n": _try(FIRST, "", "c\n")}
    whole = {FIRST: "a\nb\n", SECOND: "", "slot": "x"}
    assert nfs.weigh(tried, {"a\n", "b\n"}, {"slot": ["x"]}, whole) == (0, 0, 0)
    assert nfs.weigh(tried, {"a\n", "b\n", "c\n"}, {}, whole) == (1, 0, 0)
    assert nfs.weigh(tried, {"a\n"}, {"slot": ["x", "y"]}, {**whole, FIRST: "a\nc\n"}) == (0, 1, 1)


def test_without_a_kernel_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines: nothing is installed unasked, and nothing is taken for proved."""
    monkeypatch.setenv("NOCLOBBER_UML", str(tmp_path))
    assert kernels.why_not() is not None
    assert nfs.main([]) == 0
    assert "skipped" in capsys.readouterr().out
