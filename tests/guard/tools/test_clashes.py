"""Two tools with one name."""

from __future__ import annotations

import pytest

from noclobber import BadRequestError
from noclobber.guard.tools.clashes import refuse_clashes


def test_a_name_that_occurs_twice_is_refused_with_the_remedy() -> None:
    """N-frameworks: a model could not say which one it means."""
    refuse_clashes(["read_file"], ["load"], "Rename it.")
    with pytest.raises(BadRequestError, match=r"'read_file'.*Rename it"):
        refuse_clashes(["read_file", "write_file"], ["load", "read_file"], "Rename it.")
