"""What a host is told, as JSON text: a refusal's own object, or an answer that has such a text in it."""

from __future__ import annotations

from noclobber.core.light.json_text import spell_for_any_reader
from noclobber.core.wire import to_json
from noclobber.errors import NoclobberError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def reason(value: NoclobberError | dict[str, Any]) -> str:
    """Return a refusal, or an answer, as JSON text that any encoder takes."""
    return to_json(value) if isinstance(value, NoclobberError) else spell_for_any_reader(value)
