"""The Python client, for asyncio. `logbroker.client.sync` has the same names for programs without an event loop."""

from logbroker.client.producer import Producer

__all__ = ["Producer"]
