from logbroker.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadingState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READING_STATE_READING: _ClassVar[ReadingState]
    READING_STATE_PAUSED: _ClassVar[ReadingState]
    READING_STATE_FAILED: _ClassVar[ReadingState]
    READING_STATE_FINISHED: _ClassVar[ReadingState]
READING_STATE_READING: ReadingState
READING_STATE_PAUSED: ReadingState
READING_STATE_FAILED: ReadingState
READING_STATE_FINISHED: ReadingState

class MemberRequest(_message.Message):
    __slots__ = ("join", "heartbeat", "taken", "commit", "subscription", "leave")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    join: Join
    heartbeat: Heartbeat
    taken: AssignmentTaken
    commit: Commit
    subscription: Subscription
    leave: Leave
    def __init__(self, join: _Optional[_Union[Join, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., taken: _Optional[_Union[AssignmentTaken, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("group_id", "member_id", "incarnation", "instance_id", "subscription", "assignor", "session_timeout_ms", "rebalance_timeout_ms", "max_poll_interval_ms", "epoch", "owned", "client_name", "growth_order")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_POLL_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    GROWTH_ORDER_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    member_id: str
    incarnation: int
    instance_id: str
    subscription: Subscription
    assignor: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    max_poll_interval_ms: int
    epoch: int
    owned: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    client_name: str
    growth_order: str
    def __init__(self, group_id: _Optional[str] = ..., member_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., instance_id: _Optional[str] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., assignor: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., max_poll_interval_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., owned: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., client_name: _Optional[str] = ..., growth_order: _Optional[str] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("topics", "topic_pattern", "bands", "correlation_id")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    BANDS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_pattern: str
    bands: _containers.RepeatedScalarFieldContainer[str]
    correlation_id: int
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., topic_pattern: _Optional[str] = ..., bands: _Optional[_Iterable[str]] = ..., correlation_id: _Optional[int] = ...) -> None: ...

class SubscriptionAnswer(_message.Message):
    __slots__ = ("correlation_id", "status")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    status: _common_pb2.Status
    def __init__(self, correlation_id: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class TopicPartitions(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("polled", "positions")
    POLLED_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    polled: bool
    positions: _containers.RepeatedCompositeFieldContainer[TopicPositions]
    def __init__(self, polled: _Optional[bool] = ..., positions: _Optional[_Iterable[_Union[TopicPositions, _Mapping]]] = ...) -> None: ...

class TopicPositions(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions", "offsets", "states")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    states: _containers.RepeatedScalarFieldContainer[ReadingState]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., states: _Optional[_Iterable[_Union[ReadingState, str]]] = ...) -> None: ...

class AssignmentTaken(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("correlation_id", "epoch", "topics")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    epoch: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicOffsets]
    def __init__(self, correlation_id: _Optional[int] = ..., epoch: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicOffsets, _Mapping]]] = ...) -> None: ...

class TopicOffsets(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions", "offsets", "leader_epochs", "metadata")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    leader_epochs: _containers.RepeatedScalarFieldContainer[int]
    metadata: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., leader_epochs: _Optional[_Iterable[int]] = ..., metadata: _Optional[_Iterable[str]] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MemberResponse(_message.Message):
    __slots__ = ("joined", "heartbeat", "assignment", "commit", "fenced", "generations", "subscribed")
    JOINED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    joined: Joined
    heartbeat: HeartbeatAnswer
    assignment: Assignment
    commit: CommitAnswer
    fenced: Fenced
    generations: GenerationsToRead
    subscribed: SubscriptionAnswer
    def __init__(self, joined: _Optional[_Union[Joined, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatAnswer, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., commit: _Optional[_Union[CommitAnswer, _Mapping]] = ..., fenced: _Optional[_Union[Fenced, _Mapping]] = ..., generations: _Optional[_Union[GenerationsToRead, _Mapping]] = ..., subscribed: _Optional[_Union[SubscriptionAnswer, _Mapping]] = ...) -> None: ...

class GenerationsToRead(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicGenerationToRead]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicGenerationToRead, _Mapping]]] = ...) -> None: ...

class TopicGenerationToRead(_message.Message):
    __slots__ = ("topic", "topic_id", "generation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    generation: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., generation: _Optional[int] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("assignor", "session_timeout_ms", "heartbeat_interval_ms", "resumed", "reconnect_grace_ms", "growth_order", "idle_heartbeat_interval_ms")
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    GROWTH_ORDER_FIELD_NUMBER: _ClassVar[int]
    IDLE_HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    assignor: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    resumed: bool
    reconnect_grace_ms: int
    growth_order: str
    idle_heartbeat_interval_ms: int
    def __init__(self, assignor: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., resumed: _Optional[bool] = ..., reconnect_grace_ms: _Optional[int] = ..., growth_order: _Optional[str] = ..., idle_heartbeat_interval_ms: _Optional[int] = ...) -> None: ...

class HeartbeatAnswer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("epoch", "topics")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    topics: _containers.RepeatedCompositeFieldContainer[AssignedTopic]
    def __init__(self, epoch: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[AssignedTopic, _Mapping]]] = ...) -> None: ...

class AssignedTopic(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions", "offsets", "leader_epochs", "generation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    leader_epochs: _containers.RepeatedScalarFieldContainer[int]
    generation: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., leader_epochs: _Optional[_Iterable[int]] = ..., generation: _Optional[int] = ...) -> None: ...

class CommitAnswer(_message.Message):
    __slots__ = ("correlation_id", "topics")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicCommitResult]
    def __init__(self, correlation_id: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicCommitResult, _Mapping]]] = ...) -> None: ...

class TopicCommitResult(_message.Message):
    __slots__ = ("status", "failures")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    failures: _containers.RepeatedCompositeFieldContainer[CommitFailure]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., failures: _Optional[_Iterable[_Union[CommitFailure, _Mapping]]] = ...) -> None: ...

class CommitFailure(_message.Message):
    __slots__ = ("partition", "status")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    status: _common_pb2.Status
    def __init__(self, partition: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class Fenced(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group_id", "topics")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    topics: _containers.RepeatedCompositeFieldContainer[TopicOffsets]
    def __init__(self, group_id: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[TopicOffsets, _Mapping]]] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicCommitResult]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicCommitResult, _Mapping]]] = ...) -> None: ...

class FetchOffsetsRequest(_message.Message):
    __slots__ = ("group_id", "topics")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    topics: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    def __init__(self, group_id: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ...) -> None: ...

class FetchOffsetsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[CommittedTopic]
    def __init__(self, topics: _Optional[_Iterable[_Union[CommittedTopic, _Mapping]]] = ...) -> None: ...

class CommittedTopic(_message.Message):
    __slots__ = ("status", "topic", "topic_id", "partitions", "offsets", "leader_epochs", "metadata", "commit_times_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    leader_epochs: _containers.RepeatedScalarFieldContainer[int]
    metadata: _containers.RepeatedScalarFieldContainer[str]
    commit_times_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., leader_epochs: _Optional[_Iterable[int]] = ..., metadata: _Optional[_Iterable[str]] = ..., commit_times_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_page_token")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[ListedGroup]
    next_page_token: str
    def __init__(self, groups: _Optional[_Iterable[_Union[ListedGroup, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListedGroup(_message.Message):
    __slots__ = ("group_id", "type", "state", "members")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    type: str
    state: str
    members: int
    def __init__(self, group_id: _Optional[str] = ..., type: _Optional[str] = ..., state: _Optional[str] = ..., members: _Optional[int] = ...) -> None: ...

class DescribeGroupsRequest(_message.Message):
    __slots__ = ("group_ids", "members_after")
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_AFTER_FIELD_NUMBER: _ClassVar[int]
    group_ids: _containers.RepeatedScalarFieldContainer[str]
    members_after: str
    def __init__(self, group_ids: _Optional[_Iterable[str]] = ..., members_after: _Optional[str] = ...) -> None: ...

class DescribeGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[DescribedGroup]
    def __init__(self, groups: _Optional[_Iterable[_Union[DescribedGroup, _Mapping]]] = ...) -> None: ...

class DescribedGroup(_message.Message):
    __slots__ = ("status", "group", "assignor", "epoch", "members", "growth_order", "generations", "next_members_after")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    GROWTH_ORDER_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_MEMBERS_AFTER_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    group: ListedGroup
    assignor: str
    epoch: int
    members: _containers.RepeatedCompositeFieldContainer[DescribedMember]
    growth_order: str
    generations: _containers.RepeatedCompositeFieldContainer[DescribedGeneration]
    next_members_after: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., group: _Optional[_Union[ListedGroup, _Mapping]] = ..., assignor: _Optional[str] = ..., epoch: _Optional[int] = ..., members: _Optional[_Iterable[_Union[DescribedMember, _Mapping]]] = ..., growth_order: _Optional[str] = ..., generations: _Optional[_Iterable[_Union[DescribedGeneration, _Mapping]]] = ..., next_members_after: _Optional[str] = ...) -> None: ...

class DescribedGeneration(_message.Message):
    __slots__ = ("topic", "topic_id", "generation", "last_generation", "waiting", "waits_for", "end_offsets", "finished_offsets")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LAST_GENERATION_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    END_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    generation: int
    last_generation: int
    waiting: int
    waits_for: _containers.RepeatedScalarFieldContainer[int]
    end_offsets: _containers.RepeatedScalarFieldContainer[int]
    finished_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., generation: _Optional[int] = ..., last_generation: _Optional[int] = ..., waiting: _Optional[int] = ..., waits_for: _Optional[_Iterable[int]] = ..., end_offsets: _Optional[_Iterable[int]] = ..., finished_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribedMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_name", "epoch", "subscription", "owned", "target", "connected")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_name: str
    epoch: int
    subscription: Subscription
    owned: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    target: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    connected: bool
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_name: _Optional[str] = ..., epoch: _Optional[int] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., owned: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., target: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., connected: _Optional[bool] = ...) -> None: ...

class DeleteGroupsRequest(_message.Message):
    __slots__ = ("group_ids",)
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    group_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteGroupsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_common_pb2.Status]
    def __init__(self, results: _Optional[_Iterable[_Union[_common_pb2.Status, _Mapping]]] = ...) -> None: ...
