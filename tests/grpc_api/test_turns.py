"""No request holds the event loop for long, whatever lists it brings, nor does its answer grow past what clients take.

Every method of every service is called with its nastiest lists; a new method needs some here. What each round of the
loop did is counted in lines of Python: see `turns`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from logbroker.config import MIB
from logbroker.consumer_groups.membership import AssignedOffsets, MemberLink
from logbroker.consumer_groups.messages import Join
from logbroker.consumer_groups.offsets import TopicCommit
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import Append, Appended
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import OnExhausted, Ordering, QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.v1 import admin_pb2, groups_pb2, log_pb2, queues_pb2
from logbroker.v1.common_pb2 import Header, Record
from tests.grpc_api.turns import Caller, CountingLoop, Served, all_methods, counting, served
from tests.homes import home_of

MAX_LINES: Final = 60_000
"""Limit of one round of the loop: some 10 ms."""
MAX_SCAN_LINES: Final = 140_000
"""Limit of one step of a scan, in which it admits 4,096 records by priority: some 20 ms."""
MAX_ANSWER_BYTES: Final = 4 * MIB
MANY: Final = 3_000
FEW: Final = 300
"""Number of items in requests that yield at each item by themselves, as it waits for something."""
PARTITIONS: Final = 500
LANES: Final = 10_000
GROUPS: Final = 1_500
LONG: Final = "l" * 249
NOWHERE: Final = "n" * 249


class Scene:
    """A broker that keeps much, and what is asked of it."""

    def __init__(self, loop: CountingLoop, broker: Served) -> None:
        self.loop = loop
        self.served = broker
        self._numbers = iter(range(1_000_000))

    async def build(self) -> None:
        engine, groups = self.served.broker.engine, home_of(self.served.broker).groups
        wide = await engine.create_topic("wide", PARTITIONS, {})
        long = await engine.create_topic(LONG, 1, {})
        await engine.create_topic("keyed", 1, {})
        await engine.create_topic("one-key", 1, {})
        await self.append(LONG, [b"%d" % number for number in range(10)])
        await self.append("keyed", [b"%d" % number for number in range(LANES)])
        await self.append("one-key", [b"key"] * LANES)
        numbers = list(range(PARTITIONS))
        await groups.commit_offsets("committed", [TopicCommit(wide.id, numbers, [0] * PARTITIONS, [], [])])
        await asyncio.gather(
            *(groups.commit_offsets(f"group-{n}", [TopicCommit(long.id, [0], [1], [], [])]) for n in range(GROUPS))
        )
        await self._join("members", "wide")
        for name in ("wide", "keyed", "one-key"):
            await self.queue(f"queue-{name}", name)
        await self._block(home_of(self.served.broker).queues.group("queue-one-key"))

    async def append(self, topic: str, keys: Sequence[bytes]) -> None:
        engine = self.served.broker.engine
        batch = encode_batch([NewRecord(value=b"v", key=key, timestamp_ms=1_700_000_000_000) for key in keys])
        [result] = await engine.append([Append(engine.topic(topic).id, 0, batch)])
        assert isinstance(result, Appended), result

    async def queue(self, group_id: str, topic: str, **settings: Any) -> QueueGroup:
        engine, queues = self.served.broker.engine, home_of(self.served.broker).queues
        settings = {
            "ordering": Ordering.KEY,
            "max_attempts": 1,
            "on_exhausted": OnExhausted.BLOCK,
            "max_in_flight": 100_000,
            "lease_seconds": 3600.0,
            **settings,
        }
        group, _ = await queues.create(group_id, engine.topic(topic), QueueGroupSettings(**settings), StartAt())
        assert await group.scanner.catch_up(60)  # Else it looks in its turn, when others have rested.
        return group

    def new_name(self) -> str:
        return f"new-{next(self._numbers)}"

    async def wide_topic(self) -> str:
        """Make a topic of many partitions."""
        name = self.new_name()
        await self.served.broker.engine.create_topic(name, PARTITIONS, {})
        return name

    async def _join(self, group_id: str, topic: str) -> None:
        taken = asyncio.Event()
        links: list[MemberLink] = []

        class Channel:
            def send(self, message: Any) -> None:
                if isinstance(message, AssignedOffsets):
                    links[0].taken(message.epoch)
                    taken.set()

        join = Join(
            member_id="member", incarnation=1, subscription=Subscription((topic,)), session_timeout_ms=3_600_000
        )
        links.append(await home_of(self.served.broker).groups.join(group_id, join, Channel()))
        await asyncio.wait_for(taken.wait(), 60)

    async def _block(self, group: QueueGroup) -> None:
        [delivered] = await group.receive("w", 1, 10.0)
        first = delivered.first_receipt
        assert not await group.settle("w", Settlement(nacks=[Nack(first, first, "no")]))


# --- what is asked ---------------------------------------------------------------------------------------------------

Case = Callable[[Scene], AsyncIterator[Any]]
"""Yields requests or, for a stream, lists of what it sends: messages, and functions that are awaited in between."""


def _plain(key: bytes | None, count: int, **fields: Any) -> log_pb2.PlainRecords:
    return log_pb2.PlainRecords(records=[Record(key=key, value=b"v", **fields) for _ in range(count)])


async def _produce(_: Scene) -> AsyncIterator[Any]:
    batch = encode_batch([NewRecord(value=b"v")])
    item = log_pb2.ProduceItem
    yield log_pb2.ProduceRequest(items=[item(topic="wide", partition=n % PARTITIONS, batch=batch) for n in range(FEW)])
    yield log_pb2.ProduceRequest(items=[item(topic=NOWHERE, partition=0, batch=batch)] * MANY)
    yield log_pb2.ProduceRequest(items=[item(topic=LONG, partition=7, records=_plain(b"k", 1))] * (MANY // 2))
    yield log_pb2.ProduceRequest(items=[item(topic=LONG, records=_plain(b"k", MANY, headers=[Header(key="h")]))])
    # Refused record by record: a record too large for the topic is in each of its batches.
    large = log_pb2.PlainRecords(records=[Record(key=b"k", value=b"v")] * MANY)
    large.records.add(key=b"k", value=bytes(2 * MIB))
    yield log_pb2.ProduceRequest(items=[item(topic=LONG, records=large)])
    yield _unknown_fields(log_pb2.ProduceRequest(items=[item(topic=LONG)]))


def _unknown_fields(message: Any, count: int = 5_000) -> Any:
    """Return a message with fields that nobody knows."""
    message.MergeFromString(b"\xf8\x3f\x01" * count)
    return message


def _fetch_items(item: Any) -> Iterator[list[Any]]:
    yield [item(topic="wide", partition=number % PARTITIONS) for number in range(MANY)]
    yield [item(topic=LONG)] * MANY
    yield [item(topic=NOWHERE)] * MANY
    yield [item(topic="wide", partition=PARTITIONS)] * MANY


async def _fetch(_: Scene) -> AsyncIterator[Any]:
    for items in _fetch_items(log_pb2.FetchItem):
        yield log_pb2.FetchRequest(items=items)
    yield log_pb2.FetchRequest(items=[log_pb2.FetchItem(topic=LONG)] * FEW, plain_records=True)
    items = [log_pb2.FetchItem(topic="wide", partition=number % PARTITIONS) for number in range(MANY)]
    yield log_pb2.FetchRequest(items=items, max_wait_ms=1, min_bytes=MIB)


async def _fetch_stream(_: Scene) -> AsyncIterator[Any]:
    requests: list[Any] = []
    for items in _fetch_items(log_pb2.FetchItem):
        remove = [log_pb2.PartitionRef(topic=item.topic, partition=item.partition) for item in items[: MANY // 2]]
        requests += (
            log_pb2.FetchStreamRequest(assign=items, add_credit_bytes=MIB),
            log_pb2.FetchStreamRequest(remove=remove),
        )
    yield [
        *requests,
        lambda caller: caller.until(lambda answers: sum(map(len, answers)) > 100_000),
        lambda caller: caller.hang_up(),
    ]


async def _list_offsets(_: Scene) -> AsyncIterator[Any]:
    for items in _fetch_items(log_pb2.ListOffsetsItem):
        for at in ({"spec": log_pb2.OFFSET_SPEC_LATEST}, {"timestamp_ms": 0}):
            wanted = []
            for item in items[: MANY if "spec" in at else FEW]:
                asked = log_pb2.ListOffsetsItem(**at)
                asked.MergeFrom(item)
                wanted.append(asked)
            yield log_pb2.ListOffsetsRequest(items=wanted)


async def _create_topics(scene: Scene) -> AsyncIterator[Any]:
    new = admin_pb2.NewTopic
    names = [f"{number:0249}" for number in range(FEW)]
    yield admin_pb2.CreateTopicsRequest(topics=[new(name=name) for name in names], validate_only=True)
    yield admin_pb2.CreateTopicsRequest(topics=[new(name=NOWHERE + "!")] * FEW)
    yield admin_pb2.CreateTopicsRequest(topics=[new(name=scene.new_name(), partitions=PARTITIONS)])


def _refs() -> Iterator[list[admin_pb2.TopicRef]]:
    yield [admin_pb2.TopicRef(name="wide")] * MANY
    yield [admin_pb2.TopicRef(name=NOWHERE)] * MANY
    yield [admin_pb2.TopicRef(id=bytes(16))] * MANY


async def _describe_topics(_: Scene) -> AsyncIterator[Any]:
    for refs in _refs():
        yield admin_pb2.DescribeTopicsRequest(topics=refs, include_partitions=True)
        yield admin_pb2.DescribeTopicsRequest(topics=refs)


async def _alter_topics(scene: Scene) -> AsyncIterator[Any]:
    alteration = admin_pb2.TopicAlteration
    nowhere = admin_pb2.TopicRef(name=NOWHERE)
    yield admin_pb2.AlterTopicsRequest(topics=[alteration(topic=nowhere, partitions=7)] * MANY)
    wide = admin_pb2.TopicRef(name="wide")
    configs = {"retention.ms": "77"}
    yield admin_pb2.AlterTopicsRequest(topics=[alteration(topic=wide, set_configs=configs)] * FEW, validate_only=True)
    yield admin_pb2.AlterTopicsRequest(
        topics=[alteration(topic=admin_pb2.TopicRef(name=await scene.wide_topic()), partitions=PARTITIONS + 1)]
    )


async def _delete_topics(scene: Scene) -> AsyncIterator[Any]:
    for refs in list(_refs())[1:]:
        yield admin_pb2.DeleteTopicsRequest(topics=refs)
    yield admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicRef(name=await scene.wide_topic())] * MANY)


async def _delete_records(scene: Scene) -> AsyncIterator[Any]:
    deletion = admin_pb2.RecordDeletion
    for refs in _refs():
        yield admin_pb2.DeleteRecordsRequest(deletions=[deletion(topic=ref, before_offset=7) for ref in refs])
    topic = admin_pb2.TopicRef(name=await scene.wide_topic())
    for at in ({}, {"before_offset": 0}):
        deletions = [deletion(topic=topic, partition=number, **at) for number in range(PARTITIONS)]
        yield admin_pb2.DeleteRecordsRequest(deletions=deletions)


async def _list_topics(_: Scene) -> AsyncIterator[Any]:
    yield admin_pb2.ListTopicsRequest()


async def _describe_broker(_: Scene) -> AsyncIterator[Any]:
    yield admin_pb2.DescribeBrokerRequest()


async def _init_producer_id(_: Scene) -> AsyncIterator[Any]:
    yield log_pb2.InitProducerIdRequest()


def _commits(topic: str = "wide") -> Iterator[list[groups_pb2.TopicOffsets]]:
    offsets = groups_pb2.TopicOffsets
    numbers = [number % PARTITIONS for number in range(MANY - 1)]
    yield [offsets(topic=topic, partitions=numbers, offsets=[0] * len(numbers))]
    yield [offsets(topic=topic, partitions=numbers, offsets=[9] * len(numbers), metadata=["m"] * len(numbers))]
    yield [offsets(topic=topic, partitions=[number], offsets=[0]) for number in numbers[: MANY // 2]]
    yield [offsets(topic=NOWHERE)] * MANY
    yield [offsets(topic=topic, offsets=[1])] * MANY


async def _commit_offsets(scene: Scene) -> AsyncIterator[Any]:
    for topics in _commits():
        yield groups_pb2.CommitOffsetsRequest(group_id=scene.new_name(), topics=topics)


async def _member(scene: Scene) -> AsyncIterator[Any]:
    request = groups_pb2.MemberRequest
    owned = [groups_pb2.TopicPartitions(topic="wide", partitions=range(20_000))]
    owned += [groups_pb2.TopicPartitions(topic=NOWHERE)] * MANY
    subscription = groups_pb2.Subscription(topics=["wide", *[f"{number:0249}" for number in range(999)]])
    join = groups_pb2.Join(
        group_id=scene.new_name(), member_id="m", incarnation=1, subscription=subscription, owned=owned, epoch=7
    )

    def taken(caller: Caller) -> groups_pb2.MemberRequest:
        responses = map(groups_pb2.MemberResponse.FromString, caller.answers)
        epoch = max(response.assignment.epoch for response in responses)
        return request(taken=groups_pb2.AssignmentTaken(epoch=epoch))

    async def take(caller: Caller) -> groups_pb2.MemberRequest:
        await caller.until(lambda answers: len(answers) >= 2)
        return taken(caller)

    async def commit(caller: Caller, topics: list[groups_pb2.TopicOffsets]) -> groups_pb2.MemberRequest:
        return request(commit=groups_pb2.Commit(epoch=taken(caller).taken.epoch, topics=topics))

    commits: list[Any] = [lambda caller, topics=topics: commit(caller, topics) for topics in _commits()]
    done = 2 + len(commits)
    yield [
        request(join=join),
        take,
        *commits,
        lambda caller: caller.until(lambda answers: len(answers) >= done),
        request(leave=groups_pb2.Leave()),
    ]


async def _fetch_offsets(_: Scene) -> AsyncIterator[Any]:
    named = groups_pb2.TopicPartitions
    numbers = [number % PARTITIONS for number in range(MANY - 1)]
    for topics in (
        [],
        [named(topic="wide")] * MANY,
        [named(topic="wide", partitions=numbers)],
        [named(topic="wide", partitions=[number]) for number in numbers[: MANY // 2]],
        [named(topic=NOWHERE)] * MANY,
    ):
        yield groups_pb2.FetchOffsetsRequest(group_id="committed", topics=topics)


async def _list_groups(_: Scene) -> AsyncIterator[Any]:
    yield groups_pb2.ListGroupsRequest()


async def _describe_groups(_: Scene) -> AsyncIterator[Any]:
    yield groups_pb2.DescribeGroupsRequest(group_ids=["members"] * MANY)
    yield groups_pb2.DescribeGroupsRequest(group_ids=[f"group-{number}" for number in range(GROUPS)])
    yield groups_pb2.DescribeGroupsRequest(group_ids=[f"{number:0200}" for number in range(MANY)])


async def _delete_groups(scene: Scene) -> AsyncIterator[Any]:
    yield groups_pb2.DeleteGroupsRequest(group_ids=[f"{number:0200}" for number in range(MANY)])
    yield groups_pb2.DeleteGroupsRequest(group_ids=["!" * 300] * MANY)


def _settlements(first: int, count: int) -> Iterator[queues_pb2.Settle]:
    """Yield settlements of `count` receipts, and of some that nobody holds."""
    receipts = range(first, first + count)
    ends = min(count, MANY)
    yield queues_pb2.Settle(
        extensions=[queues_pb2.Extension(first_receipt=each, last_receipt=each) for each in receipts[:ends]]
    )
    yield queues_pb2.Settle(releases=queues_pb2.Receipts(firsts=receipts[:1000], lasts=receipts[:1000]))
    yield queues_pb2.Settle(
        nacks=[queues_pb2.Nack(first_receipt=each, last_receipt=each, reason="r") for each in receipts[1000:2500]]
    )
    yield queues_pb2.Settle(nacks=[queues_pb2.Nack(first_receipt=receipts[2500], last_receipt=receipts[3500])])
    yield queues_pb2.Settle(acks=queues_pb2.Receipts(firsts=receipts[:ends], lasts=receipts[:ends]))
    yield queues_pb2.Settle(acks=queues_pb2.Receipts(firsts=[first], lasts=[first + 65_535]))
    yield queues_pb2.Settle(acks=queues_pb2.Receipts(firsts=[5] * MANY, lasts=[4] * MANY))


async def _settle(scene: Scene) -> AsyncIterator[Any]:
    group = await scene.queue(scene.new_name(), "keyed")
    delivered = await group.receive("w", 4_000, 10.0)
    for settle in _settlements(delivered[0].first_receipt, 4_000):
        yield queues_pb2.SettleRequest(group_id=group.group_id, worker_id="w", settle=settle)


async def _work(scene: Scene) -> AsyncIterator[Any]:
    request = queues_pb2.WorkerRequest
    held = queues_pb2.Places(partitions=[0] * 20_000, offsets=range(20_000))
    sessions = [queues_pb2.SessionRef(key=b"%d" % number, token=1) for number in range(MANY)]

    def hello(group_id: str) -> queues_pb2.WorkerRequest:
        return request(
            hello=queues_pb2.Hello(
                group_id=group_id, worker_id=scene.new_name(), incarnation=1, held=held, sessions=sessions
            )
        )

    group = await scene.queue(scene.new_name(), "keyed")
    delivered: list[queues_pb2.Deliveries] = []

    def count(answers: Sequence[bytes], kind: str) -> int:
        found = list(map(queues_pb2.WorkerResponse.FromString, answers))
        if kind == "deliveries":
            delivered[:] = [each.deliveries for each in found if each.HasField("deliveries")]
            return sum(each.count for each in delivered)
        return sum(each.HasField(kind) for each in found)

    async def settle(_: Caller, number: int) -> queues_pb2.WorkerRequest:
        return request(settle=list(_settlements(delivered[0].first_receipt, 4_000))[number])

    settles: list[Any] = [lambda caller, number=number: settle(caller, number) for number in range(7)]
    yield [
        hello(group.group_id),
        request(credit=queues_pb2.Credit(records=5_000)),
        lambda caller: caller.until(lambda answers: count(answers, "deliveries") >= 4_000),
        *settles,
        lambda caller: caller.until(lambda answers: count(answers, "settled") >= 7),
        request(goodbye=queues_pb2.Goodbye()),
    ]


async def _receive(scene: Scene) -> AsyncIterator[Any]:
    for plain in (False, True):
        group = await scene.queue(scene.new_name(), "keyed")
        yield queues_pb2.ReceiveRequest(
            group_id=group.group_id, worker_id="w", max_records=10_000, max_wait_ms=5_000, plain_records=plain
        )


async def _create_queue(scene: Scene) -> AsyncIterator[Any]:
    for start in (queues_pb2.StartAt(earliest=True), queues_pb2.StartAt(timestamp_ms=5)):
        yield queues_pb2.CreateQueueRequest(group_id=scene.new_name(), topic="wide", start=start)


async def _alter_queue(scene: Scene) -> AsyncIterator[Any]:
    group = await scene.queue(scene.new_name(), "keyed")
    for settings in (
        queues_pb2.QueueSettings(ordering="single"),
        queues_pb2.QueueSettings(ordering="key", priority="strict"),
        queues_pb2.QueueSettings(weights={f"band-{number}": 1 for number in range(MANY)}),
    ):
        yield queues_pb2.AlterQueueRequest(group_id=group.group_id, settings=settings)


async def _describe_queues(_: Scene) -> AsyncIterator[Any]:
    yield queues_pb2.DescribeQueuesRequest(group_ids=["queue-wide"] * MANY)
    yield queues_pb2.DescribeQueuesRequest(group_ids=["queue-wide", "queue-keyed", "queue-one-key"])
    yield queues_pb2.DescribeQueuesRequest(group_ids=[f"{number:0200}" for number in range(MANY)])


async def _delete_queues(scene: Scene) -> AsyncIterator[Any]:
    yield queues_pb2.DeleteQueuesRequest(group_ids=[f"{number:0200}" for number in range(FEW)])
    yield queues_pb2.DeleteQueuesRequest(group_ids=["!" * 300] * FEW)
    group = await scene.queue(scene.new_name(), "keyed")
    yield queues_pb2.DeleteQueuesRequest(group_ids=[group.group_id])


async def _list_lanes(_: Scene) -> AsyncIterator[Any]:
    for order in queues_pb2.LaneOrder.values():
        yield queues_pb2.ListLanesRequest(group_id="queue-keyed", order=queues_pb2.LaneOrder.Name(order), top=10_000)


async def _explain_lanes(scene: Scene) -> AsyncIterator[Any]:
    group = await scene.queue(scene.new_name(), "keyed")
    await group.receive("w", 4_000, 10.0)
    yield queues_pb2.ExplainLanesRequest(group_id=group.group_id, keys=[b"%d" % number for number in range(400)])
    yield queues_pb2.ExplainLanesRequest(group_id=group.group_id, keys=[bytes(60_000)] * 400)


async def _decide_lanes(_: Scene) -> AsyncIterator[Any]:
    decision = queues_pb2.LaneDecision
    yield queues_pb2.DecideLanesRequest(group_id="queue-keyed", decisions=[decision(key=b"1", resume=True)] * MANY)
    yield queues_pb2.DecideLanesRequest(group_id="queue-keyed", decisions=[decision()] * MANY)
    yield queues_pb2.DecideLanesRequest(group_id="queue-one-key", decisions=[decision(key=b"key", drop=True)] * 3)


async def _redrive(_: Scene) -> AsyncIterator[Any]:
    yield queues_pb2.RedriveRequest(group_id="queue-keyed", max_records=1_000_000)


async def _rewind(scene: Scene) -> AsyncIterator[Any]:
    earliest = queues_pb2.StartAt(earliest=True)
    group = await scene.queue(scene.new_name(), "keyed")
    await group.receive("w", 4_000, 10.0)
    yield queues_pb2.RewindRequest(group_id=group.group_id, to=earliest)
    yield queues_pb2.RewindRequest(group_id="queue-wide", to=earliest)
    yield queues_pb2.RewindRequest(group_id="queue-wide", to=queues_pb2.StartAt(timestamp_ms=5))
    yield queues_pb2.RewindRequest(group_id="queue-wide", to=earliest, partitions=range(50_000, 50_000 + MANY))


async def _produce_stream(scene: Scene) -> AsyncIterator[Any]:
    requests = [request async for request in _produce(scene)][:3]
    count = len(requests)
    yield [*requests[:count], lambda caller: caller.until(lambda answers: len(answers) >= count)]


CASES: Final[dict[str, Case]] = {
    "Log.Produce": _produce,
    "Log.ProduceStream": _produce_stream,
    "Log.Fetch": _fetch,
    "Log.FetchStream": _fetch_stream,
    "Log.ListOffsets": _list_offsets,
    "Log.InitProducerId": _init_producer_id,
    "Admin.CreateTopics": _create_topics,
    "Admin.ListTopics": _list_topics,
    "Admin.DescribeTopics": _describe_topics,
    "Admin.AlterTopics": _alter_topics,
    "Admin.DeleteTopics": _delete_topics,
    "Admin.DeleteRecords": _delete_records,
    "Admin.DescribeBroker": _describe_broker,
    "Groups.Member": _member,
    "Groups.CommitOffsets": _commit_offsets,
    "Groups.FetchOffsets": _fetch_offsets,
    "Groups.ListGroups": _list_groups,
    "Groups.DescribeGroups": _describe_groups,
    "Groups.DeleteGroups": _delete_groups,
    "Queues.Work": _work,
    "Queues.Receive": _receive,
    "Queues.Settle": _settle,
    "Queues.CreateQueue": _create_queue,
    "Queues.AlterQueue": _alter_queue,
    "Queues.DescribeQueues": _describe_queues,
    "Queues.DeleteQueues": _delete_queues,
    "Queues.ListLanes": _list_lanes,
    "Queues.ExplainLanes": _explain_lanes,
    "Queues.DecideLanes": _decide_lanes,
    "Queues.Redrive": _redrive,
    "Queues.Rewind": _rewind,
}
METHODS: Final = {f"{method.containing_service.name}.{method.name}": method for method in all_methods()}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Scene]]:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        broker = served(
            tmp_path_factory.mktemp("broker"), max_groups=100_000, checkpoint_seconds=3600, retention_check_seconds=3600
        )
        scene = Scene(loop, runner.run(broker.__aenter__()))
        runner.run(scene.build())
        yield runner, scene
        runner.run(broker.__aexit__(None, None, None))


def test_every_method_is_called_with_its_nastiest_lists() -> None:
    assert sorted(CASES) == sorted(METHODS)


@pytest.mark.prove
@pytest.mark.parametrize("name", CASES)
def test_no_call_holds_the_loop(stage: tuple[asyncio.Runner, Scene], name: str) -> None:
    runner, scene = stage
    runner.run(_check(scene, name))


async def _check(scene: Scene, name: str) -> None:
    method, loop = METHODS[name], scene.loop
    number = 0
    async for requests in CASES[name](scene):
        number += 1
        with counting(loop):
            await asyncio.sleep(0)  # The rounds that follow are counted.
            caller = await scene.served.call(method, requests if method.client_streaming else [requests], aborts=True)
        worst = sorted(loop.where.items(), key=lambda item: -item[1])[:5]
        assert loop.most < MAX_LINES, (name, number, loop.most, worst)
        assert loop.most_of_scan < MAX_SCAN_LINES, (name, number, loop.most_of_scan)
        assert max(map(len, caller.answers), default=0) < MAX_ANSWER_BYTES, (name, number)


# --- many callers, and such as are gone ------------------------------------------------------------------------------

LOOKING: Final = (
    "Log.Fetch",
    "Log.ListOffsets",
    "Admin.DescribeTopics",
    "Groups.FetchOffsets",
    "Groups.ListGroups",
    "Groups.DescribeGroups",
    "Queues.DescribeQueues",
    "Queues.ListLanes",
)
CROWD: Final = 20
ROUNDS: Final = 3


@pytest.mark.parametrize("name", LOOKING)
def test_work_ends_with_its_caller(stage: tuple[asyncio.Runner, Scene], name: str) -> None:
    runner, scene = stage
    assert runner.run(_hang_up(scene, name))


async def _hang_up(scene: Scene, name: str) -> int:
    """Return how many calls were broken off before they were answered."""
    broken_off = 0
    async for request in CASES[name](scene):
        call = asyncio.create_task(scene.served.call(METHODS[name], [request]))
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        if call.cancel():
            with counting(scene.loop):
                await asyncio.wait([call])
            assert call.cancelled()
            assert scene.loop.total < MAX_LINES, (name, scene.loop.where)
            broken_off += 1
    return broken_off


def test_a_crowd_of_callers_takes_one_turn_at_a_time(stage: tuple[asyncio.Runner, Scene]) -> None:
    runner, scene = stage
    runner.run(_crowd(scene))


async def _crowd(scene: Scene) -> None:
    request = groups_pb2.FetchOffsetsRequest(group_id="committed")
    request.topics.add(topic="wide")
    request.topics.extend([groups_pb2.TopicPartitions(topic=NOWHERE)] * 200)
    with counting(scene.loop):
        calls = [scene.served.call(METHODS["Groups.FetchOffsets"], [request]) for _ in range(CROWD)]
        await asyncio.gather(*calls)
    # The first turns are small, and come together.
    assert scene.loop.total > CROWD * MAX_LINES // 8
    assert scene.loop.most < 2 * MAX_LINES, scene.loop.where
