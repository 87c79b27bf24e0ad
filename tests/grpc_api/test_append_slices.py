"""A request of many batches is appended slice by slice: the parts of one item stay together, and all stay in order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logbroker.clock import SystemClock
from logbroker.engine import Append, Appended, Read, ReadResult, RoutingFence
from logbroker.errors import LogbrokerError
from logbroker.grpc_api.log.produce import APPENDS_AT_ONCE, PreparedProduce
from logbroker.grpc_api.log.produce_wire import read_produce
from logbroker.record.codec import decode_batch, split_batches
from logbroker.v1.common_pb2 import Record
from logbroker.v1.log_pb2 import PlainRecords, ProduceItem, ProduceRequest
from tests.grpc_api.turns import served

MAX_BYTES = 1_000
"""Size limit of a batch: about three of the records."""
PARTS = 6
OTHERS = APPENDS_AT_ONCE + 3
"""Items of one batch behind the one of several."""


class Request:
    """One of items of one batch and of several, whose values are numbers in their order."""

    def __init__(self) -> None:
        self.items: list[ProduceItem] = []
        self.values: list[bytes] = []
        self.parts: list[int] = []

    def add(self, parts: int) -> None:
        values = [b"%0300d" % (len(self.values) + number) for number in range(parts * 2)]
        plain = PlainRecords(records=[Record(key=b"k", value=value) for value in values])
        self.items.append(ProduceItem(topic="t", partition=0, records=plain))
        self.values += values
        self.parts.append(parts)

    async def send(self, engine: Any) -> list[Any]:
        message = ProduceRequest(items=self.items).SerializeToString()
        prepared = PreparedProduce(engine, SystemClock(), await read_produce(message), RoutingFence())
        await prepared.prepare()
        assert prepared.is_long
        return list((await prepared.append()).results)


def slices_of(engine: Any, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Append]]:
    """The appends that are asked for at a time, from now on."""
    slices: list[Sequence[Append]] = []
    append = engine.append

    async def noted(appends: Sequence[Append], *args: Any) -> list[Appended | LogbrokerError]:
        slices.append(list(appends))
        found: list[Appended | LogbrokerError] = await append(appends, *args)
        return found

    monkeypatch.setattr(engine, "append", noted)
    return slices


@pytest.mark.parametrize("before", [0, 1, *range(APPENDS_AT_ONCE - PARTS - 1, APPENDS_AT_ONCE + 2)])
async def test_the_parts_of_one_item_stay_together_and_all_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    request = Request()
    for parts in (*[1] * before, PARTS, *[1] * OTHERS, PARTS, PARTS):
        request.add(parts)
    async with served(tmp_path) as broker:
        engine = broker.broker.engine
        topic = await engine.create_topic("t", 1, {"max.message.bytes": str(MAX_BYTES)})
        slices = slices_of(engine, monkeypatch)
        results = await request.send(engine)
        assert not any(result.status.code for result in results)
        [stored] = await engine.read([Read(topic.id, 0, 0, 1 << 24)])
        assert isinstance(stored, ReadResult)
    batches = [list(decode_batch(batch)) for _, batch in split_batches(stored.batches)]
    assert [record.value for batch in batches for record in batch] == request.values
    appends = [append for piece in slices for append in piece]
    assert len(appends) == len(batches) > APPENDS_AT_ONCE, "each once"
    several = [append.room_bytes for append in appends]
    assert several.count(0) >= 3 * (PARTS // 2), "there are items of several parts"
    assert all(piece and piece[0].room_bytes for piece in slices), "a slice begins within an item"
    for piece in slices[:-1]:
        alone = [append for append in piece[APPENDS_AT_ONCE:] if append.room_bytes]
        assert len(piece) >= APPENDS_AT_ONCE
        assert not alone, "a slice goes on for the rest of an item only"
