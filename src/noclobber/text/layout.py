"""
Is this the same text, but for its layout? Only what the file's own grammar proves.

| file | what must be equal |
|---|---|
| Python | the syntax tree, and the comments |
| JSON | the values: order, duplicate names and the spelling of numbers included |
| TOML | the tables, and what is behind each `#` |
| C, C++, C#, Java, Rust, Go, JavaScript, TypeScript | the tokens; strings and comments byte by byte |

Everything else has no proof, so every change of it is a change: Markdown, YAML, CSV, Makefiles and plain text
above all, where a blank, a dash or a line's end is what somebody wrote. The same holds for a text that does
not parse, and for what these few rules cannot tell apart (raw strings, JSX, a template in a template).

Not told apart: a person who changes nothing but layout, and a formatter.
"""

from __future__ import annotations

from collections.abc import Callable

from noclobber.core.values import BOM

MOST_BYTES = 1 << 20  # A syntax tree takes a hundred times as much.


class _NoProofError(Exception):
    """The text has something in it that these rules cannot tell apart."""


def is_same_but_layout(before: bytes, after: bytes, path: str) -> bool:
    """True if it is proven that only the layout of a file differs."""
    content = _CONTENT.get(path.rpartition("/")[2].rpartition(".")[2].lower())
    if content is None or max(len(before), len(after)) > MOST_BYTES:
        return False
    try:
        first, second = (data.removeprefix(BOM).decode() for data in (before, after))
        return content(first) == content(second)
    except (_NoProofError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False


# -- languages that the standard library can parse ---------------------------------------------------------


def _python(text: str) -> object:
    import ast
    import io
    import tokenize
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # About the user's code; a hook's output is for the host.
        tree = ast.dump(ast.parse(text))
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except tokenize.TokenError as error:
        raise _NoProofError from error
    # A formatter may put a blank behind the sign, and moves whole comments. Their words are somebody's.
    comments = [token.string[1:].strip() for token in tokens if token.type == tokenize.COMMENT]
    return tree, comments


def _json(text: str) -> object:
    import json

    # Each number as it is spelled, and marked: 8080 is not "8080", and 1 is not 1.0 or true.
    return json.loads(
        text,
        parse_int=lambda digits: ("number", digits),
        parse_float=lambda digits: ("number", digits),
        parse_constant=lambda name: ("number", name),
        object_pairs_hook=lambda pairs: ("object", pairs),
    )


def _toml(text: str) -> object:
    import tomllib

    comments = [line.partition("#")[2].strip() for line in text.split("\n") if "#" in line]
    return repr(tomllib.loads(text)), comments  # As text: to Python 1, 1.0 and true are equal.


# -- languages of which only the tokens are read -----------------------------------------------------------

_PIECE = r"""
    (?P<blank> [ \t\r\f\v]+ ) | (?P<line> \n )
  | (?P<comment> //[^\n]* | /\* (?s:.*?) \*/ )
  | (?P<string> "(?: [^"\\\n] | \\. )*" )
  | (?P<letter> '(?: [^'\\\n] | \\. )*' )
  | (?P<template> ` )
  | (?P<number> [0-9] (?: [eEpP][+-][0-9] | [\w.] )* )
  | (?P<word> (?: \w | \$ | [^\x00-\x7f] )+ )
  | (?P<bracket> [][(){},;] )
  | (?P<sign> [^\s\w"'`][^\s\w"'`$()\[\]{},;/]* )
    """
_NO_PROOF = {  # Raw strings, comments in comments, JSX.
    "c": ('R"',),
    "cs": ('@"', '$"', '"""'),
    "java": ('"""',),
    "rs": ('r"', 'r#"', "/*"),
    "go": (),
    "js": ("</", "/>", "<>"),
}
_RUST_QUOTE = r"'(?:\\(?:u\{[^}\n]*\}|x..|.)|[^'\\\n])'|'\w+"
_ENDS_A_LINE = {  # Behind these a line's end is the end of a statement, or of a meaning.
    *("return", "break", "continue", "throw", "yield", "async", "await", "type", "declare", "abstract"),
    *("namespace", "module", "interface", "accessor", "using", "of"),
}


def _tokens(language: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        if any(sign in text for sign in _NO_PROOF[language]):
            raise _NoProofError
        import re  # Here: a hook asks about every file that an agent wrote, and most have no such tokens.

        a_token, a_rust_quote = re.compile(_PIECE, re.VERBOSE), re.compile(_RUST_QUOTE)
        found: list[str] = []
        at, is_line_new, last, before = 0, True, "", ""
        while at < len(text):
            quote = a_rust_quote.match(text, at) if language == "rs" and text[at] == "'" else None
            match = quote or a_token.match(text, at)
            if match is None:
                raise _NoProofError
            kind, token = match.lastgroup or "letter", match[0]
            if kind == "line":
                last, ends = _line_end(last, language)
                found += ends
            elif kind == "comment":
                if token.startswith("//") and token.rstrip("\r").endswith("\\"):
                    raise _NoProofError  # In C the next line belongs to it.
                found.append(token)
            elif kind != "blank":
                token = _whole(text, at, token, kind, language, is_line_new)
                if language == "js" and last == "\n" and token[0] in "+-":
                    found.append("")  # ++ behind a line's end is about what follows.
                if kind in ("string", "letter") and before == "word" and language in ("c", "rs"):
                    found.append("")  # L"x", b'x': another thing than the word and the string.
                found.append(token)
                last = token
            is_line_new = kind == "line" or (is_line_new and kind == "blank")
            before, at = kind, at + len(token)
        return found

    return read


def _line_end(last: str, language: str) -> tuple[str, list[str]]:
    """Return the last token from now on, and what a line's end behind that token stands for."""
    if language == "go" and (last[-1:].isalnum() or last[-1:] in tuple("_)]}\"'`") or last in ("++", "--")):
        return ";", [";"]
    if language == "js":
        return "\n", ["end of line"] if last in _ENDS_A_LINE else []
    return last, []


def _whole(text: str, at: int, token: str, kind: str, language: str, is_line_new: bool) -> str:
    """Return the whole of a token of which the pattern knows only the beginning."""
    if kind == "template":
        return _template(text, at, has_holes=language == "js")
    if language in ("c", "cs") and is_line_new and token[0] == "#":
        token = _rest_of_lines(text, at)  # For the preprocessor blanks and line ends have a meaning.
        if "/*" in token:
            raise _NoProofError
    elif kind == "sign" and "\\" in token:
        raise _NoProofError
    elif language == "js" and kind == "sign" and token[0] == "/":
        token = text[at:].partition("\n")[0]  # Perhaps a regular expression.
        if "`" in token or "/*" in token:
            raise _NoProofError
    return token


def _rest_of_lines(text: str, at: int) -> str:
    end = at
    while True:
        end = text.find("\n", end)
        if end < 0:
            return text[at:]
        if text[end - 1] not in "\\\r":
            return text[at:end]
        end += 1


def _template(text: str, at: int, *, has_holes: bool) -> str:
    """Return a text between two backticks; one that has strings or templates in its holes is not read."""
    if not has_holes:  # Go.
        end = text.find("`", at + 1)
        if end < 0:
            raise _NoProofError
        return text[at : end + 1]
    depth, end = 0, at + 1
    while end < len(text):
        if text[end] == "\\":
            end += 1
        elif depth and text[end] in "\"'`/":
            raise _NoProofError
        elif text[end] == "`":
            return text[at : end + 1]
        elif text.startswith("${", end) or (depth and text[end] == "{"):
            depth += 1
            end += text[end] == "$"
        elif depth and text[end] == "}":
            depth -= 1
        end += 1
    raise _NoProofError


_CONTENT: dict[str, Callable[[str], object]] = {
    "py": _python,
    "pyi": _python,
    "json": _json,
    "toml": _toml,
    **dict.fromkeys(("c", "h", "cc", "cpp", "hpp", "cxx"), _tokens("c")),
    **{name: _tokens(name) for name in ("cs", "java", "rs", "go")},
    **dict.fromkeys(("js", "mjs", "cjs", "ts", "mts", "cts"), _tokens("js")),
}
