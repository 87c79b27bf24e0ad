"""Every error that logbroker raises, in one tree.

Each class has a gRPC code, a stable `reason` for programs and the Kafka error code that it corresponds to. The broker
sends code, reason and message as the status of an item or of a call; the client finds the class by `reason` and raises
the same error.

The docstring of a class is for users: the first paragraph says what happened, the second one what to do. The page
docs/ERRORS.md is made from these docstrings.
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
    """The topic name is not valid.

    Use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'. The names '.' and '..' are not valid.
    """

    reason = "INVALID_TOPIC_NAME"
    kafka_code = 17


class InvalidPartitionsError(InvalidRequestError):
    """The number of partitions is not possible: it is 0, above max_partitions_per_topic, not above the current number,
    or not the sum of the bands. Or the topic has grown too often to grow again.

    Give a number that the message allows. A topic can only get more partitions.
    """

    reason = "INVALID_PARTITIONS"
    kafka_code = 37


class InvalidConfigError(InvalidRequestError):
    """The topic config does not exist, or does not take this value.

    Use a name and a value that `logbroker config --kind topic` lists.
    """

    reason = "INVALID_CONFIG"
    kafka_code = 40


class CorruptBatchError(InvalidRequestError):
    """The lengths, counts or checksum of a record batch do not match its bytes.

    Encode the records again and send the new batch. If it happens again, look for damage between client and broker.
    """

    reason = "CORRUPT_BATCH"
    kafka_code = 2


class SerializationError(InvalidRequestError):
    """A serializer of the program raised an exception or returned no bytes. Nothing was sent.

    Correct the serializer or the value that it was given.
    """

    reason = "SERIALIZATION_FAILED"


class DeserializationError(InvalidRequestError):
    """The value of a record cannot be decoded as the program asked. `topic`, `partition` and `offset` name the record.

    Handle this record in the program, and read on. A worker nacks the delivery if its handler raises this error.
    """

    reason = "DESERIALIZATION_FAILED"
    topic: str = ""
    partition: int = -1
    offset: int = -1

    def of(self, topic: str, partition: int, offset: int) -> Self:
        """Add the partition and offset of the record, and return the error."""
        self.topic, self.partition, self.offset = topic, partition, offset
        return self


class UnsupportedFormatError(InvalidRequestError):
    """The record batch has another format version (magic) than 2.

    Send batches of version 2, which Kafka has used since 0.11, or plain records.
    """

    reason = "UNSUPPORTED_FORMAT"
    kafka_code = 43


class InvalidRecordError(InvalidRequestError):
    """The log does not take the batch: it is a control batch or transactional, was stamped by a broker, has unknown
    attributes, or has a producer id without epoch and sequence.

    Send ordinary batches, or plain records.
    """

    reason = "INVALID_RECORD"
    kafka_code = 87


class RecordTooLargeError(InvalidRequestError):
    """The record batch is larger than max.message.bytes of its topic. Or the outputs of one delivery have more than
    1 MiB or 10,000 records.

    Send smaller records or batches, or raise max.message.bytes with `logbroker topic alter`. If the outputs have too
    many bytes, send a reference to large values.
    """

    reason = "RECORD_TOO_LARGE"
    kafka_code = 10
    max_message_bytes: int = 0
    """The topic's max.message.bytes when it refused the batch; 0: not known."""

    def with_bound(self, max_message_bytes: int) -> Self:
        """Add the limit of the topic, and return the error."""
        self.max_message_bytes = max_message_bytes
        return self


class InvalidTimestampError(InvalidRequestError):
    """The timestamp of a record is too far ahead of the broker's clock: further than message.timestamp.after.max.ms.

    Correct the clock of the producer, or raise message.timestamp.after.max.ms of the topic.
    """

    reason = "INVALID_TIMESTAMP"
    kafka_code = 32
    max_timestamp_ms: int = 0
    """The latest timestamp that the topic took when it refused the batch; 0: not known."""

    def with_bound(self, max_timestamp_ms: int) -> Self:
        """Add the limit of the topic, and return the error."""
        self.max_timestamp_ms = max_timestamp_ms
        return self


class UnsupportedCompressionError(InvalidRequestError):
    """The compression codec does not exist.

    Use none, gzip, snappy, lz4 or zstd.
    """

    reason = "UNSUPPORTED_COMPRESSION"
    kafka_code = 76


class BatchExpandsTooFarError(InvalidRequestError):
    """The compressed batch decodes to more bytes, records or headers than the broker reads.

    Send the records in smaller batches.
    """

    reason = "BATCH_EXPANDS_TOO_FAR"
    kafka_code = 10


class UnsupportedFeatureError(LogbrokerError):
    """The request uses a part of the API that is not implemented, such as transactions.

    Leave out the field that the message names.
    """

    code = Code.UNIMPLEMENTED
    reason = "UNSUPPORTED_FEATURE"
    kafka_code = 35


# --- things that are not there, or there already -------------------------------------------------------------------


class UnknownTopicError(LogbrokerError):
    """No topic has this name or id.

    Check the name, or create the topic. A topic that was deleted and created again has a new id.
    """

    code = Code.NOT_FOUND
    reason = "UNKNOWN_TOPIC"
    kafka_code = 3


class UnknownPartitionError(LogbrokerError):
    """The topic has no partition with this number.

    Use a partition that `logbroker topic describe` lists.
    """

    code = Code.NOT_FOUND
    reason = "UNKNOWN_PARTITION"
    kafka_code = 3


class TopicExistsError(LogbrokerError):
    """A topic with this name exists already.

    Use that topic, or choose another name.
    """

    code = Code.ALREADY_EXISTS
    reason = "TOPIC_EXISTS"
    kafka_code = 36


class NoCommittedOffsetError(LogbrokerError):
    """The group has committed no offset in this partition, and the reset policy of the consumer is none.

    Seek to an offset, set one with `logbroker group reset-offsets`, or use another reset policy.
    """

    code = Code.FAILED_PRECONDITION
    reason = "NO_COMMITTED_OFFSET"
    kafka_code = -1


class OffsetOutOfRangeError(LogbrokerError):
    """The offset is below the log start offset or above the high watermark.

    Go on at the earliest or the latest offset. The records below the log start offset were deleted, by retention or on
    request.
    """

    code = Code.OUT_OF_RANGE
    reason = "OFFSET_OUT_OF_RANGE"
    kafka_code = 1


# --- fences --------------------------------------------------------------------------------------------------------


class RecordsNeededError(LogbrokerError):
    """A queue group still needs records that are to be deleted: those of stalled lanes could not be copied yet.

    Look into the log of the broker, which says why. Mend that and try again, or delete the queue group.
    """

    code = Code.UNAVAILABLE
    reason = "RECORDS_NEEDED"
    kafka_code = 7
    retriable = True


class StaleGenerationError(LogbrokerError):
    """The records were routed by an old number of partitions: the topic has grown since.

    Describe the topic, choose the partitions again, and send the records again. The Python producer does all this
    itself.
    """

    code = Code.FAILED_PRECONDITION
    reason = "STALE_GENERATION"
    kafka_code = 74


class FixedTopicError(LogbrokerError):
    """The bands of a topic cannot change, nor can the number of partitions of a topic that has bands, or that a queue
    group with ordering single reads.

    Create another topic, and move the records there. Or give the queue group another ordering first.
    """

    code = Code.FAILED_PRECONDITION
    reason = "FIXED_TOPIC"
    kafka_code = 44


class NotReplicatedError(LogbrokerError):
    """The topic of the cluster has several replicas, but one of them is enough for an acknowledgement, so the loss of
    one could lose acknowledged records. Nothing was appended.

    Set min.insync.replicas of the topic to 2 with the tools of the cluster; a gateway notices after 10 s. Or let the
    gateways accept it, by the setting `allow_single_replica_acks`.
    """

    code = Code.FAILED_PRECONDITION
    reason = "NOT_REPLICATED"
    kafka_code = 44


class LogTruncatedError(LogbrokerError):
    """The broker cut the log after the caller had read it: the records above the cut are gone.

    Discard all results of those records, and go on at `cut_offset`.
    """

    code = Code.FAILED_PRECONDITION
    reason = "LOG_TRUNCATED"
    kafka_code = 74

    cut_offset = -1
    """The offset at which the log was cut, and at which to go on; -1: not known."""
    cut_offsets: Mapping[TopicPartition, int] = MappingProxyType({})
    """The cut offset of each partition, if a consumer raises the error."""


class ProducerFencedError(LogbrokerError):
    """Another instance of this producer has taken over: it uses the same producer id with a newer epoch.

    Stop this instance.
    """

    code = Code.FAILED_PRECONDITION
    reason = "PRODUCER_FENCED"
    kafka_code = 47


class OutOfOrderSequenceError(LogbrokerError):
    """The batch of an idempotent producer does not follow its previous batch in this partition.

    Get a new epoch from InitProducerId, and begin again at sequence 0. The Python producer does this itself.
    """

    code = Code.FAILED_PRECONDITION
    reason = "OUT_OF_ORDER_SEQUENCE"
    kafka_code = 45


class UnknownProducerIdError(OutOfOrderSequenceError):
    """The broker has not handed out this producer id, or this batch begins above sequence 0 although the partition has
    no batch of this producer id. The batch was not stored before.

    Get a producer id or a new epoch from InitProducerId, begin at sequence 0, and send the batch again.
    """

    reason = "UNKNOWN_PRODUCER_ID"
    kafka_code = 59


class ProducerForgottenError(OutOfOrderSequenceError):
    """The partition may have forgotten this producer, because it remembers only the producers that wrote last. It does
    not know whether it stored the batch before.

    Look for the records in the topic, or send them again and accept duplicates. Get a new producer id from
    InitProducerId. Raise max_producers if this happens often.
    """

    reason = "PRODUCER_FORGOTTEN"
    kafka_code = 59


# --- limits and temporary failures ---------------------------------------------------------------------------------


class OverloadedError(LogbrokerError):
    """The broker has reached a limit, for example on bytes, calls, groups or partitions. The request had no effect.

    Wait a moment, and send the request again. If the error stays, raise the limit that the message names.
    """

    code = Code.RESOURCE_EXHAUSTED
    reason = "OVERLOADED"
    kafka_code = 89
    retriable = True


class DiskFullError(LogbrokerError):
    """The disk has too little free space (min_free_disk_bytes), or too few free inodes. The request wrote nothing.

    Free space on the disk, delete topics or lower their retention. Then send the request again.
    """

    code = Code.RESOURCE_EXHAUSTED
    reason = "DISK_FULL"
    kafka_code = 56
    retriable = True


class TooManyOpenFilesError(LogbrokerError):
    """The process cannot open another file. The request wrote nothing.

    Raise the limit on open files (`ulimit -n`, or LimitNOFILE= of systemd), and restart the broker.
    """

    code = Code.RESOURCE_EXHAUSTED
    reason = "TOO_MANY_OPEN_FILES"
    kafka_code = 56
    retriable = True


class RequestTimeoutError(LogbrokerError):
    """No answer came within the time for the request. If the request asked for a change, the change may still take
    effect, now or later.

    Send the request again; a batch of an idempotent producer is never stored twice. Before you repeat any other change,
    check whether it took effect.
    """

    code = Code.DEADLINE_EXCEEDED
    reason = "REQUEST_TIMEOUT"
    kafka_code = 7
    retriable = True


class BrokerUnavailableError(LogbrokerError):
    """The broker cannot be reached or is stopping, or the connection broke before the answer came. The message says
    whether a change may have taken effect.

    Check the address, and that the broker is running. Then proceed as with REQUEST_TIMEOUT.
    """

    code = Code.UNAVAILABLE
    reason = "BROKER_UNAVAILABLE"
    kafka_code = 8
    retriable = True


# --- storage -------------------------------------------------------------------------------------------------------


class PartitionOfflineError(LogbrokerError):
    """The files of the partition are damaged in a part that was known to be on disk. The other partitions work.

    Look at the damage with `logbroker segment verify`. Stop the broker, and restore the files from a backup or mend
    them with `logbroker segment repair`.
    """

    code = Code.UNAVAILABLE
    reason = "PARTITION_OFFLINE"
    kafka_code = 56


class CorruptLogError(LogbrokerError):
    """Stored bytes are damaged: they differ from the bytes that the broker wrote. The message names the file and the
    byte.

    Proceed as with PARTITION_OFFLINE. For the metadata store, restore a backup with `logbroker meta restore`.
    """

    code = Code.DATA_LOSS
    reason = "CORRUPT_LOG"
    kafka_code = 56

    readable_from = -1
    """Offset after the part of the log that cannot be read; -1: not known. Only the broker's own errors have it."""


def unreadable_row(table: str, key: bytes, why: object) -> CorruptLogError:
    """Return the error for a row of the metadata store that cannot be read, although its checksum is right."""
    return CorruptLogError(
        f"the row under key {key.hex()} in table {table} of the metadata store cannot be read: {why}; start the version"
        " of logbroker that wrote it, or restore a backup (logbroker meta restore)"
    )


class StorageFailedError(LogbrokerError):
    """A write, sync, rename or metadata commit failed. The broker stops, because it no longer knows what is on the
    disk.

    Check the disk and the system log, then start the broker. It recovers its data when it starts.
    """

    code = Code.INTERNAL
    reason = "STORAGE_FAILED"
    kafka_code = 56


class StaleOwnerError(LogbrokerError):
    """Another gateway has taken over this part of the groups' state, and serves its groups now.

    Connect to the other gateway: clients that know several addresses do so by themselves.
    """

    code = Code.UNAVAILABLE
    reason = "STALE_OWNER"
    kafka_code = 16
    retriable = True
    owner: str = ""
    """HOST:PORT of the gateway that serves the groups; "": not known."""

    def owned_by(self, owner: str) -> Self:
        """Add the address of the owner, and return the error."""
        self.owner = owner
        return self


class DataDirError(LogbrokerError):
    """The data directory cannot be used: another broker uses it, it is not writable, or its format is unknown.

    Stop the other broker, correct the permissions, or name another directory.
    """

    code = Code.FAILED_PRECONDITION
    reason = "DATA_DIR"
    kafka_code = 57


class ListenError(LogbrokerError):
    """The broker cannot listen on this address.

    Choose a free port, and an address of this machine.
    """

    code = Code.UNAVAILABLE
    reason = "LISTEN"
    kafka_code = -1


class UnsupportedPlatformError(LogbrokerError):
    """This operating system lacks functions that a broker needs.

    Run the broker on Linux or macOS, for example in a container or in WSL. Clients and segment tools work here.
    """

    code = Code.UNIMPLEMENTED
    reason = "UNSUPPORTED_PLATFORM"
    kafka_code = -1


class ConfigFileError(LogbrokerError):
    """The settings file cannot be read, or it has an unknown name or a wrong value.

    Correct the file as the message says. `logbroker config` lists the settings.
    """

    code = Code.INVALID_ARGUMENT
    reason = "CONFIG_FILE"
    kafka_code = 40


class ForkedProcessError(LogbrokerError):
    """The process was forked while its parent used clients. gRPC does not work in such a process.

    Open clients after the fork, close the clients of the parent before the fork, or start processes with spawn or
    forkserver.
    """

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
    """Return the error of a status: the class with its reason, else the class for its gRPC code."""
    cls = _BY_REASON.get(reason) or _BY_CODE.get(code, LogbrokerError)
    return cls(message)
