"""Conversion between the messages of group members and the types of `consumer_groups`. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from logbroker.consumer_groups.generations import ReadingState, ToldPosition
from logbroker.consumer_groups.membership import (
    AssignedOffsets,
    CommitDone,
    GenerationsToRead,
    MemberMessage,
    SubscriptionDone,
)
from logbroker.consumer_groups.messages import Join, Joined
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import LogEngine
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.grpc_api.groups.offsets import commit_results
from logbroker.grpc_api.paging import ITEM_STEPS
from logbroker.grpc_api.refs import check_item_count, topic_of
from logbroker.grpc_api.status import item_status
from logbroker.pacing import Pace
from logbroker.types import PartitionKey, TopicId
from logbroker.v1 import groups_pb2 as pb

MAX_OWNED: Final = 100_000
"""Maximum number of partitions that one Join may list."""
SLICE: Final = 500
"""Number of partitions that are read between two steps of a `Pace`."""
HEARTBEATS_PER_SESSION: Final = 4
MAX_HEARTBEAT_INTERVAL_MS: Final = 3_000
MIN_HEARTBEAT_INTERVAL_MS: Final = 25
IDLE_HEARTBEAT_SHARE: Final = 0.7
"""Interval between two heartbeats of a member that delivers nothing, as a share of its session timeout. The rest of the
timeout is for noticing that a heartbeat is not answered, and for reconnecting."""
IDLE_MARGIN_MS: Final = 2_000
"""Minimum time that is left for that. It matters only in short sessions."""
MAX_IDLE_HEARTBEAT_INTERVAL_MS: Final = 10_000
"""Longest interval of idle heartbeats: gRPC probes a connection that is silent for longer, which costs as much."""

_STATES: Final[Mapping[int, ReadingState]] = {
    pb.READING_STATE_READING: ReadingState.READING,
    pb.READING_STATE_PAUSED: ReadingState.PAUSED,
    pb.READING_STATE_FAILED: ReadingState.FAILED,
    pb.READING_STATE_FINISHED: ReadingState.FINISHED,
}
_OPTIONAL: Final = ("session_timeout_ms", "rebalance_timeout_ms", "max_poll_interval_ms")


async def read_join(engine: LogEngine, message: pb.Join) -> Join:
    """Read a Join. Raises InvalidRequestError; the state machine of the group checks its settings."""
    settings: dict[str, Any] = {name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)}
    return Join(
        member_id=message.member_id,
        incarnation=message.incarnation,
        instance_id=message.instance_id,
        subscription=read_subscription(message.subscription),
        assignor=message.assignor,
        epoch=message.epoch,
        owned=await _read_partitions(engine, message.owned),
        client_name=message.client_name,
        growth_order=message.growth_order,
        **settings,
    )


def read_subscription(message: pb.Subscription) -> Subscription:
    return Subscription(tuple(message.topics), message.topic_pattern, tuple(message.bands))


async def _read_partitions(engine: LogEngine, topics: Iterable[pb.TopicPartitions]) -> frozenset[PartitionKey]:
    """Read lists of partitions. Partitions of deleted topics are skipped, because nobody owns them any more."""
    pace = Pace()
    found: set[PartitionKey] = set()
    count = 0
    for item in topics:
        count += len(item.partitions)
        if count > MAX_OWNED:
            raise InvalidRequestError(f"the Join lists more than {MAX_OWNED} partitions; spread them over more members")
        await pace.step(ITEM_STEPS)
        try:
            topic = topic_of(engine, item)
        except LogbrokerError:
            continue
        for start in range(0, len(item.partitions), SLICE):
            found.update(PartitionKey(topic.id, number) for number in item.partitions[start : start + SLICE])
            await pace.step(SLICE // 2)
    return frozenset(found)


async def read_positions(engine: LogEngine, topics: Iterable[pb.TopicPositions]) -> list[ToldPosition]:
    """Return the positions that a member reports; positions in deleted topics are skipped.

    Raises InvalidRequestError if the columns do not match, or if there are more positions than a request may list.
    """
    pace = Pace()
    found: list[ToldPosition] = []
    for item in topics:
        await pace.step(ITEM_STEPS)
        check_item_count(len(found) + len(item.partitions))
        states = item.states or (pb.READING_STATE_READING,) * len(item.partitions)
        if not len(item.partitions) == len(item.offsets) == len(states):
            raise InvalidRequestError("give one offset per partition, and one state per partition or no states")
        try:
            topic = topic_of(engine, item)
        except LogbrokerError:
            continue
        for partition, offset, state in zip(item.partitions, item.offsets, states, strict=True):
            if state not in _STATES:
                raise InvalidRequestError(f"there is no reading state {state}; give one of {[*_STATES]}")
            found.append(ToldPosition(PartitionKey(topic.id, partition), offset, _STATES[state]))
            await pace.step()
    return found


async def member_response(engine: LogEngine, message: MemberMessage) -> pb.MemberResponse:
    """Convert a message for a member into a MemberResponse. An `Ended` must have an error."""
    if isinstance(message, CommitDone):
        return pb.MemberResponse(
            commit=pb.CommitAnswer(correlation_id=message.correlation_id, topics=await commit_results(message.outcomes))
        )
    if isinstance(message, SubscriptionDone):
        answer = pb.SubscriptionAnswer(correlation_id=message.correlation_id)
        if message.error is not None:
            answer.status.CopyFrom(item_status(message.error))
        return pb.MemberResponse(subscribed=answer)
    if isinstance(message, AssignedOffsets):
        return pb.MemberResponse(assignment=await _assignment(engine, message))
    if isinstance(message, GenerationsToRead):
        return pb.MemberResponse(generations=_generations(engine, message))
    if isinstance(message, Joined):
        return pb.MemberResponse(
            joined=pb.Joined(
                assignor=message.assignor,
                session_timeout_ms=message.session_timeout_ms,
                heartbeat_interval_ms=_heartbeat_interval_ms(message),
                idle_heartbeat_interval_ms=_idle_heartbeat_interval_ms(message),
                reconnect_grace_ms=message.reconnect_grace_ms,
                growth_order=message.growth_order,
                resumed=message.resumed,
            )
        )
    assert message.error is not None
    return pb.MemberResponse(fenced=pb.Fenced(status=item_status(message.error)))


def _heartbeat_interval_ms(joined: Joined) -> int:
    """Return the heartbeat interval for a member that delivers records. Answered heartbeats tell it that it is still a
    member and that its stream works."""
    trusted_ms = min(joined.session_timeout_ms, joined.reconnect_grace_ms or joined.session_timeout_ms)
    return max(MIN_HEARTBEAT_INTERVAL_MS, min(trusted_ms // HEARTBEATS_PER_SESSION, MAX_HEARTBEAT_INTERVAL_MS))


def _idle_heartbeat_interval_ms(joined: Joined) -> int:
    """Return the heartbeat interval for a member that delivers nothing: it only has to keep its session."""
    session_ms = joined.session_timeout_ms
    rarest_ms = min(
        round(session_ms * IDLE_HEARTBEAT_SHARE), session_ms - IDLE_MARGIN_MS, MAX_IDLE_HEARTBEAT_INTERVAL_MS
    )
    return max(rarest_ms, _heartbeat_interval_ms(joined))


async def _assignment(engine: LogEngine, message: AssignedOffsets) -> pb.Assignment:
    pace = Pace()
    response = pb.Assignment(epoch=message.epoch)
    topics: dict[TopicId, pb.AssignedTopic] = {}
    for (topic_id, partition), committed in message.partitions:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = response.topics.add(
                topic=topic_name(engine, topic_id), topic_id=topic_id, generation=message.generations[topic_id]
            )
        topic.partitions.append(partition)
        topic.offsets.append(-1 if committed is None else committed.offset)
        topic.leader_epochs.append(-1 if committed is None else committed.leader_epoch)
        await pace.step()
    return response


def _generations(engine: LogEngine, message: GenerationsToRead) -> pb.GenerationsToRead:
    return pb.GenerationsToRead(
        topics=[
            pb.TopicGenerationToRead(topic=topic_name(engine, topic_id), topic_id=topic_id, generation=generation)
            for topic_id, generation in message.topics.items()
        ]
    )


def topic_name(engine: LogEngine, topic_id: TopicId) -> str:
    """Return the name of a topic, or "" if it was deleted meanwhile."""
    try:
        return engine.topic_by_id(topic_id).name
    except LogbrokerError:
        return ""


async def partition_lists(
    engine: LogEngine, partitions: Iterable[PartitionKey], pace: Pace
) -> list[pb.TopicPartitions]:
    """Return partitions by topic, sorted."""
    topics: dict[TopicId, list[int]] = {}
    for topic_id, partition in partitions:
        topics.setdefault(topic_id, []).append(partition)
        await pace.step()
    lists: list[pb.TopicPartitions] = []
    for topic_id in sorted(topics):
        numbers = sorted(topics[topic_id])
        lists.append(pb.TopicPartitions(topic=topic_name(engine, topic_id), topic_id=topic_id, partitions=numbers))
        await pace.step(ITEM_STEPS + len(numbers) // 8)
    return lists
