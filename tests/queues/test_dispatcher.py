"""What was granted and does not fit into a message is granted again, in the order of the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from logbroker.queues.delivery import dispatcher
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
