"""Group members as a program has them that knows nothing but the .proto files: one stream each."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final

import grpc

from logbroker.errors import LogbrokerError, from_status
from logbroker.v1 import groups_pb2 as pb
from logbroker.v1.common_pb2 import Status
from tests.grpc_api.api import Service

DEADLINE_SECONDS: Final = 20

Partitions = dict[str, list[int]]
"""Partition numbers by topic name, sorted."""

_incarnations = count(1)


class Member:
    """One stream. Everything that waits has a deadline; `close` it."""

    def __init__(
        self,
        channel: grpc.Channel,
        group: str,
        member_id: str,
        topics: Sequence[str] = (),
        *,
        incarnation: int | None = None,
        owned: Mapping[str, Sequence[int]] | None = None,
        pattern: str = "",
        **fields: Any,
    ) -> None:
        self._requests: queue.SimpleQueue[pb.MemberRequest | None] = queue.SimpleQueue()
        stub = channel.stream_stream(
            "/logbroker.v1.Groups/Member",
            request_serializer=pb.MemberRequest.SerializeToString,
            response_deserializer=pb.MemberResponse.FromString,
        )
        self.call: Any = stub(iter(self._requests.get, None), timeout=DEADLINE_SECONDS)
        self.member_id = member_id
        self.incarnation = incarnation or next(_incarnations)
        self.epoch = 0
        self.held: Partitions = {}
        self.committed: dict[tuple[str, int], int] = {}
        """As the last assignment told."""
        self._correlation_ids = count(1)
        self._join = pb.Join(
            group_id=group,
            member_id=member_id,
            incarnation=self.incarnation,
            subscription=pb.Subscription(topics=topics, topic_pattern=pattern),
            owned=[pb.TopicPartitions(topic=name, partitions=numbers) for name, numbers in (owned or {}).items()],
            **fields,
        )
        self.send_join()

    def send_join(self) -> None:
        self.send(join=self._join)

    def send(self, **fields: Any) -> None:
        self._requests.put(pb.MemberRequest(**fields))

    def next(self) -> pb.MemberResponse:
        """The next message, whatever it is; raises StopIteration at the end of the stream, and grpc.RpcError."""
        response: pb.MemberResponse = next(self.call)
        return response

    def expect(self, kind: str) -> Any:
        """The next message, which is of this kind; answers to heartbeats are passed over."""
        while True:
            response = self.next()
            found = response.WhichOneof("response")
            if found == kind:
                return getattr(response, kind)
            assert found == "heartbeat", response

    def joined(self) -> pb.Joined:
        joined: pb.Joined = self.expect("joined")
        return joined

    def assigned(self, *, take: bool = True) -> Partitions:
        """The next assignment, by default taken at once."""
        found = self.note(self.expect("assignment"))
        if take:
            self.take()
        return found

    def note(self, assignment: pb.Assignment) -> Partitions:
        """Remember an assignment that came."""
        found = {topic.topic: list(topic.partitions) for topic in assignment.topics}
        self.committed = {
            (topic.topic, number): offset
            for topic in assignment.topics
            for number, offset in zip(topic.partitions, topic.offsets, strict=True)
        }
        self.pending = (assignment.epoch, found)
        return found

    def take(self) -> None:
        self.epoch, self.held = self.pending
        self.send(taken=pb.AssignmentTaken(epoch=self.epoch))

    def holds(self, expected: Mapping[str, Iterable[int]]) -> None:
        """Take assignments until it holds this."""
        wanted = {name: sorted(numbers) for name, numbers in expected.items()}
        while self.held != wanted:
            self.assigned()

    def commit(self, topic: str, offsets: Mapping[int, int], epoch: int | None = None) -> dict[int, str]:
        """Commit, wait, and return the reasons of those partitions that were refused."""
        self.send_commit(topic, offsets, epoch)
        return self.commit_refused()

    def send_commit(self, topic: str, offsets: Mapping[int, int], epoch: int | None = None, **columns: Any) -> None:
        item = pb.TopicOffsets(topic=topic, partitions=offsets.keys(), offsets=offsets.values(), **columns)
        self.send(
            commit=pb.Commit(
                correlation_id=next(self._correlation_ids),
                epoch=self.epoch if epoch is None else epoch,
                topics=[item],
            )
        )
        self._last_partitions = list(offsets)

    def commit_refused(self) -> dict[int, str]:
        [result] = self.expect("commit").topics
        if result.status.code:
            return dict.fromkeys(self._last_partitions, result.status.reason)
        return {failure.partition: failure.status.reason for failure in result.failures}

    def send_heartbeat(self, *, polled: bool = False) -> None:
        self.send(heartbeat=pb.Heartbeat(polled=polled))

    def heartbeat(self, *, polled: bool = False) -> None:
        """Send one and wait for its answer: the broker has heard everything that was sent before."""
        self.send_heartbeat(polled=polled)
        assert self.next().WhichOneof("response") == "heartbeat"

    def take_what_has_come(self) -> None:
        """Take the assignments that were sent before the answer to a heartbeat."""
        self.send_heartbeat()
        while (response := self.next()).WhichOneof("response") != "heartbeat":
            self.note(response.assignment)
            self.take()

    def subscribe(self, topics: Sequence[str]) -> None:
        self.send(subscription=pb.Subscription(topics=topics))

    def leave(self) -> None:
        """Say goodbye and wait until that is done."""
        self.leave_without_waiting()
        self.ends()

    def leave_without_waiting(self) -> None:
        self.send(leave=pb.Leave())

    def half_close(self) -> None:
        """Say that no more requests come."""
        self._requests.put(None)

    def fenced(self) -> str:
        """Wait until it is told that it is fenced; returns the reason."""
        fenced = self.expect("fenced")
        self.ends()
        return str(fenced.status.reason)

    def ends(self) -> None:
        """The stream ends without an error."""
        assert list(self.call) == []
        assert self.call.code() == grpc.StatusCode.OK
        self._requests.put(None)

    def refused(self) -> tuple[grpc.StatusCode, str]:
        """The status with which the stream ends."""
        try:
            while True:
                self.next()
        except grpc.RpcError:
            return self.call.code(), self.call.details()
        finally:
            self._requests.put(None)

    def break_(self) -> None:
        """Break the stream without a word."""
        self.call.cancel()
        self._requests.put(None)


class GroupsApi:
    """The unary calls."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.calls = Service(channel, pb.DESCRIPTOR.services_by_name["Groups"])

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> dict[int, str]:
        """Commit without being a member; returns the reasons of what was refused. Raises LogbrokerError."""
        item = pb.TopicOffsets(topic=topic, partitions=offsets.keys(), offsets=offsets.values())
        [result] = self.calls.CommitOffsets(pb.CommitOffsetsRequest(group_id=group, topics=[item])).topics
        if result.status.code:
            return dict.fromkeys(offsets, result.status.reason)
        return {failure.partition: failure.status.reason for failure in result.failures}

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        """All that is committed; nothing where there is no such group."""
        try:
            response = self.calls.FetchOffsets(pb.FetchOffsetsRequest(group_id=group))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.NOT_FOUND  # noqa: PT017
            return {}
        return {
            (topic.topic, number): offset
            for topic in response.topics
            for number, offset in zip(topic.partitions, topic.offsets, strict=True)
        }

    def describe(self, group: str) -> pb.DescribedGroup:
        [found] = self.calls.DescribeGroups(pb.DescribeGroupsRequest(group_ids=[group])).groups
        raise_for(found.status)
        described: pb.DescribedGroup = found
        return described

    def delete(self, group: str) -> None:
        [result] = self.calls.DeleteGroups(pb.DeleteGroupsRequest(group_ids=[group])).results
        raise_for(result)

    def list(self, **fields: Any) -> pb.ListGroupsResponse:
        response: pb.ListGroupsResponse = self.calls.ListGroups(pb.ListGroupsRequest(**fields))
        return response


def raise_for(status: Status) -> None:
    if status.code:
        raise from_status(status.code, status.reason, status.message)


__all__ = ["GroupsApi", "LogbrokerError", "Member", "Partitions", "raise_for"]
