"""Groups after their broker was killed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from logbroker.consumer_groups.offsets import OffsetTable, TopicCommit
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.types import TopicId, new_topic_id
from tests.groups.conftest import Group
from tests.groups.group_plants import RESTART_PLANTS


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with embedded(reconnect_grace_seconds=10.0) as broker:
        yield broker


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("cleanly", [False, True])
def test_members_come_back_and_nothing_moves(broker: EmbeddedBroker, cleanly: bool) -> None:
    group = Group(broker)
    members = [group.member(f"member-{number}") for number in range(3)]
    group.settle(members)
    owners = group.owners()
    assert sorted(owners) == [0, 1, 2, 3]
    for member in members:
        assert member.commit(group.topic, dict.fromkeys(member.held[group.topic], 6)) == {}
    if cleanly:
        broker.stop()
    else:
        broker.kill()
    broker.start()
    group.connect()
    assert not any(member.connected for member in group.groups.describe(group.id).members)
    back = [group.back(member) for member in members]
    assert group.owners() == owners
    for member in back:
        assert member.commit(group.topic, dict.fromkeys(member.held[group.topic], 7)) == {}
        assert member.commit(group.topic, dict.fromkeys(member.held[group.topic], 6)) == dict.fromkeys(
            member.held[group.topic], "OFFSET_GOES_BACK"
        )
        member.heartbeat()  # Its answer comes, an assignment does not.
    group.close()


@pytest.mark.prove
def test_who_does_not_come_back_loses_its_partitions_after_the_grace() -> None:
    with embedded(reconnect_grace_seconds=2.5) as broker:
        group = Group(broker)
        lost = group.member("lost")
        lost.assigned()
        broker.kill()
        broker.start()
        group.connect()
        started_at = time.monotonic()
        heir = group.member("heir")
        assert heir.assigned() == {}
        heir.holds({group.topic: [0, 1, 2, 3]})
        assert time.monotonic() - started_at > 0.5
        group.close()


def test_offsets_never_run_ahead_of_a_log_that_was_cut(broker: EmbeddedBroker) -> None:
    group = Group(broker)
    group.groups.commit(group.id, group.topic, {0: 10, 1: 4})
    broker.kill()
    plant_offset(broker, group.id, group.topic_id, 0, 10_000)
    plant_offset(broker, group.id, new_topic_id(), 0, 1)
    broker.start()
    group.connect()
    assert group.groups.offsets(group.id) == {(group.topic, 0): 10, (group.topic, 1): 4}
    broker.kill()
    assert stored_offsets(broker, group.id) == [4, 10], "the rows are clamped too"
    group.close()


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("plant", RESTART_PLANTS)
def test_a_planted_bug_is_caught(plant: str, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def with_plant(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
        at = command.index("logbroker")
        return start([*command[:at], "tests.groups.group_plants", plant, *command[at + 1 :]], **settings)

    monkeypatch.setattr(subprocess, "Popen", with_plant)
    with pytest.raises(AssertionError):
        test_offsets_never_run_ahead_of_a_log_that_was_cut(broker)


def plant_offset(broker: EmbeddedBroker, group_id: str, topic_id: TopicId, partition: int, offset: int) -> None:
    """Leave a committed offset as a cut log would: behind the end."""
    table = OffsetTable()
    table.stage(TopicCommit(topic_id, [partition], [offset], [3], []), None, lambda *_: offset, 0)
    [event] = table.take_staged().events()
    store = open_store(broker)
    store.submit([("state", _scope(group_id) + event.key, event.value)]).result()
    store.close()


def stored_offsets(broker: EmbeddedBroker, group_id: str) -> list[int]:
    store = open_store(broker)
    prefix = _scope(group_id)
    rows = {key[len(prefix) :]: value for key, value in store.scan("state", prefix)}
    store.close()
    return sorted(committed.offset for _, committed in OffsetTable(rows))


def open_store(broker: EmbeddedBroker) -> MetadataStore:
    def fail(error: Exception) -> None:
        raise error

    return MetadataStore.open(broker.data_dir / "meta", on_failure=fail)


def _scope(group_id: str) -> bytes:
    scope = f"group:{group_id}".encode()
    return bytes([len(scope)]) + scope


@pytest.mark.prove
def test_an_empty_group_keeps_its_offsets_for_the_retention_and_then_goes() -> None:
    with embedded(offsets_retention_seconds=1.5, reconnect_grace_seconds=0) as broker:
        group = Group(broker)
        member = group.member("one")
        member.assigned()
        assert member.commit(group.topic, {0: 5}) == {}
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            member.heartbeat(polled=True)
        member.leave()
        assert group.groups.offsets(group.id) == {(group.topic, 0): 5}, "it was not empty until now"
        deadline = time.monotonic() + 20
        while group.groups.list().groups:
            assert time.monotonic() < deadline
        broker.restart()
        group.connect()
        assert group.groups.list().groups == []
        group.close()
