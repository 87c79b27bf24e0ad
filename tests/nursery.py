"""Where brokers, members and workers of the long tests come from: each is forked from a process that has imported all
that they need, and so begins in milliseconds, where a new interpreter takes half a second.
"""

from __future__ import annotations

import multiprocessing
from typing import Final

processes: Final = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        "logbroker.cli.serve",
        "tests.groups.member_process",
        "tests.queue_storm.worker_process",
        "tests.priority.priority_processes",
    ]
)
