"""How long a lease may be, and how long the names in a lock."""

from __future__ import annotations

from typing import Any

import pytest

from noclobber.errors import BadRequestError
from noclobber.lock.limits import DEFAULT_LEASE_S, check_lease_s, check_text


@pytest.mark.parametrize("lease_s", [1, 2, DEFAULT_LEASE_S, 1800, 86_399, 86_400])
def test_a_lease_within_its_bounds_is_taken(lease_s: int) -> None:
    """REQ-LOCK-004: both bounds included; the default is half an hour."""
    assert check_lease_s(lease_s) == lease_s
    assert DEFAULT_LEASE_S == 1800


@pytest.mark.parametrize("lease_s", [0, -1, 86_401, 10**400, 60.0, True, "60", None])
def test_a_lease_outside_its_bounds_is_refused_with_the_bounds(lease_s: Any) -> None:
    """REQ-LOCK-004: also as a `ValueError`, and in a short sentence."""
    with pytest.raises(ValueError, match="whole number of seconds from 1 to 86400") as refused:
        check_lease_s(lease_s)
    assert isinstance(refused.value, BadRequestError)
    assert len(str(refused.value)) < 200


def test_names_are_text_of_a_bounded_length() -> None:
    """REQ-LOCK-002: what was not given has its default, whatever bytes a folder's name is made of."""
    assert check_text("holder", "x" * 4096, "me") == "x" * 4096
    assert check_text("holder", None, "me") == "me"
    assert check_text("holder", None, "") == ""
    assert check_text("deliverable_id", None, "caf\udce9") == "caf\\udce9"
    for bad in ("", "x" * 4097, 7, b"ana"):
        with pytest.raises(BadRequestError, match="holder must be a string of 1 to 4096 characters"):
            check_text("holder", bad, "me")  # type: ignore[arg-type]
    with pytest.raises(BadRequestError, match="holder must be Unicode text"):
        check_text("holder", "caf\udce9", "me")
