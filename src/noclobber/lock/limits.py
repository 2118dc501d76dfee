"""Bounds of what a caller may ask for: how long a lease is, and how long the names in a lock are."""

from __future__ import annotations

from noclobber.errors import BadRequestError

DEFAULT_LEASE_S, MIN_LEASE_S, MAX_LEASE_S = 1800, 1, 86_400

COORDINATED_LEASE_S = 60
"""
The default of a lock that a heartbeat renews, with a coordinator: only the end of its lease shows that a
process of another machine died. What nobody renews has `DEFAULT_LEASE_S` everywhere: no shell renews every
minute.
"""

MAX_RECORDED_LEASE_S = 100 * 365 * 86_400
"""Of a record: it grows with every renewal, counting from `acquired`. Nobody works for a hundred years."""

MAX_TEXT_CHARS = 4096  # Of a holder or a deliverable id; keeps a record far below its bound.


def check_lease_s(lease_duration_s: int) -> int:
    """Return a lease that is within bounds, or raise an error (a `ValueError` too) that names them."""
    if type(lease_duration_s) is not int or not MIN_LEASE_S <= lease_duration_s <= MAX_LEASE_S:
        raise BadRequestError(
            "",
            f"lease_duration_s must be a whole number of seconds from {MIN_LEASE_S} to {MAX_LEASE_S}, "
            f"not {lease_duration_s!r:.60}",
        )
    return lease_duration_s


def check_text(name: str, value: str | None, default: str) -> str:
    """Return a holder or a deliverable id that a lock can hold, or raise an error that says what can."""
    text = default if value is None else value
    if not isinstance(text, str) or (value is not None and not text) or len(text) > MAX_TEXT_CHARS:
        raise BadRequestError("", f"{name} must be a string of 1 to {MAX_TEXT_CHARS} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        if value is not None:
            raise BadRequestError("", f"{name} must be Unicode text") from None
        return text.encode("utf-8", "backslashreplace").decode()  # A folder's name may be any bytes.
    return text
