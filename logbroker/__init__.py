"""logbroker: a persistent, partitioned, log-structured message broker that `pip` can install.

Nothing is imported before it is used: `import logbroker` is fast, and a broker never loads the client. The errors come
from `logbroker.errors`; all are derived from LogbrokerError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

# Type checkers and editors read these names. They must not see `__getattr__`, so that they report all other names.
if TYPE_CHECKING:
    from logbroker.client import Admin, Consumer, Producer, Worker
    from logbroker.embedded_broker import EmbeddedBroker, embedded
    from logbroker.errors import (
        AlreadySettledError,
        AssignorMismatchError,
        BatchExpandsTooFarError,
        BrokerUnavailableError,
        ConcurrentUseError,
        ConfigFileError,
        CorruptBatchError,
        CorruptLogError,
        DataDirError,
        DeserializationError,
        DiskFullError,
        FixedTopicError,
        ForkedProcessError,
        GroupExistsError,
        GroupNotEmptyError,
        GrowthOrderMismatchError,
        InstanceIdInUseError,
        InvalidConfigError,
        InvalidGroupIdError,
        InvalidPartitionsError,
        InvalidRecordError,
        InvalidRequestError,
        InvalidTimestampError,
        InvalidTopicNameError,
        LaneNotHeldError,
        LeaseLostError,
        ListenError,
        LogbrokerError,
        LogTruncatedError,
        MemberFencedError,
        MemberIdInUseError,
        MemberNotReleasedError,
        MemberReplacedError,
        NoCommittedOffsetError,
        NoFreeSessionError,
        NotHolderError,
        NotOwnerError,
        OffsetGoesBackError,
        OffsetMetadataTooLargeError,
        OffsetOutOfRangeError,
        OffsetsFullError,
        OutOfOrderSequenceError,
        OverloadedError,
        PartitionOfflineError,
        PollTimedOutError,
        ProducerFencedError,
        ProducerForgottenError,
        RebalanceTimedOutError,
        RecordsNeededError,
        RecordTooLargeError,
        RequestTimeoutError,
        SerializationError,
        SessionHeldError,
        SessionTimedOutError,
        StaleGenerationError,
        StaleMemberEpochError,
        StaleSessionError,
        StateTooLargeError,
        StorageFailedError,
        TooManyOpenFilesError,
        TopicExistsError,
        UnknownGroupError,
        UnknownLaneError,
        UnknownMemberError,
        UnknownPartitionError,
        UnknownProducerIdError,
        UnknownReceiptError,
        UnknownTopicError,
        UnsupportedCompressionError,
        UnsupportedFeatureError,
        UnsupportedFormatError,
        UnsupportedPlatformError,
        WorkerIdInUseError,
        WorkerReplacedError,
        WrongGroupTypeError,
    )

__all__ = [
    "Admin",
    "Consumer",
    "EmbeddedBroker",
    "Producer",
    "Worker",
    "__version__",
    "embedded",
    # The errors.
    "AlreadySettledError",
    "AssignorMismatchError",
    "BatchExpandsTooFarError",
    "BrokerUnavailableError",
    "ConcurrentUseError",
    "ConfigFileError",
    "CorruptBatchError",
    "CorruptLogError",
    "DataDirError",
    "DeserializationError",
    "DiskFullError",
    "FixedTopicError",
    "ForkedProcessError",
    "GroupExistsError",
    "GroupNotEmptyError",
    "GrowthOrderMismatchError",
    "InstanceIdInUseError",
    "InvalidConfigError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidRecordError",
    "InvalidRequestError",
    "InvalidTimestampError",
    "InvalidTopicNameError",
    "LaneNotHeldError",
    "LeaseLostError",
    "ListenError",
    "LogTruncatedError",
    "LogbrokerError",
    "MemberFencedError",
    "MemberIdInUseError",
    "MemberNotReleasedError",
    "MemberReplacedError",
    "NoCommittedOffsetError",
    "NoFreeSessionError",
    "NotHolderError",
    "NotOwnerError",
    "OffsetGoesBackError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OffsetsFullError",
    "OutOfOrderSequenceError",
    "OverloadedError",
    "PartitionOfflineError",
    "PollTimedOutError",
    "ProducerFencedError",
    "ProducerForgottenError",
    "RebalanceTimedOutError",
    "RecordTooLargeError",
    "RecordsNeededError",
    "RequestTimeoutError",
    "SerializationError",
    "SessionHeldError",
    "SessionTimedOutError",
    "StaleGenerationError",
    "StaleMemberEpochError",
    "StaleSessionError",
    "StateTooLargeError",
    "StorageFailedError",
    "TooManyOpenFilesError",
    "TopicExistsError",
    "UnknownGroupError",
    "UnknownLaneError",
    "UnknownMemberError",
    "UnknownPartitionError",
    "UnknownProducerIdError",
    "UnknownReceiptError",
    "UnknownTopicError",
    "UnsupportedCompressionError",
    "UnsupportedFeatureError",
    "UnsupportedFormatError",
    "UnsupportedPlatformError",
    "WorkerIdInUseError",
    "WorkerReplacedError",
    "WrongGroupTypeError",
]

__version__ = "0.1.0"

_HOMES: Final = {
    "Admin": "logbroker.client",
    "Consumer": "logbroker.client",
    "Producer": "logbroker.client",
    "Worker": "logbroker.client",
    "EmbeddedBroker": "logbroker.embedded_broker",
    "embedded": "logbroker.embedded_broker",
} | {name: "logbroker.errors" for name in __all__ if name.endswith("Error")}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'logbroker' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
