"""Layout: what a file's own grammar proves, and that everything else is a change."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.text.layout import is_same_but_layout


def is_layout(path: str, before: str, after: str) -> bool:
    return is_same_but_layout(before.encode(), after.encode(), path)


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("a.js", "a\n++b\n", "a ++b\n"),
        ("a.js", "return /* c */\nx\n", "return /* c */ x\n"),
        ("a.js", "x = /a  b/;\n", "x = /a b/;\n"),
        ("a.js", "x = a / b; /* c\nd  e */\n", "x = a / b; /* c\nd e */\n"),
        ("a.js", "x = `a ${b + `c  d`} e`;\n", "x = `a ${b + `c d`} e`;\n"),
        ("a.js", "x = <b>a</b> ;\n", "x = <b> a</b>;\n"),
        ("a.ts", "type\nA = 1\n", "type A = 1\n"),
        ("a.go", "return\nx()\n", "return x()\n"),
        ("a.go", "x := `a  b`\n", "x := `a b`\n"),
        ("a.c", "#define A  1\n", "#define A 1\n"),
        ("a.c", '#define A \\\n  "x"\n', '#define A \\\n "x"\n'),
        ("a.c", "// a \\\n b  c\n", "// a \\\n b c\n"),
        ("a.c", "x = L'a';\n", "x = L 'a';\n"),
        ("a.cpp", 'x = R"(a  b)";\n', 'x = R"(a b)";\n'),
        ("a.cs", 'x = @"a  b";\n', 'x = @"a b";\n'),
        ("a.java", 'x = """\n  a\n""";\n', 'x = """\na\n""";\n'),
        ("a.rs", "let c = ' ';\n", "let c = '  ';\n"),
        ("a.rs", 'let c = r"a  b";\n', 'let c = r"a b";\n'),
        ("a.json", '{"a": 1, "a": 2}', '{"a": 2}'),
        ("a.json", '{"a": 1}', '{"a": 1.0}'),
        ("a.json", '[["number", "1"]]', "[1]"),
        ("a.py", "x = 'a  b'\n", "x = 'a b'\n"),
        ("a.py", "def f():\n    'a\n    b'\n", "def f():\n    'a\n  b'\n"),
        ("a.py", "x = (1,)\n", "x = (1)\n"),
        ("a.py", "not python (", "not  python ("),
        ("a.py", "x = 1\n", "x = 1\n\xff"),
        ("no ending", "a b", "ab"),
    ],
)
def test_what_has_a_meaning_is_no_layout(path: str, before: str, after: str) -> None:
    """Ruling 28, finding E2, finding G2: in both directions."""
    assert not is_layout(path, before, after)
    assert not is_layout(path, after, before)


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("a.rs", "fn f<'a>(x: &'a str) -> char {'x'}\n", "fn f<'a>(x: &'a str) -> char {\n    'x'\n}\n"),
        ("a.c", "#include <a.h>\nint f( ){return 'a';}\n", "#include <a.h>\n\nint f() {\n  return 'a';\n}\n"),
        ("a.go", "x := []int{1,2}\n", "x := []int{1, 2}\n"),
        ("a.py", "\ufeffx=0XFF\n", "x = 0xFF\n"),
    ],
)
def test_what_a_formatter_does_is_layout(path: str, before: str, after: str) -> None:
    """Ruling 28."""
    assert is_layout(path, before, after)


TOKENS = st.sampled_from(
    [
        *[
            "a",
            "b1",
            "1",
            "1.5",
            "'c'",
            "(",
            ")",
            "{",
            "}",
            ",",
            ";",
            "=",
            "==",
            "+",
            "-",
            ".",
            "return",
            "/",
        ],
        '"x  y"',
        "/* c  d */",
        "// e\n",
        "`f  g`",
        "\n",
    ]
)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(TOKENS, max_size=12),
    st.lists(TOKENS, max_size=12),
    st.sampled_from(["c", "java", "go", "ts", "rs"]),
)
def test_other_tokens_are_never_layout(one: list[str], other: list[str], ending: str) -> None:
    """Ruling 28: whatever is between them, texts with other tokens are other texts."""
    ends = ("\n", ";") if ending == "go" else ("\n",)  # In Go the end of a line may stand for a semicolon.
    if [token for token in one if token not in ends] != [token for token in other if token not in ends]:
        assert not is_layout(f"x.{ending}", " ".join(one), " ".join(other))


NAMES = st.sampled_from("abc")
STATEMENTS = st.one_of(
    st.builds("{0}={1}".format, NAMES, st.integers(-3, 3)),
    st.builds("if {0}:\n    {1}()\n    {2}()".format, NAMES, NAMES, NAMES),
    st.builds("import {0}".format, NAMES),
    st.builds("{0} = '{1}' #{1}".format, NAMES, NAMES),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(STATEMENTS, max_size=4), st.lists(STATEMENTS, max_size=4))
def test_other_python_is_never_layout(one: list[str], other: list[str]) -> None:
    """Ruling 28: what Python itself prints of a text is followed, if no comment is lost; and no other text is."""
    first, second = "\n".join(one) + "\n", "\n".join(other) + "\n"
    printed = ast.unparse(ast.parse(first)) + "\n"

    assert is_layout("a.py", first, printed) == ("#" not in first)
    is_equal = ast.dump(ast.parse(first)) == ast.dump(ast.parse(second))
    assert is_equal or not is_layout("a.py", first, second)
