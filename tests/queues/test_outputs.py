"""Outputs of settlements: appended with the acks or not at all, once, and in order."""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest

from logbroker.clock import SystemClock
from logbroker.engine import Append, Appended
from logbroker.errors import (
    AlreadySettledError,
    DiskFullError,
    InvalidRequestError,
    InvalidTimestampError,
    LogbrokerError,
    OutOfOrderSequenceError,
    OverloadedError,
    PartitionOfflineError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.group import QueueGroup
from logbroker.queues.machine.inspect import AlarmKind
from logbroker.queues.model.messages import AskedOutput, Nack, Output, Refusal, Settlement
from logbroker.queues.model.record_id import Moment
from logbroker.queues.outputs import preparation
from logbroker.queues.outputs.preparation import prepared
from logbroker.queues.outputs.routing import (
    MAX_BATCH_HEADERS,
    MAX_BATCH_RECORDS,
    check_readable,
    records_of,
    routed,
)
from logbroker.queues.outputs.sender import OutputSender
from logbroker.queues.state.outbox import TransactionalOutbox
from logbroker.record.codec import NewRecord, encode_batch, with_producer
from logbroker.record.compression import Codec
from logbroker.record.header import HEADER, HEADER_BYTES
from logbroker.record.partitioner import partition_for_key
from logbroker.types import TopicId
from tests.hostile.batch_mutants import mutated_batch, sealed, sound_batch
from tests.queues.shell import Shell, ack, hello, shell, take, until

OUT = "out"


async def open_group(opened: Shell, records: int, out_partitions: int = 1, **settings: Any) -> WorkerLink:
    """Make a group with so many records of different keys, and a topic for outputs; return a worker of the group."""
    await opened.topic()
    await opened.topic(OUT, out_partitions)
    await opened.append(*[(b"%d" % number, b"%d" % number) for number in range(records)])
    return await (await opened.group(**settings)).connect(hello())


def to_out(opened: Shell, *values: bytes, key: bytes | None = b"k", topic: str = OUT, **fields: Any) -> AskedOutput:
    records = [NewRecord(value, key) for value in values]
    size_bytes = sum(map(len, values))
    return AskedOutput(opened.engine.topic(topic).id, fields.pop("partition", None), 0, None, records, size_bytes)


async def begin(link: WorkerLink, receipts: Sequence[int], *outputs: AskedOutput) -> asyncio.Future[list[Refusal]]:
    return await link.settle_with_outputs(Settlement(acks=[(each, each) for each in receipts]), outputs)


async def settle(link: WorkerLink, receipts: Sequence[int], *outputs: AskedOutput) -> list[Refusal]:
    async with asyncio.timeout(20):
        return await (await begin(link, receipts, *outputs))


async def values_in(opened: Shell, topic: str = OUT) -> list[bytes | None]:
    """Return the values in all partitions of a topic."""
    partitions = range(opened.engine.topic(topic).partitions)
    return [record.value for partition in partitions for record in await opened.stored(topic, partition)]


async def taken(link: WorkerLink, count: int) -> list[int]:
    return [receipt for receipt, _ in await take(link, count)]


def outbox(opened: Shell) -> TransactionalOutbox:
    return opened.groups.group("g").queue.outbox


async def test_outputs_are_in_the_log_when_the_settlement_is_answered(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 3)
        first, second, third = await taken(link, 3)
        assert await settle(link, [first], to_out(opened, b"a", b"b")) == []
        assert await values_in(opened) == [b"a", b"b"]
        assert await settle(link, [second, third], to_out(opened, b"c"), to_out(opened, b"d", key=None)) == []
        assert await values_in(opened) == [b"a", b"b", b"c", b"d"]
        assert opened.groups.group("g").queue.open_records == 0
        await until(lambda: not len(outbox(opened)))
        assert outbox(opened).size_bytes == 0
        await opened.groups.group("g")._commits.synced(None)
        scope = await opened.state.load("group:g")
        assert not [key for key in scope if key.startswith(b"o")]


async def test_a_settlement_that_is_refused_sends_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 2)
        first, second = await taken(link, 2)
        await ack(link, first)
        whole, named = await settle(link, [first, second], to_out(opened, b"a"))
        assert (whole.first, whole.last) == (0, 0)
        assert isinstance(named.error, AlreadySettledError)
        assert (named.first, named.last) == (first, first)
        assert await values_in(opened) == []
        assert await settle(link, [second], to_out(opened, b"b")) == []
        assert len(await settle(link, [second], to_out(opened, b"b"))) == 2, "it is settled once"
        assert await values_in(opened) == [b"b"]


async def test_a_settlement_that_acks_a_delivery_twice_sends_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 3)
        first, second, third = await taken(link, 3)
        acks = [(second, third), (first, second), (first, first)]
        whole, *named = await (await link.settle_with_outputs(Settlement(acks), [to_out(opened, b"a")]))
        assert (whole.first, whole.last) == (0, 0)
        assert [(each.first, each.last) for each in named] == [(first, first), (second, second)]
        assert all(isinstance(each.error, AlreadySettledError) for each in named)
        assert await values_in(opened) == []
        assert await settle(link, [first, second, third], to_out(opened, b"b")) == []
        assert await values_in(opened) == [b"b"]


async def test_nacks_and_releases_beside_outputs_are_refused_one_by_one(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 2)
        first, second = await taken(link, 2)
        settlement = Settlement(
            acks=[(first, first)],
            nacks=[Nack(second, second, "no", delay_seconds=1e9)],
            releases=[(second + 100, second + 100)],
        )
        refusals = await (await link.settle_with_outputs(settlement, [to_out(opened, b"a")]))
        assert [each.first for each in refusals] == [second, second + 100]
        assert await values_in(opened) == [b"a"]
        assert await settle(link, [second]) == []


def batch_of(*values: bytes, stamp_ms: int | None = None) -> bytes:
    return encode_batch([NewRecord(value, b"k", timestamp_ms=stamp_ms) for value in values])


async def test_what_a_topic_does_not_take_refuses_the_settlement_and_leaves_the_delivery(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 1)
        [receipt] = await taken(link, 1)
        topic_id = opened.engine.topic(OUT).id
        small = await opened.topic("small", 1, **{"max.message.bytes": "500"})
        for output, error in (
            (AskedOutput(TopicId(bytes(16)), None, 0, None, [NewRecord(b"v")]), UnknownTopicError),
            (to_out(opened, b"v", partition=1), UnknownPartitionError),
            (to_out(opened, b"v", partition=-1), UnknownPartitionError),
            (to_out(opened), InvalidRequestError),
            (AskedOutput(topic_id, None, 0, batch_of(b"v")), InvalidRequestError),
            (AskedOutput(topic_id, 0, 0, b"no batch"), LogbrokerError),
            (AskedOutput(topic_id, 0, 0, with_producer(batch_of(b"v"), 7, 0, 0)), InvalidRequestError),
            (AskedOutput(topic_id, 0, 0, batch_of(b"v", stamp_ms=1 << 50)), InvalidTimestampError),
            (AskedOutput(small.id, 0, 0, batch_of(bytes(1000))), RecordTooLargeError),
            (to_out(opened, b"v" * (2 << 20)), InvalidRequestError),
        ):
            with pytest.raises(error):
                await settle(link, [receipt], to_out(opened, b"good"), output)
        incompressible = bytes(range(256)) * 4 + bytes(reversed(range(256)))
        with pytest.raises(RecordTooLargeError):
            await settle(link, [receipt], AskedOutput(small.id, None, 0, None, [NewRecord(incompressible)]))
        assert await values_in(opened) == []
        assert not len(outbox(opened))
        assert await settle(link, [receipt], to_out(opened, b"good")) == []


async def test_a_full_disk_refuses_outputs_and_leaves_the_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 1)
        [receipt] = await taken(link, 1)

        def full(*_: object) -> None:
            raise DiskFullError("full")

        with monkeypatch.context() as patched:
            patched.setattr(opened.groups.group("g"), "check_room", full)
            with pytest.raises(DiskFullError):
                await settle(link, [receipt], to_out(opened, b"v"))
        assert await settle(link, [receipt], to_out(opened, b"v")) == []


async def test_a_batch_goes_to_the_log_as_it_is(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 2, out_partitions=2)
        first, second = await taken(link, 2)
        topic = opened.engine.topic(OUT)
        assert await settle(link, [first], AskedOutput(topic.id, 1, 0, batch_of(b"a", b"b"))) == []
        assert await settle(link, [second], AskedOutput(topic.id, 1, topic.generation, batch_of(b"c"))) == []
        assert [record.value for record in await opened.stored(OUT, 1)] == [b"a", b"b", b"c"]


async def test_a_batch_that_was_routed_before_the_topic_grew_is_routed_anew(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 1)
        [receipt] = await taken(link, 1)
        topic = await opened.engine.alter_topic(opened.engine.topic(OUT).id, partitions=8)
        batch = encode_batch([NewRecord(b"%d" % number, b"%d" % number) for number in range(50)])
        assert await settle(link, [receipt], AskedOutput(topic.id, 0, 1, batch)) == []
        assert len(await opened.stored(OUT, 0)) < 30
        assert sorted(await values_in(opened)) == sorted(b"%d" % number for number in range(50))  # type: ignore[type-var]


@pytest.mark.prove
async def test_whatever_batch_is_taken_can_be_routed_anew(tmp_path: Path) -> None:
    """Otherwise it would hold up all outputs for its topic once this grows."""
    rng = random.Random(1)
    sound = batch_of(b"v")
    small = [sound, *(sound_batch(rng) for _ in range(300))]
    mutants = [mutated_batch(rng, batch) for batch in small]
    header = list(HEADER.unpack_from(sound))
    records = struct.pack(">b", -2) + sound[HEADER_BYTES + 1 :]
    many = batch_of(*[b""] * (MAX_BATCH_RECORDS + 1))
    headers = [NewRecord(b"", headers=[("", None)] * 1000)] * (MAX_BATCH_HEADERS // 1000)
    named = {
        "a record of a negative length": sealed(header, records),
        "no record": sealed(header, b""),
        "late": sealed([*header[:7], (1 << 63) - 1, (1 << 63) - 1, *header[9:]], sound[HEADER_BYTES:]),
        "many records": many,
        "many records, compressed": encode_batch([NewRecord(b"")] * (MAX_BATCH_RECORDS + 1), codec=Codec.ZSTD),
        "many headers": encode_batch([*headers, headers[0]]),
        "many headers, compressed": encode_batch([*headers, headers[0]], codec=Codec.ZSTD),
    }
    taken_at_all = refused = 0
    async with shell(tmp_path) as opened:
        topic = await opened.topic(OUT, 3, **{"message.timestamp.after.max.ms": str((1 << 63) - 1)})
        for batch in (*small, *mutants, *named.values()):
            for generation in (0, topic.generation, 7):
                asked = AskedOutput(topic.id, 0, generation, batch, size_bytes=len(batch))
                try:
                    async with prepared(opened.engine, SystemClock(), [asked]) as outputs:
                        pass
                except LogbrokerError:
                    refused += 1
                    assert batch not in small
                    continue
                taken_at_all += 1
                for output in outputs:
                    assert routed(topic, records_of(output.batch), None, None)
    assert taken_at_all > 900
    assert refused > 100


@pytest.mark.parametrize("generation", [0, 7])
@pytest.mark.parametrize("kind", ["large", "many records", "compressed"])
async def test_a_batch_that_is_not_small_is_decoded_in_the_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, generation: int
) -> None:
    threads: set[str] = set()

    def seen(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            threads.add(threading.current_thread().name.split("_")[0])
            return function(*arguments)

        return call

    for function in (check_readable, records_of, routed):
        monkeypatch.setattr(preparation, function.__name__, seen(function))
    values = {"large": [bytes(9000)], "many records": [b""] * 200, "compressed": [bytes(1000)]}[kind]
    codec = Codec.ZSTD if kind == "compressed" else Codec.NONE
    async with shell(tmp_path) as opened:
        topic = await opened.topic(OUT, 3)
        batch = encode_batch([NewRecord(value) for value in values], codec=codec)
        asked = AskedOutput(topic.id, 0, generation, batch, size_bytes=len(batch))
        async with prepared(opened.engine, SystemClock(), [asked]) as outputs:
            assert sum(len(records_of(output.batch)) for output in outputs) == len(values)
    assert threads == {"queue decoder"}


async def test_an_unreadable_batch_of_an_earlier_version_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = batch_of(bytes(1000))
    garbage = sealed(list(HEADER.unpack_from(sound)), b"\xff" * 1000)
    monkeypatch.setattr(preparation, "check_readable", lambda *_: None)
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 2)
        first, second = await taken(link, 2)
        topic = opened.engine.topic(OUT)
        with opened.commits_held() as release:
            unreadable = AskedOutput(topic.id, 0, topic.generation, garbage, size_bytes=len(garbage))
            answers = [await begin(link, [first], unreadable), await begin(link, [second], to_out(opened, b"v"))]
            await opened.engine.alter_topic(topic.id, partitions=4, set_configs={"max.message.bytes": "500"})
            release.set()
            await until(lambda: outbox(opened).troubles)
        [trouble] = outbox(opened).troubles.values()
        size_bytes = len(garbage)
        assert f"set max.message.bytes of the topic to {size_bytes} or more, and it is appended as it is" in trouble
        await opened.engine.alter_topic(topic.id, set_configs={"max.message.bytes": str(size_bytes)})
        opened.groups.group("g").output_sender.topics_changed()
        assert await asyncio.gather(*answers) == [[], []]
        assert not outbox(opened).troubles
        assert opened.engine.partition_facts(topic.id, 0).high_watermark >= 1


async def test_outputs_keep_the_order_of_the_settlements(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 300)
        receipts = await taken(link, 300)
        answers = [
            await begin(link, [receipt], to_out(opened, b"%d" % number)) for number, receipt in enumerate(receipts)
        ]
        assert not any(await asyncio.gather(*answers))
        assert await values_in(opened) == [b"%d" % number for number in range(300)]


async def test_a_crash_before_the_append_loses_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(OutputSender, "_wake", lambda self: None)
        async with shell(tmp_path, crash=True) as opened:
            link = await open_group(opened, 3)
            for number, receipt in enumerate(await taken(link, 3)):
                await begin(link, [receipt], to_out(opened, b"%d" % number))
            await opened.groups.group("g")._commits.synced(None)
            assert await values_in(opened) == []
    async with shell(tmp_path) as opened:
        await until(lambda: not len(outbox(opened)))
        assert await values_in(opened) == [b"0", b"1", b"2"]
        assert opened.groups.group("g").queue.done.floor(0) == 3
    async with shell(tmp_path) as opened:
        assert await values_in(opened) == [b"0", b"1", b"2"]


async def test_a_crash_after_the_append_doubles_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(OutputSender, "_is_appended", lambda self, entry, output: None)
        async with shell(tmp_path, crash=True) as opened:
            link = await open_group(opened, 5)
            for number, receipt in enumerate(await taken(link, 5)):
                await begin(link, [receipt], to_out(opened, b"%d" % number, b"%d'" % number))
                await until(
                    lambda count=2 * number + 2: (
                        opened.engine.partition_facts(  # type: ignore[misc]
                            opened.engine.topic(OUT).id, 0
                        ).high_watermark
                        >= count
                    )
                )
    everything = [b"%d" % number + end for number in range(5) for end in (b"", b"'")]
    async with shell(tmp_path, crash=True) as opened:
        await until(lambda: not len(outbox(opened)))
        assert await values_in(opened) == everything
        await opened.append((b"x", b"x"))
        link = await opened.groups.group("g").connect(hello("other"))
        [receipt] = await taken(link, 1)
        assert await settle(link, [receipt], to_out(opened, b"last")) == []
    async with shell(tmp_path) as opened:
        assert await values_in(opened) == [*everything, b"last"]


async def test_what_a_crash_left_of_a_settlement_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch of it is in the log, the other is not."""
    append = OutputSender._append_some

    async def append_one(self: OutputSender) -> bool:
        first = next(iter(self._streams))
        self._streams = {first: self._streams[first]}
        return await append(self)

    with monkeypatch.context() as patched:
        patched.setattr(OutputSender, "_append_some", append_one)
        async with shell(tmp_path, crash=True) as opened:
            link = await open_group(opened, 1, out_partitions=2)
            [receipt] = await taken(link, 1)
            await begin(link, [receipt], to_out(opened, b"a", partition=0), to_out(opened, b"b", partition=1))
            await until(lambda: len(outbox(opened).entries()[0].outputs) == 1)
            assert await values_in(opened) == [b"a"]
    async with shell(tmp_path) as opened:
        await until(lambda: not len(outbox(opened)))
        assert await values_in(opened) == [b"a", b"b"]


async def test_a_topic_that_grows_or_shrinks_its_limit_before_the_append_gets_the_outputs(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 2)
        first, second = await taken(link, 2)
        topic = opened.engine.topic(OUT)
        keyed = AskedOutput(topic.id, None, 0, None, [NewRecord(b"%d" % key, b"%d" % key) for key in range(50)])
        with opened.commits_held() as release:
            answers = [await begin(link, [first], keyed), await begin(link, [second], to_out(opened, b"k", key=b"1"))]
            await opened.engine.alter_topic(topic.id, partitions=8, set_configs={"max.message.bytes": "200"})
            release.set()
            assert not any(await asyncio.gather(*answers))
        found = {partition: [each.value for each in await opened.stored(OUT, partition)] for partition in range(8)}
        everything = {value for values in found.values() for value in values}
        assert everything == {b"k", *(b"%d" % key for key in range(50))}
        assert sum(map(len, found.values())) == 51
        assert len(found[0]) < 30
        [of_key] = [values for values in found.values() if b"k" in values]
        assert of_key.index(b"1") < of_key.index(b"k")


async def test_an_ordering_key_routes_the_records_in_place_of_their_keys(tmp_path: Path) -> None:
    """Where the worker has not routed them, where it did not know that the topic has grown, and where the topic grows
    after the settlement."""
    records = [NewRecord(b"%d" % number, b"%d" % number) for number in range(50)]
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 3, out_partitions=2)
        receipts = await taken(link, 3)
        topic_id = opened.engine.topic(OUT).id
        plain = AskedOutput(topic_id, None, 0, None, records, ordering_key=b"a")
        batch = AskedOutput(topic_id, 0, 1, encode_batch(records), ordering_key=b"b")
        assert await settle(link, [receipts[0]], plain) == []
        assert len(await opened.stored(OUT, partition_for_key(b"a", 2))) == 50
        await opened.engine.alter_topic(topic_id, partitions=4)
        before = len(await opened.stored(OUT, partition_for_key(b"b", 4)))
        assert await settle(link, [receipts[1]], batch) == []
        assert len(await opened.stored(OUT, partition_for_key(b"b", 4))) == before + 50
        with opened.commits_held() as release:
            answer = await begin(link, [receipts[2]], plain)
            await opened.engine.alter_topic(topic_id, partitions=64)
            release.set()
            assert await answer == []
        assert partition_for_key(b"a", 64) != partition_for_key(b"a", 4)
        assert len(await opened.stored(OUT, partition_for_key(b"a", 64))) == 50


def test_a_row_of_an_earlier_version_has_no_ordering_key() -> None:
    row = msgspec.msgpack.encode([[bytes(16), 1, 2, 3, b"batch"]])
    [output] = msgspec.msgpack.decode(row, type=list[Output])
    assert (output.partition, output.batch, output.ordering_key) == (1, b"batch", None)


async def test_outputs_for_a_deleted_topic_go_with_it(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 1)
        [receipt] = await taken(link, 1)
        with opened.commits_held() as release:
            answer = await begin(link, [receipt], to_out(opened, b"v"))
            await opened.engine.delete_topic(opened.engine.topic(OUT).id)
            await opened.topic(OUT)
            release.set()
            assert await answer == []
        assert await values_in(opened) == []
        assert not len(outbox(opened))


async def test_a_partition_that_forgot_the_producer_takes_the_next_output(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 4)
        for number, receipt in enumerate(await taken(link, 4)):
            assert await settle(link, [receipt], to_out(opened, b"%d" % number)) == []
            producers = opened.engine._partitions.get(opened.engine.topic(OUT).id, 0).log._producers
            producers.forget(len(producers))
        assert await values_in(opened) == [b"0", b"1", b"2", b"3"]


def refusing(opened: Shell, topic: str, error: LogbrokerError) -> asyncio.Event:
    """Let the engine refuse the appends to a topic until the event is set."""
    append, topic_id, over = opened.engine.append, opened.engine.topic(topic).id, asyncio.Event()

    async def refuse(appends: Sequence[Append], *rest: Any) -> list[Appended | LogbrokerError]:
        if over.is_set() or all(each.topic_id != topic_id for each in appends):
            return await append(appends, *rest)
        results = iter(await append([each for each in appends if each.topic_id != topic_id], *rest))
        # Batches behind a refused one leave a gap in the sequences.
        errors = itertools.chain([error], itertools.repeat(OutOfOrderSequenceError("a gap")))
        return [next(errors) if each.topic_id == topic_id else next(results) for each in appends]

    opened.engine.append = refuse  # type: ignore[method-assign, assignment]
    return over


async def test_a_topic_that_takes_nothing_holds_up_only_itself(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 5)
        await opened.topic("other")
        first, second, third, fourth, fifth = await taken(link, 5)
        over = refusing(opened, OUT, DiskFullError("the disk is full"))
        sender = opened.groups.group("g").output_sender
        stuck = [
            await begin(link, [first], to_out(opened, b"1"), to_out(opened, b"1", topic="other")),
            await begin(link, [second], to_out(opened, b"2")),
        ]
        await until(lambda: outbox(opened).troubles)
        await until(lambda: next(iter(sender._troubles.values())).pause_seconds > 0.2)
        assert not sender._stale, "nothing has to be renewed because of what follows from the refusal"
        assert list(outbox(opened).troubles.values()) == ["outputs wait for topic out: the disk is full"]
        [alarm] = opened.groups.group("g").inspector.alarms(opened.groups.group("g").moment())
        assert (alarm.kind.value, alarm.message) == ("outputs", "outputs wait for topic out: the disk is full")
        with pytest.raises(OverloadedError, match="the disk is full; try again later"):
            await settle(link, [third], to_out(opened, b"3"))
        assert await settle(link, [fourth], to_out(opened, b"4", topic="other")) == []
        assert await values_in(opened, "other") == [b"1", b"4"]
        assert not any(answer.done() for answer in stuck)
        over.set()
        sender.topics_changed()
        assert await asyncio.gather(*stuck) == [[], []]
        assert not outbox(opened).troubles
        assert await settle(link, [third, fifth], to_out(opened, b"3")) == []
        assert await values_in(opened) == [b"1", b"2", b"3"]


def output_alarms(opened: Shell) -> list[str]:
    group = opened.groups.group("g")
    return [each.message for each in group.inspector.alarms(group.moment()) if each.kind is AlarmKind.OUTPUTS]


def set_time(opened: Shell, monkeypatch: pytest.MonkeyPatch, seconds: Callable[[], float]) -> None:
    group = opened.groups.group("g")
    for where in (group, group._context):
        monkeypatch.setattr(where, "moment", lambda: Moment(seconds(), 0))


def no_room(opened: Shell, patched: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DiskFullError("full")

    patched.setattr(opened.groups.group("g"), "check_room", full)


def no_producer(opened: Shell, patched: pytest.MonkeyPatch) -> None:
    async def full() -> tuple[int, int]:
        raise DiskFullError("full")

    patched.setattr(opened.engine, "init_producer_id", full)


def offline(opened: Shell, patched: pytest.MonkeyPatch) -> None:
    facts, topic_id = opened.engine.partition_facts, opened.engine.topic(OUT).id

    def missing(asked: TopicId, partition: int) -> Any:
        if asked == topic_id:
            raise PartitionOfflineError("full")
        return facts(asked, partition)

    patched.setattr(opened.engine, "partition_facts", missing)


def full_outbox(opened: Shell, patched: pytest.MonkeyPatch) -> None:
    patched.setattr("logbroker.queues.outputs.sender.MAX_OUTBOX_BYTES", -1)


@pytest.mark.parametrize("obstacle", [no_room, no_producer, offline, full_outbox])
async def test_an_alarm_says_why_an_ack_waits_before_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: Callable[[Shell, pytest.MonkeyPatch], None]
) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 1)
        await opened.topic("other")
        [receipt] = await taken(link, 1)
        seconds = monotonic()
        set_time(opened, monkeypatch, lambda: seconds)
        outputs = [to_out(opened, b"v"), *([to_out(opened, b"v", topic="other")] if obstacle is offline else [])]
        with monkeypatch.context() as patched:
            obstacle(opened, patched)
            for waited in (0.0, 1.1):
                assert output_alarms(opened) == []
                seconds += waited
                with pytest.raises(LogbrokerError):
                    await settle(link, [receipt], *outputs)
            [alarm] = output_alarms(opened)
            assert alarm.startswith("acks with outputs for topic out wait: ")
            seconds += 6
            assert output_alarms(opened) == [], "nobody tries any more"
            for _ in range(2):
                with pytest.raises(LogbrokerError):
                    await settle(link, [receipt], *outputs)
                seconds += 1.1
            assert output_alarms(opened) == [alarm]
        assert await settle(link, [receipt], *outputs) == []
        assert output_alarms(opened) == []


async def test_what_refuses_an_output_for_good_is_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 1)
        [receipt] = await taken(link, 1)
        seconds = monotonic()
        set_time(opened, monkeypatch, lambda: seconds)
        for _ in range(3):
            with pytest.raises(UnknownPartitionError):
                await settle(link, [receipt], to_out(opened, b"v", partition=7))
            seconds += 1.1
        assert output_alarms(opened) == []


async def test_a_stop_does_not_wait_for_a_topic_that_takes_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 1)
        [receipt] = await taken(link, 1)
        refusing(opened, OUT, DiskFullError("the disk is full"))
        answer = await begin(link, [receipt], to_out(opened, b"1"))
        group = opened.groups.group("g")
        await until(lambda: outbox(opened).troubles)
        group.freeze()
        with pytest.raises(LogbrokerError, match="appended after the next start"):
            await answer
    async with shell(tmp_path) as opened:
        await until(lambda: not len(outbox(opened)))
        assert await values_in(opened) == [b"1"]


async def test_a_stop_answers_what_was_settled_before(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 1)
        [receipt] = await taken(link, 1)
        answer = await begin(link, [receipt], to_out(opened, b"1"))
        opened.groups.group("g").freeze()
        assert await answer == []
        assert await values_in(opened) == [b"1"]


async def test_the_outbox_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logbroker.queues.outputs.sender.MAX_OUTBOX_BYTES", 1000)
    async with shell(tmp_path) as opened:
        link = await open_group(opened, 2)
        first, second = await taken(link, 2)
        with opened.commits_held() as release:
            answer = await begin(link, [first], to_out(opened, bytes(2000)))
            with pytest.raises(OverloadedError):
                await begin(link, [second], to_out(opened, b"v"))
            release.set()
            assert await answer == []
        assert await settle(link, [second], to_out(opened, b"v")) == []


@pytest.mark.parametrize("planted", ["no search", "entry forgotten", "sent at once"])
async def test_planted_bugs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    """The tests above can fail."""
    with monkeypatch.context() as patched:
        if planted == "no search":

            async def nothing(*_: object) -> set[object]:
                return set()

            patched.setattr("logbroker.queues.outputs.sender.appended", nothing)
            with pytest.raises(AssertionError):
                await test_a_crash_after_the_append_doubles_no_output(tmp_path, monkeypatch)
        elif planted == "entry forgotten":
            patched.setattr(TransactionalOutbox, "load", lambda self, rows: None)
            with pytest.raises(AssertionError):
                await test_a_crash_before_the_append_loses_no_output(tmp_path, monkeypatch)
        else:
            settled = QueueGroup._settle

            def send_first(self: QueueGroup, worker_id: str, settlement: Settlement) -> asyncio.Future[list[Refusal]]:
                for output in settlement.outputs:
                    asyncio.get_running_loop().create_task(
                        self._engine.append([Append(TopicId(output.topic_id), output.partition, output.batch)])
                    )
                return settled(self, worker_id, settlement)

            patched.setattr(QueueGroup, "_settle", send_first)
            with pytest.raises(AssertionError):
                await test_a_settlement_that_is_refused_sends_nothing(tmp_path)
