"""Merging: what is taken, what is a conflict, and that git would have made the same of it."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torture.merges import Case, both_changed, case, judge, merged_by_git

from noclobber.text.merge import Conflict, LineRange, merge
from torture import merge_corpus, merges

TEXT = b"".join(b"line %d\n" % number for number in range(1, 11))


def test_changes_in_different_places_are_both_taken() -> None:
    """N-merge: nothing of either side is lost."""
    ours, theirs = TEXT.replace(b"line 2\n", b"ours\n"), TEXT.replace(b"line 9\n", b"")

    assert merge(TEXT, ours, theirs).content == ours.replace(b"line 9\n", b"")


def test_a_side_that_changed_nothing_gives_the_other() -> None:
    """N-merge."""
    assert merge(TEXT, TEXT, b"other\n").content == b"other\n"
    assert merge(TEXT, b"other\n", TEXT).content == b"other\n"


def test_the_same_change_on_both_sides_is_a_conflict() -> None:
    """Finding E3, ruling 29: two agents that count from 5 to 6 have counted two."""
    both = TEXT.replace(b"line 5\n", b"line 6\n")
    ours, theirs = both.replace(b"line 1\n", b"ours\n"), both.replace(b"line 9\n", b"theirs\n")

    assert merge(TEXT, ours, theirs).content is None
    assert merge(TEXT, both, both).content is None
    assert merge(TEXT, TEXT + b"x\n", TEXT + b"x\n").content is None, "both appended the same line"


def test_a_look_back_takes_the_same_change_on_both_sides_once() -> None:
    """Ruling 29: for an undo and a commit what is there already need not be done again."""
    both = TEXT.replace(b"line 5\n", b"changed\n")
    ours, theirs = both.replace(b"line 1\n", b"ours\n"), both.replace(b"line 9\n", b"theirs\n")

    assert merge(TEXT, ours, theirs, equal_once=True).content == ours.replace(b"line 9\n", b"theirs\n")
    assert merge(TEXT, both, both, equal_once=True).content == both


def test_a_conflict_names_its_lines_in_all_three_versions() -> None:
    """N-merge: the line ranges go beside the refusal."""
    ours, theirs = TEXT.replace(b"line 5\n", b"ours\n"), TEXT.replace(b"line 5\n", b"theirs 1\ntheirs 2\n")

    merged = merge(TEXT, ours, theirs)

    assert merged.content is None
    assert merged.conflicts == (Conflict(LineRange(3, 5), LineRange(3, 5), LineRange(3, 6)),)


def test_neighbouring_changes_are_a_conflict() -> None:
    """DESIGN: adjacent changes conflict, as in git."""
    ours, theirs = TEXT.replace(b"line 5\n", b"ours\n"), TEXT.replace(b"line 6\n", b"theirs\n")

    assert merge(TEXT, ours, theirs).content is None


@pytest.mark.parametrize("between", [b"\n", b"    }\n", b"\n\n----\n"])
def test_lines_without_a_letter_or_digit_do_not_part_two_changes(between: bytes) -> None:
    """DESIGN: where blank lines and braces align is a guess."""
    base = b"start\none\n" + between + b"two\nend\n"
    ours, theirs = base.replace(b"one\n", b"ours\n"), base.replace(b"two\n", b"theirs\n")

    assert merge(base, ours, theirs).content is None


def test_a_line_that_is_all_over_the_file_does_not_part_two_changes() -> None:
    """N-merge: `return x` forty times says nothing about where one is."""
    base = b"".join(b"value %d\nreturn x\n" % number for number in range(40))
    ours, theirs = base.replace(b"value 7\n", b"ours\n"), base.replace(b"value 8\n", b"theirs\n")

    assert merge(base, ours, theirs).content is None


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        pytest.param(b"a\n", b"a\nours\n", b"a\ntheirs\n", id="both add at the end"),
        pytest.param(b"", b"ours\n", b"theirs\n", id="both from nothing"),
        pytest.param(TEXT, b"", TEXT + b"more\n", id="ours empties the file"),
        pytest.param(
            TEXT, TEXT.replace(b"\n", b"\r\n"), TEXT + b"more\n", id="ours changes every line's end"
        ),
        pytest.param(TEXT, TEXT[:-1], TEXT + b"more\n", id="the last newline"),
        pytest.param(TEXT, TEXT + b"\0", b"new\n" + TEXT, id="ours became binary"),
        pytest.param(b"\xef\xbb\xbf" + TEXT, TEXT, b"\xef\xbb\xbfnew\n" + TEXT, id="the mark in line 1"),
    ],
)
def test_what_cannot_be_told_apart_is_a_conflict(base: bytes, ours: bytes, theirs: bytes) -> None:
    """N-merge: refused as ever."""
    merged = merge(base, ours, theirs)

    assert merged.content is None
    assert merged.conflicts


def test_line_ends_marks_and_a_missing_last_newline_stay_as_they_are() -> None:
    """N-merge: bytes in, bytes out."""
    base = b"\xef\xbb\xbf" + TEXT.replace(b"\n", b"\r\n")[:-2]
    ours, theirs = base.replace(b"line 2\r", b"ours\r"), base.replace(b"line 8\r", b"\xff\xfe\r")

    assert merge(base, ours, theirs).content == ours.replace(b"line 8\r", b"\xff\xfe\r")


def test_a_huge_line_is_a_line() -> None:
    """N-merge: bounded by the number of lines and edits, not by their length."""
    base = b"start\n" + b"x" * 3_000_000 + b"\nmiddle\nend\n"
    ours, theirs = base.replace(b"start", b"ours"), base.replace(b"end", b"theirs")

    assert merge(base, ours, theirs).content == ours.replace(b"end", b"theirs")


def test_a_block_that_one_side_moved_and_the_other_changed_is_never_doubled() -> None:
    """N-merge: the proof counts every line."""
    block = b"def moved():\n    return 1\n"
    base = block + TEXT
    ours, theirs = TEXT + block, base.replace(b"return 1", b"return 2")

    assert merge(base, ours, theirs).content is None


# -- git's opinion -----------------------------------------------------------------------------------------

needs_git = pytest.mark.skipif(
    shutil.which("git") is None, reason="git is not installed; it is the judge here"
)


@needs_git
def test_generated_merges_are_clean_only_where_git_makes_the_same_bytes() -> None:
    """N-merge: a short run of `make merges`, which does 100 000."""
    counts = judge(first_seed=500_000, count=400)

    assert counts.clean > 50
    assert counts.collisions > 50
    assert counts.is_good, counts


@needs_git
def test_a_merge_with_other_bytes_would_be_noticed(tmp_path: object) -> None:
    """The judge can convict: what it compares with is git's own result."""
    versions = next(found for found in map(case, range(1000)) if merge(*found).content not in (None, *found))

    assert merged_by_git(str(tmp_path), versions) == merge(*versions).content
    assert merged_by_git(str(tmp_path), Case(b"a\n", b"b\n", b"c\n")) is None


@needs_git
def test_a_merge_that_counts_equal_changes_once_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding E3: the judge convicts what git would do."""
    monkeypatch.setattr(merges, "merge", partial(merge, equal_once=True))

    assert judge(first_seed=500_000, count=200).counted_once > 5


FEW = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c d\n"]), max_size=12)


@needs_git
@settings(deadline=None, max_examples=150)
@given(FEW, FEW, FEW)
def test_any_three_versions_are_clean_only_where_git_makes_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, base: list[bytes], ours: list[bytes], theirs: list[bytes]
) -> None:
    """N-merge: the smallest counter-example, if there is one."""
    versions = Case(b"".join(base), b"".join(ours), b"".join(theirs))
    merged = merge(*versions).content

    if merged is not None:
        assert not both_changed(versions)
        assert merged_by_git(str(tmp_path_factory.mktemp("merge")), versions) == merged


def test_changes_of_a_real_history_merge_as_in_git(tmp_path: Path) -> None:
    """N-merge: the corpus, from a history that is made here; `make merges` takes this project's own."""
    lines = [f"line {number}\n" for number in range(30)]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for number in range(12):
        lines[(number * 7) % 30] = f"version {number}\n"
        if number % 4 == 3:
            lines.insert(number, f"inserted {number}\n")
        (tmp_path / "plan.md").write_text("".join(lines))
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), "add", "plan.md"], check=True)
        subprocess.run(["git", "-C", str(tmp_path), *who, "commit", "-qm", "x"], check=True)

    counts = merge_corpus.judge(str(tmp_path), 100)

    assert counts.cases >= 8
    assert counts.clean >= 6
    assert counts.is_good, counts
