from logbroker.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_WRITTEN: _ClassVar[Durability]
    DURABILITY_SYNCED: _ClassVar[Durability]

class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISOLATION_READ_UNCOMMITTED: _ClassVar[Isolation]
    ISOLATION_READ_COMMITTED: _ClassVar[Isolation]

class OffsetSpec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OFFSET_SPEC_UNSPECIFIED: _ClassVar[OffsetSpec]
    OFFSET_SPEC_EARLIEST: _ClassVar[OffsetSpec]
    OFFSET_SPEC_LATEST: _ClassVar[OffsetSpec]
DURABILITY_UNSPECIFIED: Durability
DURABILITY_WRITTEN: Durability
DURABILITY_SYNCED: Durability
ISOLATION_READ_UNCOMMITTED: Isolation
ISOLATION_READ_COMMITTED: Isolation
OFFSET_SPEC_UNSPECIFIED: OffsetSpec
OFFSET_SPEC_EARLIEST: OffsetSpec
OFFSET_SPEC_LATEST: OffsetSpec

class ProduceRequest(_message.Message):
    __slots__ = ("correlation_id", "durability", "items")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    durability: Durability
    items: _containers.RepeatedCompositeFieldContainer[ProduceItem]
    def __init__(self, correlation_id: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., items: _Optional[_Iterable[_Union[ProduceItem, _Mapping]]] = ...) -> None: ...

class ProduceItem(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "generation", "batch", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    generation: int
    batch: bytes
    records: PlainRecords
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., generation: _Optional[int] = ..., batch: _Optional[bytes] = ..., records: _Optional[_Union[PlainRecords, _Mapping]] = ...) -> None: ...

class PlainRecords(_message.Message):
    __slots__ = ("records", "sequence")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[_common_pb2.Record]
    sequence: ProducerSequence
    def __init__(self, records: _Optional[_Iterable[_Union[_common_pb2.Record, _Mapping]]] = ..., sequence: _Optional[_Union[ProducerSequence, _Mapping]] = ...) -> None: ...

class ProducerSequence(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "base_sequence")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    base_sequence: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., base_sequence: _Optional[int] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("correlation_id", "results")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    results: _containers.RepeatedCompositeFieldContainer[ProduceResult]
    def __init__(self, correlation_id: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ProduceResult, _Mapping]]] = ...) -> None: ...

class ProduceResult(_message.Message):
    __slots__ = ("status", "partition", "base_offset", "log_append_time_ms", "log_start_offset", "leader_epoch", "duplicate", "placements", "max_message_bytes", "max_timestamp_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    partition: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    leader_epoch: int
    duplicate: bool
    placements: _containers.RepeatedCompositeFieldContainer[RecordPlacement]
    max_message_bytes: int
    max_timestamp_ms: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., log_append_time_ms: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., duplicate: _Optional[bool] = ..., placements: _Optional[_Iterable[_Union[RecordPlacement, _Mapping]]] = ..., max_message_bytes: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ...) -> None: ...

class RecordPlacement(_message.Message):
    __slots__ = ("status", "partition", "offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    partition: int
    offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("items", "min_bytes", "max_wait_ms", "max_bytes", "isolation", "plain_records")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    PLAIN_RECORDS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[FetchItem]
    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    isolation: Isolation
    plain_records: bool
    def __init__(self, items: _Optional[_Iterable[_Union[FetchItem, _Mapping]]] = ..., min_bytes: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., plain_records: _Optional[bool] = ...) -> None: ...

class FetchItem(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "offset", "max_bytes", "last_leader_epoch", "generation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int
    last_leader_epoch: int
    generation: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., last_leader_epoch: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[FetchResult]
    def __init__(self, results: _Optional[_Iterable[_Union[FetchResult, _Mapping]]] = ...) -> None: ...

class FetchResult(_message.Message):
    __slots__ = ("status", "topic", "topic_id", "partition", "high_watermark", "last_stable_offset", "log_start_offset", "leader_epoch", "aborted_transactions", "batches", "records", "correlation_id", "next_offset", "gaps_below", "cut_offset", "generation_end")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ABORTED_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GAPS_BELOW_FIELD_NUMBER: _ClassVar[int]
    CUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATION_END_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topic: str
    topic_id: bytes
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int
    aborted_transactions: _containers.RepeatedCompositeFieldContainer[AbortedTransaction]
    batches: bytes
    records: _containers.RepeatedCompositeFieldContainer[_common_pb2.StoredRecord]
    correlation_id: int
    next_offset: int
    gaps_below: int
    cut_offset: int
    generation_end: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., high_watermark: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., aborted_transactions: _Optional[_Iterable[_Union[AbortedTransaction, _Mapping]]] = ..., batches: _Optional[bytes] = ..., records: _Optional[_Iterable[_Union[_common_pb2.StoredRecord, _Mapping]]] = ..., correlation_id: _Optional[int] = ..., next_offset: _Optional[int] = ..., gaps_below: _Optional[int] = ..., cut_offset: _Optional[int] = ..., generation_end: _Optional[int] = ...) -> None: ...

class AbortedTransaction(_message.Message):
    __slots__ = ("producer_id", "first_offset")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    first_offset: int
    def __init__(self, producer_id: _Optional[int] = ..., first_offset: _Optional[int] = ...) -> None: ...

class FetchStreamRequest(_message.Message):
    __slots__ = ("correlation_id", "settings", "assign", "remove", "add_credit_bytes")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    ADD_CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    settings: FetchStreamSettings
    assign: _containers.RepeatedCompositeFieldContainer[FetchItem]
    remove: _containers.RepeatedCompositeFieldContainer[PartitionRef]
    add_credit_bytes: int
    def __init__(self, correlation_id: _Optional[int] = ..., settings: _Optional[_Union[FetchStreamSettings, _Mapping]] = ..., assign: _Optional[_Iterable[_Union[FetchItem, _Mapping]]] = ..., remove: _Optional[_Iterable[_Union[PartitionRef, _Mapping]]] = ..., add_credit_bytes: _Optional[int] = ...) -> None: ...

class FetchStreamSettings(_message.Message):
    __slots__ = ("max_response_bytes", "isolation", "plain_records")
    MAX_RESPONSE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    PLAIN_RECORDS_FIELD_NUMBER: _ClassVar[int]
    max_response_bytes: int
    isolation: Isolation
    plain_records: bool
    def __init__(self, max_response_bytes: _Optional[int] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., plain_records: _Optional[bool] = ...) -> None: ...

class PartitionRef(_message.Message):
    __slots__ = ("topic", "topic_id", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class FetchStreamResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[FetchResult]
    def __init__(self, results: _Optional[_Iterable[_Union[FetchResult, _Mapping]]] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("items", "isolation")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ListOffsetsItem]
    isolation: Isolation
    def __init__(self, items: _Optional[_Iterable[_Union[ListOffsetsItem, _Mapping]]] = ..., isolation: _Optional[_Union[Isolation, str]] = ...) -> None: ...

class ListOffsetsItem(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "spec", "timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    spec: OffsetSpec
    timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., spec: _Optional[_Union[OffsetSpec, str]] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ListOffsetsResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ListOffsetsResult, _Mapping]]] = ...) -> None: ...

class ListOffsetsResult(_message.Message):
    __slots__ = ("status", "offset", "timestamp_ms", "leader_epoch")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    offset: int
    timestamp_ms: int
    leader_epoch: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class InitProducerIdRequest(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class InitProducerIdResponse(_message.Message):
    __slots__ = ("producer_id", "producer_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...
