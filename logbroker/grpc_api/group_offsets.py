"""Offsets of consumer groups between their messages and the columns that `consumer_groups` works on. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logbroker.consumer_groups.offsets import CommitOutcome, TopicCommit
from logbroker.engine import LogEngine
from logbroker.errors import LogbrokerError
from logbroker.grpc_api.refs import check_item_count, topic_of
from logbroker.grpc_api.status import item_status
from logbroker.v1 import groups_pb2 as pb


def read_commits(engine: LogEngine, topics: Iterable[pb.TopicOffsets]) -> list[TopicCommit | LogbrokerError]:
    """Return the columns of each topic, or its error; raises InvalidRequestError above the bound of a request."""
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
            commits.append(error)
        else:
            commits.append(commit)
    return commits


def commit_results(outcomes: Sequence[CommitOutcome]) -> list[pb.TopicCommitResult]:
    return [_result(outcome) for outcome in outcomes]


def _result(outcome: CommitOutcome) -> pb.TopicCommitResult:
    if isinstance(outcome, LogbrokerError):
        return pb.TopicCommitResult(status=item_status(outcome))
    if not outcome:
        return pb.TopicCommitResult()
    return pb.TopicCommitResult(
        failures=[pb.CommitFailure(partition=partition, status=item_status(error)) for partition, error in outcome]
    )
