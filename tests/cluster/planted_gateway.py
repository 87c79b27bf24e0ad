"""A gateway with a planted bug: `python -m tests.cluster.planted_gateway PLANT serve ...`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from logbroker.broker.cluster_engine.log.retention import ClusterRetention
from logbroker.broker.cluster_engine.topics import cluster_admin
from logbroker.cli.main import main
from logbroker.queues.retention.holder import RetentionHolder


def nothing_is_watched() -> None:
    async def look(self: ClusterRetention) -> None:
        pass

    ClusterRetention._look = look  # type: ignore[method-assign]


def the_cluster_deletes_copies() -> None:
    cluster_admin._kept_configs = lambda name: {}


def what_fails_later_has_no_copy() -> None:
    RetentionHolder._failed = lambda self, record_id: None  # type: ignore[method-assign]


PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant for plant in (nothing_is_watched, the_cluster_deletes_copies, what_fails_later_has_no_copy)
}

if __name__ == "__main__":
    PLANTS[sys.argv.pop(1)]()
    main()
