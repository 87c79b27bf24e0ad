"""The speed of `logbroker segment verify` on segments that are in the page cache."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from logbroker.client import Admin
from logbroker.embedded_broker import embedded
from logbroker.errors import CorruptLogError
from logbroker.tools.bench.harness import load
from logbroker.tools.bench.harness.measure import MIB, PRODUCE, TOPIC, Row, Setup
from logbroker.tools.segments.locate import locate
from logbroker.tools.segments.verify import verify


async def verify_segments(setup: Setup, *, batch_bytes: int, gigabytes: float) -> Row:
    """Measure the GB/s at which one process verifies the batches and indexes of one partition, without the start of the
    process."""
    batch = load.batch_of(batch_bytes)
    rates = []
    setup.check_room(int(gigabytes * 1e9))
    with tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory) as directory:
        data_dir = Path(directory, "data")
        with embedded(data_dir) as broker:
            async with Admin(broker.address) as admin:
                configs = {"durability": "written", "max.message.bytes": str(2 * MIB)}
                await admin.create_topic(TOPIC, 1, configs=configs)
            requests = load.spread_requests(TOPIC, 1, batch, int(gigabytes * 1e9))
            await load.fill(broker.address, PRODUCE, requests, load.check_produced)
        size_bytes = sum(path.stat().st_size for path in data_dir.glob("*/*.log"))
        for number in range(-1, setup.rounds):  # The first round only fills the page cache.
            start = time.perf_counter()
            reports = list(verify(locate([data_dir]), lambda _bytes: None))
            if number >= 0:
                rates.append(size_bytes / (time.perf_counter() - start) / 1e9)
            if not all(report.sound for report in reports):
                raise CorruptLogError("what the broker wrote is not sound; run: logbroker segment verify")
    size = f"{batch_bytes // 1024} KiB" if batch_bytes >= 1024 else f"{batch_bytes} bytes"
    name = f"segment verify, batches of {size}, {size_bytes / 1e9:.2g} GB in the page cache"
    return Row(name=name, durability="-", unit="GB/s", rounds=rates, ceiling_rounds=[])
