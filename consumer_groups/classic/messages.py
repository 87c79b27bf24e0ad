"""Inputs and outputs of the state machine of a classic group."""

from __future__ import annotations

from typing import Final

import msgspec

from logbroker.consumer_groups.classic.errors import InconsistentProtocolError, InvalidSessionTimeoutError
from logbroker.consumer_groups.messages import MAX_ID_BYTES, MAX_SESSION_TIMEOUT_MS, MIN_TIMEOUT_MS
from logbroker.engine import StateEvent
from logbroker.errors import InvalidRequestError, LogbrokerError

MAX_PROTOCOL_TYPE_CHARACTERS: Final = 100
_ID_PREFIX_BYTES: Final = 128


class ClassicJoin(msgspec.Struct, frozen=True, kw_only=True):
    """A member joins for the first time, or again because the group rebalances."""

    member_id: str = ""
    """Empty: the member has none yet."""
    new_member_id: str
    """The id that the member gets if it has none. Never given out before."""
    instance_id: str = ""
    """If not empty, the member is static: a client that joins with the same instance id takes its place."""
    client_id: str = ""
    client_host: str = ""
    protocol_type: str
    """Such as `consumer` or `connect`: the kind of data in the protocols."""
    protocols: tuple[tuple[str, bytes], ...]
    """Names of the protocols (assignors) that the member has, the preferred one first, each with the member's data."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    requires_known_id: bool = True
    """Whether a client without a member id is given one first, by MemberIdRequiredError, and must join with it."""
    may_skip_assignment: bool = True
    """Whether the client understands `skip_assignment` in the answer."""

    def check(self) -> None:
        """Raise InvalidSessionTimeoutError, InconsistentProtocolError or InvalidRequestError if no group could take
        this."""
        if not self.protocol_type or not self.protocols:
            raise InconsistentProtocolError("the member names no type of protocol, or no protocol")
        if not MIN_TIMEOUT_MS <= self.session_timeout_ms <= MAX_SESSION_TIMEOUT_MS:
            raise InvalidSessionTimeoutError(
                f"the session timeout must be from {MIN_TIMEOUT_MS} to {MAX_SESSION_TIMEOUT_MS} ms,"
                f" not {self.session_timeout_ms}"
            )
        if len(self.instance_id.encode()) > MAX_ID_BYTES:
            raise InvalidRequestError(f"an instance id has at most {MAX_ID_BYTES} bytes")
        if len(self.protocol_type) > MAX_PROTOCOL_TYPE_CHARACTERS:
            raise InvalidRequestError(f"a protocol type has at most {MAX_PROTOCOL_TYPE_CHARACTERS} characters")
        if len({name for name, _ in self.protocols}) != len(self.protocols):
            raise InvalidRequestError("the member names a protocol twice")


def member_id_of(prefix: str, unique: str) -> str:
    """Return a member id that people recognise by the client id or instance id at its beginning."""
    return f"{prefix.encode()[:_ID_PREFIX_BYTES].decode(errors='ignore')}-{unique}"


class ClassicJoined(msgspec.Struct, frozen=True):
    """The answer to a join: the member belongs to this generation of the group."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    """Name of the protocol that the group has chosen."""
    leader_id: str
    members: list[tuple[str, str, bytes]]
    """For the leader: id, instance id and data of each member; for others, empty."""
    skip_assignment: bool = False
    """Whether the generation is assigned already, so that the leader must not assign it again."""


class ClassicSynced(msgspec.Struct, frozen=True):
    """The answer to a sync: the leader's assignment for the member."""

    protocol_type: str
    protocol: str
    assignment: bytes


ClassicAnswer = ClassicJoined | ClassicSynced | LogbrokerError


class ClassicOutputs(msgspec.Struct, frozen=True):
    """The results of the inputs since the last call. No answer may be given before the events are durable."""

    events: list[StateEvent]
    answers: list[tuple[int, ClassicAnswer]]
    """Answers with the tickets of their requests."""
