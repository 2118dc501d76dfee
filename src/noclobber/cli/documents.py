"""
The schema of every command's JSON document: what `--json` prints on stdout if nothing went wrong.

An error is one of the objects in `noclobber.core.wire`: they have `error_type`, and no document here has.
"""

from __future__ import annotations

from typing import Any


def document_schema(*command: str) -> dict[str, Any]:
    """Return the schema of a command's document: `document_schema("ledger", "verify")`. None for no words."""
    import json
    from importlib.resources import files

    name = "-".join(command) or "first-look"
    folder = files("noclobber.cli").joinpath("schemas")
    if not name.replace("-", "").isalpha() or not folder.joinpath(f"{name}.schema.json").is_file():
        raise ValueError(f"`noclobber {' '.join(command)}` has no JSON document")
    loaded: dict[str, Any] = json.loads(folder.joinpath(f"{name}.schema.json").read_text(encoding="utf-8"))
    return loaded
