"""The way of a group's stream to the gateway that owns the group."""

from __future__ import annotations

from typing import Final

from logbroker.client.transport.connection import Connection
from logbroker.errors import InvalidRequestError, LogbrokerError, StaleOwnerError

_MAX_HOPS: Final = 3
"""Maximum number of gateways that a stream is sent to in a row. While a group moves, gateways may name each other."""


class OwnerRoute:
    """Chooses the connection of a group's next stream.

    Each stream goes to the given addresses, unless the stream before it ended because another gateway owns the group,
    and its address is known. Then the next stream goes there. If it fails there, the one after it goes to the given
    addresses again.
    """

    def __init__(self, given: Connection) -> None:
        self._given = given
        self.connection = given
        """The connection of the present stream, or of the next one."""
        self._hops = 0

    def accepted(self) -> None:
        """Note that the gateway serves the group."""
        self._hops = 0

    def ended(self, error: LogbrokerError) -> bool:
        """Choose the connection of the next stream, after the present one ended with this error. Return whether it may
        begin at once, because a gateway has named the owner."""
        before = self.connection
        owner = error.owner if isinstance(error, StaleOwnerError) else ""
        self.connection = self._given
        is_named = bool(owner) and owner != before.broker and self._hops < _MAX_HOPS
        if is_named and owner != self._given.broker:
            try:
                self.connection = self._given.to_owner(owner)
            except InvalidRequestError:  # It is not an address.
                is_named = False
        self._hops = self._hops + 1 if is_named else 0
        if before is not self._given:
            self._given.leave_owner(before)
        return is_named
