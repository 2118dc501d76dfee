"""The bytes behind a text that was decoded with marks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noclobber.adapters.decoded_bytes import MARK, bytes_of

DATA = st.lists(
    st.sampled_from([b"a", b"\n", b"\r\n", b"\xfc", b"\xc3", b"\xc3\xbc", b"\xf0\x9f", b"\xef\xbf\xbd"])
).map(b"".join)


@given(data=DATA)
def test_a_text_that_was_not_changed_is_the_same_bytes(data: bytes) -> None:
    """N-frameworks: nothing is lost by decoding and writing back."""
    assert bytes_of(data, data.decode("utf-8", "replace")) == data


@given(before=DATA, old=st.text("xyz", min_size=1), new=st.text("uvw\n"), after=DATA)
def test_only_the_changed_text_is_changed(before: bytes, old: str, new: str, after: bytes) -> None:
    """N-frameworks: every byte outside of the edit stays. Or nothing is written: a mark may be in the way."""
    text = (before + old.encode() + after).decode("utf-8", "replace").replace(old, new, 1)
    found = bytes_of(before + old.encode() + after, text)
    assert found in (before + new.encode() + after, None)
    assert found is not None or MARK in text
