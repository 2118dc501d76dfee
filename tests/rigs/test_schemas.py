"""The check that runs beside every test notices what it is there for."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from noclobber import AgentTraceLedger
from noclobber.errors import FileBusyError, StaleFileError
from tests.conftest import sha256
from tests.rigs.schemas import Errors, check, check_ledgers, check_output, check_texts_in


@pytest.mark.wrong_errors
def test_an_error_of_the_wrong_shape_is_noticed_where_it_is_made() -> None:
    """finding C8: whoever catches it; a relative path, and details that JSON has no plain value for."""
    errors = Errors()
    with pytest.MonkeyPatch.context() as patch:
        errors.watch(patch)
        StaleFileError("/w/a.md", sha256(b"1"), sha256(b"2"))
        FileBusyError("/w/a.md", "wait", seconds=3)
        assert errors.wrong == []
        StaleFileError("a.md", sha256(b"1"), sha256(b"2"))
        FileBusyError("/w/a.md", "wait", who=["a"])  # type: ignore[arg-type]
    assert [line.split(":")[0] for line in errors.wrong] == [
        "StaleFileError, stale-file-agent",
        "FileBusyError, refusal",
    ]


def test_a_key_too_many_is_noticed_in_what_a_hook_or_a_command_says() -> None:
    """finding C8: `error_type` alone proves nothing."""
    good = FileBusyError("/w/a.md", "wait").to_refusal()
    text = '{"error_type": "FILE_BUSY", "message": "wait"}'
    check(good)
    assert check_texts_in({"hookSpecificOutput": {"permissionDecisionReason": "plain words"}}) == 0
    for use in (
        lambda: check({**good, "hint": "x"}),
        lambda: check_texts_in({"hookSpecificOutput": {"permissionDecisionReason": text}}),
        lambda: check_output(f"some words\n{text}\n"),
    ):
        with pytest.raises(jsonschema.ValidationError):
            use()


@pytest.mark.broken_ledger
def test_a_line_that_does_not_fit_is_noticed_in_any_ledger_that_is_left(tmp_path: Path) -> None:
    """finding C8: R-ledger."""
    folder = tmp_path / "deep" / ".noclobber"
    folder.mkdir(parents=True)
    with AgentTraceLedger(folder / "agent_trace.jsonl") as ledger:
        ledger.append({"action_type": "OTHER"})
        check_ledgers(tmp_path)
        ledger.append({"action_type": "MUTATION", "payload": {}, "result": {}})
    with pytest.raises(AssertionError, match="line 2"):
        check_ledgers(tmp_path)
