"""The metadata store is lost or damaged: the broker refuses to begin anew, and a backup brings everything back."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from logbroker.client.sync import Producer
from logbroker.errors import DataDirError
from logbroker.record.codec import LogRecord
from logbroker.record.dead_letter import Origin, dead_letter
from logbroker.storage.files import RealFiles
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.v1 import admin_pb2 as pb
from logbroker.v1 import log_pb2
from tests.broker.conftest import OpenEngine
from tests.cli.command import failure_of, output_of
from tests.faults.serving import TIMEOUT_SECONDS, Served, in_directory
from tests.grpc_api.api import batch_of
from tests.waiting import until


def delete(broker: Served, name: str) -> str:
    [result] = broker.api.admin.DeleteTopics(pb.DeleteTopicsRequest(topics=[pb.TopicRef(name=name)])).results
    return str(result.status.reason)


def alter(broker: Served, name: str, **fields: object) -> None:
    alteration = pb.TopicAlteration(topic=pb.TopicRef(name=name), **fields)  # type: ignore[arg-type]
    [result] = broker.api.admin.AlterTopics(pb.AlterTopicsRequest(topics=[alteration])).results
    assert not result.status.code, result


def new_producer(broker: Served) -> int:
    return int(broker.api.log.InitProducerId(log_pb2.InitProducerIdRequest()).producer_id)


def start_offset(broker: Served, name: str, partition: int = 0) -> int:
    item = log_pb2.ListOffsetsItem(topic=name, partition=partition, spec=log_pb2.OFFSET_SPEC_EARLIEST)
    [result] = broker.api.log.ListOffsets(log_pb2.ListOffsetsRequest(items=[item])).results
    assert not result.status.code, result
    return int(result.offset)


def offsets_and_values(broker: Served, name: str, partition: int = 0) -> list[bytes | None]:
    start = start_offset(broker, name, partition)
    return [b"%d" % start, *broker.api.values(name, partition, start)]


@pytest.mark.prove
def test_a_backup_of_a_running_broker_brings_all_back_that_has_happened_since(tmp_path: Path) -> None:
    data_dir = in_directory(tmp_path)
    backup = tmp_path / "one.backup"
    settings: dict[str, Any] = {"checkpoint_seconds": 0.05, "retention_check_seconds": 0.05}
    with Served(data_dir, **settings) as broker:
        api = broker.api
        for name in ("kept", "shortened", "deleted", "made-anew"):
            api.create(name, 2, segment_bytes="300", retention_ms="-1")
            api.produce_values(name, [b"before the backup"])
        before = new_producer(broker)
        told = json.loads(output_of("meta", "backup", "--data-dir", data_dir, backup, "--json"))
        assert told["values"]["topics"] == 4
        assert told["values"]["partitions"] == 8
        # Everything that may happen after a backup.
        since = new_producer(broker)
        batch = batch_of(b"exactly once", producer_id=since, producer_epoch=0, base_sequence=0)
        assert not api.produce("kept", batch).status.code
        for name in ("kept", "shortened"):
            for number in range(8):
                api.produce_values(name, [b"%d" % number + bytes(100)])
        alter(broker, "shortened", set_configs={"retention.bytes": "300"})
        until(lambda: start_offset(broker, "shortened") > 2, TIMEOUT_SECONDS)
        alter(broker, "kept", partitions=4)
        api.produce_values("kept", [b"grown"], 3)
        api.create("newer", 2, segment_bytes="300", retention_ms="-1")
        for number in range(6):
            api.produce_values("newer", [b"%d" % number + bytes(100)], 1)
        for name in ("deleted", "made-anew"):
            assert not delete(broker, name)
        api.create("made-anew", 3, retention_ms="-1")
        api.produce_values("made-anew", [b"another topic"], 2)
        places = [("kept", 0), ("kept", 3), ("shortened", 0), ("newer", 0), ("newer", 1), ("made-anew", 2)]
        contents = {place: offsets_and_values(broker, *place) for place in places}
        assert "process " in failure_of("meta", "restore", "--data-dir", data_dir, backup, "--yes")
        broker.process.kill()
        broker.process.wait()
    store = data_dir / "meta" / "data.mdb"
    store.write_bytes(b"\xff" * 8192 + store.read_bytes()[8192:])
    damaged = store.read_bytes()
    broken = Served(data_dir)
    assert broken.exit_code() == 1
    assert "logbroker meta restore" in broken.error_lines()[0]
    broken.end()
    shown = output_of("meta", "restore", "--data-dir", data_dir, backup, "--dry-run").decode()
    assert store.read_bytes() == damaged
    for note in (
        "kept: has grown to 4 partitions",
        "shortened-0: begins at offset",
        "deleted: the files of 2 of 2 partitions are missing (deleted-0, deleted-1); 1 will be offline",
        "made-anew: was deleted since the backup, and made anew",
        "made-anew: is not in the backup (newer, or deleted before it); it has 3 partitions",
        "newer: is not in the backup (newer, or deleted before it); it has 2 partitions",
    ):
        assert note in shown, shown
    done = json.loads(output_of("meta", "restore", "--data-dir", data_dir, backup, "--yes", "--json"))
    assert len(done["notes"]) == 6
    assert Path(done["replaced"]).read_bytes() == damaged
    assert sorted(path.name for path in (data_dir / "meta").iterdir()) == ["data.mdb", Path(done["replaced"]).name]
    with Served(data_dir, **settings) as broker:
        assert {place: offsets_and_values(broker, *place) for place in places} == contents
        # A retry is known, and nobody else gets the id.
        result = broker.api.produce("kept", batch)
        assert (result.status.code, result.base_offset) == (0, 1)
        assert before < since < new_producer(broker)
        # What was deleted is told to be missing, and goes for good.
        assert broker.api.fetch("deleted", 0).status.reason == "PARTITION_OFFLINE"
        assert not delete(broker, "deleted")
        for topic, partition in places:
            broker.api.produce_values(topic, [b"after"], partition)
            contents[topic, partition].append(b"after")
    with Served(data_dir) as broker:
        assert {place: offsets_and_values(broker, *place) for place in places} == contents
    assert b"checked " in output_of("segment", "verify", data_dir)


@pytest.mark.prove
def test_the_last_lines_of_a_restore_are_the_commands_that_end_the_retention_for_ever(tmp_path: Path) -> None:
    """Topics that had only the broker's defaults have them again. Dead letters are kept for ever, as before, whatever
    the name of their topic."""
    data_dir, empty = in_directory(tmp_path), in_directory(tmp_path / "empty")
    backup = tmp_path / "empty.backup"
    origin = Origin(
        topic="orders",
        partition=0,
        offset=0,
        group="billing",
        attempts=1,
        first_failure_ms=0,
        last_failure_ms=0,
        reasons=[],
    )
    letter = dead_letter(LogRecord(0, 0, None, b"a", ()), origin)
    letters = {"billing.dead-letters": (), "letters": letter.headers}
    with Served(empty):
        output_of("meta", "backup", "--data-dir", empty, backup)
    with Served(data_dir) as broker, Producer(broker.address) as producer:
        for name in ("orders", "-x", *letters):
            broker.api.create(name, 1)
            producer.send_and_wait(name, b"a", headers=letters.get(name, ()))
    command = ("meta", "restore", "--data-dir", data_dir, backup)
    document = json.loads(output_of(*command, "--dry-run", "--json"))
    assert document["keep_all"] == ["-x", "orders"]
    last_words = output_of(*command, "--dry-run").decode().splitlines()[-3:]
    assert last_words[0].startswith("after the start, 2 topics keep all records, so the disk fills up, until you set")
    assert output_of(*command, "--yes").decode().splitlines()[-3:] == last_words
    with Served(data_dir) as broker:
        at = ("--broker", broker.address)
        assert _own_configs(broker, "orders") == {"retention.ms": "-1", "retention.bytes": "-1"}
        for line in last_words[1:]:
            words = shlex.split(line)[1:]
            output_of(*words[:2], *at, *words[2:])
        assert _own_configs(broker, "orders") == _own_configs(broker, "-x") == {}
        for name in letters:
            assert _own_configs(broker, name) == {"retention.ms": "-1", "retention.bytes": "-1"}


def _own_configs(broker: Served, name: str) -> dict[str, str]:
    """Return the configs that a topic does not have from the broker's defaults."""
    configs = json.loads(output_of("topic", "describe", "--json", "--broker", broker.address, "--", name))["configs"]
    return {config: entry["value"] for config, entry in configs.items() if not entry["is_default"]}


COPIES = ("t-1.bak-3", "t-1-20261127", "t-20261127", "t.bak-1", "t-4", "copy of t-1")


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_a_partition_is_not_taken_for_a_topic(tmp_path: Path, name: str) -> None:
    """Neither for a new topic, nor for a partition by which the topic has grown."""
    data_dir, backup = in_directory(tmp_path), tmp_path / "one.backup"
    with Served(data_dir) as broker:
        broker.api.create("t", 2)
        broker.api.produce_values("t", [b"a"], 1)
        output_of("meta", "backup", "--data-dir", data_dir, backup)
    shutil.copytree(data_dir / "t-1", data_dir / name)
    said = output_of("meta", "restore", "--data-dir", data_dir, backup, "--yes").decode()
    assert f"{name}: " in said
    assert "; its files stay, but are not served" in said
    with Served(data_dir) as broker:
        assert [topic.name for topic in broker.api.admin.ListTopics(pb.ListTopicsRequest()).topics] == ["t"]
        assert broker.api.values("t", 1) == [b"a"]
        assert broker.api.fetch("t", 2).status.reason == "UNKNOWN_PARTITION"


def test_a_copy_of_a_topic_that_the_backup_does_not_know_is_not_chosen_by_chance(tmp_path: Path) -> None:
    data_dir, backup = in_directory(tmp_path), tmp_path / "one.backup"
    with Served(data_dir) as broker:
        broker.api.create("made-anew", 1)
        output_of("meta", "backup", "--data-dir", data_dir, backup)
        assert not delete(broker, "made-anew")
        for name in ("made-anew", "newer"):
            broker.api.create(name, 1)
    for name in ("made-anew", "newer"):
        copy = data_dir / f"{name}.bak-0"
        shutil.copytree(data_dir / f"{name}-0", copy)
        said = failure_of("meta", "restore", "--data-dir", data_dir, backup, "--yes")
        assert re.search(rf"{name}(.bak)?-0 and {name}(.bak)?-0 hold the same topic", said), said
        assert "move the copy out of the data directory" in said
        shutil.rmtree(copy)
    output_of("meta", "restore", "--data-dir", data_dir, backup, "--yes")
    with Served(data_dir) as broker:
        found = [topic.name for topic in broker.api.admin.ListTopics(pb.ListTopicsRequest()).topics]
        assert sorted(found) == ["made-anew", "newer"]


def test_a_topic_is_found_again_if_a_power_cut_has_taken_files_that_were_not_synced(tmp_path: Path) -> None:
    """The metadata of a partition is synced with its first record."""
    data_dir, backup = in_directory(tmp_path), tmp_path / "one.backup"
    with Served(data_dir) as broker:
        broker.api.create("t", 1)
        output_of("meta", "backup", "--data-dir", data_dir, backup)
        broker.api.create("newer", 4)
        alter(broker, "t", partitions=4)
        for name in ("newer", "t"):
            broker.api.produce_values(name, [b"a", b"b"], 2)
    for name in ("newer", "t"):
        metadata = data_dir / f"{name}-1" / "partition.metadata"
        metadata.write_bytes(bytes(metadata.stat().st_size))
        (data_dir / f"{name}-3" / "partition.metadata").write_bytes(b"")
    shutil.rmtree(data_dir / "newer-0")
    said = output_of("meta", "restore", "--data-dir", data_dir, backup, "--yes").decode()
    assert "newer: partition.metadata of 2 of 4 partitions is missing or damaged (newer-1, newer-3)" in said
    assert "t: partition.metadata of 2 of 4 partitions is missing or damaged (t-1, t-3)" in said
    assert "newer: the files of 1 of 4 partitions are missing (newer-0); these will be empty" in said
    with Served(data_dir) as broker:
        for name in ("newer", "t"):
            assert [broker.api.values(name, number) for number in range(4)] == [[], [], [b"a", b"b"], []]
            assert broker.api.fetch(name, 4).status.reason == "UNKNOWN_PARTITION"


def test_partitions_that_have_changed_places_are_named(tmp_path: Path) -> None:
    data_dir, backup = in_directory(tmp_path), tmp_path / "one.backup"
    with Served(data_dir) as broker:
        broker.api.create("t", 2)
        output_of("meta", "backup", "--data-dir", data_dir, backup)
    (data_dir / "t-0").rename(data_dir / "away")
    (data_dir / "t-1").rename(data_dir / "t-0")
    (data_dir / "away").rename(data_dir / "t-1")
    said = output_of("meta", "restore", "--data-dir", data_dir, backup, "--yes").decode()
    for number in range(2):
        assert f"t-{number}: will be offline: its files are of partition {1 - number}" in said
    with Served(data_dir) as broker:
        assert broker.api.fetch("t", 0).status.reason == "PARTITION_OFFLINE"


async def test_partitions_without_a_store_are_a_refusal(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        await opened.engine.create_topic("t", 1, {})
    store = tmp_path / "data" / "meta" / "data.mdb"
    for damage in (store.unlink, lambda: store.write_bytes(b"")):
        damage()
        with pytest.raises(DataDirError, match=r"missing, but there are partitions \(t-0\); restore a backup"):
            async with open_at():
                pass


async def test_directories_of_no_topic_are_told_and_stay(
    open_at: OpenEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        await opened.append(topic.id, b"a")
    stray = tmp_path / "data" / "stray-0"
    os.rename(tmp_path / "data" / "t-0", stray)
    (tmp_path / "data" / "lost+found").mkdir()
    async with open_at():
        pass
    assert [each.message for each in caplog.records if "belong to no topic: stray-0" in each.message]
    assert len(list(stray.glob("*.log"))) == 1


def test_the_names_that_lead_to_a_new_store_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(RealFiles, "sync_directory", lambda _self, path: synced.append(path))
    for _ in range(2):
        MetadataStore.open(tmp_path / "meta", on_failure=print).close()
        assert synced == [str(tmp_path / "meta"), str(tmp_path)]
