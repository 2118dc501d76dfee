"""A host that is so slow that another agent takes its claim over, and both write the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from noclobber.guard import claims
from tests.conftest import sha256
from tests.rigs.hooks import HookRig, refusal


def test_of_two_hosts_that_count_to_the_same_number_one_is_told(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding E1: after a claim was taken over, equal content does not mean that nobody else has written."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)
    file = root / "count"
    file.write_text("3\n")
    slow, quick = rig, HookRig(root, rig.runtime, "s2")
    given = {"file_path": str(file), "content": "4\n"}
    for each in (slow, quick):
        each.read(file)
    assert slow.ask("Write", given, tool_use_id="slow") == {}
    assert quick.write(file, "4\n") == {}
    file.write_text("4\n")
    told = refusal(slow.told("Write", given, tool_use_id="slow"))
    assert told["error_type"] == "STALE_FILE"
    assert told["details"]["baseline_hash"] == sha256(b"3\n")
    assert rig.kinds() == ["MUTATION", "MUTATION_RACE"]
    assert refusal(slow.write(file, "5\n"))["error_type"] == "UNREAD_FILE"


def test_a_host_that_was_slow_and_alone_is_told_nothing(rig: HookRig, root: Path) -> None:
    """009-SC-002: a claim that is gone, and nobody has written, is no race."""
    file = root / "count"
    file.write_text("3\n")
    rig.read(file)
    given = {"file_path": str(file), "content": "4\n"}
    assert rig.ask("Write", given, tool_use_id="slow") == {}
    claims.release_all(str(root), next(claim.owner for claim in claims.live(str(root))))
    file.write_text("4\n")
    assert rig.told("Write", given, tool_use_id="slow") == {}
    assert rig.kinds() == ["MUTATION"]
