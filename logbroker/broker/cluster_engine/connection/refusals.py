"""The errors for what the cluster refuses for good."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from logbroker.errors import (
    BrokerUnavailableError,
    CorruptBatchError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicNameError,
    LogbrokerError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordTooLargeError,
    TopicExistsError,
    UnknownProducerIdError,
    UnknownTopicError,
    UnsupportedCompressionError,
)

_ERRORS: Final[Mapping[int, type[LogbrokerError]]] = MappingProxyType(
    {
        1: OffsetOutOfRangeError,
        2: CorruptBatchError,
        3: UnknownTopicError,
        10: RecordTooLargeError,
        17: InvalidTopicNameError,
        32: InvalidTimestampError,
        36: TopicExistsError,
        37: InvalidPartitionsError,
        38: InvalidPartitionsError,
        40: InvalidConfigError,
        45: OutOfOrderSequenceError,
        47: ProducerFencedError,
        59: UnknownProducerIdError,
        76: UnsupportedCompressionError,
        87: InvalidRecordError,
        90: ProducerFencedError,
        100: UnknownTopicError,
    }
)


def refusal(code: int, what: str, message: str | None = None) -> LogbrokerError:
    """Return the error for one of Kafka's error codes. `what` says what was refused, `message` is the cluster's own."""
    said = f": {message}" if message else ""
    return _ERRORS.get(code, BrokerUnavailableError)(f"the cluster refused {what} with Kafka's error {code}{said}")
