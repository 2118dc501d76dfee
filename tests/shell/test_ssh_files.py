"""ssh in the guarded shell of a user who is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber.shell import ssh_files
from tests.shell.test_ordinary_user import user_project
from tests.shell.test_process import is_available

__all__ = ["user_project"]
NEEDED = ("ssh", "unshare", "mount", "setpriv", "git")
pytestmark = pytest.mark.skipif(
    not is_available() or os.geteuid() != 0 or not all(map(shutil.which, NEEDED)),
    reason="root, ssh and namespaces are needed",
)
DAEMON = 1  # Not `nobody`: to whom the files belong that have no owner in a namespace.
SETTINGS = """\
rm -rf /etc/ssh/*; mkdir -p /etc/ssh/ssh_config.d /etc/ssh/deep
echo 'Include /etc/ssh/ssh_config.d/*.conf' >/etc/ssh/ssh_config
printf 'include "deep/inner"\\nHost one\\n  Port 2201\\n' >/etc/ssh/ssh_config.d/a.conf
printf 'Host two\\n  Port 2202\\n' >/etc/ssh/deep/other
ln -s other /etc/ssh/deep/inner
chmod -R go=rX /etc/ssh
"""


def run(project: Path, text: str, *, settings: str = SETTINGS) -> subprocess.CompletedProcess[str]:
    """Run a text as an ordinary user in the guarded shell, on a machine with these settings of ssh."""
    os.chown(project, DAEMON, DAEMON)
    words = [sys.executable, "-m", "noclobber", "run", "--require", "--", "sh", "-c", text]
    user = f"setpriv --reuid {DAEMON} --regid {DAEMON} --clear-groups"
    around = f'mount -t tmpfs none /etc/ssh && {settings}\nexec {user} "$@"'
    environment = {**os.environ, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    environment.pop("NOCLOBBER_RUN", None)
    done = ["unshare", "--mount", "sh", "-ec", around, "sh", *words]
    return subprocess.run(done, cwd=project, capture_output=True, text=True, env=environment)


def test_roots_settings_count_for_an_ordinary_user(user_project: Path) -> None:
    """finding G8: "Bad owner or permissions", for files that are included, through a link as well."""
    for name, port in (("one", 2201), ("two", 2202)):
        done = run(user_project, f"ssh -G {name}")
        assert done.returncode == 0, done.stderr
        assert f"port {port}" in done.stdout.split("\n")


def test_git_fetches_by_ssh(user_project: Path) -> None:
    """Finding G8: ssh gets as far as the connection; here a command makes that, as a proxy would."""
    proxy = "Host other\\n  ProxyCommand touch reached\\n"
    settings = f"{SETTINGS}printf '{proxy}' >/etc/ssh/ssh_config.d/b.conf\n"
    done = run(user_project, "git init -q . && git fetch ssh://other/x.git || true", settings=settings)
    assert "Bad owner" not in done.stderr
    assert (user_project / "reached").exists()


def test_a_file_that_ssh_would_not_take_outside_is_refused_inside(user_project: Path) -> None:
    """Finding G8: others may write to it, or it is another user's. And a copy cannot be written to."""
    for change in ("chmod o+w", "chown 1234"):
        settings = f"{SETTINGS}{change} /etc/ssh/ssh_config.d/a.conf\n"
        done = run(user_project, "ssh -G one", settings=settings)
        assert "Bad owner or permissions" in done.stderr
    done = run(user_project, "echo Host x >>/etc/ssh/ssh_config.d/a.conf")
    assert done.returncode != 0


def test_settings_that_include_themselves_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding G8: and what is no file, or is not there, is passed over."""
    config = tmp_path / "ssh_config"
    config.write_text(f"Include {config} {tmp_path} missing s?me* [\nInclude=plain\n")
    (tmp_path / "some.conf").write_text("Port 1\n")
    (tmp_path / "plain").write_text("Port 2\n")
    monkeypatch.setattr(ssh_files, "SYSTEM", str(config))
    found = dict(ssh_files.copies())
    assert {str(tmp_path / "some.conf"), str(tmp_path / "plain")} <= set(found)
