"""The coordinator's address: which machine it leads to, by every way that libpq knows, and what it may hold."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Any

import pytest

from noclobber.errors import ConfigError
from noclobber.postgres.address import connection_options
from noclobber.postgres.connection import ServerConnection
from noclobber.postgres.light_connection import LightConnection

SAFE = "verify-full"
PLAIN = {"PGHOST": "", "PGHOSTADDR": "", "PGSERVICE": "", "PGSSLMODE": ""}


@pytest.mark.parametrize(
    ("address", "environment"),
    [
        ("service=prod", {}),
        (
            "host=localhost service=prod",
            {},
        ),  # The service may name another `hostaddr`, and that one is taken.
        ("dbname=x", {"PGSERVICE": "prod"}),
        ("host=localhost", {"PGHOSTADDR": "192.0.2.7"}),
        ("dbname=x", {"PGHOSTADDR": "192.0.2.7"}),
        ("dbname=x", {"PGHOST": "db.example.com"}),
        ("host=localhost hostaddr=192.0.2.7", {}),
        ("postgresql://localhost,db.example.com/x", {}),
        ("hostaddr=127.0.0.1,192.0.2.7", {}),
    ],
)
def test_whatever_may_lead_to_another_machine_is_encrypted_and_verified(
    address: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: a service file and the environment name a server just as the address does."""
    for name, value in (PLAIN | environment).items():
        monkeypatch.setenv(name, value)
    assert connection_options(address)["sslmode"] == SAFE
    monkeypatch.setenv("PGSSLMODE", "prefer")
    with pytest.raises(ConfigError, match=SAFE):
        connection_options(address)


@pytest.mark.parametrize(
    ("address", "environment"),
    [
        ("host=/run/postgresql", {}),
        ("host=localhost", {}),
        ("hostaddr=127.0.0.1", {"PGHOST": "db.example.com"}),
        ("service=prod hostaddr=::1", {}),
        ("dbname=x", {}),
    ],
)
def test_this_machine_needs_no_certificate(
    address: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines: nobody is in between."""
    for name, value in (PLAIN | environment).items():
        monkeypatch.setenv(name, value)
    assert "sslmode" not in connection_options(address)


@pytest.mark.parametrize(
    "address",
    ["host=localhost sslpassword=geheim", "postgresql://u@localhost/x?sslpassword=geheim", "password=geheim"],
)
def test_no_secret_of_any_kind_is_in_an_address(address: str) -> None:
    """N-machines: the password of a client's key is one, too."""
    with pytest.raises(ConfigError, match="password") as refused:
        connection_options(address)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("address", ["host=\udc82x", "postgresql://m%BDb.example/x"])
def test_an_address_that_is_no_text_is_refused(address: str) -> None:
    """N-fuzz, N-input: found by it; bytes that are no UTF-8 in the variable were an internal error."""
    with pytest.raises(ConfigError, match="not the address"):
        connection_options(address)


class Listener(threading.Thread):
    """A program that was there before the server: it asks for a password in a given way, and keeps what it gets."""

    def __init__(self, asks_for: bytes) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._asks_for, self.heard = asks_for, b""
        self.port = self._socket.getsockname()[1]
        self.start()

    def run(self) -> None:
        with self._socket:
            while True:
                link = self._socket.accept()[0]
                with link, suppress(OSError):
                    link.settimeout(2)
                    size = struct.unpack("!I", link.recv(4))[0]
                    if link.recv(size - 4)[:4] == struct.pack("!I", 80877103):  # "May we speak TLS?"
                        link.sendall(b"N")
                        size = struct.unpack("!I", link.recv(4))[0]
                        link.recv(size - 4)
                    link.sendall(b"R" + struct.pack("!I", 4 + len(self._asks_for)) + self._asks_for)
                    self.heard += link.recv(4096)


@pytest.mark.parametrize(
    "asks_for", [struct.pack("!I", 3), struct.pack("!I", 5) + b"salt"], ids=["in clear text", "md5"]
)
@pytest.mark.parametrize("kind", [ServerConnection, LightConnection])
def test_no_password_goes_to_whoever_listens_on_the_loopback_address(
    monkeypatch: pytest.MonkeyPatch, kind: Any, asks_for: bytes
) -> None:
    """finding S31: another user's program may have bound the port first."""
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    listener = Listener(asks_for)
    with pytest.raises(ConfigError, match="require_auth"):
        kind(f"postgresql://me@127.0.0.1:{listener.port}/d").ask("SELECT 1", ())
    assert b"p" not in listener.heard[:1]


def test_who_knows_the_server_may_say_how_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """finding S31: an address is the user's own word."""
    assert connection_options("host=/run/x require_auth=password")["require_auth"] == "password"
    monkeypatch.setenv("PGREQUIREAUTH", "md5")
    assert "require_auth" not in connection_options("host=localhost")
