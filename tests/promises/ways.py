"""Every way in, in the order of the table's columns."""

from __future__ import annotations

from tests.promises import coding_agents, programs, servers, shells
from tests.promises.agent import Way

WAYS: dict[str, Way] = {
    way.name: way for way in (*programs.WAYS, *servers.WAYS, *coding_agents.WAYS, *shells.WAYS)
}
