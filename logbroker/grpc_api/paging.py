"""Answers with an item for each of many: in pages, sorted by an id, where a page goes on behind the last id of the one
before; or, for those that were named, as many as there is room for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from logbroker.errors import InvalidRequestError, LogbrokerError, OverloadedError
from logbroker.grpc_api.refs import MAX_ITEMS
from logbroker.v1.admin_pb2 import ListTopicsRequest
from logbroker.v1.groups_pb2 import ListGroupsRequest

FRAME_BYTES: Final = 5
"""At most, around an item of a list in an answer."""

_Item = TypeVar("_Item", bound=Message)
_Named = TypeVar("_Named")


def page_of(
    request: ListTopicsRequest | ListGroupsRequest, ids: Sequence[str], item: Callable[[str], _Item], room_bytes: int
) -> tuple[list[_Item], str]:
    """Return the items of the page asked for and the token of the next page, "" where there is none.

    `ids` are sorted, `item` makes the item of one, and a page takes no more after its items fill `room_bytes`. Raises
    InvalidRequestError.
    """
    page_size = request.page_size if request.HasField("page_size") else MAX_ITEMS
    if page_size < 1:
        raise InvalidRequestError(f"page_size must be at least 1, not {page_size}; leave it out for the broker's")
    items: list[_Item] = []
    first = bisect_right(ids, request.page_token)
    for index in range(first, len(ids)):
        if len(items) >= page_size or room_bytes <= 0:
            return items, ids[index - 1]
        items.append(item(ids[index]))
        room_bytes -= items[-1].ByteSize() + FRAME_BYTES
    return items, ""


def items_within(
    named: Iterable[_Named],
    item: Callable[[_Named], _Item],
    refusal: Callable[[LogbrokerError], _Item],
    room_bytes: int,
) -> list[_Item]:
    """Return the item of each, or why there is none: what finds no room in `room_bytes` is refused, and all after it.

    The first is sent whole, however large it is: no other answer could tell of it.
    """
    full = refusal(OverloadedError("the answer is full; ask for the rest in another call"))
    items: list[_Item] = []
    for each in named:
        try:
            found = item(each) if room_bytes > 0 else full
        except LogbrokerError as error:
            found = refusal(error)
        if found.ByteSize() > room_bytes and items:
            found, room_bytes = full, 0
        room_bytes -= found.ByteSize() + FRAME_BYTES
        items.append(found)
    return items
