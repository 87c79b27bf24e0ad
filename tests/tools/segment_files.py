"""A stopped broker's data directory with one partition, made without a broker, and ways to damage it."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import msgspec

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.tools.segments.findings import Finding, PartitionReport, Severity
from logbroker.tools.segments.locate import locate
from logbroker.tools.segments.metadata import checkpoint_key
from logbroker.tools.segments.verify import verify
from tests.storage.partition import NOW_MS, PartitionOnDisk, batch_of

BATCHES = 60
RECORDS = 2


class StoppedPartition:
    """Partition 0 of topic flights: 60 batches of two records, in segments of some 2,000 bytes."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        data_dir.mkdir()
        self.disk = PartitionOnDisk(data_dir / "flights-0")
        self.directory = self.disk.directory
        for number in range(BATCHES):
            values = [b"value %03d" % (RECORDS * number + index) for index in range(RECORDS)]
            self.disk.append(batch_of(*values, timestamp_ms=NOW_MS + number))

    def stop(self) -> None:
        """As a broker stops that is asked to."""
        self.disk.stop()
        self.store_metadata()

    def kill(self) -> None:
        """Stop at once; what the metadata store has is from the last `store_metadata`."""
        self.disk.kill()

    def store_metadata(self) -> None:
        row = {
            "name": "flights",
            "partitions": 1,
            "overrides": {},
            "generations": [{"generation": 1, "partitions": 1, "start_offsets": []}],
            "created_at_ms": NOW_MS,
            "deleted": False,
        }
        store = MetadataStore.open(self.data_dir / "meta", on_failure=lambda _failure: None)
        writes: list[tuple[str, bytes, bytes | None]] = [
            ("topics", self.disk.topic_id, msgspec.msgpack.encode(row)),
        ]
        if self.disk.stored is not None:
            writes.append(("partitions", checkpoint_key(self.disk.topic_id, 0), self.disk.stored))
        store.submit(writes).result()
        store.close()

    def logs(self) -> list[Path]:
        return self.disk.logs()


def report_of(*paths: Path, gaps: bool | None = None) -> PartitionReport:
    """Verify one partition."""
    (report,) = verify(locate(paths), lambda _bytes: None, gaps_allowed=gaps)
    return report


def wrong(report: PartitionReport) -> list[Finding]:
    """Everything but notes."""
    return [finding for finding in report.findings if finding.severity is not Severity.NOTE]


def batch_positions(log: Path) -> list[int]:
    """Where the batches of a sound log begin."""
    content = log.read_bytes()
    positions = [0]
    while positions[-1] < len(content):
        positions.append(positions[-1] + 12 + int.from_bytes(content[positions[-1] + 8 : positions[-1] + 12], "big"))
    return positions[:-1]


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def flip_bit(path: Path, bit: int) -> None:
    """Flip a bit of a file, counted from its start."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 0x80 >> bit % 8
    path.write_bytes(content)


def stored_batch(
    base_offset: int,
    values: list[bytes | None],
    *,
    keys: list[bytes | None] | None = None,
    leader_epoch: int = 0,
    attributes: int | None = None,
    deltas: int | None = None,
) -> bytes:
    """A batch as it lies in a log. `attributes` and `deltas` (the last offset delta) replace what the codec wrote."""
    records = [
        NewRecord(value, key=keys[index] if keys else None, timestamp_ms=NOW_MS + base_offset)
        for index, value in enumerate(values)
    ]
    batch = bytearray(encode_batch(records))
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, leader_epoch)
    if attributes is not None:
        struct.pack_into(">h", batch, 21, attributes)
    if deltas is not None:
        struct.pack_into(">i", batch, 23, deltas)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


def kafka_partition(directory: Path) -> Path:
    """A partition as Kafka leaves it: compacted, with control batches, an index made larger than needed, no metadata
    store beside it."""
    directory.mkdir(parents=True, exist_ok=True)
    commit = struct.pack(">hh", 0, 1)
    first = [
        stored_batch(3, [b"a", b"b"], keys=[b"k1", b"k2"], deltas=6),
        stored_batch(10, [struct.pack(">hi", 0, 0)], keys=[commit], attributes=0x30),
        stored_batch(40, [None], keys=[b"k1"], leader_epoch=2, attributes=0x10),
    ]
    second = [stored_batch(100, [b"c"], keys=[b"k3"], leader_epoch=5)]
    (directory / f"{0:020d}.log").write_bytes(b"".join(first))
    (directory / f"{90:020d}.log").write_bytes(b"".join(second))
    # An append of two batches is indexed by the last offset of both.
    entry = struct.pack(">ii", 40, len(first[0]))
    (directory / f"{0:020d}.index").write_bytes(entry)
    (directory / f"{0:020d}.timeindex").write_bytes(struct.pack(">qi", NOW_MS + 40, 40))
    (directory / f"{90:020d}.index").write_bytes(bytes(1024))
    (directory / f"{90:020d}.timeindex").write_bytes(bytes(1200))
    (directory / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n2 20\n5 95\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: PyNAxPtbSIqTSRdyGmbyYw\n")
    return directory
