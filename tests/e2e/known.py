"""
Scenarios that do not end as ruled yet, by host, with the finding. A fix removes its lines: the marks are strict.
"""

from __future__ import annotations

KNOWN: dict[tuple[str, str], str] = {
    ("claude-code", "partial_reread"): "finding H7: the refusal does not say to read all lines",
    ("codex", "partial_reread"): "finding H7: the refusal does not say to read all lines",
    ("gemini", "partial_reread"): "finding H7: the refusal does not say to read all lines",
    ("gemini", "subagents"): "finding H12: a subagent shares the main agent's memory",
    ("qwen", "partial_reread"): "finding H7: the refusal does not say to read all lines",
}
