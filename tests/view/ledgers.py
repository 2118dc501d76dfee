"""Ledgers for the tests of the view: real ones, and lines that nobody would write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noclobber import AgentTraceLedger

HOSTILE = (
    '<img src=x onerror="window.owned=1"><script>window.owned=1</script>\x1b[2J\x1b]0;owned\x07\u202egpj'
)


def ledger_of(root: Path) -> AgentTraceLedger:
    """Return a project's ledger; its folder is made."""
    (root / ".noclobber").mkdir(exist_ok=True)
    return AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl")


def written(file: str, before: str, after: str, agent: str = "builder-1", **more: Any) -> dict[str, Any]:
    """A landed write; versions are single digits, spelled out."""
    payload = {
        "tool_name": "write_file",
        "target_file": file,
        "before_hash": version(before),
        "after_hash": version(after),
        "level": "exchange",
        **more,
    }
    return {
        "action_type": "MUTATION",
        "payload": payload,
        "result": {"status": "APPLIED"},
        "identity": identity(agent),
    }


def refused(file: str, had: str, found: str, agent: str = "reviewer") -> dict[str, Any]:
    """A stale write."""
    return {
        "action_type": "MUTATION_CONFLICT",
        "payload": {
            "tool_name": "write_file",
            "target_file": file,
            "baseline_hash": version(had),
            "current_hash": version(found),
        },
        "result": {"status": "DENIED", "error_type": "STALE_FILE"},
        "identity": identity(agent),
    }


def identity(agent: str) -> dict[str, str]:
    """Who asked."""
    return {"agent_id": agent, "session_id": f"{agent}-session", "call_id": f"call-{agent}", "host": "codex"}


def version(digit: str) -> str:
    """Return a hash as events spell it; words stay."""
    return f"sha256:{digit * 64}" if len(digit) == 1 else digit
