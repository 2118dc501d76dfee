"""
Which files get their content from a command's own text: `cat > f <<'E'`, `echo words > f`, `tee f <<'E'`.

Such bytes are the agent's own, as those of a whole-file write are. What else a command leaves (`git merge`,
`cp`, `sed -i`, a generator) the agent has not seen. Only what can be told for certain is here, and whoever
asks compares it with what the command left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.shell.syntax import located, parse

if TYPE_CHECKING:
    from noclobber.shell.syntax import SimpleCommand


class OwnText(NamedTuple):
    """What a command's text writes to one file."""

    path: str
    """As the command spells it, below the folder that it changed to."""
    content: bytes
    is_added: bool
    """True for `>>`: it goes behind what is there."""


def own_texts(command: str) -> list[OwnText]:
    """Return the texts of a command that go to files; of a file that it names twice, none."""
    script, found = parse(command), []
    for one, folder in located(script.commands) if script.is_whole else ():
        said = _said(one)
        if said is not None and folder is not None and one.separator != "|":
            for path, is_added in _goals(one):
                spelled = path if path.startswith("/") or not folder else f"{folder}/{path}"
                found.append(OwnText(spelled, said.encode("utf-8", "surrogatepass"), is_added))
    return [each for each in found if [other.path for other in found].count(each.path) == 1]


def _said(command: SimpleCommand) -> str | None:
    """Return what a command writes to its output, if its text says that; None otherwise."""
    words = [word.text for word in command.words[1:]]
    if not all(word.is_literal for word in command.words):
        return None
    if command.name == "tee" or (command.name == "cat" and not words):
        documents = [one.document for one in command.redirections if one.operator in ("<<", "<<-")]
        return documents[0] if len(documents) == 1 else None
    if any("\\" in word for word in words) or any("<" in one.operator for one in command.redirections):
        return None
    if command.name == "echo" and not (words and words[0].startswith("-")):
        return " ".join(words) + "\n"
    return None


def _goals(command: SimpleCommand) -> list[tuple[str, bool]]:
    """Return where a command's output goes, and whether it goes behind what is there."""
    found = [
        (one.target.text, one.operator == ">>")
        for one in command.redirections
        if one.operator in (">", ">|", ">>") and one.descriptor in (-1, 1) and one.target.is_literal
    ]
    if command.name == "tee":
        words = [word.text for word in command.words[1:]]
        found += [(word, "-a" in words) for word in words if not word.startswith("-")]
    return found
