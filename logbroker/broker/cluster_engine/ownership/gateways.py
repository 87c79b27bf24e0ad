"""The gateways that are alive, and the homes that each of them is to have. A pure machine.

Each gateway writes a heartbeat to the state again and again, and reads those of all others, so all see the same
heartbeats in the same order, at slightly different times. A gateway whose heartbeats stop is dead for the others, and
so is this gateway for itself if it does not read its own heartbeats any more.

A home goes to the gateway with the highest hash of both (rendezvous hashing). So when a gateway comes or goes, only the
homes that it gets or had change hands. Two gateways may see things differently for a moment. That is safe, because the
cluster lets only the last claimant of a home write to it (`state_partition`).
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

HEARTBEAT_SECONDS: Final = 0.4
"""The time between two heartbeats of a gateway."""
SILENCE_SECONDS: Final = 0.8
"""If no heartbeat at all is read for so long, not even one's own, the state could not be read or written meanwhile."""
ALIVE_SECONDS: Final = 1.6
"""The time after its last heartbeat for which a gateway counts as alive."""
LEASE_SECONDS: Final = 2.0
"""The time after the start of a heartbeat that was read back in which this gateway may append."""
UNDER_WAY_SECONDS: Final = 3.0
"""The time after which an append that was sent has arrived, or never will. A network may break this: no time is long
enough for a connection that stands still and goes on later."""
RELEASE_SECONDS: Final = 5.0
"""The time for which a gateway waits for another one that is alive to give up a home."""


class Heartbeat(msgspec.Struct, frozen=True):
    """A gateway's words about itself."""

    address: str
    """HOST:PORT where clients reach it."""
    number: int
    """The heartbeats of one gateway are numbered from 1."""
    homes: tuple[int, ...]
    """The homes that it has, or is taking over or giving up, sorted."""
    taken_in: int = 0
    """It knows the topics as the state says below this offset of partition 0."""


class _Gateway(msgspec.Struct):
    heartbeat: Heartbeat
    heard_at: float
    has_left: bool = False


class Gateways:
    """All gateways, as this one sees them. Times are monotonic seconds."""

    def __init__(self, own_id: str, homes: int) -> None:
        self.own_id = own_id
        self.homes = homes
        self._gateways: dict[str, _Gateway] = {}
        self._heard_at = 0.0
        """When the last heartbeat of any gateway was read."""
        self._wanted_since: dict[int, float] = {}
        """When this gateway first wanted each home that it wants."""

    def heard(self, gateway_id: str, heartbeat: Heartbeat, now: float) -> None:
        """Take in a heartbeat. Time in which none is heard at all counts for nobody: the state could not be read."""
        silent_seconds = now - self._heard_at
        if silent_seconds > SILENCE_SECONDS:
            for other in self._gateways.values():
                if self._heard_at - other.heard_at < ALIVE_SECONDS:
                    other.heard_at += silent_seconds
        self._heard_at = now
        for other_id, other in self._gateways.items():
            # A gateway that was started again. The one before it cannot serve at the same address.
            if other_id != gateway_id and other.heartbeat.address == heartbeat.address:
                other.has_left = True
        self._gateways[gateway_id] = _Gateway(heartbeat, now)

    def left(self, gateway_id: str) -> None:
        """Take in that a gateway has ended, and has no homes any more."""
        if gateway_id in self._gateways:
            self._gateways[gateway_id].has_left = True

    def alive(self, now: float) -> list[str]:
        """Return the ids of all gateways that are alive, this one included if it is."""
        return sorted(each for each, found in self._gateways.items() if self._is_alive(found, now))

    def _is_alive(self, gateway: _Gateway, now: float) -> bool:
        return not gateway.has_left and now - gateway.heard_at < ALIVE_SECONDS

    def owner(self, home: int, now: float) -> str | None:
        """Return the id of the gateway that is to have a home; None: no gateway is alive."""
        return max(self.alive(now), key=lambda each: _score(each, home), default=None)

    def address(self, gateway_id: str | None) -> str:
        """Return HOST:PORT of a gateway; "": not known."""
        found = self._gateways.get(gateway_id or "")
        return "" if found is None else found.heartbeat.address

    def addresses(self, now: float) -> list[str]:
        """Return the addresses of all other gateways that are alive."""
        return [self.address(each) for each in self.alive(now) if each != self.own_id]

    def wanted(self, now: float) -> set[int] | None:
        """Return the homes that this gateway is to have; None: it cannot tell, because it does not read its own
        heartbeats."""
        if self.own_id not in self.alive(now):
            return None
        wanted = {home for home in range(self.homes) if self.owner(home, now) == self.own_id}
        self._wanted_since = {home: self._wanted_since.get(home, now) for home in wanted}
        return wanted

    def is_free(self, home: int, now: float) -> bool:
        """Return whether this gateway may claim a home that it wants: nobody else who is alive says that it has it, or
        does so for longer than RELEASE_SECONDS."""
        return now - self._wanted_since.get(home, now) >= RELEASE_SECONDS or not self.is_anothers(home, now)

    def is_anothers(self, home: int, now: float) -> bool:
        """Return whether another gateway that is alive says that it has a home."""
        return any(
            home in found.heartbeat.homes
            for gateway_id, found in self._gateways.items()
            if gateway_id != self.own_id and self._is_alive(found, now)
        )

    def have_taken_in(self, offset: int, now: float) -> bool:
        """Return whether all other gateways that are alive know the topics as the state says up to an offset."""
        return all(
            found.heartbeat.taken_in > offset
            for gateway_id, found in self._gateways.items()
            if gateway_id != self.own_id and self._is_alive(found, now)
        )

    def appends_until(self, now: float) -> float:
        """Return the time until which appends of other gateways may arrive that do not know what is in the state now.
        A gateway that is alive may not have read it yet."""
        latest = now
        for gateway_id, found in self._gateways.items():
            if gateway_id != self.own_id and not found.has_left:
                heard_at = now if self._is_alive(found, now) else found.heard_at
                latest = max(latest, heard_at + LEASE_SECONDS + UNDER_WAY_SECONDS)
        return latest


@lru_cache(maxsize=10_000)
def _score(gateway_id: str, home: int) -> bytes:
    return blake2b(f"{gateway_id} {home}".encode(), digest_size=8).digest()
