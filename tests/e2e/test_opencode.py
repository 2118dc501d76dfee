"""opencode, the real one: our tools in the place of its own, and its permission dialogue open while others save."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.e2e.calls import Edit, Read, Write
from tests.e2e.conftest import driver_or_skip
from tests.e2e.driver import HostDriver, Running
from tests.e2e.model import ScriptedModel, Step
from tests.e2e.project import Project

FIRST, THEIRS = "hello\nworld\n", "hello\nworld\na person's line\n"
TIMEOUT_S = 60.0


@pytest.fixture
def driver() -> HostDriver:
    """The host."""
    return driver_or_skip("opencode")


@pytest.fixture
def file(project: Project) -> Path:
    """A file that the agent reads."""
    return project.file("a.txt", FIRST)


def configure(project: Project, **more: Any) -> None:
    """Write the project's own configuration."""
    project.file("opencode.json", json.dumps(more))


class Server:
    """`opencode serve`: what its interfaces talk to, so that a test can answer its dialogues."""

    def __init__(self, driver: HostDriver, project: Project, url: str) -> None:
        program = driver.locate()
        driver.configure(project, url, is_trusted=True)
        environment = project.environment(**{**program.environment(), **driver.environment(url)})
        self._running = Running(
            [program.path, "serve", "--port", "0"], project, environment, subprocess.DEVNULL
        )
        out = self._running.process.stdout
        assert out is not None
        found = next(filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in out)))
        self.url = found[0]

    def ask(self, path: str, **body: Any) -> Any:
        """Call it."""
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(
            f"{self.url}{path}", data, {"content-type": "application/json"}, method="POST" if body else "GET"
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read() or b"null")

    def prompt(self, text: str) -> threading.Thread:
        """Begin a session with a prompt; the thread ends with the agent's answer."""
        session = self.ask("/session", title="t")["id"]
        parts = [{"type": "text", "text": text}]
        thread = threading.Thread(target=lambda: self.ask(f"/session/{session}/message", parts=parts))
        thread.start()
        return thread

    def dialogue(self) -> dict[str, Any]:
        """Return the question that is open, once there is one."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            for question in self.ask("/permission"):
                found: dict[str, Any] = question
                return found
        raise AssertionError("no dialogue was opened")

    def reply(self, question: dict[str, Any], word: str) -> None:
        """Answer a question: `once`, `always` or `reject`."""
        self.ask(f"/permission/{question['id']}/reply", reply=word)

    def stop(self) -> None:
        """End it."""
        self._running.kill()
        self._running.process.communicate()


@contextmanager
def serving(driver: HostDriver, project: Project, *script: Step) -> Iterator[tuple[Server, ScriptedModel]]:
    """A server, and a model that follows a script."""
    with ScriptedModel(
        one=list(script), two=[driver.use(Write(project.root / "a.txt", "theirs\n"))]
    ) as model:
        server = Server(driver, project, model.url)
        try:
            yield server, model
        finally:
            server.stop()


def test_the_model_and_the_user_meet_the_same_tools_with_and_without_us(
    driver: HostDriver, project: Project, tmp_path: Path
) -> None:
    """finding H4: descriptions, parameters, answers, titles and diffs are opencode's own."""
    seen = []
    for name in ("without", "with"):
        other = Project.below(tmp_path / name / "x")
        if name == "with":
            other.install("opencode")
        file = other.file("a.txt", FIRST)
        script = [
            driver.use(Read(file)),
            driver.use(Edit(file, "hello", "    HELLO")),
            driver.use(Edit(file, "nowhere", "x")),
            driver.use(Write(other.root / "deep" / "new.txt", "x\ny\n")),
            driver.use(Write(other.root / "deep" / "new.txt", "x\nz\n")),
            driver.use(Edit(other.root / "none.txt", "a", "b")),
        ]
        with ScriptedModel(one=script) as model:
            done = driver.run(other, model.url, "script:one")
        states = [json.loads(line)["part"]["state"] for line in done.out.splitlines() if '"tool_use"' in line]
        for state in states:
            state.pop("time")
        told = json.dumps(
            [states, model.told["one"], {tool: model.described[tool] for tool in driver.write_tools}]
        )
        seen.append(told.replace(str(other.root), "/project").replace(str(other.root).lstrip("/"), "project"))
        assert bool(other.record(file)) is (name == "with")
    assert seen[0] == seen[1]


@pytest.mark.parametrize("is_installed", [False, True])
def test_a_save_while_the_dialogue_is_open_is_not_lost(
    driver: HostDriver, project: Project, file: Path, is_installed: bool
) -> None:
    """finding H4: opencode alone overwrites it; with us the agent is refused, and the person's line stays."""
    configure(project, permission={"edit": "ask"})
    if is_installed:
        project.install("opencode")
    with serving(driver, project, driver.use(Read(file)), driver.use(Write(file, "mine\n"))) as (
        server,
        model,
    ):
        done = server.prompt("script:one")
        question = server.dialogue()
        assert (question["permission"], question["metadata"]["filepath"]) == ("edit", str(file))
        assert "+mine" in question["metadata"]["diff"]
        file.write_text(THEIRS)
        server.reply(question, "once")
        done.join(TIMEOUT_S)

    if not is_installed:
        assert file.read_text() == "mine\n"
        return
    assert driver.refusal(model.told["one"][1]).object["error_type"] == "STALE_FILE"
    assert file.read_text() == THEIRS
    assert project.record(file) == [("MUTATION_CONFLICT", "DENIED")]


def test_a_declined_write_leaves_nothing_behind_and_others_write_at_once(
    driver: HostDriver, project: Project, file: Path
) -> None:
    """finding H8: nothing is claimed while the dialogue is open, nor after it."""
    configure(project, permission={"edit": "ask"})
    project.install("opencode")
    with serving(driver, project, driver.use(Read(file)), driver.use(Write(file, "mine\n"))) as (server, _):
        declined = server.prompt("script:one")
        question = server.dialogue()
        server.reply(question, "reject")
        declined.join(TIMEOUT_S)
        assert file.read_text() == FIRST
        other = server.prompt("script:two")
        server.reply(server.dialogue(), "once")
        other.join(TIMEOUT_S)

    assert file.read_text() == "theirs\n"
    assert project.record(file) == [("MUTATION", "APPLIED")]


def test_with_a_formatter_its_own_tools_stay_and_there_is_no_alarm(
    driver: HostDriver, project: Project, file: Path
) -> None:
    """finding H6, ruling 28: opencode runs the formatter inside its tools; in a trusted folder six edits take six calls."""
    file = project.file("a.fmt", "one\ntwo\nthree\nfour\nfive\nsix\n")
    command = ["sed", "-i", "s/[[:blank:]]*$//", "$FILE"]
    configure(project, formatter={"blanks": {"command": command, "extensions": [".fmt"]}})
    project.install("opencode")
    project.noclobber("trust", "--yes")
    edits = [driver.use(Edit(file, word, f"{word.upper()}   ")) for word in file.read_text().split()]
    with ScriptedModel(one=[driver.use(Read(file)), *edits]) as model:
        driver.run(project, model.url, "script:one")

    assert [told for told in model.told["one"][1:] if not driver.is_success(told)] == []
    assert file.read_text() == "ONE\nTWO\nTHREE\nFOUR\nFIVE\nSIX\n"
    assert {status for _, status in project.record(file)} == {"APPLIED"}


class Registry(BaseHTTPRequestHandler):
    """A package registry that has nothing, and counts who asks."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(404)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("form", "installs"), [("none", 1), ("--user", 1), ("--project", 2), ("package", 1)])
def test_how_often_npm_is_asked_at_the_first_start(
    driver: HostDriver,
    project: Project,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    installs: int,
) -> None:
    """finding H13: opencode installs a package into each of its folders. A user's plugin, or one that a project
    names in `opencode.json`, makes no folder more."""
    monkeypatch.setattr("tests.e2e.drivers.opencode.has_packages", lambda folder: None)
    monkeypatch.setattr(Registry, "asked", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if form == "package":
        folder = project.root / "packages"
        project.install("opencode", "--as", "plugin", "--to", str(folder))
        configure(project, plugin=[f"file://{folder}/opencode"])
    elif form != "none":
        project.install("opencode", form)
    try:
        with ScriptedModel(one=[driver.use(Read(file))]) as model:
            address = f"http://127.0.0.1:{server.server_port}/"
            driver.run(project, model.url, "script:one", npm_config_registry=address)
    finally:
        server.shutdown()
        server.server_close()

    assert Registry.asked == ["/@opencode-ai%2fplugin"] * installs
    assert (form == "none") == (
        not any(project.runtime.iterdir())
    )  # The plugin was there, and noted the read.
