"""The weave: which changes a version has, and a version with some more of them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from noclobber.text.weave import Weave

TEXT = [b"line %d\n" % number for number in range(1, 21)]


def changed(lines: list[bytes], at: int, *new: bytes) -> list[bytes]:
    """Return the lines with one replaced by others."""
    return [*lines[:at], *new, *lines[at + 1 :]]


def hunks_of(weave: Weave, *authors: str) -> set[int]:
    """Return the numbers of some authors' hunks."""
    return {hunk.number for hunk in weave.hunks if hunk.author in authors}


def test_one_authors_changes_are_taken_without_the_others() -> None:
    """N-versions: what is left out is exactly what the others changed."""
    weave = Weave(TEXT)
    second = changed(TEXT, 3, b"ana\n")
    weave.step(second, "ana")
    weave.step(changed(second, 12, b"bob\n"), "bob")

    assert weave.committed(TEXT) == set()
    assert weave.picked(set(), hunks_of(weave, "bob")).lines == changed(TEXT, 12, b"bob\n")
    assert weave.picked(set(), hunks_of(weave, "ana")).lines == second


def test_equal_lines_of_others_are_not_mistaken_for_ones_own() -> None:
    """N-versions: three functions end alike, and a comparison of lines alone would take the wrong end."""
    first = [b"def f {\n", b"  body f\n", b"}\n"]
    of_ana = [*first, b"def g {\n", b"  body g\n", b"}\n"]
    weave = Weave(first)
    weave.step(of_ana, "ana")
    weave.step([*of_ana, b"def k {\n", b"  body k\n", b"}\n"], "bob")

    assert weave.committed(first) == set()
    assert weave.committed(of_ana) == hunks_of(weave, "ana")
    assert weave.picked(set(), hunks_of(weave, "bob")).lines == [
        *first,
        b"def k {\n",
        b"  body k\n",
        b"}\n",
    ]


def test_a_change_on_top_of_anothers_open_change_waits_for_it() -> None:
    """N-versions: the later one is blocked and the other named; the earlier one goes first."""
    weave = Weave(TEXT)
    weave.step(changed(TEXT, 3, b"ana\n"), "ana")
    weave.step(changed(TEXT, 3, b"bob\n"), "bob")

    picked = weave.picked(set(), hunks_of(weave, "bob"))
    assert picked.lines is None
    assert list(picked.blocked) == [(3, 4)]
    assert set(picked.by) == {"ana"}
    assert weave.picked(set(), hunks_of(weave, "ana")).lines == changed(TEXT, 3, b"ana\n")
    present = weave.committed(changed(TEXT, 3, b"ana\n"))
    assert present == hunks_of(weave, "ana")
    assert weave.picked(present, hunks_of(weave, "bob")).lines == changed(TEXT, 3, b"bob\n")


def test_neighbouring_changes_count_as_the_same_place() -> None:
    """N-versions: as in a merge; between two changes a telling line that nobody changed is needed."""
    lines = [b"a = 1\n", b"\n", b"b = 2\n", b"c = 3\n"]
    weave = Weave(lines)
    second = changed(lines, 0, b"a = 10\n")
    weave.step(second, "ana")
    weave.step(changed(second, 2, b"b = 20\n"), "bob")

    assert weave.picked(set(), hunks_of(weave, "bob")).lines is None


def test_insertions_of_several_at_one_place_are_independent() -> None:
    """N-versions: everybody adds a line to the change log."""
    lines = [b"# Changes\n", b"\n"]
    weave = Weave(lines)
    for name, new in (("ana", b"- ana 1\n"), ("bob", b"- bob\n"), ("ana", b"- ana 2\n")):
        lines = [*lines[:2], new, *lines[2:]]
        weave.step(lines, name)

    assert weave.picked(set(), hunks_of(weave, "bob")).lines == [b"# Changes\n", b"\n", b"- bob\n"]
    of_ana = weave.picked(set(), hunks_of(weave, "ana")).lines
    assert of_ana == [b"# Changes\n", b"\n", b"- ana 2\n", b"- ana 1\n"]
    assert weave.committed(of_ana) == hunks_of(weave, "ana")


def test_what_was_changed_to_and_fro_counts_as_done() -> None:
    """N-versions: of several sets that give the same version, the one with the most hunks."""
    weave = Weave([b"v = 1\n"])
    for author, value in (("ana", 2), ("bob", 1), ("ana", 2)):
        weave.step([b"v = %d\n" % value], author)

    present = weave.committed([b"v = 1\n"])
    assert present == {0, 1}
    assert weave.picked(present, hunks_of(weave, "ana")).lines == [b"v = 2\n"]


def test_a_version_with_other_lines_is_none_of_the_weaves() -> None:
    """N-versions: then the nearest one is for a merge."""
    weave = Weave(TEXT)
    weave.step(changed(TEXT, 3, b"ana\n"), "ana")

    assert weave.committed(changed(TEXT, 9, b"from elsewhere\n")) is None
    assert weave.nearest(changed(TEXT, 9, b"from elsewhere\n")) == set()
    assert weave.nearest(changed(changed(TEXT, 3, b"ana\n"), 9, b"from elsewhere\n")) == {0}


@given(seed=st.integers(0, 1 << 32))
def test_any_commits_in_any_order_end_at_the_last_version(seed: int) -> None:
    """
    N-versions: whoever commits when, what is committed is one of the weave's versions, no foreign line is in
    a commit, and when nobody is blocked any more the last version is all committed.
    """
    dice = random.Random(seed)
    lines = [dice.choice([b"\n", b"}\n", b"text %d\n" % number]) for number in range(12)]
    weave, head = Weave(lines), list(lines)
    for number in range(dice.randrange(1, 14)):
        author = dice.choice("abc")
        at = dice.randrange(len(lines) + 1)
        gone = dice.choice([0, 0, 1, 2])
        new = [
            dice.choice([b"\n", b"}\n", b"%s %d\n" % (author.encode(), number)])
            for _ in range(dice.choice([0, 1, 2]))
        ]
        lines = [*lines[:at], *new, *lines[at + gone :]]
        weave.step(lines, author)
        if dice.random() < 0.4:
            head = _commit(weave, head, dice.choice("abc"))
    for _ in range(2):
        for author in "abc":
            head = _commit(weave, head, author)
    present = weave.committed(head)
    assert present is not None
    everything = hunks_of(weave, *"abc")
    assert weave.picked(present, everything).lines == lines


def _commit(weave: Weave, head: list[bytes], author: str) -> list[bytes]:
    present = weave.committed(head)
    assert present is not None
    assert weave.version(present) == head
    picked = weave.picked(present, hunks_of(weave, author))
    if picked.lines is None:
        return head
    foreign = {b"%s %d\n" % (other.encode(), n) for other in "abc" for n in range(20) if other != author}
    assert not (set(picked.lines) - set(head)) & foreign
    return picked.lines


@given(st.integers(0, 10_000))
def test_a_condensed_weave_tells_of_what_is_open_what_the_whole_one_tells(seed: int) -> None:
    """N-versions: after being put away and taken up, with later steps; and it has no committed hunk any more."""
    dice = random.Random(seed)
    weave, lines, versions = Weave(TEXT), list(TEXT), []
    for number in range(12):
        at = dice.randrange(len(lines))
        lines = [*lines[:at], b"new %d\n" % number, *lines[at + dice.randrange(3) :]]
        versions.append((lines, dice.choice(["ana", "bob", "eve"])))
    cut = dice.randrange(1, 12)
    for version, author in versions[:cut]:
        weave.step(version, author)
    first = len(weave.hunks)
    for version, author in versions[cut:]:
        weave.step(version, author)
    head = weave.picked(set(), hunks_of(weave, "ana")).lines
    if head is None:
        head = versions[dice.randrange(12)][0]
    present = weave.committed(head)
    assert present is not None
    short = Weave.taken_up(weave.condensed(present, first).put_away(str), str)
    for version, author in versions[cut:]:
        short.step(version, author)
    still = short.committed(head)

    assert len(short.hunks) == len(weave.hunks) - len([each for each in present if each < first])
    assert still is not None
    assert short.version({hunk.number for hunk in short.hunks}) == versions[-1][0]
    for author in ("ana", "bob", "eve"):
        assert short.picked(still, hunks_of(short, author)) == weave.picked(present, hunks_of(weave, author))
