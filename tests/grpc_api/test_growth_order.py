"""Order while a topic grows: nothing of a stream, or of one request, overtakes what came before it in that topic.

Keys carry numbers that rise in the order of the stream; the topic grows again and again meanwhile. What readers see of
a key is first what it has in an older generation, then what it has in a newer one.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from queue import SimpleQueue

import pytest

from logbroker.engine import RoutingFence
from logbroker.record.codec import NewRecord, decode_batch, encode_batch, split_batches
from logbroker.record.partitioner import partition_for_key
from logbroker.types import TopicId
from logbroker.v1 import log_pb2 as pb
from logbroker.v1.admin_pb2 import AlterTopicsRequest, DescribeTopicsRequest, TopicAlteration, TopicRef
from logbroker.v1.common_pb2 import Record
from tests.grpc_api.api import Api, batch_of

KEYS = [b"key-%d" % number for number in range(12)]
GROWTHS = range(5, 10)
"""Partition counts; topics begin with four."""
THREADED = 250
"""Records of an item that the broker encodes on a thread."""

Numbers = defaultdict[bytes, "count[int]"]


def numbers() -> Numbers:
    return defaultdict(count)


def plain(topic: str, sent: Numbers, records: int, generation: int | None = None) -> pb.ProduceItem:
    """An item whose records the broker routes."""
    keys = (KEYS[number % len(KEYS)] for number in range(records))
    plain_records = [Record(key=key, value=b"%d" % next(sent[key])) for key in keys]
    return pb.ProduceItem(topic=topic, records=pb.PlainRecords(records=plain_records), generation=generation)


def threaded(topic: str, sent: Numbers, key: bytes) -> pb.ProduceItem:
    """An item that takes the broker a while: many records, all of one key and so of one partition."""
    records = [Record(key=key, value=b"%d" % next(sent[key])) for _ in range(THREADED)]
    return pb.ProduceItem(topic=topic, records=pb.PlainRecords(records=records))


def opaque(topic: str, sent: Numbers, key: bytes, partitions: int, generation: int) -> pb.ProduceItem:
    """An item that its client routed."""
    batch = encode_batch([NewRecord(key=key, value=b"%d" % next(sent[key]))])
    return pb.ProduceItem(topic=topic, partition=partition_for_key(key, partitions), batch=batch, generation=generation)


def grow(api: Api, topic: str, partitions: int) -> None:
    alteration = TopicAlteration(topic=TopicRef(name=topic), partitions=partitions)
    [altered] = api.admin.AlterTopics(AlterTopicsRequest(topics=[alteration])).results
    assert not altered.status.code, altered.status


def read_by_key(api: Api, topic: str) -> dict[bytes, list[int]]:
    """The numbers of each key in the order in which readers see them: generation by generation."""
    request = DescribeTopicsRequest(topics=[TopicRef(name=topic)])
    [described] = api.admin.DescribeTopics(request).results
    found: dict[bytes, list[tuple[int, int, int]]] = defaultdict(list)
    for partition in range(described.topic.partitions):
        # Where each later generation begins in this partition.
        starts = [
            generation.start_offsets[partition] if partition < len(generation.start_offsets) else 0
            for generation in described.generations[1:]
        ]
        offset = 0
        while batches := (result := api.fetch(topic, partition, offset)).batches:
            for _, batch in split_batches(batches):
                for record in decode_batch(batch):
                    generation = sum(start <= record.offset for start in starts)
                    found[record.key or b""].append((generation, record.offset, int(record.value or b"")))
            offset = result.next_offset
    return {key: [number for _, _, number in sorted(places)] for key, places in found.items()}


class Growing(threading.Thread):
    """Grows a topic while something else happens; `begin` lets it."""

    def __init__(self, api: Api, topic: str, growths: range = GROWTHS) -> None:
        super().__init__(daemon=True)
        self._growths = growths
        self.begin = threading.Event()
        self._api = api
        self._topic = topic

    def run(self) -> None:
        assert self.begin.wait(20)
        for partitions in self._growths:
            grow(self._api, self._topic, partitions)


def requests_with_small_items(topic: str, sent: Numbers) -> pb.ProduceRequest:
    return pb.ProduceRequest(items=[plain(topic, sent, 24)])


def requests_with_threaded_items(topic: str, sent: Numbers) -> pb.ProduceRequest:
    return pb.ProduceRequest(items=[threaded(topic, sent, KEYS[0]), plain(topic, sent, 12)])


def requests_with_many_items(topic: str, sent: Numbers) -> pb.ProduceRequest:
    items = [plain(topic, sent, records) for records in (12, 1, THREADED, 12, 1, 30)]
    return pb.ProduceRequest(items=[*items, threaded(topic, sent, KEYS[1]), plain(topic, sent, 12)])


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    "make",
    [requests_with_small_items, requests_with_threaded_items, requests_with_many_items],
    ids=lambda make: make.__name__,
)
def test_a_stream_of_plain_records_keeps_the_order_of_each_key(
    api: Api, topic: str, make: Callable[[str, Numbers], pb.ProduceRequest]
) -> None:
    sent = numbers()
    growing = Growing(api, topic)
    growing.start()

    def requests() -> Iterator[pb.ProduceRequest]:
        for number in count():
            yield make(topic, sent)
            if number == 10:
                growing.begin.set()
            if not growing.is_alive():
                return

    for response in api.log.ProduceStream(requests()):
        assert not [result.status for result in response.results if result.status.code]
    growing.join()
    read = read_by_key(api, topic)
    assert read == {key: list(range(next(sent[key]))) for key in KEYS}


def test_the_items_of_one_request_keep_the_order_of_each_key(api: Api, topic: str) -> None:
    sent = numbers()
    request = pb.ProduceRequest(items=[threaded(topic, sent, KEYS[number % len(KEYS)]) for number in range(150)])
    # Many, so that some come while the broker makes batches, which takes it a while.
    growing = Growing(api, topic, range(5, 61))
    growing.start()
    growing.begin.set()
    assert not [result.status for result in api.log.Produce(request).results if result.status.code]
    growing.join()
    assert read_by_key(api, topic) == {key: list(range(next(sent[key]))) for key in KEYS}


class Stream:
    """A produce stream whose requests are sent one by one."""

    def __init__(self, api: Api) -> None:
        self._requests: SimpleQueue[pb.ProduceRequest | None] = SimpleQueue()
        self._answers = api.log.ProduceStream(iter(self._requests.get, None))

    def send(self, *items: pb.ProduceItem) -> None:
        self._requests.put(pb.ProduceRequest(items=items))

    def reasons(self) -> list[str]:
        """Return the reasons of the items of the next answer, which may be of any request."""
        return [result.status.reason for result in next(self._answers).results]

    def close(self) -> None:
        self._requests.put(None)
        assert list(self._answers) == []


def test_nothing_of_a_request_overtakes_what_was_refused_as_stale(api: Api, topic: str) -> None:
    grow(api, topic, 6)
    sent = numbers()
    key = KEYS[0]
    refused = opaque(topic, sent, key, 4, 1)
    behind = [opaque(topic, sent, key, 6, 2), plain(topic, sent, 12), plain(topic, sent, 12, generation=2)]
    by_hand = pb.ProduceItem(topic=topic, partition=0, batch=batch_of(b"0"))
    results = api.log.Produce(pb.ProduceRequest(items=[refused, *behind, by_hand])).results
    assert [result.status.reason for result in results] == ["STALE_GENERATION"] * 4 + [""]
    assert "earlier records of the same stream" in results[1].status.message
    assert [placement.offset for placement in results[2].placements] == [-1] * 12


def test_nothing_of_a_stream_overtakes_what_was_refused_as_stale(api: Api, topic: str) -> None:
    """Until the client shows that it knows: with the newer generation, after the answer."""
    grow(api, topic, 6)
    other = f"{topic}-other"
    api.create(other, 4)
    sent = numbers()
    key = KEYS[0]
    stream = Stream(api)
    stream.send(opaque(topic, sent, key, 4, 1))
    stream.send(plain(topic, sent, 12))
    stream.send(opaque(topic, sent, key, 4, 1))
    assert [stream.reasons() for _ in range(3)] == [["STALE_GENERATION"]] * 3
    stream.send(plain(other, numbers(), 12))
    assert stream.reasons() == [""]
    stream.send(plain(topic, sent, 12))
    assert stream.reasons() == ["STALE_GENERATION"], "it does not show that it knows"
    stream.send(opaque(topic, numbers(), key, 6, 2))
    assert stream.reasons() == [""]
    stream.send(plain(topic, numbers(), 12))
    assert stream.reasons() == [""]
    grow(api, topic, 7)
    stream.send(opaque(topic, sent, key, 6, 2))
    assert stream.reasons() == ["STALE_GENERATION"]
    stream.send(plain(topic, sent, 12))
    assert stream.reasons() == ["STALE_GENERATION"]
    stream.send(plain(topic, numbers(), 12, generation=3))
    assert stream.reasons() == [""]
    stream.close()


def test_a_fence_opens_only_to_who_came_after_every_refusal_was_answered() -> None:
    fence = RoutingFence()
    topic, other = TopicId(bytes(16)), TopicId(b"1" * 16)
    assert not fence.told()
    assert fence.lets_through(topic, 0)
    fence.refused(topic, 1)
    fence.refused(topic, 1)
    fence.answered(topic)
    assert not fence.told(), "one refusal is not answered"
    assert not fence.lets_through(topic, 0)
    assert fence.lets_through(other, 0)
    fence.answered(topic)
    assert fence.told() == {topic}
    assert not fence.lets_through(topic, 1), "that generation is the stale one"
    assert fence.lets_through(topic, 2)
    assert fence.lets_through(topic, 0), "it is open again for all"


def test_growth_waits_for_none_that_goes_away(api: Api, topic: str) -> None:
    """A client that dies while its records are on their way to the log leaves nothing that growth would wait for."""
    for partitions in GROWTHS:
        dying = Api(api.channel._channel.target().decode().split("/")[-1])  # type: ignore[attr-defined]
        stream = Stream(dying)
        for _ in range(20):
            stream.send(plain(topic, numbers(), THREADED))
        stream.reasons()
        dying.channel.close()
        grow(api, topic, partitions)


def test_a_stream_goes_on_after_an_item_of_several_batches_was_refused(api: Api, topic: str) -> None:
    large = pb.PlainRecords(records=[Record(key=KEYS[0], value=bytes(600_000))] * 3)  # Two do not fit into a batch.
    grow(api, topic, 5)
    told = threading.Event()

    def requests() -> Iterator[pb.ProduceRequest]:
        yield pb.ProduceRequest(items=[pb.ProduceItem(topic=topic, partition=0, records=large, generation=1)])
        assert told.wait(20)
        yield pb.ProduceRequest(items=[plain(topic, numbers(), 24, 2)])

    responses = api.log.ProduceStream(requests())
    assert all(result.status.code for result in next(responses).results)
    told.set()
    [accepted] = next(responses).results
    assert not accepted.status.code, accepted.status
