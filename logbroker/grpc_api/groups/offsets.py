"""Conversion of committed offsets between messages and the columns of `consumer_groups`. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from logbroker.consumer_groups.offsets import CommitOutcome, TopicCommit
from logbroker.engine import LogEngine
from logbroker.errors import LogbrokerError
from logbroker.grpc_api.paging import ITEM_STEPS
from logbroker.grpc_api.refs import check_item_count, topic_of
from logbroker.grpc_api.status import Statuses
from logbroker.pacing import Pace
from logbroker.v1 import groups_pb2 as pb


async def read_commits(engine: LogEngine, topics: Iterable[pb.TopicOffsets]) -> list[TopicCommit | LogbrokerError]:
    """Return the columns of each topic, or its error. Raises InvalidRequestError if there are more items than a request
    may list."""
    pace = Pace()
    commits: list[TopicCommit | LogbrokerError] = []
    count = 0
    for item in topics:
        partitions = list(item.partitions)
        count += len(partitions) + 1
        check_item_count(count)
        try:
            commit = TopicCommit(
                topic_of(engine, item).id, partitions, list(item.offsets), list(item.leader_epochs), list(item.metadata)
            )
            commit.check_columns()
        except LogbrokerError as error:
            commits.append(error.as_value())
        else:
            commits.append(commit)
        await pace.step(ITEM_STEPS + len(partitions) // 4)
    return commits


async def commit_results(outcomes: Iterable[CommitOutcome]) -> list[pb.TopicCommitResult]:
    pace, statuses = Pace(), Statuses()
    results: list[pb.TopicCommitResult] = []
    for outcome in outcomes:
        if isinstance(outcome, LogbrokerError):
            results.append(pb.TopicCommitResult(status=statuses.of(outcome)))
        else:
            result = pb.TopicCommitResult()
            for partition, error in outcome:
                result.failures.add(partition=partition, status=statuses.of(error))
                await pace.step(2)
            results.append(result)
        await pace.step()
    return results
