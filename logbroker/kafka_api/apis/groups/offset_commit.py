"""OffsetCommit (key 8): commits offsets of a group, durably. They are the committed offsets that gRPC members see.

A member names its generation. The commit is refused if the generation is not the present one, or if the member was
removed. A program that is not a member names no generation (-1), and may commit while the group has no members. Offsets
may go back, as in Kafka, but must lie within the log (OFFSET_OUT_OF_RANGE).

v2: the first version. v5: no retention time, which earlier versions have and which is ignored. v6: leader epochs.
v7: static members. v8: flexible. v9: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION for an unknown group. v10: topics
by id.
"""

from __future__ import annotations

from collections.abc import Sequence

from logbroker.consumer_groups.offsets import CommitOutcome, TopicCommit
from logbroker.errors import LogbrokerError, UnknownGroupError
from logbroker.kafka_api.apis.groups.coordinator_errors import coordinator_code
from logbroker.kafka_api.call import ILLEGAL_GENERATION, Call, served, topic_of
from logbroker.kafka_wire.apis import OFFSET_COMMIT
from logbroker.kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_WITH_UNKNOWN_GROUPS = 9
FIRST_WITH_IDS = 10
PARTITION_STEPS = 2


async def _handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    call.check_item_count(sum(1 + len(topic.partitions) for topic in request.topics))
    commits: list[TopicCommit | LogbrokerError] = []
    for topic in request.topics:
        await call.step(1 + len(topic.partitions))
        try:
            commits.append(
                TopicCommit(
                    topic_of(call.node, topic.name, topic.topic_id, by_id=call.version >= FIRST_WITH_IDS).id,
                    [each.partition_index for each in topic.partitions],
                    [each.committed_offset for each in topic.partitions],
                    [each.committed_leader_epoch for each in topic.partitions],
                    [each.committed_metadata or "" for each in topic.partitions],
                )
            )
        except LogbrokerError as error:
            commits.append(error.as_value())
    outcomes: Sequence[CommitOutcome]
    try:
        outcomes = await call.node.groups_of(request.group_id).commit_of_kafka(
            request.group_id,
            request.member_id,
            request.group_instance_id or "",
            request.generation_id_or_member_epoch,
            commits,
        )
    except LogbrokerError as error:
        outcomes = [error.as_value()] * len(commits)
    response = OffsetCommitResponse(topics=[])
    for topic, outcome in zip(request.topics, outcomes, strict=True):
        await call.step(PARTITION_STEPS * len(topic.partitions))
        codes = (
            {}
            if isinstance(outcome, LogbrokerError)
            else {number: coordinator_code(error) for number, error in outcome}
        )
        for_all = _code_of(call, outcome) if isinstance(outcome, LogbrokerError) else 0
        response.topics.append(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=codes.get(each.partition_index, for_all)
                    )
                    for each in topic.partitions
                ],
            )
        )
    return response


def _code_of(call: Call, error: LogbrokerError) -> int:
    if isinstance(error, UnknownGroupError) and call.version < FIRST_WITH_UNKNOWN_GROUPS:
        return ILLEGAL_GENERATION
    return coordinator_code(error)


SERVED = served(OFFSET_COMMIT, 2, 10, _handle)
