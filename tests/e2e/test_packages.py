"""Our packages in the real hosts: written by `noclobber install --as plugin`, installed by the hosts' own commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber.hosts.traits import all_with_packages
from tests.e2e.calls import Act, Edit, Read, after
from tests.e2e.conftest import driver_or_skip
from tests.e2e.driver import HostDriver
from tests.e2e.drivers import DRIVERS
from tests.e2e.model import ScriptedModel
from tests.e2e.project import REPOSITORY, Project

FORMATS = all_with_packages()

# Gemini CLI with `--skip-trust`, Copilot CLI with `-p`.
UNTRUSTING = ("copilot", "gemini")  # Qwen Code then declines every edit by itself, if nobody can be asked.
FIRST, THEIRS = "hello\nworld\n", "hello\nworld\na person's line\n"


def install_package(driver: HostDriver, project: Project, folder: Path) -> None:
    """Write the package, and run what `noclobber install` says to run."""
    words = ["install", driver.name, "--as", "plugin", "--to", str(folder), "--json"]
    said = subprocess.run(
        [sys.executable, "-m", "noclobber", *words],
        cwd=project.root,
        env={**project.environment(), "PYTHONPATH": str(REPOSITORY / "src")},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    [row] = json.loads(said.stdout)
    program = driver.locate()
    for _, *rest in row["commands"]:
        done = subprocess.run(
            [program.path, *rest],
            cwd=project.root,
            env=project.environment(**{**program.environment(), **driver.environment("http://127.0.0.1:9")}),
            input="y\n",  # Gemini CLI asks whether the folder of the package is trusted.
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (rest, done.stdout, done.stderr)


def tell(driver: HostDriver, project: Project, **more: Any) -> tuple[ScriptedModel, Path]:
    """Run a stale edit, a new read and the edit again."""
    file = project.file("a.txt", FIRST)
    acts: list[Act] = [
        Read(file),
        after(lambda: file.write_text(THEIRS), Edit(file, "hello", "HELLO")),
        Read(file),
        Edit(file, "hello", "HELLO"),
    ]
    with ScriptedModel(one=driver.script(acts)) as model:
        driver.run(project, model.url, "script:one", **more)
    return model, file


def with_package(host: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> HostDriver:
    """Return a driver that installs the package each time after it wrote the host's configuration."""
    driver = driver_or_skip(host)
    configure = driver.configure

    def configure_and_install(project: Project, url: str, *, is_trusted: bool) -> None:
        configure(project, url, is_trusted=is_trusted)
        install_package(driver, project, folder / "packages")

    monkeypatch.setattr(driver, "configure", configure_and_install)
    return driver


@pytest.mark.parametrize("host", [host for host in FORMATS if host in DRIVERS])
def test_a_package_refuses_a_stale_edit_and_lets_a_fresh_one_pass(
    host: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-install: nothing is in the project; the package alone protects it."""
    driver = with_package(host, tmp_path, monkeypatch)
    model, file = tell(driver, project)

    assert driver.refusal(model.told["one"][1]).object["error_type"] == "STALE_FILE"
    assert file.read_text() == THEIRS.replace("hello", "HELLO")
    assert project.record(file) == [("MUTATION_CONFLICT", "DENIED"), ("MUTATION", "APPLIED")]
    assert {path.name for path in project.root.iterdir()} <= {"a.txt", ".noclobber"}


@pytest.mark.parametrize("form", ["hooks", "plugin"])
@pytest.mark.parametrize("host", UNTRUSTING)
def test_only_a_package_protects_a_folder_that_the_host_does_not_trust(
    host: str, form: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H11: these hosts do not load hooks of a project then; this is why a package is recommended."""
    if form == "hooks":
        project.install(host)
        driver = driver_or_skip(host)
    else:
        driver = with_package(host, tmp_path, monkeypatch)
    model, _ = tell(driver, project, is_trusted=False)

    assert ("STALE_FILE" in model.told["one"][1]) == (form == "plugin")


@pytest.mark.parametrize("form", ["hooks", "plugin"])
def test_qwens_extension_runs_in_a_folder_that_is_not_trusted(
    form: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H11: it declines every edit there by itself, so what shows is that the read is remembered."""
    if form == "hooks":
        project.install("qwen")
        driver = driver_or_skip("qwen")
    else:
        driver = with_package("qwen", tmp_path, monkeypatch)
    file = project.file("a.txt", FIRST)
    with ScriptedModel(one=driver.script([Read(file)])) as model:
        driver.run(project, model.url, "script:one", is_trusted=False)

    assert "hello" in model.told["one"][0]
    remembered = [path for path in project.runtime.rglob("qwen.*") if path.is_dir()]
    assert bool(remembered) == (form == "plugin")
