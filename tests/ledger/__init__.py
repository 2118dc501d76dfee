import pytest

pytest.register_assert_rewrite("tests.ledger.ledger_suite", "tests.ledger.observer_suite")
