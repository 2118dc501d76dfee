"""`make release-check` stops a release that does not fit its tag or its changelog."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "tools/release_check.py"


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, looking at a small repository of version 1.2.3."""
    spec = importlib.util.spec_from_file_location("release_check", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PROJECT", tmp_path)
    package = tmp_path / "src/noclobber"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""A package."""\n__version__ = "1.2.3"\n')
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return module


def git(folder: Path, *words: str) -> None:
    """Run git with a name and without the user's configuration."""
    who = [
        "-c",
        "user.name=Ada",
        "-c",
        "user.email=ada@example.org",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "tag.gpgsign=false",
    ]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_the_version_comes_from_the_package(release: ModuleType) -> None:
    """N-release."""
    assert release.version() == "1.2.3"


def test_a_version_that_the_changelog_does_not_have_is_not_ready(release: ModuleType, tmp_path: Path) -> None:
    """N-release: the message names the heading to write."""
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.2, 2026-01-01\n")
    with pytest.raises(release.NotReady, match=r"no heading `## 1\.2\.3, <date>`"):
        release.check_changelog("1.2.3", tagged=False)


def test_unreleased_is_fine_until_the_tag_is_there(release: ModuleType, tmp_path: Path) -> None:
    """N-release: afterwards the heading needs a date."""
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3, unreleased\n")
    assert release.check_changelog("1.2.3", tagged=False) == "## 1.2.3, unreleased"
    with pytest.raises(release.NotReady, match="Write the date"):
        release.check_changelog("1.2.3", tagged=True)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3, 2026-12-01\n")
    assert release.check_changelog("1.2.3", tagged=True) == "## 1.2.3, 2026-12-01"


def test_a_tag_of_another_version_is_not_ready(release: ModuleType, tmp_path: Path) -> None:
    """N-release: and without any tag it says which one to make."""
    assert release.check_tag("1.2.3") == "none yet; the tag will be v1.2.3"
    git(tmp_path, "tag", "v1.2.4")
    with pytest.raises(release.NotReady, match=r"has the tag v1\.2\.4, but the version is 1\.2\.3"):
        release.check_tag("1.2.3")


def test_a_checkout_that_differs_from_its_tag_is_not_ready(release: ModuleType, tmp_path: Path) -> None:
    """N-release: what is built must be what was tagged."""
    git(tmp_path, "tag", "v1.2.3")
    assert release.check_tag("1.2.3") == "v1.2.3"
    (tmp_path / "src/noclobber/__init__.py").write_text('__version__ = "1.2.3"  # and more\n')
    with pytest.raises(release.NotReady, match="differs from the tag"):
        release.check_tag("1.2.3")
