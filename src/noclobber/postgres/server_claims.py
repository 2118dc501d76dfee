"""
Claims on a volume that several machines share: what `guard/claims` keeps in files, as rows.

A hook's claim and a guarded write on another machine meet at the file's row on the server. So either the
write is over when the claim is made, and the hook's look sees its outcome, or the write sees the claim.

Whether a claim may be taken over is found by looking, as with files: it is old enough, and the file is what
it was. The server says when it is old enough, by its own clock. Who asks looks at the volume, past this
machine's caches, and compares hashes: times and inode numbers differ between mounts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.errors import ABSENT, CoordinatorUnavailableError
from noclobber.ledger.root import relative
from noclobber.postgres.section_recovery import OLD_VIEW_NAPS_S, old_view
from noclobber.postgres.sections import POLL_S, Sections, is_gone, notice_key, other_tree

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.postgres.connection import ServerConnection
    from noclobber.postgres.volume import Volume
    from noclobber.postgres.workspace_name import SharedFolder

RELEASE_PATIENCE_S = 2.0  # A claim that cannot be released ends by itself.


class RowClaim(NamedTuple):
    """A claim, as the server knows it."""

    path: str
    """Canonical, on this machine."""
    owner: str
    call_id: str
    remaining_s: float


class ServerClaims:
    """The claims of one workspace."""

    def __init__(
        self, connection: ServerConnection, place: SharedFolder, volume: Volume, clock: Clock
    ) -> None:
        self._connection, self._place, self._volume, self._clock = connection, place, volume, clock

    def take(
        self,
        path: str,
        owner: str,
        call_id: str,
        *,
        held_up_s: float,
        waits_s: float,
        life_s: float,
        patience_s: float,
    ) -> RowClaim:
        """
        Claim a canonical path, or return whose claim or write outlasts our patience.

        A guarded write takes over a claim of which nothing came after `held_up_s`; this one after `waits_s`.
        """
        deadline_s, late_s = self._clock.monotonic_s() + patience_s, max(0.0, waits_s - held_up_s)
        name, claim_id, judged = relative(self._place.root, path), os.urandom(12).hex(), dict[str, Any]()
        naps_s = iter(OLD_VIEW_NAPS_S)
        while True:
            seen = self._volume.look(path).sha256
            answer = self._ask(
                "claim_file(%s,%s,%s,%s,%s,%s,%s,%s,%s,%s::jsonb)",
                *(self._place.workspace, self._volume.tree_id(), name, claim_id, owner, call_id, seen),
                *(held_up_s, life_s, _json(judged)),
            )
            outcome = answer["outcome"]
            if outcome == "other_tree":
                raise other_tree(self._place)
            if outcome == "begun":
                if seen == answer["head"] or seen not in answer["former"]:
                    return RowClaim(path, owner, call_id, life_s)
                # This mount shows an earlier version. The hook would judge the call by it.
                nap_s = next(naps_s, None)
                if nap_s is None:
                    self.release(path, owner)
                    raise old_view(path)
                self._clock.sleep(nap_s)
                continue
            left_s = deadline_s - self._clock.monotonic_s()
            if outcome == "busy":
                if answer["is_overdue"]:
                    self._sections().recover(answer)
                elif is_gone(answer["process"]):
                    judged.setdefault("intents", []).append(answer["section_id"])
                elif left_s <= 0:
                    return RowClaim(path, answer["writer"], "", float(answer["remaining_s"]))
                else:
                    self._wait(left_s)
                continue
            other = answer["claim"]
            ours_in_s = float(other["take_over_in_s"]) + late_s
            if ours_in_s <= 0 and may_take_over(self._volume, path, other):
                judged.setdefault("claims", []).append(other["claim_id"])
            elif left_s <= 0:
                return RowClaim(path, other["owner"], other["call_id"], float(other["remaining_s"]))
            else:
                self._wait(min(left_s, max(0.0, ours_in_s) or left_s))

    def release(self, path: str, owner: str) -> bool:
        """End an own claim, and say what its host has left; False if there was none, or no answer."""
        left = self._volume.look(path).sha256
        arguments = (
            *(self._place.workspace, relative(self._place.root, path), owner),
            left if len(left) == _HASH_CHARS or left == ABSENT else None,
        )
        try:
            statement = "SELECT noclobber.release_claim(%s,%s,%s,%s)"
            return bool(self._connection.value(statement, arguments, RELEASE_PATIENCE_S))
        except CoordinatorUnavailableError:
            return False

    def release_all(self, owner: str) -> None:
        """End every claim of an agent."""
        try:
            for claim in self._listed(owner):
                self.release(claim.path, owner)
        except CoordinatorUnavailableError:
            pass

    def live(self) -> list[RowClaim]:
        """Return the claims of the workspace, to be shown; none if the server does not answer."""
        try:
            return self._listed(None)
        except CoordinatorUnavailableError:
            return []

    # -- parts ---------------------------------------------------------------------------------------------

    def _listed(self, owner: str | None) -> list[RowClaim]:
        statement = "SELECT noclobber.list_claims(%s,%s)"
        rows = self._connection.ask(statement, (self._place.workspace, owner), RELEASE_PATIENCE_S)
        root = self._place.root.rstrip("/")
        return [
            RowClaim(f"{root}/{row['path']}", row["owner"], row["call_id"], float(row["remaining_s"]))
            for (row,) in rows
        ]

    def _sections(self) -> Sections:
        return Sections(self._connection, self._place, self._volume, self._clock, 0.0)

    def _wait(self, at_most_s: float) -> None:
        self._connection.wait(notice_key(self._place), min(at_most_s, POLL_S))

    def _ask(self, call: str, *arguments: Any) -> Any:
        return self._connection.value(f"SELECT noclobber.{call}", arguments)


_HASH_CHARS = 64


def may_take_over(volume: Volume, path: str, claim: dict[str, Any]) -> bool:
    """True for a claim that is old enough and of which nothing has come so far."""
    return float(claim["take_over_in_s"]) <= 0 and volume.look(path).sha256 == claim["seen"]


def _json(value: Any) -> str:
    import json

    return json.dumps(value)
