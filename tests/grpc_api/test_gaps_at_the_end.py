"""A log that ends in a gap, as `segment repair --accept-gaps` leaves it where the last segment is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from logbroker.embedded_broker import embedded
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.v1 import log_pb2
from tests.grpc_api.api import Api

BATCHES = 12
RECORDS = 60
END = BATCHES * RECORDS
BATCH = encode_batch([NewRecord(b"%060d" % number) for number in range(RECORDS)])


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("data")
    with embedded(data_dir) as broker:
        api = Api(broker.address)
        api.create("t", segment_bytes="20000")
        for _ in range(BATCHES):
            api.produce("t", BATCH)
    last = max(data_dir.glob("t-0/*.log"))
    assert last.stat().st_size, "nothing would be lost"
    last.unlink()
    command = [sys.executable, "-m", "logbroker", "segment", "repair", str(data_dir / "t-0"), "--accept-gaps", "--yes"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return data_dir


@pytest.mark.parametrize("plain", [False, True], ids=["batches", "plain"])
def test_a_reader_gets_to_the_end_of_a_log_that_ends_in_a_gap(data_dir: Path, plain: bool) -> None:
    with embedded(data_dir) as broker:
        api = Api(broker.address)
        offset = 0
        while offset < END:
            item = log_pb2.FetchItem(topic="t", offset=offset)
            [result] = api.log.Fetch(log_pb2.FetchRequest(items=[item], plain_records=plain)).results
            assert (result.status.code, result.high_watermark) == (0, END)
            assert result.next_offset > offset, "whoever reads up to the high watermark never comes there"
            offset = result.next_offset
