"""Text as bytes: nothing that was read is lost when it is written back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.errors import BadRequestError
from noclobber.text.encoding import encode, encode_anyway


@given(data=st.binary())
def test_bytes_that_do_not_decode_come_back(data: bytes) -> None:
    """Ruling 8: raw bytes, also through text."""
    text = data.decode("utf-8", "surrogateescape")
    assert encode(text, "/f") == encode_anyway(text) == data


def test_what_no_file_can_hold_is_an_error_or_a_question_mark() -> None:
    """Bad input: a model may send half of a surrogate pair."""
    with pytest.raises(BadRequestError, match="lone surrogate"):
        encode("a\ud800", "/f")
    assert encode_anyway("a\ud800") == b"a?"
