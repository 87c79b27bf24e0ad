"""A topic that is newer than the restored backup, and damage in what it had synced: nothing is cut off before the
operator says so."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from logbroker.client.sync import Admin
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.storage.partition_checkpoint import PartitionCheckpoint
from tests.cli.command import output_of
from tests.faults.serving import TOPIC, Served, in_directory

RECORDS = 24


def _flip(logs: list[Path]) -> Path:
    content = bytearray(logs[1].read_bytes())
    content[200] ^= 4
    logs[1].write_bytes(content)
    return logs[1]


def _remove(logs: list[Path]) -> Path:
    logs[1].unlink()
    return logs[0]


@pytest.mark.prove
@pytest.mark.parametrize("damage", [_flip, _remove])
def test_synced_records_of_an_adopted_topic_are_not_cut_off_in_silence(
    tmp_path: Path, damage: Callable[[list[Path]], Path]
) -> None:
    data_dir, backup = in_directory(tmp_path), tmp_path / "one.backup"
    with Served(data_dir) as served:
        output_of("meta", "backup", "--data-dir", data_dir, backup)
        served.create_topic(segment_bytes="1500")
        values = [served.produce(b"%03d" % number + bytes(300)) for number in range(RECORDS)]
        served.process.kill()
        served.process.wait()
    output_of("meta", "restore", "--data-dir", data_dir, backup, "--yes")
    to_repair = damage(sorted((data_dir / f"{TOPIC}-0").glob("*.log")))
    kept = {path: path.read_bytes() for path in (data_dir / f"{TOPIC}-0").glob("*.log*")}
    for _ in range(2):
        with Served(data_dir) as served:
            status = served.api.fetch(TOPIC, 0).status
            assert status.reason == "PARTITION_OFFLINE"
            assert f"logbroker segment repair {data_dir / TOPIC}-0`" in status.message
    assert {path: path.read_bytes() for path in (data_dir / f"{TOPIC}-0").glob("*.log*")} == kept
    shown = output_of("segment", "repair", to_repair, "--dry-run").decode()
    assert "the log ends at byte" in shown
    output_of("segment", "repair", to_repair, "--yes")
    with Served(data_dir) as served:
        left = served.values()
        assert left == values[: len(left)]
        assert 0 < len(left) < RECORDS
        served.produce(b"after")
    assert b"cut off the log" in output_of("segment", "verify", data_dir)


@pytest.mark.prove
def test_what_a_start_has_refused_is_not_cut_off_after_a_reboot(tmp_path: Path) -> None:
    """Damage that no torn write explains is no power cut's doing either, though one comes before it is mended."""
    data_dir = in_directory(tmp_path)
    with Served(data_dir, checkpoint_seconds=3600) as served:
        served.create_topic()
        values = [served.produce(b"%03d" % number + bytes(300)) for number in range(RECORDS)]
        served.process.kill()
        served.process.wait()
    (log,) = (data_dir / f"{TOPIC}-0").glob("*.log")
    sound = log.read_bytes()
    log.write_bytes(sound[:1000] + b"!" + sound[1001:])
    damaged = log.read_bytes()
    for _ in range(2):
        with Served(data_dir) as served:
            assert served.api.fetch(TOPIC, 0).status.reason == "PARTITION_OFFLINE"
            served.process.kill()
            served.process.wait()
        _reboot(data_dir)
    assert log.read_bytes() == damaged
    log.write_bytes(sound)
    with Served(data_dir) as served:
        assert served.values() == values


def _reboot(data_dir: Path) -> None:
    """Let all recovery points be of an earlier boot of the machine."""
    store = MetadataStore.open(data_dir / "meta", on_failure=lambda _failure: None)
    for key, value in store.scan("partitions"):
        checkpoint = msgspec.msgpack.decode(value, type=PartitionCheckpoint)
        checkpoint.boot_id = "an earlier boot"
        store.submit([("partitions", key, msgspec.msgpack.encode(checkpoint))]).result(20)
    store.close()


def test_what_a_start_cut_off_is_told(tmp_path: Path) -> None:
    data_dir = in_directory(tmp_path)
    with Served(data_dir) as served:
        served.create_topic()
        served.produce(b"kept")
        served.process.kill()
        served.process.wait()
    (log,) = (data_dir / f"{TOPIC}-0").glob("*.log")
    end = log.stat().st_size
    with log.open("ab") as file:
        file.write(os.urandom(500))
    with Served(data_dir) as served:
        with Admin(served.address) as admin:
            (partition,) = admin.describe_topic(TOPIC).partitions
            assert (partition.cut_bytes, partition.cut_offset) == (500, 1)
        shown = output_of("topic", "describe", TOPIC, "--broker", served.address).decode()
        assert re.search(r"partition 0 was cut at offset 1 .* 500 bytes", " ".join(shown.split()))
        assert log.stat().st_size == end
    with Served(data_dir) as served, Admin(served.address) as admin:
        assert admin.describe_topic(TOPIC).partitions[0].cut_bytes == 0
