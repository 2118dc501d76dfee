"""Options from a file: what counts, what is refused, and in which words."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noclobber import ConfigError, OutsideScopeError, UnreadFileError, Workspace
from noclobber.core.options import DEFAULTS, load_options
from noclobber.core.options_file import load


def own(root: Path, text: bytes | str) -> Path:
    path = root / "noclobber.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def shared(root: Path, text: bytes | str) -> Path:
    path = root / "pyproject.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# What counts


def test_a_workspace_obeys_its_file(root: Path) -> None:
    """Ruling 7 and K-WRITE-1, set in a file instead of in a program."""
    own(root, 'unread = "deny"\nwrite_scope = ["docs"]\nwait_s = 0\ndurable = true\n')
    (root / "docs").mkdir()
    (root / "docs" / "a.md").write_text("x")
    with Workspace(root) as workspace, workspace.turn() as turn:
        assert workspace.options.durable
        with pytest.raises(UnreadFileError):
            turn.write_file("docs/a.md", "y")
        with pytest.raises(OutsideScopeError):
            turn.write_file("elsewhere.md", "y")


def test_what_a_program_says_beats_the_file(root: Path) -> None:
    """N-cli: and the file beats the defaults."""
    own(root, 'unread = "deny"\npartial = "deny"\n')
    with Workspace(root, unread="allow") as workspace:
        assert (workspace.options.unread, workspace.options.partial) == ("allow", "deny")
        with workspace.turn(partial="allow") as turn:
            assert turn.options.partial == "allow"
    with Workspace(root, read_config=False) as workspace:
        assert workspace.options == DEFAULTS


SPELLINGS = [
    '[tool.noclobber]\nunread = "deny"\n',
    '[tool]\nnoclobber.unread = "deny"\n',
    '[tool]\nnoclobber = {unread = "deny"}\n',
    'tool.noclobber = {unread = "deny"}\n',
    'tool = {noclobber = {unread = "deny"}}\n',
    'tool . noclobber . unread = "deny"\n',
    '[tool."noclobber"]\nunread = "deny"\n',
    "['tool'.'noclobber']\nunread = \"deny\"\n",
    '[ tool . noclobber ]\nunread = "deny"\n',
    '[\ttool\t.\t"noclobber"\t]\nunread = "deny"\n',
    '[tool]\n"\\u006eoclobber" = {unread = "deny"}\n',
    '["\\u0074ool"."noclobb\\U00000065r"]\nunread = "deny"\n',
    '[tool.noclobber]\n"\\u0075nread" = "deny"\n',
    '# noclobber\r\n[project]\r\ndependencies = ["noclobber"]\r\n[tool.noclobber]\r\nunread = "deny"\r\n',
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_the_table_in_pyproject_counts_in_every_spelling_of_toml(root: Path, text: str) -> None:
    """Ruling 20, finding C1: tests/hook/test_settings.py has the same list for hooks."""
    shared(root, text)
    assert load_options(str(root)).unread == "deny"


KEYS = st.sampled_from(
    ["noclobber", '"noclobber"', "'noclobber'", '"no\\u0063lobber"', '"\\U0000006eoclobber"']
)
GAPS = st.sampled_from(["", " ", "\t", "  \t "])
TOOLS = st.sampled_from(["tool", '"tool"', "'tool'", '"\\u0074ool"'])
SHAPES = st.sampled_from(
    [
        "[{gap}{tool}{gap}.{gap}{key}{gap}]\nunread{gap}={gap}'deny'",
        "[{gap}{tool}{gap}]\n{key}{gap}.{gap}unread{gap}={gap}'deny'",
        "[{tool}]\n{gap}{key}{gap}={gap}{{{gap}unread = 'deny'{gap}}}",
        "{tool}{gap}.{gap}{key}{gap}.{gap}unread = 'deny'",
        "{tool} = {{{gap}{key}{gap}={gap}{{ unread = 'deny' }} }}",
        "{tool} = {{ other = 1,{gap}{key}{gap}.{gap}unread = 'deny' }}",
    ]
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(key=KEYS, gap=GAPS, tool=TOOLS, shape=SHAPES)
def test_no_spelling_of_the_table_is_overlooked(
    tmp_path: Path, key: str, gap: str, tool: str, shape: str
) -> None:
    """Ruling 20: the quick look that saves a parse never says no to what a parser finds."""
    text = shape.format(key=key, gap=gap, tool=tool)
    assert tomllib.loads(text)["tool"]["noclobber"] == {"unread": "deny"}
    shared(tmp_path, text)
    assert load_options(str(tmp_path)).unread == "deny"


@pytest.mark.parametrize(
    "text",
    [
        '[project]\ndependencies = ["noclobber"]\n',
        "[tool.ruff]\nline-length = 100\n",
        "tool = 3 # noclobber\n",
        "<<<<<<< HEAD\n[project]\ndependencies = ['noclobber']\n=======\n",
        '<<<<<<< HEAD\n[project]\ndependencies = ["noclobber>=0.1", "noclobber == 0.1",\n',
        "noclobber \xff",
        "",
    ],
)
def test_a_pyproject_that_is_not_about_us_does_not_matter(root: Path, text: str) -> None:
    """N-cli: not even if it is no TOML; an agent may be in the middle of repairing it."""
    shared(root, text.encode("latin-1"))
    assert load(str(root)).given == {}
    Workspace(root)


def test_an_empty_file_is_a_file_with_nothing_to_say(root: Path) -> None:
    """N-cli: and no error."""
    own(root, "# nothing yet\n")
    assert load(str(root)) == (str(root / "noclobber.toml"), {})


# What is refused


def refusal(root: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        Workspace(root)
    assert refused.value.code == "BAD_CONFIG"
    return str(refused.value)


def test_an_unknown_name_is_refused_with_file_line_key_and_the_nearest_name(root: Path) -> None:
    """N-cli: a strict workspace must not become a lax one by a typing error."""
    path = own(root, 'partial = "deny"\n\nunreed = "deny"\n')
    assert refusal(root) == f"{path}: line 3: There is no option 'unreed'. Did you mean 'unread'?"
    path.unlink()
    path = shared(root, '[project]\nname = "x"\n[tool.noclobber]\nscoop = "turn"\n')
    assert refusal(root) == f"{path}: line 4: There is no option 'scoop'. Did you mean 'scope'?"
    shared(root, "[tool.noclobber]\nzzz = 1\n")
    assert "There are: rebaseline, unread," in refusal(root)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('unread = "never"', "line 1: The option unread must be one of 'allow', 'deny', not 'never'."),
        ("wait_s = -1", "seconds from 0 to 3600"),
        ("wait_s = nan", "seconds from 0 to 3600"),
        ("durable = 1", "True or False"),
        ('write_scope = "docs"', "a list of folders"),
        ("retained_file_bytes = 1.5", "a number of bytes"),
        ("[unread]\nx = 1", "line 1: The option unread must be one of"),
        ("[lock]\nlease = 1", "There is no option 'lock'"),
        ("unread = ", "is not valid TOML"),
        ("wait_s = " + "1" * 5000, "is not valid TOML"),
        ("unread = 'deny'\nunread = 'allow'", "is not valid TOML"),
        (b"\xff", "is not UTF-8 (byte 1)"),
        ("x = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("#" * (5 << 20), "too many for an options file"),
    ],
)
def test_what_is_wrong_is_said_in_words(root: Path, text: bytes | str, words: str) -> None:
    """N-cli: each names the file; values name the option and what it takes."""
    path = own(root, text)
    told = refusal(root)
    assert told.startswith(f"{path}: ")
    assert words in told


def test_a_file_that_cannot_be_read_is_not_a_file_that_is_absent(root: Path, is_root: bool) -> None:
    """Ruling 5's rule, for options: a folder, a FIFO, a dangling link, one without permission."""
    path = root / "noclobber.toml"
    path.mkdir()
    assert "not a regular file" in refusal(root)
    path.rmdir()
    os.mkfifo(path)
    assert "not a regular file" in refusal(root)
    path.unlink()
    path.symlink_to("nowhere")
    assert "cannot be read" in refusal(root)
    path.unlink()
    path.write_text("")
    path.chmod(0)
    if not is_root:
        assert "cannot be read" in refusal(root)


def test_two_files_with_options_are_refused(root: Path) -> None:
    """N-cli: which of them counts would be a guess."""
    own(root, "")
    shared(root, "[tool.noclobber]\n")
    assert "keep them in one place" in refusal(root)
    shared(root, "[project]\n")
    Workspace(root)


def test_a_broken_pyproject_with_our_table_is_refused(root: Path) -> None:
    """N-cli: there are rules in it, and nobody knows which."""
    for text in (
        "[tool.noclobber]\nunread = \n",
        "x = \n[tool.noclobber.x]\n",
        "tool.noclobber.unread = 'deny\n",
    ):
        shared(root, text)
        assert "is not valid TOML" in refusal(root)
    shared(root, "[tool]\nnoclobber = 3\n")
    assert "must be a table" in refusal(root)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    content=st.one_of(
        st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace"))
    )
)
def test_no_content_gives_anything_but_options_or_a_refusal(tmp_path: Path, content: bytes) -> None:
    """N-cli: fuzzed; no other exception leaves, so none reaches a hook."""
    for name in ("noclobber.toml", "pyproject.toml"):
        (tmp_path / name).write_bytes(
            content if name == "noclobber.toml" else b"[tool.noclobber]\n" + content
        )
        try:
            load_options(str(tmp_path))
        except ConfigError as error:
            assert error.path.startswith(str(tmp_path))
        (tmp_path / name).unlink()
