"""The coordinator's address: which machine it leads to, by every way that libpq knows, and what it may hold."""

from __future__ import annotations

import pytest

from noclobber.errors import ConfigError
from noclobber.postgres.address import connection_options

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
