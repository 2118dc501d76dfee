"""Which names a note may speak of."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from noclobber.core.project import BESIDE_PREFIX
from noclobber.disk.commit.journal import is_swap_name, is_swap_prefix

PREFIX = re.compile(r"swap-[0-9a-f]{12,24}")
NAME = re.compile(r"swap-[0-9a-f]{12,24}-(?:[0-9a-f]{64}|None|ABSENT)~[^/\0]{0,142}", re.DOTALL)
TOKEN = st.text("0a", min_size=11, max_size=25) | st.text("0aZ-", max_size=14)
VERSION = st.sampled_from(["0" * 64, "0" * 63, "a" * 65, "None", "ABSENT", "none", "", "-None"])
REST = st.text("a~/\0\n.-", max_size=4) | st.sampled_from(["a" * 142, "a" * 143])
PARTS = st.tuples(
    st.sampled_from(["", BESIDE_PREFIX, "x"]), st.sampled_from(["swap-", "swap", "-swap-"]), TOKEN
)


@given(PARTS, st.sampled_from(["-", "", "--"]), VERSION, st.sampled_from(["~", ""]), REST)
@example(("", "swap-", "0" * 12), "-", "None", "~", "a/b")
@example(("", "swap-", "0" * 12), "-", "None", "~", "a~b\n")
def test_the_names_of_swap_files_are_known_exactly(
    parts: tuple[str, str, str], dash: str, version: str, tilde: str, rest: str
) -> None:
    """finding S1: a note is not believed about any name that this library does not give."""
    start = "".join(parts)
    name = f"{start}{dash}{version}{tilde}{rest}"
    for prefix in ("", BESIDE_PREFIX):
        after = [text[len(prefix) :] if text.startswith(prefix) else None for text in (start, name)]
        assert is_swap_prefix(start, prefix) == bool(after[0] and PREFIX.fullmatch(after[0]))
        assert is_swap_name(name, prefix) == bool(after[1] and NAME.fullmatch(after[1]))
