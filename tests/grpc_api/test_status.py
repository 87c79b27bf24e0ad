"""Errors on the wire name the owner of a group that another gateway serves."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus

from logbroker.errors import LogbrokerError, StaleOwnerError, UnknownGroupError
from logbroker.grpc_api.status import MAX_MESSAGE_LENGTH, MAX_SENTENCES_BYTES, Context, Statuses, abort

OWNER = "10.0.0.7:9192"


@pytest.mark.parametrize(
    ("error", "metadata"),
    [
        (StaleOwnerError("elsewhere").owned_by(OWNER), {"owner": OWNER}),
        (StaleOwnerError("elsewhere"), {}),
        (UnknownGroupError("no such group"), {}),
    ],
)
async def test_the_status_of_a_call_names_the_owner(error: LogbrokerError, metadata: dict[str, str]) -> None:
    class EndedError(Exception):
        pass

    class Refused:
        trailers: dict[str, bytes]

        async def abort_with_status(self, status: Any) -> None:
            self.trailers = dict(status.trailing_metadata)
            raise EndedError

    context = Refused()
    with pytest.raises(EndedError):
        await abort(cast("Context", context), error)
    info = ErrorInfo()
    assert RpcStatus.FromString(context.trailers["grpc-status-details-bin"]).details[0].Unpack(info)
    assert (info.reason, dict(info.metadata)) == (error.reason, metadata)


def test_the_status_of_an_item_names_the_owner_also_without_a_message() -> None:
    error = StaleOwnerError("x" * MAX_MESSAGE_LENGTH).owned_by(OWNER)
    statuses = Statuses()
    assert statuses.of(error).message
    statuses.beside(MAX_SENTENCES_BYTES)
    later = statuses.of(error)
    assert (later.message, later.reason, later.owner) == ("", "STALE_OWNER", OWNER)
    assert statuses.of(UnknownGroupError("no such group")).owner == ""
