"""The one reader of shell text: a corpus, what bash itself makes of a text, and text that no shell takes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noclobber.guard.git.literal import reaches_of
from noclobber.shell import recognise, syntax
from noclobber.shell.named_links import named_links
from noclobber.shell.read_only import is_read_only
from noclobber.shell.syntax import MOST_LETTERS, located, parse
from noclobber.shell.targets import targets
from tests.rigs import shell_corpus

CORPUS = shell_corpus.corpus()
PARTS = 12


def names_in(text: str) -> list[str]:
    """Return the names of the programs that a text runs."""
    return [one.name for one in parse(text).commands if one.words]


# -- the corpus --------------------------------------------------------------------------------------------


def test_the_corpus_is_read_as_it_says() -> None:
    """finding C11: what runs, what it writes and shows, and whether it only reads, for each command."""
    assert len(CORPUS) >= 300
    wrong = {}
    for known in CORPUS:
        expected = [fact for fact in known.facts if not fact.startswith("leaves ")]
        if (found := shell_corpus.facts_of(known.command)) != expected:
            wrong[known.command] = (found, expected)
    assert wrong == {}


@pytest.fixture(scope="module")
def prototype(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scratch repository to copy."""
    folder = tmp_path_factory.mktemp("prototype")
    shell_corpus.make_scratch(folder)
    return folder


@pytest.mark.parametrize("part", range(PARTS))
def test_a_real_shell_writes_what_the_reader_names(prototype: Path, tmp_path: Path, part: int) -> None:
    """finding C11: run by bash, a named file is written, and a read-only command changes nothing."""
    for number, known in enumerate(CORPUS[part::PARTS]):
        if not known.may_run:
            continue
        folder = tmp_path / str(number)
        shutil.copytree(prototype, folder, symlinks=True)
        changed = shell_corpus.changed_by(known.command, folder)
        left = {fact.removeprefix("leaves ") for fact in known.facts if fact.startswith("leaves ")}
        for action in targets(known.command):
            path = os.path.normpath(action.path)
            is_folder = (folder / path).is_dir() or any(name.startswith(f"{path}/") for name in changed)
            assert path in changed | left or is_folder, (known.command, path, changed)
            if action.content is not None:
                assert (folder / path).read_text() == action.content, known.command
        assert not (changed and is_read_only(known.command)), (known.command, changed)
        assert left.isdisjoint(changed), known.command


# -- what the former readers got wrong ---------------------------------------------------------------------


def test_a_heredoc_that_only_mentions_a_lock_file_is_not_a_read_of_it() -> None:
    """finding C11: such a command was refused; one that a shell reads from a heredoc still is."""
    text = "cat > notes.md <<'EOF'\nLook at it:\ncat del/.lock\nrm del/.lock\nEOF\n"
    assert recognise.actions(text, "pre") == ()
    for shell in ("bash", "sh -s", "sudo bash", "env A=b sh"):
        found = recognise.actions(f"{shell} <<'EOF'\ncat del/.lock\nEOF\n", "pre")
        assert [one.path for one in found] == ["del/.lock"], shell


@pytest.mark.parametrize(
    "text",
    [
        *(
            "cat del/.lock",
            "true && cat del/.lock",
            "(cat del/.lock)",
            "x=$(cat del/.lock)",
            "cat del/.lock|wc",
        ),
        *(
            "if true\nthen\ncat del/.lock\nfi",
            "bash -c 'cat del/.lock'",
            "echo `cat del/.lock`",
            "rm del/.lock",
        ),
        *(
            "cat \\\n del/.lock",
            "cat del/.lo\\\nck",
            ")\ncat del/.lock",
            "eval 'cat del/.lock'",
            "cat 'del/.lock'",
        ),
        *("f() { cat del/.lock; }", "cat <<EOF\n$(cat del/.lock)\nEOF", "timeout 5 cat del/.lock"),
    ],
)
def test_a_lock_file_is_found_wherever_a_command_shows_it(text: str) -> None:
    """REQ-LOCK-010, finding C11: also in what is no plain list of commands, and after what cannot be read."""
    assert [one.path for one in recognise.actions(text, "pre")] == ["del/.lock"]


def test_a_line_continuation_is_no_part_of_a_name() -> None:
    """finding C11: `cat a.md\\` was read as a file called "a.md" with a newline."""
    assert [one.path for one in recognise.actions("cat a.md\\\n", "post")] == ["a.md"]
    assert [one.path for one in recognise.actions("cat \\\n  a.md \\\n  b.md", "post")] == ["a.md", "b.md"]


def test_a_continuation_in_quotes_stays() -> None:
    """finding C11: it was taken out of quoted heredocs and of single quotes, so the content was wrong."""
    [action] = targets("cat > a.md <<'EOF'\none \\\ntwo\nEOF\n")
    assert action.content == "one \\\ntwo\n"
    assert parse("echo 'a\\\nb'").commands[0].words[1].text == "a\\\nb"
    assert parse("echo \\\\\nls").commands[1].name == "ls"


def test_a_patch_that_is_only_copied_to_a_file_is_no_patch() -> None:
    """finding C11: a heredoc that only mentions a patch was applied in thought."""
    patch = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n"
    assert recognise.actions(f"cat > doc.md <<'EOF'\n{patch}EOF\n", "pre") == ()
    for text in (
        f"apply_patch <<'EOF'\n{patch}EOF\n",
        f"bash -c 'apply_patch \"{patch}\"'",
        f"run '{patch}'",
    ):
        assert [one.path for one in recognise.actions(text, "pre")] == ["a"], text


def test_what_a_git_command_reaches_is_told_from_where_it_runs() -> None:
    """finding C11: a `cd` before it was not looked at, nor a subshell, nor a script in its words."""
    for text in (
        "cd sub && git checkout -- a.md",
        "(cd sub; git checkout -- a.md)",
        "sh -c 'cd sub;git restore a.md'",
    ):
        assert [reach.paths for reach in reaches_of(text, "/p")] == [("/p/sub/a.md",)], text
    for text in (
        "if x; then git reset --hard; fi",
        "bash -c 'git reset --hard'",
        "x=$(git stash)",
        "! git stash",
    ):
        assert [reach.paths for reach in reaches_of(text, "/p")] == [None], text
    assert reaches_of("cat <<'EOF'\ngit reset --hard\nEOF", "/p") == []


@pytest.mark.parametrize("text", ["sort a$X", 'sort "a$@"', "sort a`cat x`", "grep x $F*", "date $(cat x)"])
def test_an_expansion_may_be_several_words(text: str) -> None:
    """N-shell: `a$X` may become `a -o b`, which writes."""
    assert not is_read_only(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git rm --cached a.md", []),
        ("cp -t sub a.md", []),
        ("ruff format --check a.py", []),
        ("black --config pyproject.toml a.py", ["a.py"]),
        ("echo x >& a.md", ["a.md"]),
        ("{ cd sub; ls; } | wc; rm a.md", ["a.md"]),
        ("test -d x && cd x; rm a.md", []),
        ("cd x || cd y; rm a.md", []),
        ("g() { cd x; }; g; rm a.md", []),
        ("rm() { :; }; rm a.md", []),
        ("LC_ALL=C sed -i s/a/b/ a.md", ["a.md"]),
        ("env -u X timeout -k 1 5 rm a.md", ["a.md"]),
        ("for i in 1 2; do echo $i; done > a.md", ["a.md"]),
        ("{ cd sub; ls; } > a.md", ["a.md"]),
        ("(cd sub; rm a.md); rm b.md", ["sub/a.md", "b.md"]),
    ],
)
def test_no_wrong_target_is_named(text: str, expected: list[str]) -> None:
    """N-shell, finding C11: found by running the corpus with bash."""
    assert [action.path for action in targets(text)] == expected


def test_names_after_a_long_heredoc_are_looked_at(tmp_path: Path) -> None:
    """finding C11: the words of a heredoc used up the names that are looked at; names with a blank were cut."""
    (tmp_path / "real.md").write_text("x")
    for name in ("link.md", "a link.md"):
        os.symlink("real.md", tmp_path / name)
    body = "\n".join(f"word{number}" for number in range(1000))
    text = f"cat > other.md <<'EOF'\n{body}\nEOF\nsed -i s/a/b/ link.md 'a link.md'"
    found = {os.path.basename(path) for path, _ in named_links([text], str(tmp_path), str(tmp_path))}
    assert found == {"link.md", "a link.md"}
    words = ["sed", "-i", "s/a/b/", "a link.md"]
    assert named_links(words, str(tmp_path), str(tmp_path))


# -- what bash says ----------------------------------------------------------------------------------------

LETTERS = st.text(st.sampled_from("abcXYZ019_-+.,:/@%^é"), min_size=1, max_size=5)
ANY = st.text(st.sampled_from("ab \t\n$`\\\"'*?[]{}()<>|&;#~!=é"), max_size=6)
PIECES = st.one_of(
    LETTERS,
    ANY.map(lambda text: "'" + text.replace("'", "'\\''") + "'"),
    ANY.map(lambda text: '"' + "".join(f"\\{one}" if one in '"\\$`' else one for one in text) + '"'),
    st.sampled_from("$`\\\"'*?[]{}()<>|&;#~!= a").map(lambda letter: f"\\{letter}"),
    st.sampled_from(
        ["\\\n", "''", '""', "$'\\n\\t\\'x\\x41\\101'", '"a\\b"', '"\\\n"', "a~", "a#b", "x{y}", "$'a\\\\'"]
    ),
)
WORDS = st.lists(PIECES, min_size=1, max_size=4).map("".join).filter(lambda word: word.strip("\\\n") != "")
BLANKS = st.sampled_from([" ", "  ", "\t", " \\\n", " \\\n\t"])


@settings(max_examples=200, deadline=None)
@given(words=st.lists(st.tuples(BLANKS, WORDS), min_size=1, max_size=8))
def test_literal_words_are_those_that_bash_sees(words: list[tuple[str, str]]) -> None:
    """finding C11: quotes, escapes and continuations in every mixture."""
    text = "printf '%s\\0' x" + "".join(blank + word for blank, word in words)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", text], capture_output=True, env=environment, check=True)
    [command] = parse(text).commands
    # What looks like a list of words in braces may be one.
    assert all(word.is_literal or "{" in word.text for word in command.words)
    assert [word.text for word in command.words[2:]] == done.stdout.decode().split("\0")[:-1]


@st.composite
def grammatical(draw: st.DrawFn) -> tuple[str, set[str]]:
    """A script that bash takes, and the names of the programs in it."""
    names: set[str] = set()

    def simple() -> str:
        names.add(f"run{len(names)}")
        text = f"run{len(names) - 1}"
        for _ in range(draw(st.integers(0, 2))):
            text += draw(BLANKS) + argument()
        return (
            draw(st.sampled_from(["", "", "A=b ", "A=(b c) ", "> out "])) + text + draw(st.sampled_from(ENDS))
        )

    def argument() -> str:
        kind = draw(st.integers(0, 9)) if depth[0] < 3 else 0
        if kind < 6:
            word = draw(WORDS)
            return f"{word}z" if word.endswith("\\\n") else word
        return inside({6: "$({})", 7: '"x $({}) y"', 8: "${{X:-$({})}}", 9: "<({})"}[kind])

    def inside(shape: str) -> str:
        depth[0] += 1
        text = shape.replace("{}", listed()).replace("{{", "{").replace("}}", "}")
        depth[0] -= 1
        return text

    def command() -> str:
        kind = draw(st.integers(0, 20)) if depth[0] < 3 else 0
        if kind < 8:
            return simple()
        if kind == 8:
            return f"bash -c {shlex.quote(inside('{}'))}"
        if kind == 9:
            return f"{simple()} <<'E' <<-F\n$( ` ' \"\nE\n\tx $X\n\tF\n"
        return inside(SHAPES[kind % len(SHAPES)])

    def listed() -> str:
        text = command()
        for _ in range(draw(st.integers(0, 2))):
            text += (
                ""
                if text.endswith("\n")
                else draw(st.sampled_from(["; ", " && ", "||", " | ", " & ", "\n", " &&\n"]))
            )
            text += command()
        return text if text.endswith("\n") else text + "\n"

    depth = [0]
    return listed(), names


ENDS = (
    "",
    "",
    "",
    " > out",
    " 2>&1",
    " >>out 2>err",
    " &>all",
    " <<<word",
    " < in",
    " # comment (' \"\n",
    " >&2",
    " 3<>rw",
)
SHAPES = (
    *(
        "({})",
        "{ {}}",
        "! { {}}",
        "if {}then {}fi",
        "if {}then {}elif {}then {}else {}fi",
        "while {}do {}done",
    ),
    *("for x in a 'b c' $y; do {}done", "for ((i=0; i<(3); i++)); do {}done", "until {}do {}done > out 2>&1"),
    *(
        "case $x in a|'b)') {};;\n(*) {}esac",
        "f() { {}}",
        "function g { {}}",
        "[[ -f a && ( $x =~ ^(a|b)$ ) ]] && {}",
    ),
    *("(( x = (1 + 2) )) || {}", "time {}", "eval '{}'"),
)


def accepts(shell: str, text: str) -> bool:
    """True if a shell finds no fault with a text; a warning is one."""
    done = subprocess.run(
        [shell, "-n"], input=text.encode("utf-8", "replace"), capture_output=True, timeout=60
    )
    return done.returncode == 0 and not done.stderr


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made=grammatical())
def test_every_command_of_what_a_shell_takes_is_found(made: tuple[str, set[str]]) -> None:
    """finding C11: in whatever it is; quoted, commented and heredoc text is no command."""
    text, names = made
    if "'" in text and "eval '" in text:
        return  # Its quotes do not nest.
    if accepts("bash", text) or accepts("sh", text):
        script = parse(text)
        if not script.is_whole:
            return  # It says that it cannot tell.
        assert {name for name in names_in(text) if name.startswith("run")} == names


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_text_is_read_without_an_error(data: st.DataObject) -> None:
    """finding C11: corpus lines, cut, doubled and mixed; whether bash takes them or not."""
    text = data.draw(st.sampled_from(CORPUS)).command
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(len(text), begin + 10)))
        other = data.draw(st.sampled_from(CORPUS)).command
        put = data.draw(st.one_of(ANY, st.just(other), st.just(text[begin:end] * 2), st.just("")))
        text = text[:begin] + put + text[end:]
    script = parse(text)
    for kind in ("pre", "post"):
        try:
            recognise.actions(text, kind)
        except Exception as error:
            assert type(error).__name__ in ("BadRequestError", "PatchError", "RefusalError"), error
    assert not (targets(text) and is_read_only(text))
    assert len([*located(script.commands)]) == len(script.commands)
    if not script.commands and script.is_whole:
        assert accepts("bash", text)  # Blanks and comments.


HARD = {
    "one long word": "a",
    "words": "a ",
    "commands": "a;",
    "subshells": "(",
    "closed subshells": "()",
    "substitutions": "$(",
    "quoted substitutions": '"$(',
    "arithmetic": "((",
    "broken arithmetic": "((a) ) ",
    "expansions": "${a:-",
    "backticks": "`",
    "escaped backticks": "`\\`",
    "heredocs": "cat <<E\n",
    "shells with heredocs": "bash <<E\n",
    "quotes": "'a\n",
    "continuations": "\\\n",
    "branches": "if ",
    "cases": "case a in a) ",
    "functions": "f() ",
    "scripts": "eval sh -c ",
    "redirections": ">a ",
    "empty quotes": "''$a",
    "errors": ")\n",
}


@pytest.mark.parametrize("name", HARD)
def test_the_time_is_proportional_to_the_length(name: str) -> None:
    """finding C11: nothing is read again and again, at any depth; measured in this process's own time."""

    def took_s(length: int) -> float:
        text = (HARD[name] * (length // len(HARD[name]) + 1))[:length]
        syntax._last.clear()
        began_s = time.process_time()
        parse(text)
        return time.process_time() - began_s

    short_s, long_s = (min(took_s(length) for _ in range(3)) for length in (20_000, 200_000))
    assert long_s < 40 * short_s + 0.2


def test_a_megabyte_and_ten_thousand_parentheses_are_read() -> None:
    """finding C11: at once, and what is too deep is not told."""
    assert len(parse("echo " + "x" * (MOST_LETTERS - 5)).commands[0].words[1].text) == MOST_LETTERS - 5
    assert not parse("echo " + "x" * MOST_LETTERS).is_whole
    deep = parse("( " * 10_000 + "ls" + " )" * 10_000 + "\nrm a.md")
    assert not deep.is_whole
    assert deep.commands[-1].name == "rm"
    assert not parse("$(" * 10_000).is_whole
    assert parse("cat a\0; rm b").commands[0].name == "cat"
