"""Records that a queue group keeps from retention, as users meet it: over a whole broker, with retention at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logbroker.embedded_broker import embedded
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.v1 import admin_pb2, log_pb2
from logbroker.v1 import queues_pb2 as pb
from logbroker.v1.common_pb2 import Record
from tests.grpc_api.api import Api
from tests.grpc_api.queue_workers import QueueGroup, Worker
from tests.grpc_api.test_admin import alter, create, describe
from tests.waiting import until

FREE_KEYS = 9


def write(api: Api, topic: str, number: int) -> None:
    records = [NewRecord(key=b"blocked", value=b"%0200d" % number)]
    records += [NewRecord(key=b"k%d" % key, value=b"%0200d" % number) for key in range(FREE_KEYS)]
    assert not api.produce(topic, encode_batch(records)).status.code


def delete(api: Api, topic: str) -> str:
    request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicRef(name=topic)])
    return str(api.admin.DeleteTopics(request).results[0].status.reason)


def fail_one(worker: Worker) -> None:
    [delivery] = worker.take()
    nack = pb.Nack(first_receipt=delivery.receipt, last_receipt=delivery.receipt, reason="broken")
    assert worker.settle(nacks=[nack]) == {}


@pytest.mark.prove
def test_a_blocked_lane_outlives_retention_and_a_restart(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"retention_check_seconds": 0.05, "checkpoint_seconds": 0.05, "data_dir": str(tmp_path)}
    configs = {"segment_bytes": "4000", "retention_bytes": "4000", "retention_hold_bytes": "8000"}
    with embedded(**settings) as broker:
        api = Api(broker.address)
        group = QueueGroup(api, create=False)
        assert alter(api, group.topic, set_configs={key.replace("_", "."): text for key, text in configs.items()}) == ""
        group.create(max_attempts=1)
        write(api, group.topic, 0)
        worker = group.worker()
        fail_one(worker)
        assert [lane.state for lane in group.explain(b"blocked")] == ["blocked"]
        worker.ack(worker.take(FREE_KEYS))
        for number in range(1, 30):
            write(api, group.topic, number)
            worker.ack(worker.take(FREE_KEYS))
        [partition] = describe(api, group.topic).partitions
        until(lambda: describe(api, group.topic).partitions[0].size_bytes < 4000 + 8000 + 2 * 4000)
        assert partition.high_watermark == 30 * (FREE_KEYS + 1)

        counts = group.describe().counts
        assert counts.copied_bytes > 0
        assert counts.expired == 0

        internal = f"__queue.{group.id}"
        assert describe(api, internal).partitions[0].high_watermark > 10
        assert api.values(internal)[0] == b"%0200d" % 0
        plain = log_pb2.ProduceItem(topic=internal, records=log_pb2.PlainRecords(records=[Record(value=b"x")]))
        refusals = [
            create(api, "__queue.mine"),
            alter(api, internal, set_configs={"retention.hold.bytes": "0"}),
            delete(api, internal),
            api.produce(internal, encode_batch([NewRecord(value=b"x")])).status.reason,
            api.log.Produce(log_pb2.ProduceRequest(items=[plain])).results[0].status.reason,
        ]
        assert refusals == ["INVALID_REQUEST"] * 5
        worker.break_()
    with embedded(**settings) as broker:
        api = Api(broker.address)
        group.connect(api)
        until(lambda: [lane.waiting for lane in group.explain(b"blocked")] == [30])
        group.decide(pb.LaneDecision(key=b"blocked", resume=True))
        worker = group.worker()
        values = []
        for _ in range(30):
            [delivery] = worker.take()
            values.append(int(delivery.value or b""))
            worker.ack([delivery])
        assert values == list(range(30))
        worker.goodbye()
        group.calls.DeleteQueues(pb.DeleteQueuesRequest(group_ids=[group.id]))
        until(lambda: describe(api, internal).status.reason == "UNKNOWN_TOPIC")
