"""What people get wrong with a coordinator: each is a clear error with the remedy, and nothing is changed or lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from torture.postgres_server import Server

import noclobber
from noclobber import cli
from noclobber.errors import ConfigError, CoordinatorUnavailableError, NoclobberError
from noclobber.postgres import asking, schema, shared_volume
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.coordinator import _connection
from noclobber.postgres.light_connection import LightConnection, library
from tests.rigs import postgres


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    """A server whose databases tests may spoil."""
    server = postgres.started()
    yield server
    server.remove()


@pytest.fixture
def server(shared: Server) -> Server:
    """The same with a new, empty database."""
    shared.use_new_database()
    return shared


@pytest.fixture
def project(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project that asks that server."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", server.address())
    (tmp_path / "p/.noclobber").mkdir(parents=True)
    (tmp_path / "p/report").mkdir()
    (tmp_path / "p/a.md").write_text("before\n")
    monkeypatch.chdir(tmp_path / "p")
    _connection.cache_clear()
    yield tmp_path / "p"
    _connection.cache_clear()


def refused(project: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a person reads who locks and writes here; both must be refused."""
    with noclobber.Workspace(project) as workspace, workspace.turn() as turn:
        turn.read_file("a.md")
        with pytest.raises(noclobber.NoclobberError) as error:
            turn.write_file("a.md", "after\n")
    assert (project / "a.md").read_text() == "before\n"
    assert cli.main(["lock", "run", "report", "--", "touch", "ran"]) != 0
    assert not (project / "ran").exists()
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return f"{said}\n{error.value}"


def at_version(server: Server, version: int) -> None:
    """Let the tables say that they are of this version."""
    with psycopg.connect(server.address()) as link:
        link.execute("UPDATE noclobber.schema_version SET version = %s", (version,))


def test_a_server_without_the_tables_says_how_to_make_them(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines, N-input: no lock, no write."""
    assert refused(project, capsys).count("noclobber coordinator init") == 2


@pytest.mark.parametrize(("version", "remedy"), [(99, "Upgrade noclobber"), (2, "coordinator migrate")])
def test_tables_of_another_version_are_not_used(
    version: int, remedy: str, project: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines, N-input: from the future or the past, also if every function is there that is asked for."""
    schema.install(server.address())
    at_version(server, version)
    assert refused(project, capsys).count(remedy) == 2
    assert cli.main(["coordinator", "doctor"]) == 1
    assert f"version {version}" in capsys.readouterr().out
    if library() is not None:
        with pytest.raises(ConfigError, match=remedy):
            LightConnection(server.address()).value("SELECT 1", ())
    at_version(server, asking.VERSION)
    assert cli.main(["lock", "run", "report", "--", "true"]) == 0


def test_an_older_server_than_is_supported_gets_no_tables(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines, N-input: nothing is made there."""
    monkeypatch.setattr(schema, "OLDEST_SERVER", 99)
    with pytest.raises(ConfigError, match="it takes 99 or newer"):
        schema.install(server.address())
    with psycopg.connect(server.address()) as link:
        assert schema.installed_version(link) is None


def test_a_user_without_rights_is_told_what_the_owner_grants(
    project: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines, N-input: neither to use it nor to install it."""
    stranger = f"stranger_{os.urandom(3).hex()}"
    with psycopg.connect(server.address()) as link:
        link.execute(f"CREATE ROLE {stranger} LOGIN".encode())
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", server.address(stranger))
    assert cli.main(["coordinator", "init"]) == 3
    assert "as the owner of the database" in capsys.readouterr().err
    schema.install(server.address())
    assert refused(project, capsys).count("GRANT noclobber_agent") == 2


@pytest.mark.parametrize("word", ["postgresql://u:ge:he/im@@h/db", "--address=postgresql://u:geheim@h/db"])
def test_a_password_on_the_command_line_is_refused_and_not_repeated(
    word: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines, N-input: errors end in logs."""
    for command in (["coordinator", "init", word], ["lock", "status", "report", word]):
        assert cli.main(command) == 2
        said = capsys.readouterr().err
        assert "ge" not in said.replace("usage", "").replace("argument", "").split("error:")[1]
        assert ("NOCLOBBER_COORDINATOR" in said) == (command[0] == "coordinator")


def test_an_unreachable_server_stops_locks_and_writes_and_not_reading(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines, N-input: no silent fall-back to files; doctor's remedies are about the server."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", "postgresql://u@127.0.0.1:1/x")
    monkeypatch.setattr(asking, "PATIENCE_S", 0.1)
    monkeypatch.setattr("noclobber.postgres.connection.PATIENCE_S", 0.1)
    monkeypatch.setattr(
        ServerConnection.__init__, "__kwdefaults__", {"patience_s": 0.1, "any_version": False}
    )
    assert refused(project, capsys).count("does not answer") == 2
    assert not (project / "report/.lock").exists()
    assert cli.main(["coordinator", "init"]) == 3
    assert "Check the address" in capsys.readouterr().err
    cli.main(["doctor"])
    shown = capsys.readouterr().out
    assert "check the permissions" not in shown
    assert "keep deliverables on a local filesystem" not in shown


def test_doctor_is_content_with_a_coordinator_that_works(
    project: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines, X-002: it tried recovery for real, and looked for the record where there is none."""
    schema.install(server.address())
    cli.main(["doctor"])
    shown = capsys.readouterr().out
    assert "BAD" not in shown, shown


def test_an_object_stores_mount_is_refused_by_doctor_and_by_the_first_write(
    project: Path,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """N-machines, N-input: a coordinator orders writes, and cannot make a rename of a copy and a deletion."""
    if (
        shutil.which("bindfs") is None
        or shutil.which("fusermount3") is None
        or not os.path.exists("/dev/fuse")
    ):
        pytest.skip("needs bindfs and FUSE")
    schema.install(server.address())
    monkeypatch.setenv("NOCLOBBER_WORKSPACE", f"team-{os.urandom(4).hex()}")
    mount = tmp_path / "mount"
    mount.mkdir()
    made = subprocess.run(["bindfs", "-o", "hard_remove,subtype=s3fs", project, mount], check=False)
    if made.returncode:
        pytest.skip("this user may not mount")
    try:
        assert shared_volume.is_shared_volume(str(mount))
        with noclobber.Workspace(mount) as workspace, workspace.turn() as turn:
            turn.read_file("a.md")
            with pytest.raises(noclobber.NoclobberError, match="object store"):
                turn.write_file("a.md", "after\n")
        monkeypatch.chdir(mount)
        assert cli.main(["doctor"]) == 1
        assert "object store" in capsys.readouterr().out
        monkeypatch.chdir(project)
    finally:
        subprocess.run(["fusermount3", "-u", "-z", mount], check=False)
    assert (project / "a.md").read_text() == "before\n"


def test_a_program_that_ends_without_closing_says_nothing(project: Path, server: Server) -> None:
    """N-machines: at the end of the interpreter modules are gone, and a connection is collected after them."""
    schema.install(server.address())
    program = (
        "import noclobber\n"
        "workspace = noclobber.Workspace('.')\n"
        "turn = workspace.turn()\n"
        "lock = noclobber.DeliverableLock('report').acquire()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=project, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("light", [False, True])
def test_text_means_the_same_whatever_the_clients_encoding_is_said_to_be(
    light: bool,
    project: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """N-machines: with PGCLIENTENCODING a folder had a second name, so two held its lock, and the chain was "altered"."""
    schema.install(server.address())
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    if light and library() is None:
        pytest.skip("no libpq")
    link = (LightConnection if light else ServerConnection)(f"{server.address()} client_encoding=LATIN1")
    assert link.value("SELECT 'é' || %s || length(%s)", ("ü", "日")) == "éü1"
    link.close()
    (project / "grüße").mkdir()
    assert cli.main(["lock", "run", "--holder", "Jürgen 日", "grüße", "--", "true"]) == 0
    assert cli.main(["ledger", "verify"]) == 0
    monkeypatch.delenv("PGCLIENTENCODING")
    _connection.cache_clear()
    capsys.readouterr()
    assert cli.main(["ledger", "verify"]) == 0
    assert cli.main(["ledger", "show", "--jsonl"]) == 0
    assert capsys.readouterr().out.count("Jürgen 日") == 2


def test_a_database_that_cannot_hold_every_name_gets_no_tables(server: Server) -> None:
    """N-machines, N-input: init says how to make one that can."""
    with psycopg.connect(server.address(), autocommit=True) as link:
        link.execute(
            f"CREATE DATABASE {server.database}_l TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'".encode()
        )
    address = f"{server.address()}_l"
    with pytest.raises(ConfigError, match=r"LATIN1.*ENCODING 'UTF8'"):
        schema.install(address)
    with psycopg.connect(address) as link:
        assert schema.installed_version(link) is None


@pytest.mark.parametrize("light", [False, True])
def test_transactions_that_do_not_see_what_was_done_while_they_waited_are_refused(
    light: bool,
    project: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """N-machines: with another isolation a section began in a folder that was locked while it waited at the gate."""
    schema.install(server.address())
    with psycopg.connect(server.address(), autocommit=True) as link:
        database = f"ALTER DATABASE {server.database} SET default_transaction_isolation = 'repeatable read'"
        link.execute(database.encode())
    if light:
        if library() is None:
            pytest.skip("no libpq")
        with pytest.raises(ConfigError, match="default_transaction_isolation"):
            LightConnection(server.address()).value("SELECT 1", ())
    else:
        assert refused(project, capsys).count("default_transaction_isolation") == 2
    assert cli.main(["coordinator", "doctor"]) == 1
    assert "repeatable read" in capsys.readouterr().out


@pytest.mark.parametrize("setting", ["statement_timeout = '100ms'", "lock_timeout = '2s'"])
@pytest.mark.parametrize("light", [False, True])
def test_a_server_that_ends_what_waits_for_its_turn_is_refused(
    light: bool, setting: str, server: Server
) -> None:
    """finding R18: a role with a statement_timeout had locks fail at random, whenever somebody else had them."""
    schema.install(server.address())
    with psycopg.connect(server.address(), autocommit=True) as link:
        link.execute(f"ALTER DATABASE {server.database} SET {setting}".encode())
    if light and library() is None:
        pytest.skip("no libpq")
    kind = LightConnection if light else ServerConnection
    with pytest.raises(ConfigError, match=setting.split()[0]):
        kind(server.address()).value("SELECT 1", ())
    with psycopg.connect(server.address(), autocommit=True) as link:
        link.execute(f"ALTER DATABASE {server.database} SET {setting.split()[0]} = '1min'".encode())
    assert kind(server.address()).value("SELECT 1", ()) == 1


@pytest.mark.parametrize(
    "change", [("user=owner", "user=nobody_is_that"), ("dbname=", "dbname=no_"), ("", " port=99999")]
)
def test_an_address_that_no_waiting_puts_right_is_said_at_once(
    change: tuple[str, str],
    project: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """N-machines, N-input: it was "run `noclobber coordinator doctor`" from doctor itself, and ten seconds for a port."""
    address = server.address()
    monkeypatch.setenv(
        "NOCLOBBER_COORDINATOR", address.replace(*change, 1) if change[0] else address + change[1]
    )
    _connection.cache_clear()
    monkeypatch.setattr("noclobber.postgres.connection.time.sleep", pytest.fail)
    for command in ("doctor", "status"):
        assert cli.main(["coordinator", command]) == 3
        said = capsys.readouterr().err
        assert "cannot be used with this address" in said
        assert "coordinator doctor" not in said


def test_an_owner_who_may_make_no_role_is_told_which_one_is_missing(server: Server) -> None:
    """N-machines, N-input: "run this as the owner" was no help to the owner."""
    own = postgres.started()
    try:
        with psycopg.connect(own.address(), autocommit=True) as link:
            link.execute("CREATE ROLE modest LOGIN")
            link.execute("CREATE DATABASE modest OWNER modest")
            own.database = "modest"
            with pytest.raises(ConfigError, match="CREATE ROLE noclobber_agent NOLOGIN, and then this again"):
                schema.install(own.address("modest"))
            link.execute("CREATE ROLE noclobber_agent NOLOGIN")
            assert schema.install(own.address("modest")) == asking.VERSION
    finally:
        own.remove()


def test_an_event_without_members_does_not_break_the_chain(server: Server) -> None:
    """N-machines: whoever may record could make a line that is no JSON, and the chain was broken for everybody."""
    schema.install(server.address())
    link = ServerConnection(server.address())
    for body in ("", " ", ","):
        with pytest.raises(NoclobberError):
            link.value("SELECT noclobber.append(%s, %s, %s)", ("w", body, body))
    assert link.value("SELECT noclobber.chain_end('w')", ())["seq"] == 0
    link.close()


@pytest.mark.parametrize(
    ("names", "waits_for", "says"),
    [("other", "on", "none of the synchronous standbys"), ("other", "local", "does not wait for them")],
)
def test_doctor_says_which_synchronous_standby_nobody_waits_for(
    names: str, waits_for: str, says: str, server: Server, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-machines: it promised one holder over a failover as soon as a standby was named."""
    schema.install(server.address())
    with psycopg.connect(server.address(), autocommit=True) as link:
        link.execute(f"ALTER DATABASE {server.database} SET synchronous_commit = '{waits_for}'".encode())
        link.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
        try:
            link.execute("SELECT pg_reload_conf()")
            while True:
                with psycopg.connect(server.address()) as fresh:
                    row = fresh.execute("SHOW synchronous_standby_names").fetchone()
                if row == (names,):
                    break
            assert cli.main(["coordinator", "doctor"]) == 1
        finally:
            link.execute("SET synchronous_commit = 'local'")
            link.execute("ALTER SYSTEM RESET synchronous_standby_names")
            link.execute("SELECT pg_reload_conf()")
    assert says in capsys.readouterr().out


def test_a_write_without_the_server_is_refused_as_unavailable_and_asked_for_once(
    project: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: it was LEDGER_FAILED, for a person to look at, after twice the time; a host's hook has thirty seconds."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", "postgresql://u@127.0.0.1:1/d")
    _connection.cache_clear()
    asked: list[str] = []

    def away(self: ServerConnection, statement: str, *_: object) -> None:
        asked.append(statement)
        raise asking.unavailable("s", "gone")

    monkeypatch.setattr(ServerConnection, "ask", away)
    with noclobber.Workspace(project) as workspace, workspace.turn() as turn:
        turn.read_file("a.md")
        with pytest.raises(CoordinatorUnavailableError) as error:
            turn.write_file("a.md", "after\n")
    assert error.value.code == "COORDINATOR_UNAVAILABLE"
    assert error.value.resolution == "RETRY_LATER"
    assert len(asked) == 1
    assert (project / "a.md").read_text() == "before\n"
