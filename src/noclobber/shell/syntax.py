"""
Shell text as a shell reads it: simple commands, with their words, redirections and heredocs.

The one reader of shell text. `parse` returns every simple command of a text, also those in subshells, groups,
loops, conditions, functions and substitutions, and in scripts for another shell (`bash -c '…'`, `eval '…'`,
`sh <<EOF`) or program (`timeout 5 …`, `xargs …`), in the order in which they begin.

It says "cannot tell" instead of guessing. `Script.is_whole` is False if a part of the text is a syntax error,
is nested too deeply, or means another thing in zsh; what was found around that part is still returned.
A `Word` says how sure its text is. What a program does with its words is not known here.

One pass without steps back, so the time is proportional to the length. No imports: hooks load it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

MOST_LETTERS = 1 << 20
MOST_DEPTH = 40
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash")
_CONTROLS = [chr(code) for code in range(1, 32) if chr(code) not in "\t\n"]
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
_DIGITS = "0123456789"
# What ends a word, and beside that what means something in one.
_META = " \t\n&|;<>()"
_SPECIAL = _META + "'\"\\$`*?[~{"
# What may follow a `$` without giving it a meaning, in any shell.
_AFTER_PLAIN_DOLLAR = (*" \t\n/|.,;%]\"')\\&<>", "")
_REDIRECTIONS = ("&>>", "&>", "<<<", "<<-", "<<", ">>", ">&", ">|", "<>", "<&", ">", "<")
_OPENERS = ("if", "for", "while", "until", "case", "select", "function", "{", "[[")
_CLOSERS = ("then", "elif", "else", "fi", "do", "done", "esac", "}")
_ZSH_WORDS = ("repeat", "foreach", "end", "noglob", "nocorrect", "coproc", "-", "always")
_ANSI = dict(zip("abeEfnrtv\\'\"?", "\a\b\033\033\f\n\r\t\v\\'\"?", strict=True))
# What runs in the same shell: a `cd` in it counts afterwards.
_SAME_SHELL = ("{", "if", "for", "while", "until", "case", "select", "eval", "command", "builtin", "[[", "${")
_STEADY = ("{", "(", "$(", "<(", "`", "sh", "eval", "command", "builtin")
# Programs that run the rest of their words, and their options that take a word.
RUNNERS = {
    **dict.fromkeys(("command", "builtin", "nohup", "setsid"), ""),
    "exec": "a",
    "sudo": "ugpChDRT",
    "doas": "uC",
    "env": "u",
    "nice": "n",
    "timeout": "ks",
    "stdbuf": "ioe",
    "time": "fo",
    "xargs": "IndPLsaE",
}


class Word(NamedTuple):
    """One word of a simple command, without its quotes."""

    text: str
    is_literal: bool = True
    """True if the command gets exactly this text."""
    is_bound: bool = True
    """True if the command gets one word, and that is an option only if `text` looks like one."""


class Redirection(NamedTuple):
    """`2> file`: which descriptor (-1: the operator's own, -2: both outputs), how, and where."""

    descriptor: int
    operator: str
    target: Word
    document: str | None = None
    """Of a heredoc whose delimiter is quoted, or that holds nothing to expand: its text."""


class SimpleCommand(NamedTuple):
    """One command with its arguments, and what is around it. A group has its redirections, and no words."""

    words: tuple[Word, ...]
    redirections: tuple[Redirection, ...] = ()
    separator: str = ""
    """What follows: `&&`, `||`, `;`, `|`, `&`, a newline, or nothing at the end."""
    before: str = ""
    """The separator before it; empty for the first command of a list."""
    assignments: tuple[Word, ...] = ()
    within: tuple[str, ...] = ()
    """What it is in, outermost first: `(`, `{`, `$(`, `${`, `if`, `for`, `function`, `sh`, `xargs`, …"""
    shells: tuple[int, ...] = ()
    """Numbers of the shells, below the first one, that it runs in."""
    is_sure: bool = True
    """True if it runs in the ordinary case: not after `||`, not in a branch, a function or a `while`."""

    @property
    def name(self) -> str:
        """The program's name, without the folders that system programs are in; empty if that is not told."""
        if not self.words or not self.words[0].is_literal:
            return ""
        return self.words[0].text.removeprefix("/usr/bin/").removeprefix("/bin/")


class Script(NamedTuple):
    """The commands of a text."""

    commands: tuple[SimpleCommand, ...]
    is_whole: bool
    """False if there may be more in it, or if it cannot be told for certain."""


_last: list[tuple[str, Script]] = []


def parse(text: str) -> Script:
    """Return the simple commands of a text. The last answer is kept: several ask about one command."""
    for known, script in _last:
        if known == text:
            return script
    reader = _ShellReader(text[:MOST_LETTERS].partition("\0")[0], _Commands())
    if len(reader.text) < len(text) or any(sign in text for sign in _CONTROLS):
        reader.found.is_whole = False
    reader.read((), True)
    script = Script(tuple(one.closed() for one in reader.found.commands), reader.found.is_whole)
    _last[:] = [(text, script)]
    return script


def quote(word: str) -> str:
    """Return a word as a shell has to be given it. `shlex` does the same, and takes milliseconds to load."""
    if word and not word.strip(_NAME + _DIGITS + "/.,:+-@%="):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def located(commands: Iterable[SimpleCommand]) -> Iterator[tuple[SimpleCommand, str | None]]:
    """Yield every command with the folder that it runs in, from where the first one does; None: not told."""
    folders: dict[tuple[int, ...], str | None] = {(): ""}
    shaky: set[tuple[int, ...]] = set()
    for one in commands:
        key = one.shells
        while key not in folders:
            key = key[:-1]
        if key in shaky and one.before != "&&" and len(key) == len(one.shells):
            folders[key] = None  # A `cd` before it may not have happened.
        yield one, folders[key]
        if one.name not in ("cd", "pushd", "popd") and not (
            one.name == "eval" and not all(word.is_literal for word in one.words)
        ):
            continue
        if one.before == "|" or one.separator in ("|", "&"):
            continue  # In a shell of its own.
        goal = one.words[1].text if len(one.words) == 2 and one.words[1].is_literal else ""
        is_told = goal not in ("", "-") and one.name in ("cd", "pushd") and goal[:1] not in "+-"
        if "function" in one.within:
            folders = {(): None}  # Whoever calls the function is there afterwards.
            shaky = set()
            continue
        folder = folders[key]
        if not is_told or not one.is_sure or not all(kind in _STEADY for kind in one.within):
            folder = None
        elif folder is not None:
            folder = goal if goal.startswith("/") or not folder else f"{folder}/{goal}"
        folders[one.shells] = folder
        (shaky.add if one.before == "&&" else shaky.discard)(one.shells)


class _NotToldError(Exception):
    """The text has a part that this grammar does not have."""


class _Commands:
    """What the reader of a text, and those of the scripts in it, have found."""

    def __init__(self) -> None:
        self.commands: list[_Open] = []
        self.functions: set[str] = set()
        self.is_whole = True
        self.retries = 8


class _Open:
    """A command that is being read."""

    def __init__(self, within: tuple[_Around, ...], is_sure: bool, before: str = "") -> None:
        self.words: list[Word] = []
        self.assignments: list[Word] = []
        self.redirections: list[Redirection] = []
        self.within, self.is_sure, self.before, self.separator = within, is_sure, before, ""
        self.stdin_shell: _Open | None = None

    def closed(self) -> SimpleCommand:
        kinds = tuple(around.kind for around in self.within)
        shells = tuple(around.number for around in self.within if around.is_shell())
        words, redirections = tuple(self.words), tuple(self.redirections)
        rest = (tuple(self.assignments), kinds, shells, self.is_sure)
        return SimpleCommand(words, redirections, self.separator, self.before, *rest)


class _Around:
    """A group, substitution or script around commands."""

    def __init__(self, kind: str, group: _Open, number: int) -> None:
        self.kind, self.group, self.number = kind, group, number

    def is_shell(self) -> bool:
        is_piped = self.group.before == "|" or self.group.separator in ("|", "&")
        return self.kind not in _SAME_SHELL or is_piped


class _ShellReader:
    def __init__(self, text: str, found: _Commands) -> None:
        self.text, self.at, self.found = text, 0, found
        self.documents: list[tuple[_Open, int, bool]] = []
        """Heredocs whose text begins on the next line: where each is, and whether it is taken literally."""

    def read(self, within: tuple[_Around, ...], is_sure: bool) -> None:
        """Read the whole text. After a part that cannot be told, go on with the next line."""
        while self.at < len(self.text):
            try:
                self._list(("",), within, is_sure)
            except _NotToldError:
                self.found.is_whole, self.documents = False, []
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end + 1
        if self.documents:
            self.found.is_whole = False  # A heredoc without its text.

    # -- lists -------------------------------------------------------------------------------------------

    def _list(self, closers: tuple[str, ...], within: tuple[_Around, ...], is_sure: bool) -> str:
        """Read commands until a sign or keyword that ends them; return that."""
        before = ""
        is_ended = False
        while True:
            self._skip_blank(newlines=True)
            closer = self._closer()
            if closer is not None:
                if closer not in closers or before in ("&&", "||", "|"):
                    raise _NotToldError
                self.at += len(closer)
                return closer
            if is_ended:
                raise _NotToldError
            command = self._command(within, is_sure and before != "||", before)
            self._skip_blank(newlines=False)
            before = self._operator(("&&", "||", "|&", "|", ";;", ";&", ";", "&", "\n"))
            if before in (";;", ";&"):
                self.at, before = self.at - 2, ""
            elif before == "\n":
                self._read_documents()
            before = command.separator = before if before != "|&" else "|"
            is_ended = not before

    def _closer(self) -> str | None:
        if self.at >= len(self.text):
            return ""
        for sign in (")", ";;&", ";;", ";&"):
            if self._comes(sign):
                return sign
        word = self._bare()
        return word if word in _CLOSERS else None

    def _command(self, within: tuple[_Around, ...], is_sure: bool, before: str = "") -> _Open:
        command = _Open(within, is_sure, before)
        self.found.commands.append(command)
        keyword = self._bare()
        while keyword in ("!", "time", "coproc"):
            begin = self.at
            self.at += len(keyword)
            self._skip_blank(newlines=False)
            if keyword == "time" and self._comes("-"):
                self.at = begin  # The program, which has options.
                break
            self.found.is_whole = self.found.is_whole and keyword != "coproc"
            keyword = self._bare()
        if keyword in _OPENERS or self._comes("("):
            self._compound(keyword or "(", command)
            self._skip_blank(newlines=False)
            while self._redirect(command, -1):
                self._skip_blank(newlines=False)
            return command
        begin = self.at
        while self._part(command):
            self._skip_blank(newlines=False)
        if self.at == begin:
            raise _NotToldError  # Nothing between two separators: no shell takes it.
        if command.words:
            if command.words[0].text in self.found.functions:
                command.words[0] = command.words[0]._replace(is_literal=False)
            self.found.is_whole = self.found.is_whole and command.words[0].text not in _ZSH_WORDS
            self._run_inside(command, tuple(command.words), within, is_sure)
        return command

    def _part(self, command: _Open) -> bool:
        """Add the next word or redirection to a command; False at its end."""
        begin, within = self.at, command.within
        if self._redirect(command, -1):
            return True
        letter = self._next()
        if letter == "(" and len(command.words) == 1 and not command.redirections + command.assignments:
            self.at += 1
            self._skip_blank(newlines=False)
            if not self._comes(")"):
                raise _NotToldError
            self.at += 1
            self._function(command.words.pop().text, command)
            return False
        if letter == "(":
            raise _NotToldError
        if letter in ("", "\n", "&", "|", ";", ")"):
            return False
        word = self._word(within)
        raw = self.text[begin : self.at]
        if self._next() in ("<", ">") and self.text[self.at + 1 : self.at + 2] != "(":
            if raw.isdigit() and raw.isascii() and len(raw) < 3:
                return self._redirect(command, int(raw))
            if raw[0] == "{" and raw[1:-1].isidentifier() and raw[-1] == "}":
                return self._redirect(command, 10)
        name = raw.partition("=")[0].removesuffix("+")
        if not command.words and len(name) < len(raw) and name.isidentifier() and name.isascii():
            if self._comes("(") and raw.endswith("="):
                word = word._replace(is_literal=False)
                self.at += 1
                self._words(within, ")")
                self.at += 1
            command.assignments.append(word)
        else:
            command.words.append(word)
        return True

    # -- groups ------------------------------------------------------------------------------------------

    def _enter(self, kind: str, group: _Open) -> tuple[_Around, ...]:
        """Return what commands in a group are within. The group is on the list, also if it has no command."""
        if len(group.within) >= MOST_DEPTH:
            raise _NotToldError
        inside = (*group.within, _Around(kind, group, len(self.found.commands)))
        self.found.commands.append(_Open(inside, group.is_sure))
        return inside

    def _compound(self, keyword: str, group: _Open) -> None:
        if keyword == "(" and self._comes("((") and self._arithmetic(2, group):
            return
        inside, is_sure = self._enter(keyword, group), group.is_sure
        self.at += len(keyword)
        if keyword == "(":
            self._list((")",), inside, is_sure)
        elif keyword == "{":
            self._list(("}",), inside, is_sure)
        elif keyword == "if":
            self._list(("then",), inside, is_sure)
            while self._list(("elif", "then", "else", "fi"), inside, False) != "fi":
                pass
        elif keyword in ("while", "until"):
            self._list(("do",), inside, is_sure)
            self._list(("done",), inside, False)
        elif keyword == "case":
            self._case(inside)
        elif keyword == "[[":
            self._test(inside)
        elif keyword == "function":
            self._skip_blank(newlines=False)
            name = self._word(inside).text
            self._skip_blank(newlines=False)
            if self._operator(("()",)) == "" and self._comes("("):
                raise _NotToldError
            self._function(name, group)
        else:
            is_sure = self._loop_words(group, inside) and is_sure
            self._list(("done",), inside, is_sure)

    def _function(self, name: str, group: _Open) -> None:
        self._skip_blank(newlines=True)
        if self._next() in ("", ")", ";", "&", "|", "<", ">"):
            raise _NotToldError
        self.found.functions.add(name)
        self._command(self._enter("function", group), False)

    def _loop_words(self, group: _Open, within: tuple[_Around, ...]) -> bool:
        """Read `for NAME in WORDS; do`; True if there is a word for certain."""
        self._skip_blank(newlines=False)
        words: list[Word] = []
        if self._comes("(("):
            if not self._arithmetic(2, group):
                raise _NotToldError
        else:
            self._word(within)
        self._skip_blank(newlines=True)
        if self._bare() == "in":
            self.at += 2
            words = self._words(within, ";\n")
        self._operator((";",))
        self._skip_blank(newlines=True)
        if self._bare() != "do":
            raise _NotToldError
        self.at += 2
        return any(word.is_literal for word in words)

    def _words(self, within: tuple[_Around, ...], ends: str) -> list[Word]:
        """Read the words of a loop or an array, up to one of these signs."""
        words: list[Word] = []
        while True:
            self._skip_blank(newlines="\n" not in ends)
            if self._next() == "":
                raise _NotToldError
            if self._next() in ends:
                return words
            words.append(self._word(within))

    def _case(self, within: tuple[_Around, ...]) -> None:
        self._skip_blank(newlines=False)
        self._word(within)
        self._skip_blank(newlines=True)
        if self._bare() != "in":
            raise _NotToldError
        self.at += 2
        while True:
            self._skip_blank(newlines=True)
            if self._bare() == "esac":
                self.at += 4
                return
            self._operator(("(",))
            sign = "|"
            while sign == "|":
                self._skip_blank(newlines=False)
                self._word(within)
                self._skip_blank(newlines=False)
                sign = self._operator(("|", ")"))
            if not sign:
                raise _NotToldError
            if self._list((";;", ";&", ";;&", "esac"), within, False) == "esac":
                return

    def _test(self, within: tuple[_Around, ...]) -> None:
        """Read `[[ … ]]`: words, between which signs have no meaning of their own."""
        while True:
            self._skip_blank(newlines=True)
            begin = self.at
            if self._next() in ("", ";"):
                raise _NotToldError
            if self._next() in _META and not self._comes_substitution():
                self.at += 1
                continue
            self._word(within)
            if self.text[begin : self.at] == "]]":
                return

    # -- scripts in words --------------------------------------------------------------------------------

    def _run_inside(
        self, command: _Open, words: tuple[Word, ...], within: tuple[_Around, ...], is_sure: bool
    ) -> None:
        """Add what a command runs that its words name: another command, or a script."""
        outer = _Open(within, is_sure and command.is_sure)
        name = SimpleCommand(words).name
        rest = [*words[1:]]
        if name.rpartition("/")[2] in SHELLS:
            script = self._script_of(rest, command, outer)
            if script is not None:
                self._nested(script).read(self._enter("sh", outer), outer.is_sure)
            return
        if name == "eval" and rest and all(word.is_literal for word in rest):
            self._nested(" ".join(word.text for word in rest)).read(self._enter(name, outer), outer.is_sure)
            return
        if name == "find":
            at = next((at for at, word in enumerate(rest) if word.text in ("-exec", "-execdir")), len(rest))
            rest = rest[at + 1 :]
            end = next((at for at, word in enumerate(rest) if word.text in (";", "+")), 0)
            rest = [Word(word.text, False, False) if "{}" in word.text else word for word in rest[:end]]
        elif name in RUNNERS:
            while rest and rest[0].is_literal and rest[0].text[:1] == "-":
                option = rest.pop(0).text
                is_long = option.startswith("--") and option != "--" and "=" not in option
                if is_long or (name == "command" and option in ("-v", "-V")):
                    return  # It may take a word, or only look.
                if option[-1] in RUNNERS[name] and len(option) == 2:
                    rest = rest[1:]
            while name in ("env", "sudo") and rest and "=" in rest[0].text:
                rest = rest[1:]
            rest = rest[1:] if name == "timeout" else rest
            if name == "xargs":
                rest = [*(Word(word.text, "{" not in word.text) for word in rest), Word("", False, False)]
        else:
            return
        if rest and rest[0].is_literal and rest[0].text[:1] not in ("", "-"):
            inside = self._enter(name, outer)
            inner = _Open(inside, outer.is_sure and name not in ("xargs", "find"))
            inner.words, inner.redirections = rest, []
            inner.before, inner.separator = command.before, command.separator
            self.found.commands.append(inner)
            self._run_inside(command, tuple(rest), inside, inner.is_sure)

    def _script_of(self, words: list[Word], command: _Open, shell: _Open) -> str | None:
        """Return the script of `sh -c SCRIPT` and `sh <<EOF`, None if there is none, or it is not told."""
        words = [*words]
        is_text = False
        while words and words[0].is_literal and words[0].text[:1] in ("-", "+"):
            option = words.pop(0).text
            is_text = is_text or (option[:2] != "--" and "c" in option)
            if option[-1] in "oO" and option[:2] != "--":
                words = words[1:]
        if is_text:
            return words[0].text if words and words[0].is_literal else None
        if not words:
            command.stdin_shell = shell  # A heredoc is its script.
            for one in command.redirections:
                if one.operator == "<<<" and one.target.is_literal:
                    return one.target.text
        return None

    def _nested(self, text: str) -> _ShellReader:
        return _ShellReader(text, self.found)

    # -- redirections and heredocs -----------------------------------------------------------------------

    def _redirect(self, command: _Open, descriptor: int) -> bool:
        """Read a redirection, if one comes."""
        if self._next() not in ("<", ">", "&") or self._comes_substitution():
            return False
        operator = self._operator(_REDIRECTIONS)
        if not operator:
            return False
        self._skip_blank(newlines=False)
        begin = self.at
        target = self._word(command.within)
        if operator[0] == "&":
            descriptor, operator = -2, operator[1:]
        elif (operator, descriptor) == (">&", -1) and target.is_literal and target.text.strip(_DIGITS + "-"):
            descriptor, operator = -2, ">"
        command.redirections.append(Redirection(descriptor, operator, target))
        if operator in ("<<", "<<-"):
            raw = self.text[begin : self.at]
            if not target.is_literal or "\n" in raw:
                raise _NotToldError
            is_quoted = any(sign in raw for sign in "'\"\\")
            self.documents.append((command, len(command.redirections) - 1, is_quoted))
        return True

    def _read_documents(self) -> None:
        """Read the texts of heredocs, which begin on this line."""
        documents, self.documents = self.documents, []
        for command, index, is_quoted in documents:
            one = command.redirections[index]
            text = self._document(one, is_quoted)
            if is_quoted or not any(sign in text for sign in "$`\\"):
                command.redirections[index] = one._replace(document=text)
            else:
                self._nested(text)._expand(command)
            if command.stdin_shell is not None:
                self._nested(text).read(self._enter("sh", command.stdin_shell), command.is_sure)

    def _document(self, opening: Redirection, is_quoted: bool) -> str:
        lines: list[str] = []
        joined = ""
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = min(end + 1, len(self.text))
            if opening.operator == "<<-" and not joined:
                line = line.lstrip("\t")
            if not is_quoted and (len(line) - len(line.rstrip("\\"))) % 2:
                joined += line[:-1]  # The next line belongs to it, and the delimiter may be in two.
                lines.append(f"{line}\n")
                continue
            if joined + line == opening.target.text:
                return "".join(lines)
            lines.append(f"{line}\n")
            joined = ""
        self.found.is_whole = False  # The text ends first.
        return "".join(lines)

    def _expand(self, command: _Open) -> None:
        """Find what is run by the text of a heredoc."""
        while self.at < len(self.text):
            letter = self.text[self.at]
            self.at += 1
            if letter == "\\":
                self.at += 1
            elif letter == "$":
                self._dollar([], command.within, is_quoted=True)
            elif letter == "`":
                self._backticks(command.within)

    # -- signs -------------------------------------------------------------------------------------------

    def _comes(self, sign: str) -> bool:
        return self.text.startswith(sign, self.at)

    def _comes_substitution(self) -> bool:
        return self._comes("<(") or self._comes(">(")

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _operator(self, signs: tuple[str, ...]) -> str:
        """Read the first of these signs that comes, over line continuations; empty if none does."""
        for sign in signs:
            at = self.at
            for letter in sign:
                while self.text.startswith("\\\n", at):
                    at += 2
                if self.text[at : at + 1] != letter:
                    break
                at += 1
            else:
                self.at = at
                return sign
        return ""

    def _bare(self) -> str:
        """Return the word that comes, if it may be a keyword."""
        end = self.at
        while end < self.at + 9 and self.text[end : end + 1] and self.text[end] not in _META:
            end += 1
        if self.text[end : end + 1] not in (*_META, ""):
            return ""
        return self.text[self.at : end]

    def _skip_blank(self, *, newlines: bool) -> None:
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in " \t":
                self.at += 1
            elif letter == "\\" and self._comes("\\\n"):
                self.at += 2
            elif letter == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif letter == "\n" and newlines:
                self.at += 1
                self._read_documents()
            else:
                return

    # -- words -------------------------------------------------------------------------------------------

    def _word(self, within: tuple[_Around, ...]) -> Word:
        text, begin, most = self.text, self.at, len(self.text)
        pieces: list[str] = []
        is_literal = is_bound = True
        brace = -1
        while self.at < most:
            at = self.at
            while at < most and text[at] not in _SPECIAL:
                at += 1
            if at > self.at:
                pieces.append(text[self.at : at])
                self.at = at
                continue
            letter = text[at]
            if letter in _META and not self._comes_substitution():
                break
            self.at += 1
            if letter == "'":
                end = text.find("'", self.at)
                if end < 0:
                    self.at = most
                    raise _NotToldError
                pieces += [text[self.at : end]] if end > self.at else []
                self.at = end + 1
            elif letter == "\\":
                if not self._comes("\n"):
                    pieces.append(self._next() or "\\")
                self.at += 1
            elif letter == '"':
                several = self._double_quoted(pieces, within)
                is_bound = is_bound and (several == 0 or (several == 1 and bool(pieces)))
                is_literal = is_literal and several == 0
            elif letter == "$":
                if self._dollar(pieces, within, is_quoted=False):
                    is_literal = is_bound = False  # Unquoted, it may be several words.
            elif letter == "`":
                self._backticks(within)
                is_literal = is_bound = False
            elif letter in "<>":
                self._substitution("<(", within)
                is_literal = False
            else:
                if letter == "{":
                    brace = at if brace < 0 else brace
                elif letter == "~":
                    is_literal = is_literal and at > begin and text[at - 1] not in "=:"
                elif letter != "[" or at > begin or text[self.at : self.at + 1] not in (*_META, ""):
                    is_literal, is_bound = False, is_bound and bool(pieces)
                pieces.append(letter)
        raw_end = self.at
        if raw_end == begin:
            raise _NotToldError
        if brace >= 0 and (text.find(",", brace, raw_end) > 0 or text.find("..", brace, raw_end) > 0):
            is_literal, is_bound = False, is_bound and brace > begin
        if text[begin] == "=" and raw_end > begin + 1 and text[begin + 1] not in "=~":
            self.found.is_whole = is_literal = False  # In zsh, where a program is.
        return Word("".join(pieces), is_literal, is_bound)

    def _double_quoted(self, pieces: list[str], within: tuple[_Around, ...]) -> int:
        """Add what is between double quotes; as `_dollar`."""
        text = self.text
        several = 0
        while self.at < len(text):
            letter = text[self.at]
            if letter not in '"\\$`':
                at = self.at + 1
                while at < len(text) and text[at] not in '"\\$`':
                    at += 1
                pieces.append(text[self.at : at])
                self.at = at
                continue
            self.at += 1
            if letter == '"':
                return several
            if letter == "`":
                self._backticks(within)
                several = max(several, 1)
            elif letter == "$":
                several = max(several, self._dollar(pieces, within, is_quoted=True))
            elif self._next() == "\n":
                self.at += 1
            else:
                is_escape = self._next() in ('"', "\\", "$", "`")
                pieces.append(self._next() if is_escape else "\\")
                self.at += is_escape
        raise _NotToldError

    def _dollar(self, pieces: list[str], within: tuple[_Around, ...], *, is_quoted: bool) -> int:
        """Read what follows a `$`: 0 if it adds its text, 1 for one word in its place, 2 for several."""
        while self._comes("\\\n"):
            self.at += 2
        follows = self._next()
        if follows == "(":
            group = _Open(within, True)
            if not (self._comes("((") and self._arithmetic(2, group)):
                self.at += 1
                self._substitution("$(", within, opened=True)
            return 1
        if follows == "{":
            return self._braced(within, is_quoted=is_quoted)
        if follows and follows in "'\"" and not is_quoted:
            self.at += 1
            if follows == "'":
                return self._ansi_quoted(pieces)
            self._double_quoted(pieces, within)
            return 1  # Translated by bash; elsewhere a `$` and a word.
        if follows and follows in _NAME:
            while self._next() and self._next() in _NAME + _DIGITS:
                self.at += 1
            if self._comes("["):
                self.found.is_whole = False  # In zsh an index, which may run something.
            return 1
        if follows and follows in _DIGITS + "?#$@*-!":
            self.at += 1
            return 2 if follows == "@" else 1
        if follows not in _AFTER_PLAIN_DOLLAR:
            self.found.is_whole = False
        pieces.append("$")
        return 0

    def _ansi_quoted(self, pieces: list[str]) -> int:
        several = 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            self.at += 1
            if letter == "'":
                return several
            if letter != "\\":
                pieces.append(letter)
                continue
            letter = self._next()
            self.at += 1
            if letter in _ANSI:
                pieces.append(_ANSI[letter])
                continue
            digits, most, base = _DIGITS[:8], 3, 8
            if letter in ("x", "u", "U"):
                digits, most, base = _DIGITS + "abcdefABCDEF", {"x": 2, "u": 4, "U": 8}[letter], 16
            else:
                self.at -= 1
            begin = self.at
            while self.at < begin + most and self._next() and self._next() in digits:
                self.at += 1
            if begin == self.at:
                raise _NotToldError
            code = int(self.text[begin : self.at], base)
            if 0 < code < 128:
                pieces.append(chr(code))
            else:
                several = 1  # A byte, or a letter in an encoding that is not known.
        raise _NotToldError

    def _braced(self, within: tuple[_Around, ...], *, is_quoted: bool) -> int:
        """Read `${…}`. All but a plain name may compute something, which may run a command."""
        end = self.text.find("}", self.at, self.at + 80)
        name = self.text[self.at + 1 : end]
        if end > 0 and name.isidentifier() and name.isascii():
            self.at = end + 1
            return 1
        inside = self._enter("${", _Open(within, True))
        begin = self.at
        self.at += 1
        if self._comes("("):
            self.found.is_whole = False  # Flags of zsh.
        while self.at < len(self.text):
            letter = self.text[self.at]
            self.at += 1
            if letter == "}":
                return 2 if "@" in self.text[begin : begin + 200] or self.at - begin > 200 else 1
            if letter == "\\":
                self.at += 1
            elif letter == "$":
                self._dollar([], inside, is_quoted=is_quoted)
            elif letter == "`":
                self._backticks(inside)
            elif letter == '"':
                self._double_quoted([], inside)
            elif letter == "'" and is_quoted:
                self.found.is_whole = False  # A quote after some signs, and a letter after others.
            elif letter == "'":
                self.at = self.text.find("'", self.at) + 1 or len(self.text)
        raise _NotToldError

    def _substitution(self, kind: str, within: tuple[_Around, ...], *, opened: bool = False) -> None:
        begin = self.at
        self.at += not opened
        outer, self.documents = self.documents, []
        self._list((")",), self._enter(kind, _Open(within, True)), True)
        if self.documents or (outer and "\n" in self.text[begin : self.at]):
            raise _NotToldError  # Where such a heredoc begins differs from shell to shell.
        self.documents = outer

    def _backticks(self, within: tuple[_Around, ...]) -> None:
        pieces: list[str] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            self.at += 1
            if letter == "`":
                inside = self._enter("`", _Open(within, True))
                self._nested("".join(pieces)).read(inside, True)
                return
            if letter == "\\" and self._next() in ("\\", "$", "`"):
                letter = self._next()
                self.at += 1
            pieces.append(letter)
        raise _NotToldError

    def _arithmetic(self, length: int, group: _Open) -> bool:
        """Read `((…))`; False, at the same place, if it is a subshell in a subshell."""
        begin, count, documents = self.at, len(self.found.commands), [*self.documents]
        inside = self._enter("${", group)
        self.at += length
        depth = 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            self.at += 1
            if letter == "(":
                depth += 1
            elif letter == ")" and depth:
                depth -= 1
            elif letter == ")" and self._comes(")"):
                self.at += 1
                return True
            elif letter == ")":
                break
            elif letter == "\\":
                self.at += 1
            elif letter == "$":
                self._dollar([], inside, is_quoted=True)
            elif letter == "`":
                self._backticks(inside)
            elif letter == '"':
                self._double_quoted([], inside)
        self.found.retries -= 1
        if self.found.retries < 0:
            raise _NotToldError
        self.at, self.documents = begin, documents
        del self.found.commands[count:]
        return False
