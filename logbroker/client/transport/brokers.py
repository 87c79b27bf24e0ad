"""The addresses that a client was given, and the one in use."""

from __future__ import annotations

import os
import random

from logbroker.address import parse_addresses

_first: dict[tuple[int, str], str] = {}
"""The address with which new clients of this process begin, by process id and list. Clients move it on when they find
it dead. So what one client of a program has created is known to the next, and a dead address is tried once."""


class Brokers:
    """Several addresses of one cluster, of which one is in use at a time. The first one is drawn at random in each
    process, so that clients spread over the gateways. No I/O."""

    def __init__(self, text: str) -> None:
        """Read "HOST:PORT" or "HOST:PORT,HOST:PORT". Raises ValueError, as `parse_addresses` does."""
        self.addresses = [str(address) for address in parse_addresses(text)]
        self.text = ",".join(self.addresses)
        """The addresses, to be given to another client."""
        self.current = self.addresses[0]
        """The address in use."""
        if len(self.addresses) > 1:
            self.current = _first.setdefault((os.getpid(), self.text), random.choice(self.addresses))

    def __len__(self) -> int:
        return len(self.addresses)

    def failed(self, address: str) -> bool:
        """Go on to the next address, if this one is in use and there is another. Return whether it did."""
        if len(self.addresses) == 1 or address != self.current:
            return False
        self.current = self.addresses[(self.addresses.index(address) + 1) % len(self.addresses)]
        _first[os.getpid(), self.text] = self.current
        return True


def begin_with(brokers: str, address: str) -> None:
    """Let new clients of this process that are given `brokers` begin with this address, because it answers."""
    _first[os.getpid(), Brokers(brokers).text] = address
