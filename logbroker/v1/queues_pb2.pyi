from logbroker.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LaneOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LANE_ORDER_HOTTEST: _ClassVar[LaneOrder]
    LANE_ORDER_OLDEST: _ClassVar[LaneOrder]
    LANE_ORDER_HELD: _ClassVar[LaneOrder]
    LANE_ORDER_WAITING: _ClassVar[LaneOrder]
LANE_ORDER_HOTTEST: LaneOrder
LANE_ORDER_OLDEST: LaneOrder
LANE_ORDER_HELD: LaneOrder
LANE_ORDER_WAITING: LaneOrder

class WorkerRequest(_message.Message):
    __slots__ = ("hello", "credit", "settle", "open_session", "renew_session", "close_session", "goodbye", "add_credit")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    OPEN_SESSION_FIELD_NUMBER: _ClassVar[int]
    RENEW_SESSION_FIELD_NUMBER: _ClassVar[int]
    CLOSE_SESSION_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    ADD_CREDIT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    credit: Credit
    settle: Settle
    open_session: OpenSession
    renew_session: RenewSession
    close_session: CloseSession
    goodbye: Goodbye
    add_credit: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., settle: _Optional[_Union[Settle, _Mapping]] = ..., open_session: _Optional[_Union[OpenSession, _Mapping]] = ..., renew_session: _Optional[_Union[RenewSession, _Mapping]] = ..., close_session: _Optional[_Union[CloseSession, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., add_credit: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("group_id", "worker_id", "incarnation", "client_name", "held", "sessions", "life", "band", "credit_bytes")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    BAND_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    worker_id: str
    incarnation: int
    client_name: str
    held: Places
    sessions: _containers.RepeatedCompositeFieldContainer[SessionRef]
    life: int
    band: str
    credit_bytes: int
    def __init__(self, group_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., client_name: _Optional[str] = ..., held: _Optional[_Union[Places, _Mapping]] = ..., sessions: _Optional[_Iterable[_Union[SessionRef, _Mapping]]] = ..., life: _Optional[int] = ..., band: _Optional[str] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class Places(_message.Message):
    __slots__ = ("partitions", "offsets", "attempts")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    attempts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partitions: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., attempts: _Optional[_Iterable[int]] = ...) -> None: ...

class SessionRef(_message.Message):
    __slots__ = ("key", "token", "prefetch", "credit_bytes")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    token: int
    prefetch: int
    credit_bytes: int
    def __init__(self, key: _Optional[bytes] = ..., token: _Optional[int] = ..., prefetch: _Optional[int] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("records", "bytes", "session_token")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    records: int
    bytes: int
    session_token: int
    def __init__(self, records: _Optional[int] = ..., bytes: _Optional[int] = ..., session_token: _Optional[int] = ...) -> None: ...

class Settle(_message.Message):
    __slots__ = ("correlation_id", "acks", "nacks", "releases", "extensions", "states", "outputs")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    NACKS_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    acks: Receipts
    nacks: _containers.RepeatedCompositeFieldContainer[Nack]
    releases: Receipts
    extensions: _containers.RepeatedCompositeFieldContainer[Extension]
    states: _containers.RepeatedCompositeFieldContainer[SessionState]
    outputs: _containers.RepeatedCompositeFieldContainer[Output]
    def __init__(self, correlation_id: _Optional[int] = ..., acks: _Optional[_Union[Receipts, _Mapping]] = ..., nacks: _Optional[_Iterable[_Union[Nack, _Mapping]]] = ..., releases: _Optional[_Union[Receipts, _Mapping]] = ..., extensions: _Optional[_Iterable[_Union[Extension, _Mapping]]] = ..., states: _Optional[_Iterable[_Union[SessionState, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[Output, _Mapping]]] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "generation", "ordering_key", "batch", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    generation: int
    ordering_key: bytes
    batch: bytes
    records: OutputRecords
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., generation: _Optional[int] = ..., ordering_key: _Optional[bytes] = ..., batch: _Optional[bytes] = ..., records: _Optional[_Union[OutputRecords, _Mapping]] = ...) -> None: ...

class OutputRecords(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[_common_pb2.Record]
    def __init__(self, records: _Optional[_Iterable[_Union[_common_pb2.Record, _Mapping]]] = ...) -> None: ...

class Receipts(_message.Message):
    __slots__ = ("firsts", "lasts")
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    LASTS_FIELD_NUMBER: _ClassVar[int]
    firsts: _containers.RepeatedScalarFieldContainer[int]
    lasts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, firsts: _Optional[_Iterable[int]] = ..., lasts: _Optional[_Iterable[int]] = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("first_receipt", "last_receipt", "reason", "delay_ms")
    FIRST_RECEIPT_FIELD_NUMBER: _ClassVar[int]
    LAST_RECEIPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    first_receipt: int
    last_receipt: int
    reason: str
    delay_ms: int
    def __init__(self, first_receipt: _Optional[int] = ..., last_receipt: _Optional[int] = ..., reason: _Optional[str] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class Extension(_message.Message):
    __slots__ = ("first_receipt", "last_receipt", "lease_ms")
    FIRST_RECEIPT_FIELD_NUMBER: _ClassVar[int]
    LAST_RECEIPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    first_receipt: int
    last_receipt: int
    lease_ms: int
    def __init__(self, first_receipt: _Optional[int] = ..., last_receipt: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class SessionState(_message.Message):
    __slots__ = ("key", "token", "state")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    token: int
    state: bytes
    def __init__(self, key: _Optional[bytes] = ..., token: _Optional[int] = ..., state: _Optional[bytes] = ...) -> None: ...

class OpenSession(_message.Message):
    __slots__ = ("correlation_id", "key", "prefetch", "max_wait_ms", "credit_bytes")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    key: bytes
    prefetch: int
    max_wait_ms: int
    credit_bytes: int
    def __init__(self, correlation_id: _Optional[int] = ..., key: _Optional[bytes] = ..., prefetch: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class RenewSession(_message.Message):
    __slots__ = ("correlation_id", "session")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    session: SessionRef
    def __init__(self, correlation_id: _Optional[int] = ..., session: _Optional[_Union[SessionRef, _Mapping]] = ...) -> None: ...

class CloseSession(_message.Message):
    __slots__ = ("correlation_id", "session", "opening")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    session: SessionRef
    opening: int
    def __init__(self, correlation_id: _Optional[int] = ..., session: _Optional[_Union[SessionRef, _Mapping]] = ..., opening: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerResponse(_message.Message):
    __slots__ = ("welcome", "deliveries", "settled", "session", "obstacle")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OBSTACLE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    deliveries: Deliveries
    settled: SettleAnswer
    session: SessionAnswer
    obstacle: Obstacle
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., deliveries: _Optional[_Union[Deliveries, _Mapping]] = ..., settled: _Optional[_Union[SettleAnswer, _Mapping]] = ..., session: _Optional[_Union[SessionAnswer, _Mapping]] = ..., obstacle: _Optional[_Union[Obstacle, _Mapping]] = ...) -> None: ...

class Obstacle(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("resumed", "lease_ms", "grace_ms", "reclaimed", "sessions", "ordering", "topic", "life", "max_request_bytes")
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    RECLAIMED_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    resumed: bool
    lease_ms: int
    grace_ms: int
    reclaimed: _containers.RepeatedCompositeFieldContainer[Deliveries]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionRef]
    ordering: str
    topic: str
    life: int
    max_request_bytes: int
    def __init__(self, resumed: _Optional[bool] = ..., lease_ms: _Optional[int] = ..., grace_ms: _Optional[int] = ..., reclaimed: _Optional[_Iterable[_Union[Deliveries, _Mapping]]] = ..., sessions: _Optional[_Iterable[_Union[SessionRef, _Mapping]]] = ..., ordering: _Optional[str] = ..., topic: _Optional[str] = ..., life: _Optional[int] = ..., max_request_bytes: _Optional[int] = ...) -> None: ...

class Deliveries(_message.Message):
    __slots__ = ("first_receipt", "count", "batches", "partitions", "offsets", "attempts", "redelivered", "lease_ms", "session_token", "session_key", "records")
    FIRST_RECEIPT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    first_receipt: int
    count: int
    batches: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    attempts: _containers.RepeatedScalarFieldContainer[int]
    redelivered: _containers.RepeatedScalarFieldContainer[bool]
    lease_ms: int
    session_token: int
    session_key: bytes
    records: _containers.RepeatedCompositeFieldContainer[_common_pb2.StoredRecord]
    def __init__(self, first_receipt: _Optional[int] = ..., count: _Optional[int] = ..., batches: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., attempts: _Optional[_Iterable[int]] = ..., redelivered: _Optional[_Iterable[bool]] = ..., lease_ms: _Optional[int] = ..., session_token: _Optional[int] = ..., session_key: _Optional[bytes] = ..., records: _Optional[_Iterable[_Union[_common_pb2.StoredRecord, _Mapping]]] = ...) -> None: ...

class SettleAnswer(_message.Message):
    __slots__ = ("correlation_id", "failures")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    failures: _containers.RepeatedCompositeFieldContainer[SettleFailure]
    def __init__(self, correlation_id: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[SettleFailure, _Mapping]]] = ...) -> None: ...

class SettleFailure(_message.Message):
    __slots__ = ("first_receipt", "last_receipt", "status")
    FIRST_RECEIPT_FIELD_NUMBER: _ClassVar[int]
    LAST_RECEIPT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    first_receipt: int
    last_receipt: int
    status: _common_pb2.Status
    def __init__(self, first_receipt: _Optional[int] = ..., last_receipt: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class SessionAnswer(_message.Message):
    __slots__ = ("correlation_id", "status", "key", "token", "state", "lock_ms", "has_records")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOCK_MS_FIELD_NUMBER: _ClassVar[int]
    HAS_RECORDS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    status: _common_pb2.Status
    key: bytes
    token: int
    state: bytes
    lock_ms: int
    has_records: bool
    def __init__(self, correlation_id: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., key: _Optional[bytes] = ..., token: _Optional[int] = ..., state: _Optional[bytes] = ..., lock_ms: _Optional[int] = ..., has_records: _Optional[bool] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("group_id", "worker_id", "max_records", "max_wait_ms", "plain_records", "band")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PLAIN_RECORDS_FIELD_NUMBER: _ClassVar[int]
    BAND_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    worker_id: str
    max_records: int
    max_wait_ms: int
    plain_records: bool
    band: str
    def __init__(self, group_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., max_records: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., plain_records: _Optional[bool] = ..., band: _Optional[str] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Deliveries]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Deliveries, _Mapping]]] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("group_id", "worker_id", "settle")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    worker_id: str
    settle: Settle
    def __init__(self, group_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., settle: _Optional[_Union[Settle, _Mapping]] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("answer",)
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    answer: SettleAnswer
    def __init__(self, answer: _Optional[_Union[SettleAnswer, _Mapping]] = ...) -> None: ...

class QueueSettings(_message.Message):
    __slots__ = ("ordering", "key_header", "lease_seconds", "max_attempts", "backoff_initial_seconds", "backoff_factor", "backoff_cap_seconds", "backoff_jitter", "on_exhausted", "dead_letter_topic", "grace_seconds", "alarm_share", "alarm_age_seconds", "max_parked_records", "max_in_flight", "max_ready_records", "max_held_lanes", "max_delayed_records", "on_undecodable", "priority", "priority_rank", "age_seconds", "weights", "split_by", "split_into", "split_share", "split_age_seconds")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    KEY_HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_INITIAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FACTOR_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_CAP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_JITTER_FIELD_NUMBER: _ClassVar[int]
    ON_EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ALARM_SHARE_FIELD_NUMBER: _ClassVar[int]
    ALARM_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_PARKED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_READY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_HELD_LANES_FIELD_NUMBER: _ClassVar[int]
    MAX_DELAYED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    ON_UNDECODABLE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_RANK_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SPLIT_BY_FIELD_NUMBER: _ClassVar[int]
    SPLIT_INTO_FIELD_NUMBER: _ClassVar[int]
    SPLIT_SHARE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ordering: str
    key_header: str
    lease_seconds: float
    max_attempts: int
    backoff_initial_seconds: float
    backoff_factor: float
    backoff_cap_seconds: float
    backoff_jitter: float
    on_exhausted: str
    dead_letter_topic: str
    grace_seconds: float
    alarm_share: float
    alarm_age_seconds: float
    max_parked_records: int
    max_in_flight: int
    max_ready_records: int
    max_held_lanes: int
    max_delayed_records: int
    on_undecodable: str
    priority: str
    priority_rank: str
    age_seconds: float
    weights: _containers.ScalarMap[str, int]
    split_by: str
    split_into: int
    split_share: float
    split_age_seconds: float
    def __init__(self, ordering: _Optional[str] = ..., key_header: _Optional[str] = ..., lease_seconds: _Optional[float] = ..., max_attempts: _Optional[int] = ..., backoff_initial_seconds: _Optional[float] = ..., backoff_factor: _Optional[float] = ..., backoff_cap_seconds: _Optional[float] = ..., backoff_jitter: _Optional[float] = ..., on_exhausted: _Optional[str] = ..., dead_letter_topic: _Optional[str] = ..., grace_seconds: _Optional[float] = ..., alarm_share: _Optional[float] = ..., alarm_age_seconds: _Optional[float] = ..., max_parked_records: _Optional[int] = ..., max_in_flight: _Optional[int] = ..., max_ready_records: _Optional[int] = ..., max_held_lanes: _Optional[int] = ..., max_delayed_records: _Optional[int] = ..., on_undecodable: _Optional[str] = ..., priority: _Optional[str] = ..., priority_rank: _Optional[str] = ..., age_seconds: _Optional[float] = ..., weights: _Optional[_Mapping[str, int]] = ..., split_by: _Optional[str] = ..., split_into: _Optional[int] = ..., split_share: _Optional[float] = ..., split_age_seconds: _Optional[float] = ...) -> None: ...

class CreateQueueRequest(_message.Message):
    __slots__ = ("group_id", "topic", "topic_id", "settings", "start")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    topic: str
    topic_id: bytes
    settings: QueueSettings
    start: StartAt
    def __init__(self, group_id: _Optional[str] = ..., topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ..., start: _Optional[_Union[StartAt, _Mapping]] = ...) -> None: ...

class StartAt(_message.Message):
    __slots__ = ("earliest", "latest", "timestamp_ms", "offset")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    earliest: bool
    latest: bool
    timestamp_ms: int
    offset: int
    def __init__(self, earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., timestamp_ms: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class CreateQueueResponse(_message.Message):
    __slots__ = ("queue", "created")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    queue: DescribedQueue
    created: bool
    def __init__(self, queue: _Optional[_Union[DescribedQueue, _Mapping]] = ..., created: _Optional[bool] = ...) -> None: ...

class AlterQueueRequest(_message.Message):
    __slots__ = ("group_id", "settings")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    settings: QueueSettings
    def __init__(self, group_id: _Optional[str] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ...) -> None: ...

class AlterQueueResponse(_message.Message):
    __slots__ = ("queue", "draining")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    queue: DescribedQueue
    draining: bool
    def __init__(self, queue: _Optional[_Union[DescribedQueue, _Mapping]] = ..., draining: _Optional[bool] = ...) -> None: ...

class DescribeQueuesRequest(_message.Message):
    __slots__ = ("group_ids",)
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    group_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[DescribedQueue]
    def __init__(self, queues: _Optional[_Iterable[_Union[DescribedQueue, _Mapping]]] = ...) -> None: ...

class DescribedQueue(_message.Message):
    __slots__ = ("status", "group_id", "topic", "topic_id", "settings", "counts", "workers", "partitions", "alarms", "state", "priorities", "obstacle", "splits")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRIORITIES_FIELD_NUMBER: _ClassVar[int]
    OBSTACLE_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    group_id: str
    topic: str
    topic_id: bytes
    settings: QueueSettings
    counts: QueueCounts
    workers: _containers.RepeatedCompositeFieldContainer[DescribedWorker]
    partitions: _containers.RepeatedCompositeFieldContainer[QueuePartition]
    alarms: _containers.RepeatedCompositeFieldContainer[Alarm]
    state: str
    priorities: _containers.RepeatedCompositeFieldContainer[PriorityCounts]
    obstacle: str
    splits: _containers.RepeatedCompositeFieldContainer[DescribedSplit]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., group_id: _Optional[str] = ..., topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ..., counts: _Optional[_Union[QueueCounts, _Mapping]] = ..., workers: _Optional[_Iterable[_Union[DescribedWorker, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[QueuePartition, _Mapping]]] = ..., alarms: _Optional[_Iterable[_Union[Alarm, _Mapping]]] = ..., state: _Optional[str] = ..., priorities: _Optional[_Iterable[_Union[PriorityCounts, _Mapping]]] = ..., obstacle: _Optional[str] = ..., splits: _Optional[_Iterable[_Union[DescribedSplit, _Mapping]]] = ...) -> None: ...

class DescribedSplit(_message.Message):
    __slots__ = ("key", "split", "since_ms", "automatic", "state", "waiting")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    split: LaneSplit
    since_ms: int
    automatic: bool
    state: str
    waiting: int
    def __init__(self, key: _Optional[bytes] = ..., split: _Optional[_Union[LaneSplit, _Mapping]] = ..., since_ms: _Optional[int] = ..., automatic: _Optional[bool] = ..., state: _Optional[str] = ..., waiting: _Optional[int] = ...) -> None: ...

class PriorityCounts(_message.Message):
    __slots__ = ("priority", "waiting", "oldest_timestamp_ms", "delivered", "overtaken")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    OVERTAKEN_FIELD_NUMBER: _ClassVar[int]
    priority: int
    waiting: int
    oldest_timestamp_ms: int
    delivered: int
    overtaken: int
    def __init__(self, priority: _Optional[int] = ..., waiting: _Optional[int] = ..., oldest_timestamp_ms: _Optional[int] = ..., delivered: _Optional[int] = ..., overtaken: _Optional[int] = ...) -> None: ...

class QueueCounts(_message.Message):
    __slots__ = ("open", "ready", "in_flight", "parked", "unscanned", "lanes", "held_lanes", "blocked_lanes", "parked_lanes", "sessions", "delivered", "acked", "nacked", "dead_lettered", "leases_lost", "alarms_raised", "expired", "copied_bytes", "refused_letters", "unsent_outputs", "removed", "moving_lanes")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    UNSCANNED_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    HELD_LANES_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_LANES_FIELD_NUMBER: _ClassVar[int]
    PARKED_LANES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    NACKED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    LEASES_LOST_FIELD_NUMBER: _ClassVar[int]
    ALARMS_RAISED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    COPIED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_LETTERS_FIELD_NUMBER: _ClassVar[int]
    UNSENT_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    MOVING_LANES_FIELD_NUMBER: _ClassVar[int]
    open: int
    ready: int
    in_flight: int
    parked: int
    unscanned: int
    lanes: int
    held_lanes: int
    blocked_lanes: int
    parked_lanes: int
    sessions: int
    delivered: int
    acked: int
    nacked: int
    dead_lettered: int
    leases_lost: int
    alarms_raised: int
    expired: int
    copied_bytes: int
    refused_letters: int
    unsent_outputs: int
    removed: int
    moving_lanes: int
    def __init__(self, open: _Optional[int] = ..., ready: _Optional[int] = ..., in_flight: _Optional[int] = ..., parked: _Optional[int] = ..., unscanned: _Optional[int] = ..., lanes: _Optional[int] = ..., held_lanes: _Optional[int] = ..., blocked_lanes: _Optional[int] = ..., parked_lanes: _Optional[int] = ..., sessions: _Optional[int] = ..., delivered: _Optional[int] = ..., acked: _Optional[int] = ..., nacked: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., leases_lost: _Optional[int] = ..., alarms_raised: _Optional[int] = ..., expired: _Optional[int] = ..., copied_bytes: _Optional[int] = ..., refused_letters: _Optional[int] = ..., unsent_outputs: _Optional[int] = ..., removed: _Optional[int] = ..., moving_lanes: _Optional[int] = ...) -> None: ...

class DescribedWorker(_message.Message):
    __slots__ = ("worker_id", "client_name", "in_flight", "credit", "sessions", "connected", "band", "lowest_priority", "highest_priority")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    BAND_FIELD_NUMBER: _ClassVar[int]
    LOWEST_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    client_name: str
    in_flight: int
    credit: int
    sessions: int
    connected: bool
    band: str
    lowest_priority: int
    highest_priority: int
    def __init__(self, worker_id: _Optional[str] = ..., client_name: _Optional[str] = ..., in_flight: _Optional[int] = ..., credit: _Optional[int] = ..., sessions: _Optional[int] = ..., connected: _Optional[bool] = ..., band: _Optional[str] = ..., lowest_priority: _Optional[int] = ..., highest_priority: _Optional[int] = ...) -> None: ...

class QueuePartition(_message.Message):
    __slots__ = ("partition", "floor", "scanned", "end", "status", "done")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    SCANNED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    floor: int
    scanned: int
    end: int
    status: _common_pb2.Status
    done: int
    def __init__(self, partition: _Optional[int] = ..., floor: _Optional[int] = ..., scanned: _Optional[int] = ..., end: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., done: _Optional[int] = ...) -> None: ...

class Alarm(_message.Message):
    __slots__ = ("kind", "key", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: bytes
    message: str
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[bytes] = ..., message: _Optional[str] = ...) -> None: ...

class DeleteQueuesRequest(_message.Message):
    __slots__ = ("group_ids",)
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    group_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteQueuesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_common_pb2.Status]
    def __init__(self, results: _Optional[_Iterable[_Union[_common_pb2.Status, _Mapping]]] = ...) -> None: ...

class ListLanesRequest(_message.Message):
    __slots__ = ("group_id", "order", "top")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    order: LaneOrder
    top: int
    def __init__(self, group_id: _Optional[str] = ..., order: _Optional[_Union[LaneOrder, str]] = ..., top: _Optional[int] = ...) -> None: ...

class ListLanesResponse(_message.Message):
    __slots__ = ("lanes", "total", "incomplete")
    LANES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    lanes: _containers.RepeatedCompositeFieldContainer[Lane]
    total: int
    incomplete: bool
    def __init__(self, lanes: _Optional[_Iterable[_Union[Lane, _Mapping]]] = ..., total: _Optional[int] = ..., incomplete: _Optional[bool] = ...) -> None: ...

class Lane(_message.Message):
    __slots__ = ("status", "key", "state", "partition", "offset", "waiting", "attempt", "worker_id", "due_in_ms", "oldest_timestamp_ms", "first_failure_ms", "last_failure_ms", "reasons", "session_token", "level", "refusal", "cause", "cause_attempts", "obstacle", "sub_lanes", "held_ms", "replaced", "record", "worker_client")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    DUE_IN_MS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FAILURE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_MS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    OBSTACLE_FIELD_NUMBER: _ClassVar[int]
    SUB_LANES_FIELD_NUMBER: _ClassVar[int]
    HELD_MS_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    WORKER_CLIENT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    key: bytes
    state: str
    partition: int
    offset: int
    waiting: int
    attempt: int
    worker_id: str
    due_in_ms: int
    oldest_timestamp_ms: int
    first_failure_ms: int
    last_failure_ms: int
    reasons: _containers.RepeatedScalarFieldContainer[str]
    session_token: int
    level: int
    refusal: str
    cause: Place
    cause_attempts: int
    obstacle: str
    sub_lanes: _containers.RepeatedScalarFieldContainer[bytes]
    held_ms: int
    replaced: bool
    record: _common_pb2.StoredRecord
    worker_client: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., key: _Optional[bytes] = ..., state: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., waiting: _Optional[int] = ..., attempt: _Optional[int] = ..., worker_id: _Optional[str] = ..., due_in_ms: _Optional[int] = ..., oldest_timestamp_ms: _Optional[int] = ..., first_failure_ms: _Optional[int] = ..., last_failure_ms: _Optional[int] = ..., reasons: _Optional[_Iterable[str]] = ..., session_token: _Optional[int] = ..., level: _Optional[int] = ..., refusal: _Optional[str] = ..., cause: _Optional[_Union[Place, _Mapping]] = ..., cause_attempts: _Optional[int] = ..., obstacle: _Optional[str] = ..., sub_lanes: _Optional[_Iterable[bytes]] = ..., held_ms: _Optional[int] = ..., replaced: _Optional[bool] = ..., record: _Optional[_Union[_common_pb2.StoredRecord, _Mapping]] = ..., worker_client: _Optional[str] = ...) -> None: ...

class ExplainLanesRequest(_message.Message):
    __slots__ = ("group_id", "keys", "records")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    records: bool
    def __init__(self, group_id: _Optional[str] = ..., keys: _Optional[_Iterable[bytes]] = ..., records: _Optional[bool] = ...) -> None: ...

class ExplainLanesResponse(_message.Message):
    __slots__ = ("lanes", "topic", "topic_id")
    LANES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    lanes: _containers.RepeatedCompositeFieldContainer[Lane]
    topic: str
    topic_id: bytes
    def __init__(self, lanes: _Optional[_Iterable[_Union[Lane, _Mapping]]] = ..., topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class LaneDecision(_message.Message):
    __slots__ = ("key", "place", "all_held", "resume", "skip_head", "drop", "replace_head", "split", "join")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    ALL_HELD_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SKIP_HEAD_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    REPLACE_HEAD_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    place: Place
    all_held: bool
    resume: bool
    skip_head: bool
    drop: bool
    replace_head: _common_pb2.Record
    split: LaneSplit
    join: bool
    def __init__(self, key: _Optional[bytes] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., all_held: _Optional[bool] = ..., resume: _Optional[bool] = ..., skip_head: _Optional[bool] = ..., drop: _Optional[bool] = ..., replace_head: _Optional[_Union[_common_pb2.Record, _Mapping]] = ..., split: _Optional[_Union[LaneSplit, _Mapping]] = ..., join: _Optional[bool] = ...) -> None: ...

class LaneSplit(_message.Message):
    __slots__ = ("by", "into")
    BY_FIELD_NUMBER: _ClassVar[int]
    INTO_FIELD_NUMBER: _ClassVar[int]
    by: str
    into: int
    def __init__(self, by: _Optional[str] = ..., into: _Optional[int] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class DecideLanesRequest(_message.Message):
    __slots__ = ("group_id", "decisions")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    decisions: _containers.RepeatedCompositeFieldContainer[LaneDecision]
    def __init__(self, group_id: _Optional[str] = ..., decisions: _Optional[_Iterable[_Union[LaneDecision, _Mapping]]] = ...) -> None: ...

class DecideLanesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[LaneDecided]
    def __init__(self, results: _Optional[_Iterable[_Union[LaneDecided, _Mapping]]] = ...) -> None: ...

class LaneDecided(_message.Message):
    __slots__ = ("status", "records_done", "lanes", "refused", "why_refused")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_DONE_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    WHY_REFUSED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    records_done: int
    lanes: int
    refused: int
    why_refused: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., records_done: _Optional[int] = ..., lanes: _Optional[int] = ..., refused: _Optional[int] = ..., why_refused: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("group_id", "key", "dry_run", "max_records", "until")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    key: bytes
    dry_run: bool
    max_records: int
    until: LetterEnds
    def __init__(self, group_id: _Optional[str] = ..., key: _Optional[bytes] = ..., dry_run: _Optional[bool] = ..., max_records: _Optional[int] = ..., until: _Optional[_Union[LetterEnds, _Mapping]] = ...) -> None: ...

class LetterEnds(_message.Message):
    __slots__ = ("topic_id", "offsets")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("records", "keys", "more", "held", "why_held", "until", "letters")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    WHY_HELD_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    records: int
    keys: int
    more: bool
    held: int
    why_held: str
    until: LetterEnds
    letters: _containers.RepeatedCompositeFieldContainer[Place]
    def __init__(self, records: _Optional[int] = ..., keys: _Optional[int] = ..., more: _Optional[bool] = ..., held: _Optional[int] = ..., why_held: _Optional[str] = ..., until: _Optional[_Union[LetterEnds, _Mapping]] = ..., letters: _Optional[_Iterable[_Union[Place, _Mapping]]] = ...) -> None: ...

class RewindRequest(_message.Message):
    __slots__ = ("group_id", "to", "partitions", "include_parked", "dry_run", "drop_standing")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PARKED_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    DROP_STANDING_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    to: StartAt
    partitions: _containers.RepeatedScalarFieldContainer[int]
    include_parked: bool
    dry_run: bool
    drop_standing: bool
    def __init__(self, group_id: _Optional[str] = ..., to: _Optional[_Union[StartAt, _Mapping]] = ..., partitions: _Optional[_Iterable[int]] = ..., include_parked: _Optional[bool] = ..., dry_run: _Optional[bool] = ..., drop_standing: _Optional[bool] = ...) -> None: ...

class RewindResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[RewoundPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[RewoundPartition, _Mapping]]] = ...) -> None: ...

class RewoundPartition(_message.Message):
    __slots__ = ("status", "partition", "floor_before", "floor", "standing_records", "skipped_records", "unreadable_records")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FLOOR_BEFORE_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    STANDING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    partition: int
    floor_before: int
    floor: int
    standing_records: int
    skipped_records: int
    unreadable_records: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., partition: _Optional[int] = ..., floor_before: _Optional[int] = ..., floor: _Optional[int] = ..., standing_records: _Optional[int] = ..., skipped_records: _Optional[int] = ..., unreadable_records: _Optional[int] = ...) -> None: ...
