"""Builds answers that list many items: in pages sorted by id, each beginning after the last id of the previous page;
or, for items that the request names, as many as fit. Both are built in turns (`pacing`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from logbroker.broker.topics import MAX_ITEMS
from logbroker.errors import InvalidRequestError, LogbrokerError, OverloadedError
from logbroker.grpc_api.status import Statuses
from logbroker.pacing import Pace
from logbroker.v1.admin_pb2 import ListTopicsRequest
from logbroker.v1.common_pb2 import Status
from logbroker.v1.groups_pb2 import ListGroupsRequest

FRAME_BYTES: Final = 5
"""Maximum bytes of framing for an item of a list in an answer."""
ITEM_STEPS: Final = 5
"""Steps of a `Pace` that an item takes, in addition to the steps of the function that makes it."""

FULL: Final = OverloadedError("the answer is full; ask for the rest in another call")

TWICE: Final = InvalidRequestError("the request lists this twice; the first place in the list has the answer")

_Item = TypeVar("_Item", bound=Message)
_Named = TypeVar("_Named")


async def page_of(
    request: ListTopicsRequest | ListGroupsRequest,
    ids: Sequence[str],
    item: Callable[[str], _Item],
    room_bytes: int,
    steps: Callable[[str], int] = lambda _: 0,
) -> tuple[list[_Item], str]:
    """Return the items of the requested page, and the token of the next page, "" for the last page.

    `ids` are sorted. `item` makes the item of an id, or raises a LogbrokerError if it was deleted meanwhile; `steps`
    returns how many steps of a `Pace` it takes in addition to ITEM_STEPS. A page ends when its items fill `room_bytes`.
    Raises InvalidRequestError.
    """
    page_size = request.page_size if request.HasField("page_size") else MAX_ITEMS
    if page_size < 1:
        raise InvalidRequestError(
            f"page_size must be at least 1, not {page_size}; leave it out for the broker's default"
        )
    pace = Pace()
    items: list[_Item] = []
    first = bisect_right(ids, request.page_token)
    for index in range(first, len(ids)):
        if len(items) >= page_size or room_bytes <= 0:
            return items, ids[index - 1]
        try:
            found = item(ids[index])
        except LogbrokerError:
            pass  # It was deleted while earlier items were made.
        else:
            items.append(found)
            room_bytes -= found.ByteSize() + FRAME_BYTES
        await pace.step(ITEM_STEPS + steps(ids[index]))
    return items, ""


async def items_within(
    named: Iterable[_Named],
    item: Callable[[_Named, Pace], Awaitable[_Item]],
    refusal: Callable[[Status, _Named], _Item],
    room_bytes: int,
    identity: Callable[[_Named], Hashable],
) -> list[_Item]:
    """Return an item for each of `named`, or its refusal. The first item that does not fit in `room_bytes` is refused,
    and so are all later ones.

    If `identity` returns the same value again, the repetition is refused. The first item is always sent whole: `item`
    makes sure that one item fits. `refusal` must leave out the names if its status has no message.
    """
    pace, statuses = Pace(), Statuses()
    items: list[_Item] = []
    seen: set[Hashable] = set()
    for each in named:
        found: _Item | None = None
        try:
            if room_bytes <= 0:
                raise FULL.anew()
            if (who := identity(each)) in seen:
                raise TWICE.anew()
            seen.add(who)
            found = await item(each, pace)
            if found.ByteSize() > room_bytes and items:
                room_bytes = 0
                raise FULL.anew()
        except LogbrokerError as error:
            status = statuses.of(error)
            found = refusal(status, each)
            statuses.beside(found.ByteSize() - status.ByteSize())
        room_bytes -= found.ByteSize() + FRAME_BYTES
        items.append(found)
        await pace.step(ITEM_STEPS)
    return items


async def outcomes_within(
    named: Iterable[_Named],
    change: Callable[[_Named], Awaitable[_Item]],
    refusal: Callable[[Status], _Item],
    room_bytes: int,
) -> list[_Item]:
    """Apply a change for each of `named`, one after the other, and return the outcomes, or the refusals.

    When the answer is full, the remaining changes are refused and not tried, so that every change is reported.
    """
    pace, statuses = Pace(), Statuses()
    items: list[_Item] = []
    for each in named:
        try:
            if room_bytes <= 0:
                raise FULL.anew()
            found = await change(each)
        except LogbrokerError as error:
            found = refusal(statuses.of(error))
        room_bytes -= found.ByteSize() + FRAME_BYTES
        items.append(found)
        await pace.step(ITEM_STEPS)
    return items
