"""logbroker: a persistent, partitioned, log-structured broker that pip installs.

Nothing is imported before it is used: `import logbroker` costs next to nothing, and a broker never loads the client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from logbroker.client import Admin, Consumer, Producer, Worker
    from logbroker.embedded_broker import embedded

__all__ = ["Admin", "Consumer", "Producer", "Worker", "__version__", "embedded"]

__version__ = "0.1.0"

_HOMES: Final = {
    "Admin": "logbroker.client",
    "Consumer": "logbroker.client",
    "Producer": "logbroker.client",
    "Worker": "logbroker.client",
    "embedded": "logbroker.embedded_broker",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'logbroker' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
