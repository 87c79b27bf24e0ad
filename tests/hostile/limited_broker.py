"""The broker as a child under limits: `python -m tests.hostile.limited_broker MEMORY DESCRIPTORS PLANT serve ...`.

MEMORY bounds what the process may allocate (RLIMIT_DATA, in bytes: an address space bound would count the metadata
store's map of 1 GiB and the stacks of threads), DESCRIPTORS what it may open (RLIMIT_NOFILE); 0: no bound. PLANT is a
name of `tests.hostile.plants` or `tests.kafka_hostile.plants`, or "none".
"""

from __future__ import annotations

import resource
import sys

from logbroker.cli.main import main
from tests.hostile.plants import PLANTS
from tests.kafka_hostile.plants import KAFKA_PLANTS


def limit(memory_bytes: int, descriptors: int) -> None:
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    # A crash is told by its exit code; a dump of it would be as large as the memory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    memory, files, plant, *arguments = sys.argv[1:]
    limit(int(memory), int(files))
    if plant != "none":
        {**PLANTS, **KAFKA_PLANTS}[plant]()
    sys.argv[1:] = arguments
    main()
