"""
Replacements as opencode makes them: the old text may differ from the file in blanks, indentation or escapes.

For a tool of opencode that we carry out ourselves: a model must meet the same tool with and without us, so an
edit that the built-in tool finds is found here, too, in the same place. There are eight ways to look for the
old text, from the exact one to looser ones; the first that finds a text which occurs once in the file is
used. Other hosts' edits are only foreseen, and there an exact match is asked for (`host_edits`).

Bytes that are not UTF-8 stay as they are. The built-in tool would replace them by U+FFFD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.errors import EditMismatchError
from noclobber.text.encoding import encode_anyway

if TYPE_CHECKING:
    from collections.abc import Iterator

# What JavaScript's trim() and \s take for blanks; Python's own list is another one.
BLANKS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
SIMILAR = 0.65  # How alike the middle of a block must be whose first and last lines are the same.
MOST_CELLS = 4_000_000  # Two lines that are longer than this is worth are not alike.

NOT_FOUND = (
    "Could not find oldString in the file. It must match exactly, including whitespace, indentation, and "
    "line endings."
)
SEVERAL = "Found multiple matches for oldString. Provide more surrounding context to make the match unique."
TOO_LARGE = (
    "Refusing replacement because the matched span is much larger than oldString. Re-read the file and "
    "provide the full exact oldString for the intended replacement."
)
EMPTY = (
    "oldString cannot be empty when editing an existing file. Provide the exact text to replace, or use "
    "write for an intentional full-file replacement."
)
SAME = "No changes to apply: oldString and newString are identical."


class LooseEdit(NamedTuple):
    """One replacement; an empty `old` makes a file that is not there."""

    old: str
    new: str
    replace_all: bool = False

    @property
    def creates(self) -> bool:
        """True if the file must not be there yet."""
        return not self.old

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content; `EditMismatchError` with the words that opencode uses."""
        if self.old == self.new:
            raise EditMismatchError(path, SAME)
        if not self.old:
            if data:
                raise EditMismatchError(path, EMPTY)
            return encode_anyway(self.new)
        text = data.decode("utf-8", "surrogateescape")
        ending = "\r\n" if "\r\n" in text else "\n"
        old, new = (part.replace("\r\n", "\n").replace("\n", ending) for part in (self.old, self.new))
        return encode_anyway(replaced(text, old, new, self.replace_all, path))


def replaced(text: str, old: str, new: str, replace_all: bool, path: str = "") -> str:
    """Return the text with what `old` means replaced, once or everywhere."""
    is_found = False
    for search in SEARCHES:
        for candidate in search(text, old):
            at = text.find(candidate)
            if at < 0:
                continue
            is_found = True
            if _is_out_of_proportion(candidate, old):
                raise EditMismatchError(path, TOO_LARGE)
            if replace_all:
                return text.replace(candidate, new)
            if text.rfind(candidate) == at:
                return text[:at] + new + text[at + len(candidate) :]
    raise EditMismatchError(path, SEVERAL if is_found else NOT_FOUND)


def _is_out_of_proportion(found: str, old: str) -> bool:
    """True if a loose match would replace much more than was asked for."""
    asked_lines = old.count("\n") + 1
    if found.count("\n") + 1 >= max(asked_lines + 3, asked_lines * 2):
        return True
    asked_size = len(old.strip(BLANKS))
    return asked_lines > 1 and len(found.strip(BLANKS)) > max(asked_size + 500, asked_size * 4)


# -- eight ways to look --------------------------------------------------------------------------------------


def _exact(text: str, old: str) -> Iterator[str]:
    yield old


def _lines_trimmed(text: str, old: str) -> Iterator[str]:
    """Blanks around each line do not count."""
    wanted = [line.strip(BLANKS) for line in _without_last_if_empty(old)]
    lines = text.split("\n")
    trimmed = [line.strip(BLANKS) for line in lines]
    for at in range(len(lines) - len(wanted) + 1):
        if trimmed[at : at + len(wanted)] == wanted:
            yield "\n".join(lines[at : at + len(wanted)])


def _anchored(text: str, old: str) -> Iterator[str]:
    """First and last line are the same, about as many lines, and what is between is alike."""
    if old.count("\n") + 1 < 3:
        return
    wanted, lines = _without_last_if_empty(old), text.split("\n")
    most_off = max(1, len(wanted) // 4)
    blocks = [
        (first, last)
        for first, last in _blocks(lines, wanted)
        if abs(last - first + 1 - len(wanted)) <= most_off
    ]
    if not blocks:
        return
    best, best_likeness = blocks[0], -1.0
    for block in blocks:
        likeness = _likeness(lines, block, wanted)
        if likeness > best_likeness:
            best, best_likeness = block, likeness
    if best_likeness >= SIMILAR:
        yield "\n".join(lines[best[0] : best[1] + 1])


def _blanks_folded(text: str, old: str) -> Iterator[str]:
    """Any run of blanks is as good as one blank."""
    wanted, lines = _folded(old), text.split("\n")
    words = _split(old)
    for line in lines:
        folded = _folded(line)
        if folded == wanted:
            yield line
        elif wanted in folded and words:
            found = _words_in(line, words)
            if found is not None:
                yield found
    count = old.count("\n") + 1
    if count > 1:
        for block in _windows(lines, count):
            if _folded(block) == wanted:
                yield block


def _indentation_apart(text: str, old: str) -> Iterator[str]:
    """The same lines, all of them indented more or less."""
    wanted = _outdented(old)
    for block in _windows(text.split("\n"), old.count("\n") + 1):
        if _outdented(block) == wanted:
            yield block


def _unescaped(text: str, old: str) -> Iterator[str]:
    r"""The old text spells `\n` or `\"` where the file has the character itself."""
    wanted = _without_escapes(old)
    if wanted in text:
        yield wanted
    for block in _windows(text.split("\n"), wanted.count("\n") + 1):
        if _without_escapes(block) == wanted:
            yield block


def _ends_trimmed(text: str, old: str) -> Iterator[str]:
    """Blanks before and after the whole do not count."""
    wanted = old.strip(BLANKS)
    if wanted == old:
        return
    if wanted in text:
        yield wanted
    for block in _windows(text.split("\n"), old.count("\n") + 1):
        if block.strip(BLANKS) == wanted:
            yield block


def _half_the_same(text: str, old: str) -> Iterator[str]:
    """First and last line are the same, as many lines, and half of those between are the same."""
    if old.count("\n") + 1 < 3:
        return
    wanted, lines = _without_last_if_empty(old), text.split("\n")
    for first, last in _blocks(lines, wanted):
        if last - first + 1 != len(wanted):
            continue
        pairs = [
            (lines[first + at].strip(BLANKS), wanted[at].strip(BLANKS)) for at in range(1, len(wanted) - 1)
        ]
        counted = [(here, there) for here, there in pairs if here or there]
        if not counted or sum(here == there for here, there in counted) / len(counted) >= 0.5:
            yield "\n".join(lines[first : last + 1])


SEARCHES = (
    *(_exact, _lines_trimmed, _anchored, _blanks_folded, _indentation_apart, _unescaped, _ends_trimmed),
    _half_the_same,
)


# -- parts -------------------------------------------------------------------------------------------------


def _without_last_if_empty(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _windows(lines: list[str], count: int) -> Iterator[str]:
    for at in range(len(lines) - count + 1):
        yield "\n".join(lines[at : at + count])


def _blocks(lines: list[str], wanted: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where a block begins with the first wanted line, and ends with the next last one."""
    first, last = wanted[0].strip(BLANKS), wanted[-1].strip(BLANKS)
    trimmed = [line.strip(BLANKS) for line in lines]
    for start, line in enumerate(trimmed):
        if line == first:
            end = next((at for at in range(start + 2, len(trimmed)) if trimmed[at] == last), None)
            if end is not None:
                yield start, end


def _likeness(lines: list[str], block: tuple[int, int], wanted: list[str]) -> float:
    """Return how alike the lines between the anchors are, from 0 to 1."""
    first, last = block
    count = min(len(wanted) - 2, last - first - 1)
    if count <= 0:
        return 1.0
    total = 0.0
    for at in range(1, count + 1):
        here, there = lines[first + at].strip(BLANKS), wanted[at].strip(BLANKS)
        longest = max(len(here), len(there))
        if longest:
            total += (1 - _distance(here, there) / longest) / count
    return total


def _distance(one: str, other: str) -> int:
    """Return how many characters have to be changed to make one line the other (Levenshtein)."""
    if one == other:
        return 0
    if len(one) * len(other) > MOST_CELLS:
        return max(len(one), len(other))
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        diagonal, row[0] = row[0], number
        for at, there in enumerate(other, 1):
            diagonal, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, diagonal + (letter != there))
    return row[-1]


def _split(text: str) -> list[str]:
    """Split at runs of blanks."""
    words, word = [], ""
    for letter in text:
        if letter not in BLANKS:
            word += letter
        elif word:
            words.append(word)
            word = ""
    return [*words, word] if word else words


def _folded(text: str) -> str:
    return " ".join(_split(text))


def _words_in(line: str, words: list[str]) -> str | None:
    """Return the part of a line that has these words in a row, with any blanks between them."""
    start = line.find(words[0])
    while start >= 0:
        at = start + len(words[0])
        for word in words[1:]:
            blank = at
            while blank < len(line) and line[blank] in BLANKS:
                blank += 1
            if blank == at or not line.startswith(word, blank):
                break
            at = blank + len(word)
        else:
            return line[start:at]
        start = line.find(words[0], start + 1)
    return None


def _outdented(text: str) -> str:
    lines = text.split("\n")
    depths = [len(line) - len(line.lstrip(BLANKS)) for line in lines if line.strip(BLANKS)]
    depth = min(depths, default=0)
    return "\n".join(line[depth:] if line.strip(BLANKS) else line for line in lines)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\n": "\n"} | {letter: letter for letter in "'\"`\\$"}


def _without_escapes(text: str) -> str:
    if "\\" not in text:
        return text
    out, at = [], 0
    while at < len(text):
        follower = text[at + 1 : at + 2]
        if text[at] == "\\" and follower in _ESCAPES:
            out.append(_ESCAPES[follower])
            at += 2
        else:
            out.append(text[at])
            at += 1
    return "".join(out)
