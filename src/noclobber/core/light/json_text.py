"""
JSON without the `json` package, which imports `re`; the package's docstring has the figures.

The C half of `json`, `_json`, is enough to parse and to encode, and is quick to import. If it is missing or
has changed, the `json` package is used.

`parse()` reads untrusted input: an encoding error, deep nesting or anything else that is not JSON is a
`ValueError`. `spell()` gives text without spaces between members, and refuses NaN.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_WHITESPACE = " \t\n\r"
_INFINITY = float("inf")


def _finite(text: str) -> float:
    """`1e999` is JSON, and infinity is not: nothing could be written that was read so."""
    value = float(text)
    if value in (_INFINITY, -_INFINITY):
        raise ValueError(f"{text} is too large")
    return value


class _Reading:
    """What the C scanner asks of its owner: plain JSON into plain values."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = staticmethod(_finite)
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> Any:
        """Refuse NaN and the infinities, which are not JSON."""
        raise ValueError(f"{name} is not JSON")


def _reader() -> Callable[[str, int], tuple[Any, int]]:
    from _json import make_scanner

    scan: Callable[[str, int], tuple[Any, int]] = make_scanner(_Reading)  # type: ignore[arg-type]
    if scan('{"a":[1,"\\u00e9",null]}', 0) != ({"a": [1, "é", None]}, 23):
        raise ImportError("the scanner does not scan as it used to")
    return scan


def _writer() -> Callable[[Any], str]:
    from _json import encode_basestring, make_encoder

    # markers, default, encoder, indent, key and item separator, sort_keys, skipkeys, allow_nan
    encode = make_encoder(None, _not_json, encode_basestring, None, ":", ",", False, False, False)
    if "".join(encode({"a": [1, "é"]}, 0)) != '{"a":[1,"é"]}':
        raise ImportError("the encoder does not encode as it used to")
    return lambda value: "".join(encode(value, 0)) if not isinstance(value, str) else encode_basestring(value)


def _not_json(value: object) -> Any:
    raise TypeError(f"JSON cannot express a {type(value).__name__}")


def _slow_reader() -> Callable[[str, int], tuple[Any, int]]:
    from json import JSONDecoder

    return JSONDecoder(strict=False, parse_float=_finite, parse_constant=_Reading.parse_constant).raw_decode


def _slow_writer() -> Callable[[Any], str]:
    from json import JSONEncoder

    return JSONEncoder(
        ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
    ).encode


try:
    _scan, _encode = _reader(), _writer()
except (ImportError, TypeError, ValueError, AttributeError):
    _scan, _encode = _slow_reader(), _slow_writer()


def parse(data: bytes | str) -> Any:
    """Return the value that a JSON text spells; `ValueError` for everything that is not one."""
    # A UnicodeDecodeError is a ValueError.
    text = data.removeprefix(b"\xef\xbb\xbf").decode() if isinstance(data, bytes) else data
    at = _skip(text, 0)
    try:
        value, end = _scan(text, at)
    except StopIteration:
        raise ValueError("not JSON: a value is missing") from None
    except RecursionError:
        raise ValueError("not usable JSON: nested too deeply") from None
    except SystemError:
        # Where the `json` package is not loaded, the C scanner cannot make its own error for cut-off text.
        raise ValueError("not JSON: it is cut off or malformed") from None
    if _skip(text, end) != len(text):
        raise ValueError("not JSON: something follows the value")
    return value


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITESPACE:
        at += 1
    return at


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
