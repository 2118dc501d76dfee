"""A short run of the proof with several machines, and the referee's own judgement."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture.hosts import Action, judge
from torture.postgres_server import programs

from torture import hosts

needs_a_server = pytest.mark.skipif(
    programs() is None, reason="no PostgreSQL: install it, or `make .venv/.ready`"
)


def test_the_referee_convicts_two_that_believe_at_the_same_time() -> None:
    """N-machines: an action of a lower token after a higher one, by somebody who still believed."""
    late = [Action(1, 1.0, 9.0, "a"), Action(2, 2.0, 9.0, "b"), Action(1, 3.0, 9.0, "a")]
    assert judge(late, [1, 2], is_stuck=False, takeovers=1).double_holders == 1
    # It looked at its clock before the other one began, and was stopped before it acted.
    stopped = [Action(1, 1.0, 9.0, "a"), Action(2, 2.0, 9.0, "b"), Action(1, 1.5, 9.0, "a")]
    assert judge(stopped, [1, 2], is_stuck=False, takeovers=1).ok


def test_the_referee_convicts_tokens_that_do_not_rise() -> None:
    """N-machines: on record, and in two clients' hands."""
    assert not judge([], [1, 2, 2], is_stuck=False, takeovers=0).ok
    assert not judge(
        [Action(1, 1.0, 2.0, "a"), Action(1, 1.1, 2.0, "b")], [1], is_stuck=False, takeovers=0
    ).ok
    assert not judge([], [], is_stuck=True, takeovers=0).ok


def test_the_referee_convicts_a_server_that_forgets_whom_it_has_answered() -> None:
    """N-machines: somebody acted with a token that is not on record after a failover."""
    acted = [Action(1, 1.0, 9.0, "a"), Action(2, 2.0, 9.0, "b")]
    assert judge(acted, [1], is_stuck=False, takeovers=0).forgotten == 1
    assert judge(acted, [1, 2, 3], is_stuck=False, takeovers=0).ok


@needs_a_server
def test_killed_and_stopped_holders_and_a_lost_server_give_no_two_holders(tmp_path: Path) -> None:
    """N-machines: a few seconds of `make hosts`, without namespaces; a standby takes over in the middle."""
    for seed in range(7, 13):  # On a busy machine nothing may have happened by then: once more.
        verdict, arena = hosts.chaos(4.0, seed, wants_hosts=False, at_least=1)
        assert verdict.ok, verdict
        if verdict.acquisitions > 1 and arena.faults.get("fail over", 0) >= 1:
            return
    pytest.fail("nobody held the lock, or the server was never lost")


@needs_a_server
def test_a_holder_that_does_not_ask_is_convicted() -> None:
    """N-machines: a referee that convicts nobody proves nothing."""
    # A few seconds of a busy machine may have no stop that outlasts a lease: some more seeds then.
    verdicts = []
    for seed in range(7, 15):
        verdicts.append(hosts.chaos(8.0, seed, asks=False, wants_hosts=False)[0])
        if verdicts[-1].double_holders:
            return
    pytest.fail(f"nobody was convicted: {verdicts}")
