"""Granted records that do not fit into a message are granted again, in their order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from logbroker.queues.delivery import dispatcher
from logbroker.queues.model.messages import Delivered, Granted, Settlement
from logbroker.queues.model.settings import Ordering
from logbroker.queues.model.worker_messages import DISPATCH_BYTES
from tests.queues.shell import hello, shell, take

SMALL_COUNT = 1_000
LARGE_COUNT = 2_000
PIECE = 100


@pytest.mark.parametrize("ordering", [Ordering.NONE, Ordering.KEY])
async def test_pieces_that_do_not_fit_into_a_message_come_again_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordering: Ordering
) -> None:
    monkeypatch.setattr(dispatcher, "SLICE", PIECE)
    monkeypatch.setattr(dispatcher, "SLICE_OF_RUN", PIECE)
    size = 4 * DISPATCH_BYTES // LARGE_COUNT
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(ordering=ordering, max_in_flight=SMALL_COUNT + LARGE_COUNT)
        link = await group.connect(hello())
        # Small ones first, by which the line judges how many of the next fit.
        await opened.append(*[(b"small-%d" % number, b"") for number in range(SMALL_COUNT)])
        await take(link, SMALL_COUNT)
        for start in range(0, LARGE_COUNT, 200):
            await opened.append(*[(b"%d" % number, bytes(size)) for number in range(start, start + 200)])
        await group.scanner.catch_up(60)
        released = []
        release = dispatcher.Dispatcher.release

        def spied(self: dispatcher.Dispatcher, worker_id: str, receipts: list[tuple[int, int]]) -> None:
            released.append(len(receipts))
            release(self, worker_id, receipts)

        monkeypatch.setattr(dispatcher.Dispatcher, "release", spied)
        taken = await take(link, LARGE_COUNT)
        assert [record.key for _, record in taken] == [b"%d" % number for number in range(LARGE_COUNT)]
        assert max(released) > 1, "the pieces that did not fit are given back at once"


@pytest.mark.parametrize("way", ["no order", "keys", "session"])
async def test_what_never_left_the_broker_is_not_marked_as_handed_out_before(tmp_path: Path, way: str) -> None:
    """Records granted by their mean size that then exceed the credit were never seen by anybody."""
    count, size, in_session = 60, 10_000, way == "session"
    async with shell(tmp_path) as opened, asyncio.timeout(30):
        await opened.topic()
        group = await opened.group(ordering=Ordering.NONE if way == "no order" else Ordering.KEY)
        link = await group.connect(hello(credit_bytes=3 * size))
        keys = [b"k" if in_session else b"%d" % number for number in range(count)]
        await opened.append(*[(key, bytes(size)) for key in keys])
        await group.scanner.catch_up(60)
        link.add_credit(count)
        session = await link.open_session(b"k", count, credit_bytes=3 * size) if in_session else None
        marks: list[bool] = []
        messages: list[Delivered] = []
        while len(marks) < count:
            delivered = await link.next_deliveries()
            link.sending(delivered)
            link.add_credit_bytes(len(delivered.batches), 0 if session is None else session.token)
            marks += delivered.redelivered or [False] * delivered.count
            messages.append(delivered)
        assert len(messages) > 2, "more was granted than fits"
        assert not any(marks)
        if not in_session:
            link.add_credit(count)
        link.drop(messages[-1])
        again = await link.next_deliveries()
        assert not any(again.redelivered)
        receipts = (again.first_receipt, again.first_receipt + again.count - 1)
        assert not await link.settle(Settlement(releases=[receipts]))
        again = await link.next_deliveries()
        assert again.redelivered == [True] * again.count, "which the worker gave back"
        link.drop(again)
        again = await link.next_deliveries()
        assert again.redelivered == [True] * again.count, "which was handed out before that"


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1]), (512, [512]), (767, [767]), (770, [385, 385]), (1200, [600, 600]), (1300, [434, 434, 432])],
)
def test_slices_are_even_and_few(count: int, sizes: list[int]) -> None:
    """A message that carries a small rest costs as much as a full one."""
    granted = Granted(7, list(range(0, 2 * count, 2)), [1] * count, [False] * count)
    slices = list(dispatcher._sliced(granted))
    assert [len(each) for each in slices] == sizes
    assert [each.first_receipt for each in slices] == [7 + sum(sizes[:number]) for number in range(len(sizes))]
    assert [record_id for each in slices for record_id in each.record_ids] == list(range(0, 2 * count, 2))
