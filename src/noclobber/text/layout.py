"""
Is this the same text, but for its layout? What a formatter changes, and what it does not.

A formatter moves blanks and line breaks; adds or drops commas, semicolons and parentheses; exchanges one kind
of quote for another; and sorts, adds and drops import lines. In Markdown it also changes the signs for lists,
emphasis and tables. Everything else is content: a word, a number, an operator. If two texts have the same
content in the same order, then no sentence and no statement of anybody's is in one and not in the other.

Not told apart: a person who changes nothing but layout, and a formatter.
"""

from __future__ import annotations

from noclobber.core.values import BOM

_LAYOUT = b" \t\r\n\f\v,;()'\"`\\"
_MARKDOWN = _LAYOUT + b"*_-+|"
_IMPORTS = (
    b"import ",
    b"from ",
    b"import{",
    b"import(",
    b"use ",
    b"using ",
    b"#include",
    b"@import ",
    b"require",
)
_CODE = (
    *("py", "pyi", "js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte", "go", "rs", "java"),
    *(
        "kt",
        "kts",
        "scala",
        "swift",
        "dart",
        "c",
        "h",
        "cc",
        "cpp",
        "hpp",
        "cxx",
        "cs",
        "php",
        "rb",
        "css",
        "scss",
    ),
)
MOST_IMPORT_LINES = 500  # Of one statement. After that it is no import, whatever it began with.


def is_same_but_layout(before: bytes, after: bytes, path: str) -> bool:
    """True if only the layout of a file differs."""
    ending = path.rpartition("/")[2].rpartition(".")[2].lower()
    return _content(before, ending) == _content(after, ending)


def _content(data: bytes, ending: str) -> bytes:
    data = data.removeprefix(BOM)
    if ending in _CODE:
        data = _without_imports(data)
    return data.translate(None, _MARKDOWN if ending in ("md", "markdown", "mdx") else _LAYOUT)


def _without_imports(data: bytes) -> bytes:
    """Leave out import statements, to the end of the brackets that they open."""
    kept: list[bytes] = []
    skipped: list[bytes] = []
    depth = 0
    for line in data.split(b"\n"):
        is_inside = depth > 0
        if not is_inside and not line.lstrip().startswith(_IMPORTS):
            kept.append(line)
            continue
        depth += line.count(b"(") + line.count(b"{") - line.count(b")") - line.count(b"}")
        skipped = [*skipped, line] if is_inside else [line]
        if depth <= 0:
            depth, skipped = 0, []
        elif len(skipped) > MOST_IMPORT_LINES:
            kept += skipped
            depth, skipped = 0, []
    return b"\n".join([*kept, *skipped])
