"""What is kept of refused commands and of past versions, and where (findings G14, S31)."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.options import Options
from noclobber.core.secret_names import SECRET_NAMES, is_secret
from noclobber.disk.version_keeper import VersionKeeper
from noclobber.guard import claims
from noclobber.hook.held_bytes import hold
from noclobber.shell import keeping, namespace, runs
from noclobber.shell.namespace import PrivateView, UnavailableError
from tests.rigs.commands import run
from tests.shell.test_process import is_available

needs_view = pytest.mark.skipif(not is_available(), reason="no namespaces here")
SECRETS = (
    *(
        ".env",
        ".env.local",
        "prod.env",
        "PROD.ENV",
        "a/secrets/prod.yaml",
        ".aws/config",
        "k.pem",
        "k.jks",
        ".pgpass",
    ),
    *(
        "terraform.tfstate",
        "terraform.tfstate.backup",
        "id_ed25519",
        "deploy/credentials/x",
        "kubeconfig",
        "a.tfvars",
    ),
)


@pytest.mark.parametrize("path", SECRETS)
def test_there_is_one_list_of_secrets(root: Path, path: str) -> None:
    """finding G14: versions, the bytes of hooks and refused commands each had an idea of its own."""
    assert is_secret(path)
    keeper = VersionKeeper(str(root), Options(), SYSTEM_CLOCK)
    assert not keeper.wants(f"{root}/{path}", 10)
    assert not hold(-1, f"/p/{path}", "0" * 64, b"secret")


@pytest.mark.parametrize("path", ["environment.py", "plan.md", "monkey.txt", "src/env.py", "secret_names.py"])
def test_an_ordinary_name_is_no_secret(root: Path, path: str) -> None:
    """finding G14: versions of it are kept as before; and a project's own list is the project's."""
    assert not is_secret(path)
    assert VersionKeeper(str(root), Options(), SYSTEM_CLOCK).wants(f"{root}/{path}", 10)
    own = Options(versions_exclude=("*.x",))
    assert VersionKeeper(str(root), own, SYSTEM_CLOCK).wants(f"{root}/secrets/a", 10)
    assert "*.pem" in SECRET_NAMES


@pytest.mark.parametrize("where", [".gitconfig", ".config/git/config", "project"])
def test_what_the_users_own_excludes_file_names_is_not_kept(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """finding G14: `core.excludesFile` was not known. A link, a change and the usual place, too."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    (root / ".git").mkdir()
    config = root / ".git/config" if where == "project" else tmp_path / where
    config.parent.mkdir(parents=True, exist_ok=True)
    keeper = VersionKeeper(str(root), Options(), SYSTEM_CLOCK)
    assert keeper.wants(f"{root}/a.private", 10)
    (tmp_path / "mine").write_text("*.private\n")
    (tmp_path / "dotfile").write_text('[user]\n\tname = x\n[core]\n\texcludesFile = "~/mine"\n')
    config.symlink_to(tmp_path / "dotfile")
    assert not keeper.wants(f"{root}/a.private", 10)
    (tmp_path / "mine").write_text("*.other\n# more\n")
    assert keeper.wants(f"{root}/a.private", 10)


def refuse(root: Path, text: str) -> None:
    (root / "plan.md").write_text("one\n")
    words = ("--expect", f"plan.md={'0' * 64}", "--", "sh", "-c", f"{text}; echo new > plan.md")
    assert run("run", *words, cwd=root).code == 75


@needs_view
def test_a_refused_command_keeps_neither_secrets_nor_build_outputs(root: Path) -> None:
    """finding G14: it kept `node_modules` and `.env`, for a week."""
    refuse(
        root,
        "mkdir -p node_modules/a src/build secrets; for n in node_modules/a/i src/build/o .env secrets/p src/a;"
        " do echo x > $n; done",
    )

    [run_id] = runs.all_ids(str(root))
    kept = root / ".noclobber/run" / run_id / "upper"
    files = sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())
    assert files == ["plan.md", "src/a"]
    assert run("run", "rerun", run_id, cwd=root).code == 75


@needs_view
def test_all_refused_commands_together_are_bounded_and_the_newest_stays(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding G14: 287 MB after three."""
    for _ in range(4):
        refuse(root, "head -c 30000000 /dev/zero > large")
    ids = runs.all_ids(str(root))
    assert len(ids) == 2
    refuse(root, "head -c 90000000 /dev/zero > large")
    [newest] = runs.all_ids(str(root))
    assert newest not in ids
    assert (root / ".noclobber/run" / newest / "upper/large").stat().st_size == 90_000_000
    assert keeping.MOST_KEPT_BYTES < 90_000_000


@pytest.mark.parametrize("name", ["claims", "run/landed"])
@needs_view
def test_a_link_in_place_of_a_folder_of_ours_leads_nowhere(root: Path, tmp_path: Path, name: str) -> None:
    """finding S31: files and folders were made where it led."""
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.write_file("a", "1")
    assert run("run", "--", "true", cwd=root).code == 0
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / ".noclobber" / name).symlink_to(outside)
    if name == "claims":
        assert claims.acquire(str(root), str(root / "a"), "me", "1") is not None
        claims.release(str(root), str(root / "a"), "me")
    else:
        done = run("run", "--", "sh", "-c", "mkdir build; echo x > build/b; echo x > c", cwd=root)
        assert (done.code, done.err) == (0, "")
        assert (root / "build/b").exists()
    assert os.listdir(outside) == []
    assert not (root / ".noclobber" / name).is_symlink()


def is_open(path: Path, root: Path) -> bool:
    """True for what others may write to, and can reach: past versions have the modes of the user's files."""
    around = [each for each in path.parents if each.is_relative_to(root / ".noclobber")]
    is_reached = all(each.stat().st_mode & stat.S_IXOTH for each in around)
    return is_reached and bool(path.lstat().st_mode & stat.S_IWOTH)


@needs_view
def test_nothing_of_ours_is_writable_for_others_whatever_the_umask_is(root: Path, tmp_path: Path) -> None:
    """finding S31: `umask 000` made the folder of claims everybody's."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(0o700)
    text = (
        "from noclobber import Workspace; from noclobber.guard import claims; import sys\n"
        "root = sys.argv[1]\n"
        "with Workspace(root) as workspace, workspace.turn() as turn:\n"
        "    turn.write_file('a', '1'); turn.write_file('a', '2')\n"
        "    turn.run('mkdir node_modules; echo x > node_modules/a; echo 3 > a')\n"
        "    claims.acquire(root, f'{root}/a', 'me', '1')\n"
    )
    subprocess.run(
        ["sh", "-c", 'umask 000; exec "$@"', "sh", sys.executable, "-c", text, str(root)],
        check=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)},
    )
    refuse(root, "true")
    found = [root / ".noclobber", *(root / ".noclobber").rglob("*"), *runtime.rglob("*")]
    opened = [str(path) for path in found if not path.is_symlink() and is_open(path, root)]
    assert opened == [], "\n".join(opened)


def test_a_setting_that_forbids_namespaces_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding G14: on Ubuntu "Operation not permitted" was all that was said."""
    setting = tmp_path / "setting"
    setting.write_text("1\n")
    (_, forbids, why), *_ = namespace._SETTINGS
    monkeypatch.setattr(namespace, "_SETTINGS", ((str(setting), forbids, why),))
    view = PrivateView(str(root), str(tmp_path))

    def forbidden() -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(view, "_enter", forbidden)
    view.uid = 1000
    with pytest.raises(UnavailableError, match="apparmor_restrict_unprivileged_userns"):
        view.enter()
    setting.write_text("0\n")
    with pytest.raises(UnavailableError, match="may not mount here"):
        view.enter()
