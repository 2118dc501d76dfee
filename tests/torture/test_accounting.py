"""
The torture's accounting: each test writes everybody's logs for one small history by hand and demands
the one right figure. `test_torture_short.py` then has real processes make such histories.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torture.versions import parse, render

from torture import accounting, agents, versions


class History:
    """Logs of a round that never took place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def outsider(self, *lines: str) -> None:
        self._write("outsider.log", lines)

    def watcher(self, *lines: str) -> None:
        self._write("watcher.log", lines)

    def agent(self, name: str, *lines: str) -> None:
        self._write(f"{name}.log", lines)

    def _write(self, name: str, lines: tuple[str, ...]) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def settle(self, kind: str, final: bytes, kept: tuple[Path, ...] = ()) -> accounting.Account:
        return accounting.settle(kind, str(self.folder), final, [str(path) for path in kept])


@pytest.fixture
def history(tmp_path: Path) -> History:
    logs = tmp_path / "logs"
    logs.mkdir()
    return History(logs)


def test_a_round_in_which_everybody_saw_what_they_replaced_is_clean(history: History) -> None:
    """N-proof: the accounting raises no false alarm."""
    history.outsider("U 1 start:0", "U 2 g0:1")
    history.agent("g0", "A 1 o:1 1 aa", "C 1 lease+exchange", "A 2 o:1 1 aa", "S 2 bb", "A 3 o:2 1 bb", "B 3")
    history.watcher("W start:0 1 0.1", "W o:1 1 0.2", "W g0:1 1 0.3", "W o:2 1 0.4", "Z 9")

    account = history.settle("rename", render("o:2", "g0:1", ((1, 2),)))

    assert account.is_clean
    assert (account.updates, account.commits, account.stale, account.busy) == (2, 1, 1, 1)


def test_an_update_that_the_final_content_lacks_is_lost(history: History) -> None:
    """N-proof: the outsider never drops its own numbers, so a guard dropped this one."""
    history.outsider("U 1 start:0", "U 2 o:1")
    history.agent("g0", "A 1 o:1 1 aa", "C 1 plain")

    account = history.settle("rename", render("g0:1", "o:1", ((1, 1),)))

    assert account.lost == 1
    assert "o:2 lost" in account.evidence[0]


def test_an_update_in_a_file_kept_aside_is_kept_and_not_lost(history: History, tmp_path: Path) -> None:
    """N-proof: kept aside is reported in a column of its own."""
    aside = tmp_path / "aside"
    aside.write_bytes(render("start:0", "-", ()) + b"+0000000001\n+0000000002\n")
    history.outsider("U 1 -", "U 2 -")
    history.agent("g0", "A 1 start:0 1 aa", "C 1 lease+exchange")

    account = history.settle("append", render("g0:1", "start:0", ((1, 1),)), kept=(aside,))

    assert (account.lost, account.kept) == (0, 1)


def test_a_loss_that_a_later_number_hides_is_found_in_the_log(history: History) -> None:
    """N-proof: a slot holds only the latest number; its writer looked first, and missed one."""
    history.outsider("U 1 -", "U 2 -", "M 2 -", "U 3 -")

    account = history.settle("pwrite", render("g0:1", "start:0", (), slot=3))

    assert account.lost == 1


def test_a_commit_that_the_outsider_overwrote_is_not_the_guards_loss(history: History) -> None:
    """N-proof: an editor that saves over a commit it has not seen loses it, not we."""
    history.outsider("U 1 start:0")
    history.agent("g0", "A 1 start:0 1 aa", "C 1 lease+exchange")

    account = history.settle("rename", render("o:1", "start:0", ((1, 1),)))

    assert account.is_clean
    assert account.overwritten_by_outsider == 1


def test_two_commits_on_the_same_bytes_are_one_lost(history: History) -> None:
    """N-proof: whichever came second replaced a version it had not seen."""
    history.agent("g0", "A 1 start:0 1 aa", "C 1 plain")
    history.agent("g1", "A 1 start:0 1 aa", "C 1 plain")

    account = history.settle("guards", render("g1:1", "start:0", ()))

    assert account.lost_commits == 1


def test_two_commits_on_the_same_bytes_are_one_lost_even_if_an_outsider_covers_both(history: History) -> None:
    """N-proof: what came later on the trunk cannot hide it; the bytes they were based on tell."""
    history.outsider("U 1 start:0")
    history.agent("g0", "A 1 start:0 1 aa", "C 1 plain")
    history.agent("g1", "A 1 start:0 1 aa", "C 1 plain")

    account = history.settle("rename", render("o:1", "start:0", ((1, 1),)))

    assert (account.lost, account.lost_commits) == (0, 1)


def test_a_commit_that_never_reached_the_disk_is_lost(history: History) -> None:
    """N-proof: a success that was reported and did not happen counts as a loss."""
    history.agent("g0", "A 1 start:0 1 aa", "C 1 plain")

    assert history.settle("guards", render("start:0", "-", ())).lost_commits == 1


def test_a_version_that_was_seen_although_it_was_refused_is_withdrawn(history: History) -> None:
    """N-proof: nobody may see what did not happen."""
    history.agent("g0", "A 1 start:0 1 aa", "S 1 bb")
    history.watcher("W start:0 1 0.1", "W g0:1 1 0.2")

    assert history.settle("rename", render("start:0", "-", ())).withdrawn >= 1


def test_a_refused_version_that_an_outsider_built_on_is_withdrawn(history: History) -> None:
    """N-proof: the outsider's own looks are sightings, too."""
    history.outsider("U 1 g0:1")
    history.agent("g0", "A 1 start:0 1 aa", "S 1 bb")

    assert history.settle("rename", render("o:1", "g0:1", ((1, 1),))).withdrawn == 1


def test_an_old_version_that_comes_back_is_a_withdrawal(history: History) -> None:
    """N-proof: every save makes a new version, so an old one returns only if somebody put it back."""
    history.agent("g0", "A 1 start:0 1 aa", "C 1 exchange")
    history.watcher("W start:0 1 0.1", "W g0:1 1 0.2", "W start:0 1 0.3", "W g0:1 1 0.4")

    assert history.settle("guards", render("g0:1", "start:0", ())).withdrawn == 2


def test_an_older_file_in_a_folders_place_is_reported_apart(history: History) -> None:
    """N-proof: a reader that waits for what turns out to be a folder cannot be given one."""
    history.outsider("U 1 start:0", "U 2 o:1")
    history.watcher("W start:0 1 0.1", "W o:2 1 0.2", "W start:0 1 0.3")

    account = history.settle("directory", render("o:2", "o:1", ((1, 2),)))

    assert (account.stood_in, account.withdrawn) == (1, 0)


def test_a_killed_agents_version_may_be_there_or_not(history: History) -> None:
    """N-proof: a kill has no outcome to hold the guard to."""
    history.agent("g0", "A 1 start:0 1 aa", "A 2 start:0 1 aa", "C 2 lease+exchange", "A 3 g0:2 1 bb")

    assert history.settle("guards", render("g0:2", "start:0", ())).is_clean
    assert history.settle("guards", render("g0:3", "g0:2", ())).is_clean


def test_a_killed_agents_version_that_was_seen_and_then_taken_back_is_undone(history: History) -> None:
    """N-proof: that is reported in a column of its own."""
    history.agent("g0", "A 1 start:0 1 aa")
    history.agent("g1", "A 1 start:0 1 aa", "C 1 lease+exchange")
    history.watcher("W start:0 1 0.1", "W g0:1 1 0.2", "W g1:1 1 0.3")

    account = history.settle("guards", render("g1:1", "start:0", ()))

    assert (account.undone, account.withdrawn) == (1, 0)


def test_a_guards_version_seen_in_part_is_torn(history: History) -> None:
    """N-proof: readers see the old bytes or the new bytes."""
    history.agent("g0", "A 1 start:0 1 aa", "C 1 plain")
    history.watcher("W g0:1 0 0.1", "W g0:1 1 0.2")

    assert history.settle("rename", render("g0:1", "start:0", ())).torn == 1


def test_a_mixture_under_an_outsider_that_writes_in_place_is_nobodys_fault(history: History) -> None:
    """N-proof: that reader's own read() mixed two versions; only the end is judged."""
    history.agent("g0", "A 1 start:0 1 aa", "C 1 lease+exchange")
    history.watcher("W g0:1 0 0.1", "W - 0 0.2")

    assert history.settle("truncate", render("g0:1", "start:0", ())).torn == 0


def test_a_final_content_that_is_not_whole_is_torn_under_every_kind(history: History) -> None:
    """N-proof: after the run and after recovery the file is whole."""
    content = render("g0:1", "start:0", (), padding_bytes=99)
    history.agent("g0", "A 1 start:0 1 aa", "C 1 lease+exchange")

    assert history.settle("truncate", content[:-5]).torn == 1
    assert history.settle("truncate", b"").torn == 1


def test_a_refusal_after_which_the_same_bytes_are_read_is_false(history: History) -> None:
    """N-proof: touch and chmod are no reason to refuse."""
    history.agent("g0", "A 1 start:0 1 aa", "S 1 bb", "F 1", "A 2 start:0 1 aa", "C 2 lease+exchange")

    account = history.settle("touch", render("g0:2", "start:0", ()))

    assert account.false_refusals == 1
    assert not account.is_clean


def test_a_crash_of_an_agent_is_a_fault(history: History) -> None:
    """N-proof: an error that nobody planned for is never a clean round."""
    history.agent("g0", "X Traceback | KeyError: 'x'")

    account = history.settle("guards", render("start:0", "-", ()))

    assert "KeyError" in account.faults[0]
    assert not account.is_clean


@given(
    tags=st.sets(st.integers(1, 60)),
    slot=st.integers(0, 20),
    appended=st.lists(st.integers(61, 90), unique=True),
    padding=st.integers(0, 300),
)
def test_what_is_rendered_is_parsed(tags: set[int], slot: int, appended: list[int], padding: int) -> None:
    """N-proof: the accounting reads exactly what the writers wrote."""
    content = render(
        "g0:5", "o:1", versions.ranges_of(tags), slot=slot, counters={"g0": 5}, padding_bytes=padding
    )
    version = parse(content + b"".join(b"+%010d\n" % tag for tag in appended))

    assert version.is_whole
    assert (version.id, version.parent, version.slot, version.counters) == ("g0:5", "o:1", slot, {"g0": 5})
    held = {*tags, *appended, *range(1, slot + 1)}
    assert {tag for tag in range(1, 95) if version.has(tag)} == held
    assert version.missing(94) == [tag for tag in range(1, 95) if tag not in held]


@given(
    pieces=st.lists(
        st.tuples(st.sampled_from([((1, 9),), ((1, 3), (5, 5)), ()]), st.integers(0, 90), st.integers(0, 90)),
        max_size=4,
    )
)
def test_parsing_never_fails_whatever_two_writers_left_there(
    pieces: list[tuple[versions.Ranges, int, int]],
) -> None:
    """N-proof: a mixture of versions is reported as not whole, not as an error."""
    mixed = b"".join(render("g0:5", "o:17", tags, slot=7)[start:end] for tags, start, end in pieces)

    parse(mixed)
    parse(b"slot 0000000000\nid=g0:5 from=o:1 o=1-,3 len=5 sum=00000000\n" + mixed)


@given(cut=st.integers(0, 11))
def test_an_append_that_is_seen_in_part_is_not_there_yet_and_tears_nothing(cut: int) -> None:
    """N-proof: the kernel shows an append that crosses a page in two steps; that is no torn version."""
    version = parse(render("g0:5", "o:1", ((1, 1),)) + b"+0000000002\n" + b"+0000000003\n"[:cut])

    assert version.is_whole
    assert version.missing(3) == [3]


@given(cut=st.integers(0, 10_000), flip=st.integers(0, 10_000))
def test_a_version_that_was_cut_or_mixed_is_not_whole(cut: int, flip: int) -> None:
    """N-proof: a torn file is recognised wherever it is torn."""
    content = render("g0:5", "o:17", ((1, 17),), counters={"g0": 5}, padding_bytes=200)
    start = len(b"slot 0000000000\n")  # The slot may change in place at any time.
    place = start + flip % (len(content) - start)

    assert not parse(content[: cut % len(content)]).is_whole
    assert not parse(content[:place] + b"#" + content[place + 1 :]).is_whole


@pytest.mark.parametrize(
    ("log", "last"), [("", 0), ("A 1 x\n", 1), ("A 2 x\n", 2), ("A 2 x\nS 2\n", 2), ("A 1 x\nC 1\nA 2", 1)]
)
def test_an_agent_that_is_started_again_never_uses_a_number_twice(
    tmp_path: Path, log: str, last: int
) -> None:
    """Two versions of one name made a landed one look like a refused one that somebody had seen."""
    (tmp_path / "log").write_text(log)
    assert agents.last_attempt(str(tmp_path / "log")) == last
