"""
Scenarios that do not end as ruled yet, by host, with the finding. A fix removes its lines: the marks are strict.
"""

from __future__ import annotations

KNOWN: dict[tuple[str, str], str] = {
    ("gemini", "subagents"): "finding H12: a subagent shares the main agent's memory",
}
