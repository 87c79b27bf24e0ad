"""Failed gRPC calls, in the client's words."""

from __future__ import annotations

import grpc
import pytest

from logbroker.client.transport.status import error_of_call
from logbroker.errors import BrokerUnavailableError, RequestTimeoutError


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
def test_a_call_that_ends_with_its_connection_can_be_tried_again(code: grpc.StatusCode) -> None:
    failure = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=code.name)
    error = error_of_call(failure, "127.0.0.1:9192")
    assert isinstance(error, BrokerUnavailableError)
    assert error.retriable


def test_a_stream_that_ends_while_a_message_is_written_names_the_broker() -> None:
    code, details = grpc.StatusCode.INTERNAL, "Internal error from Core"
    error = error_of_call(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details), "b:1")
    assert isinstance(error, BrokerUnavailableError)
    assert error.retriable
    assert error.message == "the broker at b:1 went away, or ended the stream"


def test_a_call_without_an_answer_names_the_broker() -> None:
    code = grpc.StatusCode.DEADLINE_EXCEEDED
    failure = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="Deadline Exceeded")
    error = error_of_call(failure, "127.0.0.1:9192")
    assert isinstance(error, RequestTimeoutError)
    assert "127.0.0.1:9192 has not answered" in error.message
