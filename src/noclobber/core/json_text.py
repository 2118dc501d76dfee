"""
JSON as this library reads and writes it.

`parse()` reads untrusted input: an encoding error, deep nesting or anything else that is not JSON is a
`ValueError`. `spell()` gives text without spaces between members, and refuses NaN.
"""

from __future__ import annotations

from json import JSONDecoder, JSONEncoder
from typing import Any

_INFINITY = float("inf")


def _finite(text: str) -> float:
    """`1e999` is JSON, and infinity is not: nothing could be written that was read so."""
    value = float(text)
    if value in (_INFINITY, -_INFINITY):
        raise ValueError(f"{text} is too large")
    return value


def _not_json(name: str) -> Any:
    """Refuse NaN and the infinities, which are not JSON."""
    raise ValueError(f"{name} is not JSON")


_decode = JSONDecoder(strict=False, parse_float=_finite, parse_constant=_not_json).decode
_encode = JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


def parse(data: bytes | str) -> Any:
    """Return the value that a JSON text spells; `ValueError` for everything that is not one."""
    # A UnicodeDecodeError is a ValueError.
    text = data.removeprefix(b"\xef\xbb\xbf").decode() if isinstance(data, bytes) else data
    try:
        return _decode(text)
    except RecursionError:
        raise ValueError("not usable JSON: nested too deeply") from None


def spell(value: Any) -> str:
    """Return a value as JSON text. Surrogates stay as they are; the caller chooses how to encode them."""
    return _encode(value)


def spell_in_ascii(value: Any) -> str:
    """Return a value as JSON text of ASCII alone, whatever characters its strings have."""
    text = _encode(value)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c < "\x7f" else _escaped(c) for c in text)


def spell_for_any_reader(value: Any) -> str:
    """
    Return a value as JSON text that every encoder takes and that no terminal obeys.

    What cannot be printed is escaped: lone surrogates (names that are not UTF-8), control characters, marks
    that turn the direction of text. In JSON such characters occur in strings only.
    """
    text = _encode(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
