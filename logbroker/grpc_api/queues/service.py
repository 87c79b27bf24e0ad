"""The service logbroker.v1.Queues."""

from __future__ import annotations

import asyncio
from typing import Final

from logbroker.broker.broker import Broker
from logbroker.broker.read_budget import ReadBudget
from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.groups.messages import topic_name
from logbroker.grpc_api.paging import items_within, outcomes_within
from logbroker.grpc_api.queues.admin_messages import (
    check_age,
    described_queue,
    new_settings,
    read_redrive_ends,
    read_settings,
    read_start,
    rewound_partition,
)
from logbroker.grpc_api.queues.lanes import MAX_EXPLAINED, decide_lanes, explained_lanes, listed_lanes
from logbroker.grpc_api.queues.messages import make_settle_answer, read_settle
from logbroker.grpc_api.queues.outputs import read_outputs
from logbroker.grpc_api.queues.receive import Receive
from logbroker.grpc_api.queues.worker_stream import WorkerStream
from logbroker.grpc_api.refs import check_item_count, find_topic
from logbroker.grpc_api.status import Context, Statuses, answers
from logbroker.pacing import Pace, in_turns
from logbroker.queues.group import CATCH_UP_SECONDS, QueueGroup
from logbroker.queues.model.record_id import offset_of, partition_of
from logbroker.types import MAX_TOPIC_CHARACTERS
from logbroker.v1 import queues_pb2 as pb
from logbroker.v1.common_pb2 import Status

DEFAULT_REDRIVEN: Final = 10_000
MAX_REDRIVEN: Final = 1_000_000
_TOPIC_BYTES: Final = MAX_TOPIC_CHARACTERS + 64
"""Bytes that the name and the id of a topic take in an answer, at most."""


class QueuesService:
    """Queue groups. Each method is one call of the API, documented in proto/logbroker/v1/queues.proto."""

    def __init__(self, broker: Broker, budget: ReadBudget, stopping: asyncio.Event) -> None:
        self._homes = broker.homes
        self._engine = broker.engine
        self._budget = budget
        self._max_request_bytes = broker.config.max_request_bytes
        self._max_response_bytes = broker.config.max_response_bytes
        self._stopping = stopping

    def _group(self, group_id: str) -> QueueGroup:
        """Return a queue group. Raises UnknownGroupError, WrongGroupTypeError, InvalidGroupIdError or
        StaleOwnerError."""
        return self._homes.of(group_id).queues.group(group_id)

    # --- workers -----------------------------------------------------------------------------------------------------

    @answers
    async def work(self, _: object, context: Context) -> None:
        most = self._max_request_bytes
        await WorkerStream(self._group, self._engine, context, self._budget, self._stopping, most).run()

    @answers
    async def receive(self, request: pb.ReceiveRequest, context: Context) -> None:
        await Receive(self._group(request.group_id), request, context, self._budget, self._max_response_bytes).run()

    @answers
    async def settle(self, request: pb.SettleRequest, context: Context) -> pb.SettleResponse:
        group = self._group(request.group_id)
        pace = Pace()
        asked = await in_turns(read_settle(request.settle), pace)
        refusals = asked.refusals
        if request.settle.outputs and not refusals:
            outputs = await read_outputs(self._engine, request.settle.outputs, pace)
            refusals += await (await group.settle_with_outputs(request.worker_id, asked.settlement, outputs))
        else:
            for settling in await group.settle_in_turns(request.worker_id, asked.settlement):
                refusals += await settling
        answer = await in_turns(make_settle_answer(request.settle.correlation_id, refusals), pace)
        return pb.SettleResponse(answer=answer)

    # --- administration ----------------------------------------------------------------------------------------------

    @answers
    async def create_queue(self, request: pb.CreateQueueRequest, context: Context) -> pb.CreateQueueResponse:
        start = read_start(request.start)
        if start.offset is not None:
            raise InvalidRequestError(
                "a queue group begins at earliest, latest or a time; rewind it to an offset after that"
            )
        topic = find_topic(self._engine, request.topic, request.topic_id)
        settings = new_settings(request.settings, topic)
        group, created = await self._homes.of(request.group_id).queues.create(request.group_id, topic, settings, start)
        return pb.CreateQueueResponse(queue=await described_queue(self._engine, group, Pace(), 0), created=created)

    @answers
    async def alter_queue(self, request: pb.AlterQueueRequest, context: Context) -> pb.AlterQueueResponse:
        changes = read_settings(request.settings)
        if not changes:
            raise InvalidRequestError("no setting is given: set the fields of `settings` that are to change")
        before = self._group(request.group_id).latest_settings
        check_age(changes, changes.get("priority", before.priority))
        group = await self._homes.of(request.group_id).queues.alter(request.group_id, changes)
        described = await described_queue(self._engine, group, Pace(), 0)
        return pb.AlterQueueResponse(queue=described, draining=group.draining)

    @answers
    async def describe_queues(self, request: pb.DescribeQueuesRequest, context: Context) -> pb.DescribeQueuesResponse:
        check_item_count(len(request.group_ids))
        # One deadline for all groups, which are described one after the other: if each waited for its own scan,
        # hundreds would take minutes.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CATCH_UP_SECONDS
        queues = await items_within(
            request.group_ids,
            lambda group_id, pace: described_queue(self._engine, self._group(group_id), pace, deadline - loop.time()),
            lambda status, _: pb.DescribedQueue(status=status),
            self._max_response_bytes,
            lambda group_id: group_id,
        )
        return pb.DescribeQueuesResponse(queues=queues)

    @answers
    async def delete_queues(self, request: pb.DeleteQueuesRequest, context: Context) -> pb.DeleteQueuesResponse:
        check_item_count(len(request.group_ids))

        async def delete(group_id: str) -> Status:
            await self._homes.of(group_id).queues.delete(group_id)
            return Status()

        results = await outcomes_within(request.group_ids, delete, lambda status: status, self._max_response_bytes)
        return pb.DeleteQueuesResponse(results=results)

    # --- lanes -------------------------------------------------------------------------------------------------------

    @answers
    async def list_lanes(self, request: pb.ListLanesRequest, context: Context) -> pb.ListLanesResponse:
        group = self._group(request.group_id)
        is_all_scanned = await group.catch_up()
        response = await listed_lanes(group, request, self._max_response_bytes)
        response.incomplete = not is_all_scanned
        return response

    @answers
    async def explain_lanes(self, request: pb.ExplainLanesRequest, context: Context) -> pb.ExplainLanesResponse:
        if len(request.keys) > MAX_EXPLAINED:
            raise InvalidRequestError(f"at most {MAX_EXPLAINED} keys are explained at once, not {len(request.keys)}")
        group = self._group(request.group_id)
        is_all_scanned = await group.catch_up()
        response = await explained_lanes(
            group,
            request.keys,
            self._max_response_bytes - _TOPIC_BYTES,
            is_all_scanned=is_all_scanned,
            with_records=request.records,
        )
        response.topic, response.topic_id = topic_name(self._engine, group.topic_id), group.topic_id
        return response

    @answers
    async def decide_lanes(self, request: pb.DecideLanesRequest, context: Context) -> pb.DecideLanesResponse:
        check_item_count(len(request.decisions))
        group = self._group(request.group_id)
        is_all_scanned = await group.catch_up()
        return await decide_lanes(group, request.decisions, is_all_scanned=is_all_scanned)

    # --- redrive and rewind ------------------------------------------------------------------------------------------

    @answers
    async def redrive(self, request: pb.RedriveRequest, context: Context) -> pb.RedriveResponse:
        max_records = request.max_records if request.HasField("max_records") else DEFAULT_REDRIVEN
        if not 1 <= max_records <= MAX_REDRIVEN:
            raise InvalidRequestError(f"max_records must be 1 to {MAX_REDRIVEN:,}, not {max_records}")
        group = self._group(request.group_id)
        key = request.key if request.HasField("key") else None
        until = read_redrive_ends(request.until) if request.HasField("until") else group.letter_ends()
        redriven = await group.redrive(key, max_records, until, dry_run=request.dry_run)
        return pb.RedriveResponse(
            records=redriven.records,
            keys=redriven.keys,
            more=redriven.more,
            held=redriven.held,
            why_held=redriven.why,
            until=pb.LetterEnds(topic_id=until.topic_id, offsets=until.offsets),
            letters=[
                pb.Place(partition=partition_of(record_id), offset=offset_of(record_id))
                for record_id in redriven.letters
            ],
        )

    @answers
    async def rewind(self, request: pb.RewindRequest, context: Context) -> pb.RewindResponse:
        check_item_count(len(request.partitions))
        group = self._group(request.group_id)
        if request.to.WhichOneof("at") is None:
            raise InvalidRequestError("the request does not say where to go on: set `to`")
        asked = list(dict.fromkeys(request.partitions)) or group.partitions()
        outcomes = await group.operations.rewind(
            read_start(request.to),
            asked,
            include_parked=request.include_parked,
            drop_standing=request.drop_standing,
            dry_run=request.dry_run,
        )
        pace, statuses = Pace(), Statuses()
        response = pb.RewindResponse()
        for partition, outcome in zip(asked, outcomes, strict=True):
            response.partitions.append(rewound_partition(partition, outcome, statuses))
            await pace.step(2)
        return response
