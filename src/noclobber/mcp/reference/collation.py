"""
The order of names in a listing, close to that of the replaced server's runtime.

Names are compared by letters without case and accents, then by accents, then by case, lower case first.
Punctuation comes before digits, digits before letters.

Not promised: the full Unicode collation. Names in scripts other than Latin are ordered by code point.
"""

from __future__ import annotations

import unicodedata

_PUNCTUATION = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~"
_RANK = {letter: at for at, letter in enumerate(_PUNCTUATION)}
_SPELLED_OUT = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ł": "l", "ð": "d", "þ": "th"}


def key(name: str) -> tuple[list[tuple[int, int]], str, str]:
    """Return what to sort by."""
    decomposed = unicodedata.normalize("NFD", name)
    letters: list[tuple[int, int]] = []
    for letter in decomposed:
        if unicodedata.combining(letter):
            continue
        for one in _SPELLED_OUT.get(letter.lower(), letter.lower()):
            letters.append(_weight(one))
    accents = "".join(mark if unicodedata.combining(mark) else "" for mark in decomposed)
    accents += "".join(letter for letter in decomposed.lower() if letter in _SPELLED_OUT)
    return letters, accents, name.swapcase()


def _weight(letter: str) -> tuple[int, int]:
    if letter in _RANK:
        return 0, _RANK[letter]
    category = unicodedata.category(letter)
    if category == "Sc":
        return 2, ord(letter)
    if category[0] in "SPZC":
        return 1, ord(letter)
    if category[0] == "N":
        return 3, ord(letter)
    return 4, ord(letter)
