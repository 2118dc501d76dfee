"""
Split a shell command into simple commands, or say that it cannot be told what it is.

This is a small part of a shell's grammar, read strictly: words with quotes and escapes, redirections,
heredocs, comments, and `;`, `&&`, `||`, `|`, `&` and newlines between commands. All else (substitutions,
subshells, groups, brace expansion, keywords, functions) gives None: what such a command runs is not known
here. Shells that differ from bash (zsh, dash) agree about this part.

A `Word` says how sure its text is. `is_literal`: exactly this text. Otherwise the shell puts something in
its place, and `is_bound` says whether at least it cannot turn out to be an option.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from noclobber.core.light.named_tuples import NamedTuple

MOST_LETTERS = 1 << 20
_GLOBS = "*?["
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
_SPECIAL_PARAMETERS = "0123456789?#$@*-"
# What may follow a `$` without giving it a meaning. `(`, `{`, `[` and quotes are not among them.
_AFTER_PLAIN_DOLLAR = " \t\n/|.,;%]"
KEYWORDS = (
    *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "select"),
    *("function", "coproc", "time", "repeat", "foreach", "end", "noglob", "nocorrect", "!", "[[", "]]"),
)


class Word(NamedTuple):
    """One word of a simple command, without its quotes."""

    text: str
    is_literal: bool = True
    """True if the command gets exactly this text."""
    is_bound: bool = True
    """True if what the command gets is an option only if `text` looks like one."""


class Redirection(NamedTuple):
    """`2> file`: which descriptor (-1: the operator's own, -2: both outputs), how, and where."""

    descriptor: int
    operator: str
    target: Word
    document: str | None = None
    """Of a heredoc whose delimiter is quoted, or that holds nothing to expand: its text."""


class SimpleCommand(NamedTuple):
    """One command with its arguments, and how the line goes on after it."""

    words: tuple[Word, ...]
    redirections: tuple[Redirection, ...] = ()
    separator: str = ""
    """`&&`, `||`, `;`, `|`, `&`, a newline, or nothing at the end."""

    @property
    def name(self) -> str:
        """The program's name, without the folders that system programs are in; empty if that is not told."""
        if not self.words or not self.words[0].is_literal:
            return ""
        name = self.words[0].text
        for folder in ("/usr/bin/", "/bin/"):
            if name.startswith(folder):
                return name.removeprefix(folder)
        return name


class _NotToldError(Exception):
    """The text has a part that this grammar does not have."""


def simple_commands(text: str) -> list[SimpleCommand] | None:
    """Return the simple commands of a text, None if it cannot be told for certain what they are."""
    if len(text) > MOST_LETTERS or any(letter < " " and letter not in "\t\n" for letter in text):
        return None
    try:
        return _Scanner(text.replace("\\\n", "")).commands()
    except _NotToldError:
        return None


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: list[tuple[list[Word], list[Redirection], str]] = []
        self.words: list[Word] = []
        self.redirections: list[Redirection] = []
        self.documents: list[tuple[list[Redirection], int, bool]] = []
        """Heredocs whose text begins on the next line: where each is, and whether it is taken literally."""

    def commands(self) -> list[SimpleCommand]:
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in " \t":
                self.at += 1
            elif letter == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif letter in "<>" or self._comes("&>"):
                self._redirect(-2 if letter == "&" else -1)
            elif letter in "&|;\n":
                self._separate(letter)
            else:
                self._add_word()
        self._end("")
        if self.documents:
            raise _NotToldError  # A heredoc without its text.
        return [SimpleCommand(tuple(words), tuple(to), separator) for words, to, separator in self.found]

    def _comes(self, sign: str) -> bool:
        return self.text.startswith(sign, self.at)

    def _separate(self, letter: str) -> None:
        self.at += 1
        if letter == "|" and self._comes("&"):
            raise _NotToldError
        if letter in "&|" and self._comes(letter):
            self.at += 1
            letter *= 2
        if letter == ";" and self._comes(";"):
            raise _NotToldError
        self._end(letter)
        if letter == "\n":
            for holder, index, is_literal in self.documents:
                holder[index] = self._document(holder[index], is_literal)
            self.documents = []

    def _end(self, separator: str) -> None:
        if self.words and self.words[0].text in KEYWORDS:
            raise _NotToldError
        if self.words or self.redirections:
            # The list itself: a heredoc's text is added to it when the line ends.
            self.found.append((self.words, self.redirections, separator))
        elif separator not in ("\n", ""):
            raise _NotToldError  # Nothing between two separators: no shell takes it.
        self.words, self.redirections = [], []

    # -- redirections ------------------------------------------------------------------------------------

    def _redirect(self, descriptor: int) -> None:
        if descriptor == -2:
            self.at += 1
        operator = next(
            (
                sign
                for sign in ("<<<", "<<-", "<<", ">>", ">&", ">|", "<>", "<&", ">", "<")
                if self._comes(sign)
            ),
            "",
        )
        self.at += len(operator)
        while self.text[self.at : self.at + 1] in (" ", "\t") and self.at < len(self.text):
            self.at += 1
        if self.text[self.at : self.at + 1] in ("", "\n", "&", "|", ";", "<", ">", "#"):
            raise _NotToldError
        begin = self.at
        target = self._word()
        self.redirections.append(Redirection(descriptor, operator, target))
        if operator in ("<<", "<<-"):
            is_quoted = any(sign in self.text[begin : self.at] for sign in "'\"\\")
            self.documents.append((self.redirections, len(self.redirections) - 1, is_quoted))

    def _document(self, opening: Redirection, is_literal: bool) -> Redirection:
        lines: list[str] = []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = end + 1
            if opening.operator == "<<-":
                line = line.lstrip("\t")
            if line == opening.target.text:
                self.at = min(self.at, len(self.text))
                told = "".join(f"{line}\n" for line in lines)
                if not is_literal and any(sign in told for sign in "$`\\"):
                    if "`" in told or "$(" in told or "${" in told:
                        raise _NotToldError  # It runs something.
                    return opening
                return opening._replace(document=told)
            lines.append(line)
        raise _NotToldError

    # -- words -------------------------------------------------------------------------------------------

    def _add_word(self) -> None:
        begin = self.at
        word = self._word()
        is_number = self.text[begin : self.at].isdigit() and self.text[begin : self.at].isascii()
        if is_number and self.text[self.at : self.at + 1] in ("<", ">") and len(word.text) < 3:
            self._redirect(int(word.text))
            return
        self.words.append(word)

    def _word(self) -> Word:
        text = self.text
        pieces: list[str] = []
        is_literal = is_bound = True
        begin = self.at
        while self.at < len(text):
            letter = text[self.at]
            if letter in " \t\n&|;<>":
                break
            self.at += 1
            if letter == "'":
                end = text.find("'", self.at)
                if end < 0:
                    raise _NotToldError
                pieces.append(text[self.at : end])
                self.at = end + 1
            elif letter == '"':
                if not self._double_quoted(pieces):
                    is_bound = is_bound and "".join(pieces) != ""
                    is_literal = False
            elif letter == "\\":
                pieces.append(text[self.at : self.at + 1])
                self.at += 1
            elif letter == "$":
                follows = text[self.at : self.at + 1]
                if follows and follows in _NAME + _SPECIAL_PARAMETERS:
                    is_bound = is_bound and "".join(pieces) != ""
                    is_literal = False
                    self._skip_parameter()
                elif not follows or follows in _AFTER_PLAIN_DOLLAR:
                    pieces.append(letter)
                else:
                    raise _NotToldError
            elif letter in "(){}`":
                raise _NotToldError
            elif letter in _GLOBS:
                is_test = letter == "[" and self.at - 1 == begin and self._ends_here()
                is_literal = is_literal and is_test
                is_bound = is_bound and (is_test or "".join(pieces) != "")
                pieces.append(letter)
            elif letter == "~":
                is_literal = False  # A home folder's name: a path, at least.
                pieces.append(letter)
            elif letter == "=" and self.at - 1 == begin:
                raise _NotToldError  # In zsh, where a program is.
            else:
                pieces.append(letter)
        return Word("".join(pieces), is_literal, is_bound)

    def _ends_here(self) -> bool:
        return self.text[self.at : self.at + 1] in ("", " ", "\t", "\n", ";", "&", "|")

    def _double_quoted(self, pieces: list[str]) -> bool:
        """Add what is between double quotes; False if the shell puts something else in its place."""
        text = self.text
        is_literal = True
        while self.at < len(text):
            letter = text[self.at]
            self.at += 1
            if letter == '"':
                return is_literal
            if letter == "`":
                raise _NotToldError
            if letter == "\\" and text[self.at : self.at + 1] in ('"', "\\", "$", "`"):
                pieces.append(text[self.at])
                self.at += 1
            elif letter == "$":
                follows = text[self.at : self.at + 1]
                if follows and follows in _NAME + _SPECIAL_PARAMETERS:
                    is_literal = False
                    self._skip_parameter()
                elif follows and follows in _AFTER_PLAIN_DOLLAR + "\"')\\":
                    pieces.append(letter)
                else:
                    raise _NotToldError
            else:
                pieces.append(letter)
        raise _NotToldError

    def _skip_parameter(self) -> None:
        if self.text[self.at] in _SPECIAL_PARAMETERS:
            self.at += 1
            return
        while self.at < len(self.text) and (self.text[self.at] in _NAME or self.text[self.at].isdigit()):
            self.at += 1
        if self.text[self.at : self.at + 1] == "[":
            raise _NotToldError  # In zsh an index, which may run something.
