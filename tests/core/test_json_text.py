"""JSON text as this library spells and reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.core import json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(value=VALUES)
def test_json_goes_out_and_comes_back(value: Any) -> None:
    """The same text as the `json` package, and the same value from it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert json_text.spell(value) == text
    assert json_text.parse(text) == value
    assert json_text.parse(json.dumps(value, indent=2)) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"{}x",
        b"\xff",
        b"NaN",
        b"[Infinity]",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"'a'",
        b'{"a":[1,',
        b'["x',
    ],
)
def test_what_is_not_json_is_a_value_error(text: bytes) -> None:
    """N-input: never anything but a ValueError."""
    with pytest.raises(ValueError):
        json_text.parse(text)


def test_what_json_has_no_word_for_is_an_error() -> None:
    """NaN, bytes, objects."""
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError):
            json_text.spell(number)
    for value in (b"x", object()):
        with pytest.raises(TypeError):
            json_text.spell(value)


def test_a_byte_order_mark_is_not_part_of_the_text() -> None:
    """Some hosts send one."""
    assert json_text.parse(b"\xef\xbb\xbf {} \n") == {}


@given(VALUES)
def test_ascii_json_is_spelled_as_the_json_package_does(value: object) -> None:
    """The notes of commits hold these bytes."""
    assert json_text.spell_in_ascii(value) == json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("text", ["1e999", '{"a": [-1e999]}'])
def test_a_number_that_is_read_can_be_written_again(text: str) -> None:
    """N-cli: `1e999` becomes infinity, which no JSON has: one such number ended every list it was in."""
    with pytest.raises(ValueError, match="too large"):
        json_text.parse(text)
    assert json_text.parse("1e308") == 1e308
