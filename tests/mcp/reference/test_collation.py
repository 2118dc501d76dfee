"""The order of names in a listing."""

from __future__ import annotations

from noclobber.mcp.reference import collation


def test_names_are_in_the_order_in_which_people_expect_them() -> None:
    """The order that the replaced server was seen to list these in."""
    listed = [
        " a",
        "_a",
        "-a",
        ".a",
        "(a",
        "@a",
        "#a",
        "~a",
        "$a",
        "1a",
        "a b",
        "aa",
        "Aa",
        "ab",
        "ba",
        "ea",
        "éa",
    ]
    listed += ["File1", "file10", "file9", "resume", "Resume", "résumé", "ss", "ß", "st"]

    jumbled = list(reversed(listed))

    assert sorted(jumbled, key=collation.key) == listed
