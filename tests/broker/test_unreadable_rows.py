"""A row of the metadata store that cannot be read, with a right checksum, or is nowhere to be found because its key is
damaged: the start is refused, with table and key."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from logbroker.broker.broker import open_broker
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, QueueSettings, Worker
from logbroker.config import BrokerConfig
from logbroker.embedded_broker import embedded
from logbroker.errors import CorruptLogError
from logbroker.storage.metadata.metadata_store import MetadataStore
from tests.fast_directory import fast_directory

TABLES = ("broker", "topics", "partitions", "producers", "state")
GARBAGE = (
    b"",
    b"\xc1",
    b"\x93\x01",
    b"\xff" * 40,
    *map(msgspec.msgpack.encode, (None, -1, "x", [], {}, [[]], [2] * 9)),
)

Row = tuple[str, bytes, bytes]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that has rows of most kinds; stopped cleanly."""
    data_dir = tmp_path_factory.mktemp("used") / "data"
    with embedded(data_dir, min_free_disk_bytes=0) as broker:
        address = broker.address
        with Admin(address) as admin, QueueAdmin(address) as queues, Producer(address) as producer:
            admin.create_topic("t", 2)
            for number in range(8):
                producer.send("t", b"%d" % number, b"k%d" % (number % 4))
            producer.flush()
            for group, policy in (("parks", "park"), ("letters", "dead-letter")):
                queues.create_queue(group, "t", QueueSettings(max_attempts=1, on_exhausted=policy))
        for group in ("parks", "letters"):
            with Worker(address, group) as worker:
                for delivery, _ in zip(worker, range(4), strict=False):
                    if delivery.key == b"k2":
                        delivery.nack(reason="no good")
                    else:
                        delivery.ack()
        with Consumer(address, group="readers", start="earliest") as consumer:
            consumer.subscribe("t")
            while not consumer.poll(timeout_seconds=5):
                pass
            consumer.commit()
    return data_dir


def rows_of(data_dir: Path) -> list[Row]:
    store = MetadataStore.open(data_dir / "meta", on_failure=never)
    try:
        return [(table, key, value) for table in TABLES for key, value in store.scan(table)]
    finally:
        store.close()


def kinds(rows: list[Row]) -> Iterator[Row]:
    """One row of each kind."""
    seen = set()
    for table, key, value in rows:
        kind = (table, len(key), key[: key[0] + 2] if table == "state" else key if table == "broker" else b"")
        if kind not in seen:
            seen.add(kind)
            yield table, key, value


@pytest.mark.prove
def test_what_cannot_be_read_is_named(used: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  # Shown where it fails.
    rng = random.Random(seed)
    rows = list(kinds(rows_of(used)))
    assert {table for table, _, _ in rows} == set(TABLES)
    refused = set()
    with fast_directory() as directory:
        for number, (table, key, value) in enumerate(rows):
            if (table, key) == ("broker", b"format"):
                continue
            cut = value[: rng.randrange(len(value) + 1)]
            # The first is readable nowhere but in the rows that are numbers or marks.
            for what in (b"\xc1", rng.choice(GARBAGE), cut):
                data_dir = directory / f"{number}"
                shutil.copytree(used, data_dir)
                store = MetadataStore.open(data_dir / "meta", on_failure=never)
                store.submit([(table, key, what)]).result(30)
                store.close()
                try:
                    asyncio.run(opened(data_dir))
                except CorruptLogError as error:
                    message = str(error)
                    scope = key[1 : 1 + key[0]].decode("ascii", "replace")
                    assert f"table {table}" in message, message
                    assert key.hex() in message or f"scope {scope} " in message, (key, message)
                    assert "meta restore" in message, message
                    refused.add((table, key))
                except BaseException as error:
                    error.add_note(f"table {table}, key {key!r}, value {what!r}")
                    raise
                shutil.rmtree(data_dir)
    assert {table for table, _ in refused} == set(TABLES)
    assert len(refused) > len(rows) / 2


def test_no_flipped_bit_of_a_key_takes_a_row_away(used: Path) -> None:
    """The row would lie where nobody looks for it: a group would be gone, or its committed offset."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  # Shown where it fails.
    rng = random.Random(seed)
    content = (used / "meta" / "data.mdb").read_bytes()
    with fast_directory() as directory:
        data_dir = Path(shutil.copytree(used, directory / "data"))
        for _, key, value in kinds(rows_of(used)):
            assert key + value in content
            # The last bits keep the order of the keys most often, which is checked, too.
            last = 8 * len(key) - 1
            for bit in {last, last - 1, *rng.sample(range(8 * len(key)), 4)}:
                flipped = bytearray(key)
                flipped[bit // 8] ^= 0x80 >> bit % 8
                # The file may also have old copies of the row.
                (data_dir / "meta" / "data.mdb").write_bytes(content.replace(key + value, bytes(flipped) + value))
                with pytest.raises(CorruptLogError, match="meta restore"):
                    asyncio.run(opened(data_dir))


def never(error: Exception) -> None:
    raise AssertionError from error


async def opened(data_dir: Path) -> None:
    async with open_broker(BrokerConfig(data_dir=str(data_dir)), asyncio.get_running_loop().create_future()):
        pass
