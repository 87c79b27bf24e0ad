"""Every error that logbroker raises, in one tree.

Each class carries its gRPC code, a stable `reason` for programs and the Kafka error code it corresponds to. The broker
turns an error into a status (of an item or of a call) by these three; the client finds the class again by `reason`
and raises the same error. Messages tell the user what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

from logbroker.errors.base import Code as Code
from logbroker.errors.base import ConcurrentUseError as ConcurrentUseError
from logbroker.errors.base import InvalidRequestError as InvalidRequestError
from logbroker.errors.base import LogbrokerError as LogbrokerError
from logbroker.errors.base import quoted as quoted
from logbroker.errors.base import quoted_key as quoted_key
from logbroker.errors.groups import AssignorMismatchError as AssignorMismatchError
from logbroker.errors.groups import GroupNotEmptyError as GroupNotEmptyError
from logbroker.errors.groups import GrowthOrderMismatchError as GrowthOrderMismatchError
from logbroker.errors.groups import InstanceIdInUseError as InstanceIdInUseError
from logbroker.errors.groups import InvalidGroupIdError as InvalidGroupIdError
from logbroker.errors.groups import MemberFencedError as MemberFencedError
from logbroker.errors.groups import MemberIdInUseError as MemberIdInUseError
from logbroker.errors.groups import MemberNotReleasedError as MemberNotReleasedError
from logbroker.errors.groups import MemberReplacedError as MemberReplacedError
from logbroker.errors.groups import NotOwnerError as NotOwnerError
from logbroker.errors.groups import OffsetGoesBackError as OffsetGoesBackError
from logbroker.errors.groups import OffsetMetadataTooLargeError as OffsetMetadataTooLargeError
from logbroker.errors.groups import OffsetsFullError as OffsetsFullError
from logbroker.errors.groups import PollTimedOutError as PollTimedOutError
from logbroker.errors.groups import RebalanceTimedOutError as RebalanceTimedOutError
from logbroker.errors.groups import SessionTimedOutError as SessionTimedOutError
from logbroker.errors.groups import StaleMemberEpochError as StaleMemberEpochError
from logbroker.errors.groups import UnknownGroupError as UnknownGroupError
from logbroker.errors.groups import UnknownMemberError as UnknownMemberError
from logbroker.errors.queues import AlreadySettledError as AlreadySettledError
from logbroker.errors.queues import GroupExistsError as GroupExistsError
from logbroker.errors.queues import LaneNotHeldError as LaneNotHeldError
from logbroker.errors.queues import LeaseLostError as LeaseLostError
from logbroker.errors.queues import NoFreeSessionError as NoFreeSessionError
from logbroker.errors.queues import NotHolderError as NotHolderError
from logbroker.errors.queues import SessionHeldError as SessionHeldError
from logbroker.errors.queues import StaleSessionError as StaleSessionError
from logbroker.errors.queues import StateTooLargeError as StateTooLargeError
from logbroker.errors.queues import UnknownLaneError as UnknownLaneError
from logbroker.errors.queues import UnknownReceiptError as UnknownReceiptError
from logbroker.errors.queues import WorkerIdInUseError as WorkerIdInUseError
from logbroker.errors.queues import WorkerReplacedError as WorkerReplacedError
from logbroker.errors.queues import WrongGroupTypeError as WrongGroupTypeError
from logbroker.types import TopicPartition

# --- requests that can never succeed -------------------------------------------------------------------------------


class InvalidTopicNameError(InvalidRequestError):
    """Not 1-249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', or '.' or '..'."""

    reason = "INVALID_TOPIC_NAME"
    kafka_code = 17


class InvalidPartitionsError(InvalidRequestError):
    """A partition count of zero, over the limit, or below the current one."""

    reason = "INVALID_PARTITIONS"
    kafka_code = 37


class InvalidConfigError(InvalidRequestError):
    """An unknown config name or a value that it does not take."""

    reason = "INVALID_CONFIG"
    kafka_code = 40


class CorruptBatchError(InvalidRequestError):
    """A batch whose lengths, counts or CRC do not agree with its bytes."""

    reason = "CORRUPT_BATCH"
    kafka_code = 2


class SerializationError(InvalidRequestError):
    """A serializer of the program cannot make bytes of what it was given: nothing was sent."""

    reason = "SERIALIZATION_FAILED"


class DeserializationError(InvalidRequestError):
    """The value of a record is not what the program takes it for. Its place is in `topic`, `partition` and `offset`."""

    reason = "DESERIALIZATION_FAILED"
    topic: str = ""
    partition: int = -1
    offset: int = -1

    def of(self, topic: str, partition: int, offset: int) -> Self:
        """Return the error with the place of its record."""
        self.topic, self.partition, self.offset = topic, partition, offset
        return self


class UnsupportedFormatError(InvalidRequestError):
    """A batch of another magic than 2."""

    reason = "UNSUPPORTED_FORMAT"
    kafka_code = 43


class InvalidRecordError(InvalidRequestError):
    """A record that the log does not take, such as a client's control or transactional batch."""

    reason = "INVALID_RECORD"
    kafka_code = 87


class RecordTooLargeError(InvalidRequestError):
    """A batch over max.message.bytes."""

    reason = "RECORD_TOO_LARGE"
    kafka_code = 10
    max_message_bytes: int = 0
    """What the topic took when it refused; 0: not known."""

    def with_bound(self, max_message_bytes: int) -> Self:
        """Return the error with what the topic takes."""
        self.max_message_bytes = max_message_bytes
        return self


class InvalidTimestampError(InvalidRequestError):
    """A stamp further ahead of the broker's clock than message.timestamp.after.max.ms."""

    reason = "INVALID_TIMESTAMP"
    kafka_code = 32
    max_timestamp_ms: int = 0
    """The latest stamp that the topic took when it refused; 0: not known."""

    def with_bound(self, max_timestamp_ms: int) -> Self:
        """Return the error with what the topic takes."""
        self.max_timestamp_ms = max_timestamp_ms
        return self


class UnsupportedCompressionError(InvalidRequestError):
    """A codec number that Kafka does not define."""

    reason = "UNSUPPORTED_COMPRESSION"
    kafka_code = 76


class BatchExpandsTooFarError(InvalidRequestError):
    """A compressed batch that would decode to more bytes than allowed: a compression bomb."""

    reason = "BATCH_EXPANDS_TOO_FAR"
    kafka_code = 10


class UnsupportedFeatureError(LogbrokerError):
    """Part of the API, refused for now."""

    code = Code.UNIMPLEMENTED
    reason = "UNSUPPORTED_FEATURE"
    kafka_code = 35


# --- things that are not there, or there already -------------------------------------------------------------------


class UnknownTopicError(LogbrokerError):
    """No topic of this name or id."""

    code = Code.NOT_FOUND
    reason = "UNKNOWN_TOPIC"
    kafka_code = 3


class UnknownPartitionError(LogbrokerError):
    """The topic has no partition of this number."""

    code = Code.NOT_FOUND
    reason = "UNKNOWN_PARTITION"
    kafka_code = 3


class TopicExistsError(LogbrokerError):
    """A topic of this name exists."""

    code = Code.ALREADY_EXISTS
    reason = "TOPIC_EXISTS"
    kafka_code = 36


class NoCommittedOffsetError(LogbrokerError):
    """The group has committed nothing in a partition, and the consumer's reset policy is none."""

    code = Code.FAILED_PRECONDITION
    reason = "NO_COMMITTED_OFFSET"
    kafka_code = -1


class OffsetOutOfRangeError(LogbrokerError):
    """An offset below the log start offset or above the high watermark."""

    code = Code.OUT_OF_RANGE
    reason = "OFFSET_OUT_OF_RANGE"
    kafka_code = 1


# --- fences --------------------------------------------------------------------------------------------------------


class StaleGenerationError(LogbrokerError):
    """Keyed records were routed by a partition count that is no longer the topic's: describe the topic, route again."""

    code = Code.FAILED_PRECONDITION
    reason = "STALE_GENERATION"
    kafka_code = 74


class FixedTopicError(LogbrokerError):
    """What cannot change in a topic: its bands and, where it has some, its partitions."""

    code = Code.FAILED_PRECONDITION
    reason = "FIXED_TOPIC"
    kafka_code = 44


class LogTruncatedError(LogbrokerError):
    """The log was cut after the caller read it: what it read above the cut is gone."""

    code = Code.FAILED_PRECONDITION
    reason = "LOG_TRUNCATED"
    kafka_code = 74

    cut_offset = -1
    """Where the log was cut, and where to go on; -1: the broker did not tell."""
    cut_offsets: Mapping[TopicPartition, int] = MappingProxyType({})
    """Where a consumer raises it: the same by partition."""


class ProducerFencedError(LogbrokerError):
    """A newer epoch of this producer id has written."""

    code = Code.FAILED_PRECONDITION
    reason = "PRODUCER_FENCED"
    kafka_code = 47


class OutOfOrderSequenceError(LogbrokerError):
    """A batch of an idempotent producer does not follow its last one."""

    code = Code.FAILED_PRECONDITION
    reason = "OUT_OF_ORDER_SEQUENCE"
    kafka_code = 45


class UnknownProducerIdError(OutOfOrderSequenceError):
    """The partition has nothing of this producer id, yet the batch does not begin at sequence 0, or the id was never
    handed out. This batch was not appended before."""

    reason = "UNKNOWN_PRODUCER_ID"
    kafka_code = 59


class ProducerForgottenError(OutOfOrderSequenceError):
    """The partition may have forgotten this producer id for want of room: whether the batch was appended before is not
    known."""

    reason = "PRODUCER_FORGOTTEN"
    kafka_code = 59


# --- bounds and passing troubles -----------------------------------------------------------------------------------


class OverloadedError(LogbrokerError):
    """A bound on bytes, calls or memory is reached: try again later."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "OVERLOADED"
    kafka_code = 89
    retriable = True


class DiskFullError(LogbrokerError):
    """The disk is at its low-water mark; nothing of the request was written."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "DISK_FULL"
    kafka_code = 56
    retriable = True


class TooManyOpenFilesError(LogbrokerError):
    """No file descriptor is left; nothing of the request was written."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "TOO_MANY_OPEN_FILES"
    kafka_code = 56
    retriable = True


class RequestTimeoutError(LogbrokerError):
    """The time given to a request is over. What it was to change may be changed all the same, now or later."""

    code = Code.DEADLINE_EXCEEDED
    reason = "REQUEST_TIMEOUT"
    kafka_code = 7
    retriable = True


class BrokerUnavailableError(LogbrokerError):
    """The broker cannot be reached or is stopping, or the connection to it broke before the answer: where a change may
    have been made, the message says so."""

    code = Code.UNAVAILABLE
    reason = "BROKER_UNAVAILABLE"
    kafka_code = 8
    retriable = True


# --- storage -------------------------------------------------------------------------------------------------------


class PartitionOfflineError(LogbrokerError):
    """The partition's files are damaged below its recovery point; the others serve."""

    code = Code.UNAVAILABLE
    reason = "PARTITION_OFFLINE"
    kafka_code = 56


class CorruptLogError(LogbrokerError):
    """Stored bytes are not what was written; the message names file and byte."""

    code = Code.DATA_LOSS
    reason = "CORRUPT_LOG"
    kafka_code = 56


def unreadable_row(table: str, key: bytes, why: object) -> CorruptLogError:
    """The error for a row of the metadata store whose checksum is right and that cannot be read all the same."""
    return CorruptLogError(
        f"the row under key {key.hex()} in table {table} of the metadata store cannot be read: {why}; start the version"
        " of logbroker that wrote it, or restore a backup (logbroker meta restore)"
    )


class StorageFailedError(LogbrokerError):
    """A write, sync, rename or metadata commit failed. Fatal: the broker stops without a clean mark."""

    code = Code.INTERNAL
    reason = "STORAGE_FAILED"
    kafka_code = 56


class DataDirError(LogbrokerError):
    """The data directory cannot be used: locked by another broker, not writable, or of an unknown format."""

    code = Code.FAILED_PRECONDITION
    reason = "DATA_DIR"
    kafka_code = 57


class ListenError(LogbrokerError):
    """The broker cannot listen on the given address."""

    code = Code.UNAVAILABLE
    reason = "LISTEN"
    kafka_code = -1


class UnsupportedPlatformError(LogbrokerError):
    """The operating system lacks what a broker needs."""

    code = Code.UNIMPLEMENTED
    reason = "UNSUPPORTED_PLATFORM"
    kafka_code = -1


class ConfigFileError(LogbrokerError):
    """The configuration file cannot be read, has an unknown key or a value of the wrong type."""

    code = Code.INVALID_ARGUMENT
    reason = "CONFIG_FILE"
    kafka_code = 40


class ForkedProcessError(LogbrokerError):
    """A client cannot be used in this process: it was forked from one in which clients were in use."""

    code = Code.FAILED_PRECONDITION
    reason = "FORKED_PROCESS"
    kafka_code = -1


def _tree(root: type[LogbrokerError]) -> list[type[LogbrokerError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


_BY_REASON = {cls.reason: cls for cls in reversed(_tree(LogbrokerError))}
_BY_CODE: dict[int, type[LogbrokerError]] = {
    Code.INVALID_ARGUMENT: InvalidRequestError,
    Code.DEADLINE_EXCEEDED: RequestTimeoutError,
    Code.RESOURCE_EXHAUSTED: OverloadedError,
    Code.UNIMPLEMENTED: UnsupportedFeatureError,
    Code.UNAVAILABLE: BrokerUnavailableError,
}


def from_status(code: int, reason: str, message: str) -> LogbrokerError:
    """Return the error that a status stands for: by its reason, else by its gRPC code."""
    cls = _BY_REASON.get(reason) or _BY_CODE.get(code, LogbrokerError)
    return cls(message)
