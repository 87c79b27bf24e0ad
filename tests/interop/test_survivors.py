"""Kafka's own code reads what recovery makes of the states that a crash may leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.crash_trace import Trace
from tests.interop.kafka_reader import compare, trouble

SEEDS = 5
STATES = 40


@pytest.mark.prove
def test_kafka_reads_what_recovery_keeps(tmp_path: Path) -> None:
    if reason := trouble():
        pytest.skip(reason)
    for seed in range(SEEDS):
        trace = Trace(seed).run(steps=20)
        for number, state in enumerate(trace.states(STATES)):
            disk = trace.check(state)
            directory = tmp_path / f"seed-{seed}-state-{number}"
            directory.mkdir()
            for name, inode in disk.names.items():
                if name.endswith(".log"):
                    (directory / Path(name).name).write_bytes(disk.contents[inode])
    assert compare(tmp_path.rglob("*.log")) > SEEDS * STATES
