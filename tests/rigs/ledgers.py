"""
What is on record, read as an auditor reads it: the chain is checked, and every event against its schema.
"""

from __future__ import annotations

import os
from typing import Any

import jsonschema

from noclobber import AgentTraceLedger, schema

_EVENT = jsonschema.Draft202012Validator(schema("ledger-event"))


def recorded(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the events of a ledger; fails unless the chain is whole and every event is what was promised."""
    if not os.path.exists(path):
        return []
    ledger = AgentTraceLedger(path)
    ledger.verify()
    events = list(ledger.events())
    for event in events:
        _EVENT.validate(event)
    return events
