"""The scoreboard's account, with subjects whose behaviour is known."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from score.report import as_json, as_markdown, as_svg
from score.rivals import CONTROLS, RIVALS, Rival
from score.rounds import SHELL, TOOL, ReadFile, RunCommand, Score, Tally, ToolUse, WriteFile, plans, play

import noclobber
from score import __main__ as program

FACTS = {"date": "2026-01-01", "seed": 1, "repetitions": 1}


def played(folder: Path, answer: Callable[[ToolUse], str], ways: tuple[str, ...] = (TOOL,)) -> list[Tally]:
    """Play one round of each kind with a subject that answers so."""
    tallies: list[Tally] = []
    conversation = play(folder, plans(1, 1, ways), lambda text: text, tallies)
    use = next(conversation)
    try:
        while True:
            use = conversation.send(answer(use))
    except StopIteration:
        return tallies


def careless(use: ToolUse) -> str:
    """A subject that writes whatever it is told to."""
    match use:
        case ReadFile(path):
            return path.read_text()
        case WriteFile(path, content):
            path.write_text(content)
        case RunCommand(command):
            subprocess.run(["sh", "-c", command], check=True)
    return "done"


def test_a_subject_that_writes_blindly_loses_every_update_of_a_rival(tmp_path: Path) -> None:
    """N-proof: the board counts what is not in the file, whoever the rival is and however the model writes."""
    tallies = played(tmp_path, careless, (TOOL, SHELL))
    score = Score("careless", "host", "1", False, tuple(tallies))
    assert score.totals()["lost"] == 2 * len(RIVALS)
    assert score.totals()["refused"] == 0
    assert score.totals()["rounds"] == 2 * (len(RIVALS) + len(CONTROLS))


def test_a_guarded_subject_loses_nothing_and_recovers_in_two_calls(tmp_path: Path) -> None:
    """N-proof: with the guard every stale write is refused once, and no other; a read and a write follow."""
    with noclobber.Workspace(tmp_path) as workspace, workspace.turn() as turn:

        def guarded(use: ToolUse) -> str:
            try:
                match use:
                    case ReadFile(path):
                        return turn.read_file(path).text
                    case WriteFile(path, content):
                        turn.write_file(path, content)
            except noclobber.StaleFileError as error:
                return str(error)
            return "done"

        score = Score("guarded", "framework", "1", True, tuple(played(tmp_path, guarded)))
    assert score.totals() == {
        "rounds": len(RIVALS) + len(CONTROLS),
        "updates": 2 * len(RIVALS) + len(CONTROLS),
        "lost": 0,
        "refused": len(RIVALS),
        "falsely_refused": 0,
        "gave_up": 0,
        "recovery_calls": 2.0,
    }


def test_a_subject_that_compares_times_refuses_falsely(tmp_path: Path) -> None:
    """N-proof: `touch` changes no byte. Whoever refuses then is counted as refusing falsely."""
    seen: dict[Path, int] = {}

    def by_time(use: ToolUse) -> str:
        match use:
            case ReadFile(path):
                seen[path] = path.stat().st_mtime_ns
                return path.read_text()
            case WriteFile(path, content) if path.stat().st_mtime_ns == seen[path]:
                path.write_text(content)
                seen[path] = path.stat().st_mtime_ns
        return "done"

    tallies = played(tmp_path, by_time)
    assert [each.rival for each in tallies if each.falsely_refused] == ["touch"]


def test_a_subject_that_never_writes_is_given_up(tmp_path: Path) -> None:
    """N-proof: an endless refusal ends, and is not counted as an update."""
    tallies = played(tmp_path, lambda use: use.path.read_text() if isinstance(use, ReadFile) else "no")
    assert all(each.gave_up for each in tallies)
    assert not any(each.lost for each in tallies)


@pytest.mark.parametrize("kind", [*RIVALS, *CONTROLS], ids=lambda kind: kind.__name__)
def test_a_rivals_update_is_seen_until_it_is_overwritten(tmp_path: Path, kind: type[Rival]) -> None:
    """N-proof: the board knows each rival's update when it is there, and when it is gone."""
    file = tmp_path / "round0.txt"
    file.write_text("line 0\nline 1\n")
    rival = kind(file, 0)
    rival.prepare()
    before = file.read_text()
    rival.act()
    assert rival.is_there()
    file.write_text(before)
    assert rival.is_there() is not rival.makes_an_update


def test_the_same_seed_plays_the_same_rounds() -> None:
    """N-proof: a run can be repeated."""
    assert plans(7, 2, (TOOL, SHELL)) == plans(7, 2, (TOOL, SHELL))
    assert plans(7, 2, (TOOL, SHELL)) != plans(8, 2, (TOOL, SHELL))


def test_the_page_the_json_and_the_chart_say_the_same(tmp_path: Path) -> None:
    """N-proof: names of subjects are data, and harmless in each of them."""
    tallies = tuple(played(tmp_path, careless))
    scores = [
        Score("<script>", "host", "1.0", False, tallies),
        Score("<script>", "host", "1.0", True, ()),
        Score("gone", "host", "", False, (), "npm is missing"),
    ]
    assert json.loads(json.dumps(as_json(scores, FACTS)))["scores"][0]["lost"] == len(RIVALS)
    assert f"{len(RIVALS)} → **–**" in as_markdown(scores, FACTS)
    assert "npm is missing" in as_markdown(scores, FACTS)
    chart = ElementTree.fromstring(as_svg(scores, FACTS))
    assert any("<script>" in (each.text or "") for each in chart)


def test_an_unknown_subject_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """N-proof: a wrong name is an error that says which there are."""
    assert program.main(["--only", "nobody-knows-this"]) == 2
    assert "claude-code" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "place"), [([], "docs"), (["--only", "a"], "build/score")])
def test_a_part_does_not_replace_the_page_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], place: str
) -> None:
    """N-proof: `make score ONLY=claude-code` left a page in docs/ with one row."""

    def score(seed: int, times: int, guarded: bool) -> Score:
        return Score("a", "host", "1", guarded, (), "not run")

    monkeypatch.setattr(program, "subjects", lambda: {"a": score, "b": score})
    monkeypatch.setattr(program, "PROJECT", tmp_path)
    assert program.main([*words, "--write", str(tmp_path / "docs")]) == 0
    found = [str(each.parent.relative_to(tmp_path)) for each in tmp_path.rglob("score.md")]
    assert found == [place]
