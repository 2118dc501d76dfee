"""What a client with the agents' role alone may ask the coordinator for: what an agent may, and nothing more."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.ledger import PostgresLedger
from tests.rigs import postgres

SECRET, OTHER = "a" * 64, "b" * 64
PROCESS = {"pid": 1, "started": 2, "host": "h", "boot_id": "b", "pid_namespace": "p", "time_namespace": None}
DEEP = "[" * 5000 + "]" * 5000


class Client:
    """A session of a role, in a workspace."""

    def __init__(self, workspace: str, role: str) -> None:
        self.workspace = workspace
        self.link = psycopg.connect(postgres.coordinator(), autocommit=True)
        self.link.execute(f"SET ROLE {role}".encode())

    def ask(self, call: str, *arguments: Any) -> Any:
        row = self.link.execute(f"SELECT noclobber.{call}".encode(), arguments).fetchone()
        return row and row[0]

    def refused(self, call: str, *arguments: Any) -> str:
        with pytest.raises(psycopg.Error) as error:
            self.ask(call, *arguments)
        return error.value.sqlstate or ""

    def take(self, secret: str | None = SECRET, path: str | None = "d", **other: Any) -> Any:
        given = {
            "id": "D",
            "who": "me",
            "folder": "/d",
            "lease": 60,
            "process": json.dumps(PROCESS),
            "held": [],
            "judged": "{}",
            **other,
        }
        return self.ask(
            "take(%s,%s,%s,%s,%s,%s,%s,%s::jsonb,%s::text[],%s::jsonb,true)",
            *(self.workspace, path, secret, given["id"], given["who"], given["folder"], given["lease"]),
            *(given["process"], given["held"], given["judged"]),
        )

    def verify(self) -> int:
        return PostgresLedger(ServerConnection(postgres.coordinator()), self.workspace).verify().event_count


def made_role() -> str:
    role = f"agent_{os.urandom(4).hex()}"
    with psycopg.connect(postgres.coordinator(), autocommit=True) as link:
        link.execute(f"CREATE ROLE {role} LOGIN IN ROLE noclobber_agent".encode())
    return role


@pytest.fixture
def client() -> Iterator[Client]:
    role = made_role()
    found = Client(f"w-{os.urandom(4).hex()}", role)
    yield found
    found.link.execute("RESET ROLE")
    found.link.execute(f"DROP ROLE {role}".encode())
    found.link.close()


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        '"a":1,"seq":7',
        '"prev_hash":"sha256:0"',
        '"a":1,"hash":"x","a":2',
        '"a":1},{"b":2',
        '"a":1\n,"b":2',
        '"a":1\r,"b":2',
        '"a":',
        '"a":NaN',
        '"a":"\\ud800"',
        f'"a":{DEEP}',
        '"a":"' + "x" * (1 << 20) + '"',
    ],
    ids=lambda body: repr(body)[:20],
)
def test_no_event_of_a_client_breaks_the_chain(client: Client, body: str | None) -> None:
    """finding S28: one line that is no event, and nobody's record verifies any more."""
    client.ask("append(%s,%s,%s)", client.workspace, '"a":1', "first")
    client.refused("append(%s,%s,%s)", client.workspace, body, "second")
    client.refused("append_all(%s,%s::text[],%s)", client.workspace, ['"a":1', body], "third")
    client.ask("append(%s,%s,%s)", client.workspace, '"a":{"\\ud83d\\ude00":[{"seq":1}]}', "last")
    assert client.verify() == 2


def test_what_is_nested_as_deep_as_readers_go_is_an_event(client: Client) -> None:
    """finding S28: many members are not deep, and brackets in a text are none."""
    client.ask("append(%s,%s,%s)", client.workspace, '"a":[' + '{"b":"[[{\\""},' * 500 + "1]", "wide")
    client.ask("append(%s,%s,%s)", client.workspace, f'"a":{"[" * 60}{"]" * 60}', "deep")
    assert client.verify() == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": None},
        {"secret": "short"},
        {"path": None},
        {"path": "../d"},
        {"path": "/d"},
        {"path": "d//e"},
        {"path": "d" * 5000},
        {"id": None},
        {"who": None},
        {"folder": None},
        {"who": "x" * 20_000},
        {"lease": None},
        {"lease": 0},
        {"lease": 2_147_483_647},
        {"process": '{"pid":"1,\\"seq\\":9"}'},
        {"process": json.dumps({**PROCESS, "pid": '1},"x":{'})},
        {"process": json.dumps({**PROCESS, "host": {"a": 1}})},
        {"process": json.dumps({**PROCESS, "more": 1})},
        {"process": "[]"},
        {"held": None},
        {"held": [None]},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_a_lock_that_no_honest_client_takes_is_refused(client: Client, wrong: dict[str, Any]) -> None:
    """finding S28: leases for 68 years, and lines that are no JSON."""
    with pytest.raises(psycopg.Error):
        client.take(**wrong)
    assert client.take()["outcome"] == "taken"
    assert client.verify() == 1


def test_a_lease_is_bounded_when_it_is_renewed_too(client: Client) -> None:
    """finding S28: for the holder as well."""
    client.take()
    client.refused("renew(%s,'d',%s,%s)", client.workspace, SECRET, 2_147_483_647)
    client.refused("renew(%s,'d',%s,%s)", client.workspace, SECRET, None)
    client.refused("renew(%s,'d',NULL,60)", client.workspace)
    assert client.ask("renew(%s,'d',%s,60)", client.workspace, SECRET)["is_own"]


def test_a_null_among_held_ids_lets_nobody_past_another_lock(client: Client) -> None:
    """finding S28: nothing is equal to NULL, so nothing was in the way."""
    client.take()
    with pytest.raises(psycopg.Error):
        client.take(OTHER, "d/below", held=[None])
    assert client.take(OTHER, "d/below")["outcome"] == "in_the_way"


@pytest.mark.parametrize("key", [None, "", "guess", "0" * 64])
def test_a_live_lock_is_not_taken_with_what_everybody_can_see(client: Client, key: str | None) -> None:
    """finding S28: its version and its public id were all that it took to call its holder dead."""
    held = client.take(process=json.dumps({**PROCESS, "judge": "c" * 64}))["lock"]
    judged = {"locks": {"d": f"{held['version']} {held['lock_id']}"}, "key": key}
    assert client.take(OTHER, judged=json.dumps(judged))["outcome"] == "refused"
    cleared = client.ask(
        "clear(%s,'d','D','me','/d',NULL,'{}',%s::jsonb,false,'manual')", client.workspace, json.dumps(judged)
    )
    assert cleared["outcome"] == "refused"
    written = client.ask(
        "begin_write(%s,'d',NULL,'i','me','/d',NULL,%s::jsonb,10)", client.workspace, json.dumps(judged)
    )
    assert written["outcome"] == "refused"
    assert "judge" not in held["process"]


def test_one_workspaces_role_cannot_touch_another_that_has_roles_of_its_own(client: Client) -> None:
    """finding S28: locks, ledger, sections and claims of another team."""
    client.take()
    client.ask("append(%s,%s,%s)", client.workspace, '"a":1', "first")
    role = made_role()
    with psycopg.connect(postgres.coordinator(), autocommit=True) as owner:
        owner.execute("SELECT noclobber.only_for(%s, %s)", (client.workspace, role))
    ws = client.workspace
    for call, *arguments in (
        ("append(%s,%s,%s)", ws, '"a":1', "x"),
        ("append_all(%s,ARRAY['\"a\":1'],'x')", ws),
        ("lines(%s,0,9,9)", ws),
        ("chain_end(%s)", ws),
        ("look(%s,'d')", ws),
        ("find(%s,'d',%s)", ws, SECRET),
        ("list(%s,'')", ws),
        ("covering(%s,'d/f')", ws),
        ("renew(%s,'d',%s,60)", ws, SECRET),
        ("give_up(%s,'d',%s,'c')", ws, SECRET),
        ("clear(%s,'d','D','me','/d',NULL,'{}','{}',false,'manual')", ws),
        ("begin_write(%s,'d',NULL,'i','me','/d',NULL,'{}',10)", ws),
        ("never(%s,'d','i')", ws),
        ("settle_write(%s,'d','i')", ws),
        ("claim_file(%s,'t','f','i','me','c','ABSENT',1,1,'{}')", ws),
        ("release_claim(%s,'f','me',NULL)", ws),
    ):
        assert client.refused(call, *arguments) == "42501", call
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        client.take(OTHER)
    member = Client(ws, role)
    assert member.ask("renew(%s,'d',%s,60)", ws, SECRET)["is_own"]
    member.link.close()
    client.refused("only_for(%s,'noclobber_agent')", ws)


def test_a_role_touches_no_table_and_calls_no_part_of_a_step(client: Client) -> None:
    """finding S28: the record would be whatever it says."""
    for call in ("record('w','\"a\":1','c')", "hold_chain('w')", "admit('w')", "orphaned(NULL,'{}')"):
        assert client.refused(call) == "42501"
    for table in ("event", "lock", "chain", "member", "section"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            client.link.execute(f"SELECT FROM noclobber.{table}".encode())
