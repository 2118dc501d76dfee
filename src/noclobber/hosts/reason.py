"""
Refusals as JSON text: the 009 object for a stale file, the refusal object for everything else.

Exactly the object, and not a character around it, because a program may read what the model was told.
"""

from __future__ import annotations

from noclobber.core.light.json_text import spell
from noclobber.errors import NoclobberError, RefusalError, StaleFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def reason(value: NoclobberError | dict[str, Any]) -> str:
    """Spell an error, or an answer that has one in it, as JSON that any encoder takes."""
    if isinstance(value, StaleFileError):
        value = value.to_agent()
    elif isinstance(value, RefusalError):
        value = value.to_refusal()
    elif isinstance(value, NoclobberError):
        value = {"error_type": value.code, "message": str(value), "resolution": value.resolution}
    # Lone surrogates (names that are not UTF-8) become \\udcxx, which is how JSON spells them.
    return spell(value).encode("utf-8", "backslashreplace").decode()
