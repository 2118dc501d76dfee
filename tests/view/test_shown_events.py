"""An event as a person sees it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noclobber.view.shown_events import MOST_LETTERS, Authors, shortened, shown
from tests.view.ledgers import HOSTILE, refused, written

LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30)
JSON = LEAF | st.lists(LEAF, max_size=3) | st.dictionaries(st.text(max_size=12), LEAF, max_size=3)
NAMES = (
    "target_file",
    "destination",
    "before_hash",
    "after_hash",
    "agent_id",
    "session_id",
    "merged",
    "kept",
)
MEMBER = JSON | st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5)
EVENT = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("seq", "time", "payload", "result", "identity"), MEMBER)
)
KIND = (
    st.sampled_from(["MUTATION", "MUTATION_CONFLICT", "MUTATION_RACE", "VERSION_KEPT", "COMMIT_RECOVERED"])
    | JSON
)


def test_who_overwrote_whom_is_told() -> None:
    """N-view: the sentence names both; an agent's own version is not worth a word."""
    authors = Authors()
    first = shown(written("a.md", "ABSENT", "1", "ada"), "/p", authors)
    own = shown(written("a.md", "1", "2", "ada"), "/p", authors)
    over = shown(written("a.md", "2", "3", "ben"), "/p", authors)
    assert (first.over, own.over) == ("", "")
    assert over.over == "ada (codex ada-sess)"
    assert over.text == "ben (codex ben-sess) wrote a.md, over the version of ada (codex ada-sess)"


def test_a_conflict_names_who_was_faster() -> None:
    """N-view, N-who: an agent that the record knows, or somebody outside."""
    authors = Authors()
    shown(written("a.md", "ABSENT", "1", "ada"), "/p", authors)
    assert shown(refused("a.md", "0", "1"), "/p", authors).over == "ada (codex ada-sess)"
    assert shown(refused("a.md", "1", "9"), "/p", authors).over == "somebody outside"


def test_a_write_over_a_version_that_nobody_recorded_was_somebody_outside() -> None:
    """N-view: known only for a file that was written before."""
    authors = Authors()
    assert shown(written("a.md", "7", "1", "ada"), "/p", authors).over == ""
    assert shown(written("a.md", "8", "2", "ada"), "/p", authors).over == "somebody outside"


def test_authors_are_forgotten_in_time() -> None:
    """N-view: a ledger of any length takes no more memory."""
    authors = Authors(most=2)
    for number in range(5):
        shown(written(f"{number}.md", "ABSENT", "1"), "/p", authors)
    assert authors.of("0.md", "1" * 64) is None
    assert authors.of("4.md", "1" * 64) is not None


def test_hostile_text_is_short_and_printable() -> None:
    """N-view, bad input: escape sequences are spelled out, a megabyte is cut."""
    event = written(HOSTILE, "ABSENT", "1", HOSTILE * 20_000)
    made = shown(event, "/p", Authors())
    texts = [made.text, made.file, *made.who]
    assert all(text.isprintable() for text in texts)
    assert max(map(len, texts)) < 10 * MOST_LETTERS
    assert len(shortened("x" * 1_000_000)) <= MOST_LETTERS


@given(event=EVENT, kind=KIND)
def test_whatever_a_line_holds_can_be_shown(event: dict[str, object], kind: object) -> None:
    """N-view, bad input: no shape of an event fails."""
    made = shown({**event, "action_type": kind}, "/p", Authors())
    assert made.text.isprintable()
