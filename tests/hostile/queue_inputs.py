"""Requests of a hostile client to the service Queues: sound ones, of which the mutations are made."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import Message

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.v1 import queues_pb2 as pb
from logbroker.v1.common_pb2 import Record

GROUPS: Final = ("queue-0", "queue-1", "queue-2", "queue-3", "queue-4")
"""These are there from the beginning: ordered by key, not ordered, and by key with sessions; the last two with
priorities."""
VICTIMS: Final = ("queue-8", "queue-9")
"""These are created and deleted."""
WORKERS: Final = 6
KEYS: Final = (b"", *(b"key-%d" % number for number in range(20)))

_RECEIPTS: Final = (0, 1, 1 << 44, (1 << 44) + 1, (1 << 44) + 17, (1 << 44) + 500, 2**63, 2**64 - 1)
_SETTINGS: Final[Mapping[str, Sequence[Any]]] = {
    "ordering": ("none", "key", "single"),
    "key_header": ("", "h"),
    "lease_seconds": (0.1, 1.0, 0.0, 31_536_000.0, float("nan")),
    "max_attempts": (1, 2, 0, 2**31 - 1),
    "backoff_initial_seconds": (0.0, 0.1, 1e300),
    "on_exhausted": ("block", "dead-letter", "park"),
    "dead_letter_topic": ("queue-dead", ""),
    "grace_seconds": (0.0, 0.2, -1.0),
    "max_in_flight": (1, 100, 2**63 - 1),
    "max_ready_records": (1, 1000),
    "on_undecodable": ("stop", "dead-letter"),
    "priority": ("none", "strict", "weighted", "ageing", "high"),
    "priority_rank": ("lane", "head", ""),
    "age_seconds": (0.1, 60.0, 0.0, -1.0, float("nan")),
    "weights": (
        {"hot": 6, "warm": 3, "cold": 1},
        {"hot": 0, "warm": 0, "cold": 0},
        {"hot": 1, "warm": -1, "cold": 1},
        {"hot": 2**31 - 1, "warm": 2**31 - 1, "cold": 2**31 - 1},
        {"nobody": 1},
        {f"band-{number}": 1 for number in range(1000)},
    ),
}
_BANDS: Final = (*("",) * 20, "hot", "cold", "nobody", "x" * 1000)


def _group(rng: random.Random) -> str:
    return rng.choice((*GROUPS, *GROUPS, *VICTIMS, "nowhere"))


def _worker(rng: random.Random) -> str:
    return f"worker-{rng.randrange(WORKERS)}"


def _receipts(rng: random.Random) -> pb.Receipts:
    firsts = [rng.choice(_RECEIPTS) + rng.randrange(50) & 2**64 - 1 for _ in range(rng.choice((0, 1, 2, 10)))]
    # Where a broker's receipts begin nobody knows before: a long range has them all.
    lasts = [min(2**64 - 1, first + rng.choice((0, 0, 9, 1 << 62))) for first in firsts]
    return pb.Receipts(firsts=firsts, lasts=lasts)


def _session(rng: random.Random) -> pb.SessionRef:
    return pb.SessionRef(key=rng.choice(KEYS), token=rng.choice((0, 1, 2, 3, 2**64 - 1)))


def _settle(rng: random.Random) -> pb.Settle:
    settle = pb.Settle(correlation_id=rng.getrandbits(20), acks=_receipts(rng), releases=_receipts(rng))
    for _ in range(rng.choice((0, 0, 1, 3))):
        first = rng.choice(_RECEIPTS)
        nack = settle.nacks.add(first_receipt=first, last_receipt=first, reason="r" * rng.choice((0, 5, 10_000)))
        if rng.random() < 0.5:
            nack.delay_ms = rng.choice((0, 1000, -1, 3_153_600_000_000, 2**63 - 1))
    for _ in range(rng.choice((0, 0, 1))):
        first = rng.choice(_RECEIPTS)
        extension = settle.extensions.add(first_receipt=first, last_receipt=first)
        if rng.random() < 0.5:
            extension.lease_ms = rng.choice((0, 1000, -1, 31_536_000_000))
    for _ in range(rng.choice((0, 0, 0, 1))):
        ref = _session(rng)
        settle.states.add(key=ref.key, token=ref.token, state=bytes(rng.choice((0, 10, 262_144, 262_145))))
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        settle.outputs.append(_output(rng))
    return settle


def _output(rng: random.Random) -> pb.Output:
    output = pb.Output(
        topic=rng.choice(("", "ledger-1", "victim-0", "nowhere", "x" * 300)), generation=rng.choice((0, 1, 9))
    )
    if rng.random() < 0.5:
        output.partition = rng.choice((0, 1, 5, -1, 2**31 - 1))
    if rng.random() < 0.4:
        batch = bytearray(encode_batch([NewRecord(b"v" * rng.choice((0, 10, 2_000_000)), b"k")]))
        if rng.random() < 0.5:
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        output.batch = bytes(batch[: rng.choice((len(batch), len(batch), 10, 0))])
    else:
        for _ in range(rng.choice((0, 1, 1, 20))):
            record = output.records.records.add(key=b"k", value=bytes(rng.choice((0, 10, 1_100_000))))
            if rng.random() < 0.2:
                record.timestamp_ms = rng.choice((0, -1, 2**62, -(2**63)))
            if rng.random() < 0.2:
                record.priority = rng.choice((0, 9, 10, -1))
    return output


def _hello(rng: random.Random) -> pb.Hello:
    hello = pb.Hello(
        group_id=_group(rng), worker_id=_worker(rng), incarnation=rng.choice((1, 1, 2, 3)), band=rng.choice(_BANDS)
    )
    if rng.random() < 0.2:
        hello.client_name = rng.choice(("program@host", "x" * 300))
    held = rng.choice((0, 0, 1, 5))
    hello.held.partitions.extend([rng.choice((0, 1, 2, 3, 4, -1)) for _ in range(held)])
    hello.held.offsets.extend([rng.choice((0, 1, 5, rng.randrange(2000), -1, 2**62)) for _ in range(held)])
    hello.sessions.extend(_session(rng) for _ in range(rng.choice((0, 0, 1))))
    return hello


def hello(rng: random.Random) -> Message:
    """The first message of a stream."""
    return pb.WorkerRequest(hello=_hello(rng))


def _work(rng: random.Random) -> Message:
    kind = rng.random()
    if kind < 0.35:
        return pb.WorkerRequest(credit=pb.Credit(records=rng.choice((1, 5, 100, 1_000_000, 0, -1, 2**31))))
    if kind < 0.7:
        return pb.WorkerRequest(settle=_settle(rng))
    correlation_id = rng.getrandbits(20)
    if kind < 0.8:
        request = pb.OpenSession(correlation_id=correlation_id)
        if rng.random() < 0.7:
            request.key = rng.choice(KEYS)
        if rng.random() < 0.5:
            request.prefetch = rng.choice((0, 1, 10, 1000, 2**31 - 1))
        request.max_wait_ms = rng.choice((0, 10, 60_000, -1))
        return pb.WorkerRequest(open_session=request)
    if kind < 0.88:
        return pb.WorkerRequest(renew_session=pb.RenewSession(correlation_id=correlation_id, session=_session(rng)))
    if kind < 0.94:
        return pb.WorkerRequest(close_session=pb.CloseSession(correlation_id=correlation_id, session=_session(rng)))
    return hello(rng) if kind < 0.96 else pb.WorkerRequest(goodbye=pb.Goodbye())


def _receive(rng: random.Random) -> Message:
    return pb.ReceiveRequest(
        group_id=_group(rng),
        worker_id=rng.choice(("", _worker(rng))),
        max_records=rng.choice((1, 10, 10_000, 0, -1)),
        max_wait_ms=rng.choice((0, 0, 1, 20)),
        plain_records=rng.random() < 0.5,
        band=rng.choice(_BANDS),
    )


def _settle_unary(rng: random.Random) -> Message:
    return pb.SettleRequest(group_id=_group(rng), worker_id=rng.choice(("", _worker(rng))), settle=_settle(rng))


def _some_settings(rng: random.Random) -> pb.QueueSettings:
    names = rng.sample(list(_SETTINGS), rng.choice((0, 1, 2)))
    return pb.QueueSettings(**{name: rng.choice(_SETTINGS[name]) for name in names})


def _start(rng: random.Random) -> pb.StartAt:
    return rng.choice(
        (
            pb.StartAt(),
            pb.StartAt(earliest=True),
            pb.StartAt(latest=True),
            pb.StartAt(timestamp_ms=rng.choice((0, -1, 1_700_000_000_000, 2**62))),
            pb.StartAt(offset=rng.choice((0, 5, -1, 2**62))),
        )
    )


def _create(rng: random.Random) -> Message:
    group_id = rng.choice((*VICTIMS, *VICTIMS, *GROUPS))
    topic = rng.choice(("ledger-0", "ledger-1", "victim-0", "nowhere"))
    return pb.CreateQueueRequest(group_id=group_id, topic=topic, settings=_some_settings(rng), start=_start(rng))


def _alter(rng: random.Random) -> Message:
    return pb.AlterQueueRequest(group_id=rng.choice((*VICTIMS, "nowhere")), settings=_some_settings(rng))


def _describe(rng: random.Random) -> Message:
    return pb.DescribeQueuesRequest(group_ids=[_group(rng) for _ in range(rng.choice((1, 3)))])


def _delete(rng: random.Random) -> Message:
    return pb.DeleteQueuesRequest(group_ids=[rng.choice((*VICTIMS, "nowhere")) for _ in range(rng.choice((1, 2)))])


def _list_lanes(rng: random.Random) -> Message:
    order = rng.choice(pb.LaneOrder.keys())
    return pb.ListLanesRequest(group_id=_group(rng), order=order, top=rng.choice((1, 20, 10_000, 0)))


def _explain(rng: random.Random) -> Message:
    keys = [rng.choice((*KEYS, b"k" * 100_000)) for _ in range(rng.choice((1, 5)))]
    return pb.ExplainLanesRequest(group_id=_group(rng), keys=keys)


def _decide(rng: random.Random) -> Message:
    request = pb.DecideLanesRequest(group_id=_group(rng))
    for _ in range(rng.choice((1, 1, 3))):
        decision = request.decisions.add()
        if rng.random() < 0.8:
            decision.key = rng.choice(KEYS)
        else:
            decision.place.partition, decision.place.offset = rng.choice((0, 1, -1)), rng.choice((0, 7, 2**62))
        kind = rng.random()
        if kind < 0.3:
            decision.resume = True
        elif kind < 0.6:
            decision.skip_head = True
        elif kind < 0.7:
            decision.drop = True
        else:
            record = Record(value=bytes(rng.choice((0, 10, 2_000_000))))
            if rng.random() < 0.5:
                record.key = rng.choice(KEYS)
            decision.replace_head.CopyFrom(record)
    return request


def _redrive(rng: random.Random) -> Message:
    request = pb.RedriveRequest(group_id=_group(rng), dry_run=rng.random() < 0.5)
    if rng.random() < 0.5:
        request.key = rng.choice(KEYS)
    if rng.random() < 0.5:
        request.max_records = rng.choice((1, 100, 0, -1, 2**31 - 1))
    return request


def _rewind(rng: random.Random) -> Message:
    return pb.RewindRequest(
        group_id=_group(rng),
        to=_start(rng),
        partitions=rng.choice(((), (0,), (0, 1), (-1,), (0, 0), (9,))),
        include_parked=rng.random() < 0.5,
        drop_standing=rng.random() < 0.3,
        dry_run=rng.random() < 0.3,
    )


MAKERS: Final[Mapping[str, Callable[[random.Random], Message]]] = {
    "Work": _work,
    "Receive": _receive,
    "Settle": _settle_unary,
    "CreateQueue": _create,
    "AlterQueue": _alter,
    "DescribeQueues": _describe,
    "DeleteQueues": _delete,
    "ListLanes": _list_lanes,
    "ExplainLanes": _explain,
    "DecideLanes": _decide,
    "Redrive": _redrive,
    "Rewind": _rewind,
}


def set_up() -> list[pb.CreateQueueRequest]:
    """Return the groups that exist at first. Undecodable batches go aside: else all groups would soon stand still."""
    settings = {
        "queue-0": pb.QueueSettings(max_attempts=2, backoff_cap_seconds=1, on_exhausted="dead-letter"),
        "queue-1": pb.QueueSettings(ordering="none", lease_seconds=1),
        "queue-2": pb.QueueSettings(grace_seconds=0.1, on_exhausted="park", max_attempts=1),
        "queue-3": pb.QueueSettings(priority="strict", lease_seconds=1),
        "queue-4": pb.QueueSettings(priority="weighted", ordering="none", lease_seconds=1),
    }
    topics = {group_id: f"ledger-{number % 2}" for number, group_id in enumerate(settings)}
    for each in settings.values():
        each.on_undecodable = "dead-letter"
    return [
        pb.CreateQueueRequest(group_id=group_id, topic=topics[group_id], settings=settings[group_id])
        for group_id in GROUPS
    ]
