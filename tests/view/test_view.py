"""The page, in a real browser: the system's Chromium, driven by Playwright. Skipped where either is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.mcp_peer import Unavailable, npm_folder

import noclobber.view
from noclobber.guard import kept_versions
from noclobber.view.server import ViewServer
from tests.view.ledgers import HOSTILE, ledger_of, refused, written
from tests.view.scene import busy_project
from tests.view.servers import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 30_000
TYPESCRIPT = ("typescript", "5.9.3")
STRICT = ["--allowJs", "--checkJs", "--noEmit", "--strict", "--skipLibCheck"]
STRICT += ["--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler"]
STRICT += ["--lib", "es2022,dom,dom.iterable"]
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of this file."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("Playwright is not installed: requirements-dev.txt")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser was found ({', '.join(NAMES)}): apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def opened(
    browser: Browser, server: ViewServer, link: str | None = None, width: int = 1280
) -> Iterator[Page]:
    """The page of a server. Every request must be to the server, and no script may fail."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("console", lambda told: failed.append(told.text) if "Content Security" in told.text else None)
    try:
        page.goto(link or server.access.link())
        yield page
        assert failed == []
        here = f"http://127.0.0.1:{server.port}/"
        assert [url for url in asked if not url.startswith(here)] == []
    finally:
        page.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Path]:
    """A project with something of everything."""
    root = (tmp_path / "shop").resolve()
    with busy_project(root):
        yield root


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    """The server of such a project, for tests that change nothing in it."""
    root = (tmp_path_factory.mktemp("watched") / "shop").resolve()
    with busy_project(root), serving(root) as server:
        yield server


def test_the_page_shows_everything_about_a_busy_project(browser: Browser, watched: ViewServer) -> None:
    """N-view: who is at work, locks, the last hour, the hottest files, events, and what needs a person."""
    with opened(browser, watched) as page:
        page.wait_for_selector("#attention-list li")
        assert page.title() == "shop · noclobber"
        assert "token" not in page.url
        work = page.inner_text("#work-rows")
        assert "builder-1" in work
        assert "4f2a91c3" in work
        assert "release\tbuilder-1\tlive" in page.inner_text("#lock-rows")
        assert "src/app.py" in page.inner_text("#hot-rows")
        assert "3 write, 1 merge, 2 conflict" in str(page.get_attribute("#chart svg", "aria-label"))
        events = page.inner_text("#events")
        assert "reviewer (codex 9b1c77d0) wrote src/app.py, over the version of builder-1" in events
        assert "was refused: somebody outside had changed src/app.py" in events
        needs = page.inner_text("#attention-list")
        assert "A version of plan.md is kept" in needs
        assert "sed -i s/^-/*/ docs/plan.md" in needs


def test_an_appended_event_appears_without_a_reload(browser: Browser, scene: Path) -> None:
    """N-view: the newest first, and the count follows."""
    with serving(scene) as server, opened(browser, server) as page:
        page.wait_for_selector(".event")
        seq = ledger_of(scene).append(written("new.md", "ABSENT", "1", "late")).seq
        page.wait_for_selector(f'.event[data-seq="{seq}"]')
        assert str(page.get_attribute("#events li:first-child", "data-seq")) == str(seq)
        page.wait_for_selector("#hot-rows:has-text('new.md')")


@pytest.mark.parametrize("width", [1280, 360])
def test_hostile_names_are_text_and_the_page_is_not_too_wide(
    browser: Browser, root: Path, width: int
) -> None:
    """N-view, bad input: HTML, scripts, escape sequences and a megabyte; readable at 360 pixels."""
    ledger = ledger_of(root)
    ledger.append(written(HOSTILE, "ABSENT", "1", HOSTILE))
    ledger.append(refused("x" * 800_000, "0", "1", "y" * 50_000))
    with serving(root) as server, opened(browser, server, width=width) as page:
        page.wait_for_selector(".event >> nth=1")
        page.wait_for_timeout(100)  # A picture that fails to load would have run its script.
        assert page.evaluate("window.owned") is None
        assert page.locator("main img, main script").count() == 0
        assert "<script>" in page.inner_text("#events")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1280, 360])
def test_a_long_name_of_an_agent_leaves_room_for_its_file_and_the_time(
    browser: Browser, root: Path, width: int
) -> None:
    """N-view, bad input: what it does, to which file and when were pushed out of sight."""
    ledger_of(root).append(written("src/app.py", "ABSENT", "1", "y" * 300))
    with serving(root) as server, opened(browser, server, width=width) as page:
        page.wait_for_selector("#work-rows .number")
        assert page.evaluate(
            "(all => all.scrollWidth <= all.clientWidth)(document.querySelector('#work .scroll'))"
        )


def test_a_wrong_token_is_said_plainly(browser: Browser, root: Path) -> None:
    """N-view, bad input: and nothing is shown; "No folder is locked" would be a guess."""
    with serving(root) as server:
        wrong = f"http://127.0.0.1:{server.port}/#token={server.access.token}"  # No link has a token.
        with opened(browser, server, wrong) as page:
            page.wait_for_selector("#connection[data-state=lost]")
            assert "the token is missing or wrong" in page.inner_text("#connection")
            assert page.inner_text("#project") == "noclobber"
            assert page.locator(".empty:visible, .count:visible").count() == 0


def test_a_browser_that_we_start_is_let_in_once(browser: Browser, root: Path) -> None:
    """N-view: the link is spent; a reload goes on with the token."""
    with serving(root) as server:
        link = server.access.link()
        with opened(browser, server, link) as page:
            page.wait_for_selector("#connection[data-state=live]")
            page.reload()
            page.wait_for_selector("#connection[data-state=live]")
        with opened(browser, server, link) as page:
            page.wait_for_selector("#connection[data-state=lost]")
            assert "used before" in page.inner_text("#connection")


def test_a_file_leads_a_browser_to_the_page(browser: Browser, root: Path) -> None:
    """Finding S24: to the browser it is another site; the address that it remembers has a spent code at most."""
    with serving(root) as server:
        file = server.access.file_for_browser()
        page = browser.new_page()
        page.goto(f"file://{file}")
        page.wait_for_selector("#connection[data-state=live]", timeout=PATIENCE_MS)
        assert page.url == f"http://127.0.0.1:{server.port}/"
        page.close()
        assert not os.path.exists(os.path.dirname(file))


def test_everything_can_be_reached_by_keys(browser: Browser, watched: ViewServer) -> None:
    """N-view: search, choose, open a timeline, close it, themes, pause, help."""
    with opened(browser, watched) as page:
        page.wait_for_selector("#attention-list li")
        page.keyboard.press("/")
        page.keyboard.type("reviewer conflict")
        assert page.locator("#events li").count() == 1
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_selector("#timeline[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#timeline:not([open])", state="attached")
        before = page.get_attribute("html", "data-theme")
        page.keyboard.press("t")
        assert page.get_attribute("html", "data-theme") != before
        page.keyboard.press("p")
        assert page.get_attribute("#pause", "aria-pressed") == "true"
        page.keyboard.press("?")
        page.wait_for_selector("#key-help[open]")
        page.keyboard.press("Escape")
        page.keyboard.press("n")
        assert page.evaluate("document.activeElement.closest('#attention-list') !== null")


def test_a_kept_version_is_put_back_after_a_confirmation_with_its_diff(browser: Browser, scene: Path) -> None:
    """N-view: nothing happens before the yes; afterwards the file has it, and the item is gone."""
    before = (scene / "docs" / "plan.md").read_bytes()
    with serving(scene) as server, opened(browser, server) as page:
        page.click("#attention-list button:text-is('restore')")
        page.wait_for_selector("#confirm-diff .add")
        assert "+- a line that was saved late" in page.inner_text("#confirm-diff")
        assert (scene / "docs" / "plan.md").read_bytes() == before
        page.click("#confirm-no")
        assert (scene / "docs" / "plan.md").read_bytes() == before
        page.click("#attention-list button:text-is('restore')")
        page.click("#confirm-yes:not([disabled])")
        page.wait_for_selector("#confirm-result:text('has the kept version again')")
        page.click("#confirm-no")
        assert b"saved late" in (scene / "docs" / "plan.md").read_bytes()
        page.wait_for_selector("#attention-list:not(:has-text('is kept'))", state="attached")
    assert kept_versions.listed(str(scene)) == ()


def test_a_refused_command_is_dropped_and_a_write_is_undone(browser: Browser, scene: Path) -> None:
    """N-view: both by the command line's own commands, with what they would change shown first."""
    with serving(scene) as server, opened(browser, server) as page:
        page.click("#attention-list li:has-text('sed') button:text-is('drop')")
        page.wait_for_selector("#confirm-diff .add")
        assert "+* call Ada first" in page.inner_text("#confirm-diff")
        page.click("#confirm-yes:not([disabled])")
        page.wait_for_selector("#confirm-result:text('Done.')")
        page.click("#confirm-no")
        page.wait_for_selector("#attention-list:not(:has-text('sed'))", state="attached")
        page.click("#events li:has-text('writer (opencode') button:text-is('undo')")
        page.wait_for_selector("#confirm-diff .cut")
        page.click("#confirm-yes:not([disabled])")
        page.wait_for_selector("#confirm-result:text('Done.')")
    assert "tell everybody" not in (scene / "docs" / "plan.md").read_text()


def test_the_timeline_of_a_file_has_versions_by_agent_and_diffs_between_any_two(
    browser: Browser, scene: Path
) -> None:
    """N-view, N-versions: what is there now against each, and an earlier one is restored."""
    with serving(scene) as server, opened(browser, server) as page:
        page.click("#hot-rows button:text-is('src/app.py')")
        page.wait_for_selector("#timeline-diff .at")
        labels = page.locator("#from option").all_inner_texts()
        assert any("by reviewer" in label for label in labels)
        by_builder = next(label for label in labels if "by builder-1" in label)
        at_first = next(label for label in labels if "from outside" in label)
        page.select_option("#from", label=at_first)
        page.select_option("#to", label=by_builder)
        page.wait_for_selector("#timeline-diff:has-text('return 2')")
        assert "-    return 1" in page.inner_text("#timeline-diff")
        page.click("#put-back:not([disabled])")
        page.wait_for_selector("#confirm-diff .add")
        page.click("#confirm-yes:not([disabled])")
        page.wait_for_selector("#confirm-result:text('Done.')")
    assert (scene / "src" / "app.py").read_text() == "def main():\n    return 2\n"


def test_a_project_and_a_server_that_go_away_are_said(browser: Browser, tmp_path: Path) -> None:
    """N-view, bad input: a banner for the one, the connection's word for the other."""
    root = tmp_path / "gone"
    root.mkdir()
    ledger_of(root).append(written("a.md", "ABSENT", "1"))
    with serving(root) as server, opened(browser, server) as page:
        page.wait_for_selector(".event")
        shutil.rmtree(root)
        page.wait_for_selector('#banner:text("folder is gone")')
        server.live.stop()
        server.shutdown()
        server.server_close()
        page.wait_for_selector("#connection:text('has ended')")


def test_axe_finds_nothing_serious(browser: Browser, watched: ViewServer) -> None:
    """N-view: dark and light, wide and narrow, and each dialog."""
    import axe_playwright_python

    source = (Path(os.path.dirname(axe_playwright_python.__file__)) / "axe.min.js").read_text()
    with opened(browser, watched) as page:
        page.wait_for_selector("#attention-list li")
        page.evaluate(source)

        def check(where: str) -> None:
            found = page.evaluate("axe.run().then((result) => result.violations)")
            serious = [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in SERIOUS]
            assert serious == [], where

        for theme in ("light", "dark"):
            page.evaluate("(name) => { document.documentElement.dataset.theme = name }", theme)
            check(theme)
        page.set_viewport_size({"width": 360, "height": 700})
        check("narrow")
        page.click("#hot-rows button:text-is('src/app.py')")
        page.wait_for_selector("#timeline-diff .at")
        check("timeline")
        page.keyboard.press("Escape")
        page.click("#attention-list button:text-is('restore')")
        page.wait_for_selector("#confirm-diff .add")
        check("confirmation")


def test_the_types_of_the_page_are_right() -> None:
    """N-view: strictly, without a build step; skipped where Node or npm is missing."""
    try:
        compiler = npm_folder(TYPESCRIPT) / "bin" / "tsc"
    except Unavailable as reason:
        pytest.skip(str(reason))
    files = sorted(map(str, (Path(noclobber.view.__path__[0]) / "page").glob("*.js")))
    done = subprocess.run(["node", str(compiler), *STRICT, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
