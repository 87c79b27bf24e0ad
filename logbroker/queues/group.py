"""The runtime of one queue group: it feeds the state machine (`machine.queue`) with records and the time, and stores
its outputs.

A record goes log -> Scanner -> Queue.admit -> PullLine -> Queue.take -> pack -> stream; a settlement goes stream ->
Queue.settle -> GroupCommit -> answer. The state machine decides at once, in the order of the calls. Reads, commits and
appends run as tasks beside it.

If records may have been in flight, or sessions were held, when the broker ended, nothing new is handed out during the
grace after the start: only the workers that held them may reclaim them. Leases use the monotonic clock; stored times
use the wall clock.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from logbroker.clock import Clock
from logbroker.engine import DiskUse, LogEngine
from logbroker.errors import (
    BrokerUnavailableError,
    DiskFullError,
    LogbrokerError,
    OverloadedError,
    StorageFailedError,
    UnknownTopicError,
)
from logbroker.group_runtime.group_store import GroupStore
from logbroker.group_runtime.timer import Timer
from logbroker.pacing import Pace, let_go
from logbroker.queues.alarms import Alarms
from logbroker.queues.context import GroupContext
from logbroker.queues.dead_letters.redrive import RedriveOutcome, Redriving
from logbroker.queues.dead_letters.sender import DeadLetterSender, DeadLetterTopic
from logbroker.queues.delivery.dispatcher import Dispatcher
from logbroker.queues.delivery.pull_line import PullRequest
from logbroker.queues.delivery.session_waiters import SessionWaiters
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.delivery.worker_streams import WorkerStreams
from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import (
    SMALL_STEPS,
    AskedOutput,
    Delivered,
    Outputs,
    Refusal,
    Settlement,
    parts_of,
    steps_of,
)
from logbroker.queues.model.redrive_ends import RedriveEnds
from logbroker.queues.model.settings import QueueGroupSettings, dead_letter_topic_of
from logbroker.queues.model.worker_messages import Hello, check_credit, check_worker_id
from logbroker.queues.operations import Operations
from logbroker.queues.outputs.preparation import prepared
from logbroker.queues.outputs.sender import OutputSender
from logbroker.queues.priority.group_bands import band_named
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.fetch import Records
from logbroker.queues.retention.holder import RetentionHolder
from logbroker.queues.scan.index_cache.cache import IndexCache
from logbroker.queues.scan.rests import Rests
from logbroker.queues.scan.scanner import BARRIER_SECONDS, Scanner
from logbroker.queues.scan.splitter import Splitter
from logbroker.record.bands import Band
from logbroker.types import TopicId

_log = logging.getLogger(__name__)

CATCH_UP_SECONDS: Final = BARRIER_SECONDS
"""How long a request waits for the scan to reach the end of the log."""
NUMBERS: Final = 1 << 24
"""Number of receipts and tokens reserved ahead, enough for nearly two minutes at 150,000 a second. More would be
unsafe: if the data directory is restored from a copy, new numbers are taken from the clock, which passes this many in 4
s."""
MIN_NUMBERS: Final = 1 << 22
"""Minimum number of reserved numbers for handing out records. It is far more than one round takes. With fewer, the
group waits until more are reserved."""
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0
ROOM_SECONDS: Final = 0.5
"""Interval between checks for free disk space while workers wait."""


class QueueGroup:
    """One queue group. Everything runs on the event loop. Made, started and stopped by `QueueGroupRegistry`."""

    def __init__(
        self,
        group_id: str,
        queue: Queue,
        engine: LogEngine,
        store: GroupStore,
        clock: Clock,
        dead_letter_topic: DeadLetterTopic,
        cache: BatchCache,
        rests: Rests,
        *,
        max_workers: int,
        data_dir: Path,
    ) -> None:
        """`data_dir` holds the index cache of the group."""
        self.group_id = group_id
        self.queue = queue
        self._context = context = GroupContext(
            group_id,
            queue,
            engine,
            store,
            clock,
            serve=self._serve,
            on_synced=self._on_synced,
            on_failed=self._fail,
        )
        self._commits = context.commits
        self.moment = context.moment
        self.check_room = context.check_room
        self.inspector = Inspector(queue)
        self.hold = RetentionHolder(context, self._on_removed)
        self.records = Records(self.hold.log, TopicId(queue.topic_id), cache)
        self.index_cache = IndexCache(group_id, queue, engine, data_dir)
        self.scanner = Scanner(
            self.hold.log,
            queue,
            self.records,
            self.moment,
            self._on_scanned,
            self.index_cache,
            rests,
            self._is_used,
            self.hold.count_removed,
        )
        self.splitter = Splitter(group_id, queue, self.hold.log, self.moment, self._on_scanned)
        self.dispatcher = Dispatcher(context, self.scanner, self.records)
        self.worker_streams = WorkerStreams(context, self.dispatcher, max_workers)
        self.session_waiters = SessionWaiters(context, self.scanner)
        self.alarms = Alarms(group_id, self.inspector, self.hold.find_alarms, self.moment)
        self.operations = Operations(context, self.inspector, self.records, self.hold)
        self.dead_lettering = DeadLetterSender(context, self.records, dead_letter_topic)
        self.redriving = Redriving(context, dead_letter_topic)
        self.output_sender = OutputSender(context)
        self._engine = engine
        self._numbers = store.numbers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._letting_go: set[asyncio.Task[None]] = set()
        self._reserving: asyncio.Task[None] | None = None
        self._reserved_until = 0.0
        self._timer = Timer(self._on_time)
        self._told_obstacle = ""
        """The obstacle that the connected workers were told of."""
        self.has_failed = False
        """Whether the group has failed: it stays stopped until the next start of the broker. The broker's log has the
        reason."""

    # --- facts -------------------------------------------------------------------------------------------------------

    @property
    def topic_id(self) -> TopicId:
        """Id of the topic that the group reads."""
        return TopicId(self.queue.topic_id)

    @property
    def group_epoch(self) -> int:
        """Current group epoch; see `Queue.group_epoch`."""
        return self.queue.group_epoch

    @property
    def settings(self) -> QueueGroupSettings:
        """Settings in force now."""
        return self.queue.settings

    @property
    def latest_settings(self) -> QueueGroupSettings:
        """Settings that were set last; they take effect once the group is no longer `draining`."""
        return self.queue.latest_settings

    @property
    def lease_ms(self) -> int:
        return round(self.queue.settings.lease_seconds * 1000)

    def lease_left_ms(self, delivered: Delivered) -> int:
        """Return the time left on the leases of these records, which began when they were granted."""
        passed_seconds = self.moment().seconds - delivered.granted_at
        return max(1, self.lease_ms - math.ceil(passed_seconds * 1000))

    @property
    def draining(self) -> bool:
        """Whether the latest settings wait until nothing is in flight."""
        return self.queue.draining

    def state(self, unscanned: int | None = None) -> str:
        """Return the state of the group in one word, for people: serving, or why it does not serve. `unscanned` is the
        number of records that are not scanned yet, if the caller has counted them."""
        if self.has_failed:
            return "failed"
        if self.queue.draining:
            return "draining"
        if self.reserved:
            return "waiting"
        if self.queue.is_held_up:
            # If everything is scanned, no record waits for the scan to go on.
            return "paused" if (self._count_unscanned() if unscanned is None else unscanned) else "serving"
        is_indexing = self.queue.settings.has_priorities and self.scanner.is_indexing
        return "indexing" if is_indexing else "serving"

    def _count_unscanned(self) -> int:
        try:
            return self.scanner.unscanned()
        except UnknownTopicError:  # The group is about to be deleted, too.
            return 0

    @property
    def state_steps(self) -> int:
        """Number of steps of a `Pace` that `state` takes without a count."""
        return 3 * len(self.partitions()) if self.queue.is_held_up else 0

    @property
    def obstacle(self) -> str:
        """Reason why the group hands out no records now, in any state; "": there is none."""
        try:
            self.check_room()
        except (DiskFullError, OverloadedError) as error:
            return f"nothing is handed out, because settlements could not be stored: {error.message}"
        return ""

    def partitions(self) -> list[int]:
        """Return the numbers of the partitions that the group has seen, sorted."""
        return sorted(self.queue.done.partitions())

    async def catch_up(self, wait_seconds: float = CATCH_UP_SECONDS) -> bool:
        """See `Scanner.catch_up`."""
        return await self.scanner.catch_up(wait_seconds)

    # --- workers -----------------------------------------------------------------------------------------------------

    @property
    def links(self) -> dict[str, WorkerLink]:
        """Links of the workers that are connected or may still come back, by worker id."""
        return self.worker_streams.links

    async def connect(self, hello: Hello) -> WorkerLink:
        """Connect a worker's stream. Raises InvalidRequestError, OverloadedError or WorkerIdInUseError. Also raises the
        group's terminal error, or BrokerUnavailableError."""
        self._context.check_serving()
        hello.check()
        link = WorkerLink(self, hello, self.band(hello.band))
        self.scanner.rouse()
        await self.worker_streams.enter(link, hello, self._reserved_until)
        return link

    def tell_obstacle(self, link: WorkerLink) -> None:
        """Tell a worker that has just connected of the current obstacle, if the other workers were told of one."""
        # The disk is not checked while no worker waits, so the obstacle that the others were told of may be over.
        if self._told_obstacle and (obstacle := self.obstacle):
            link.on_obstacle(obstacle)

    async def goodbye(self, link: WorkerLink) -> None:
        """Disconnect a worker that leaves, and return when that is synced."""
        self.worker_streams.goodbye(link)
        await self._commits.synced(None)

    def disconnected(self, link: WorkerLink) -> None:
        """Handle a broken stream: the worker keeps its deliveries for the grace."""
        if self._context.is_over:
            link.end(self._context.error)  # The broker or the group is ending, not the worker.
        else:
            self.worker_streams.disconnected(link)

    def credited(self, link: WorkerLink, records: int) -> None:
        """Add to the number of records that may be handed to a worker."""
        self.dispatcher.line.credited(link.pull, records)
        self._context.serve_soon()

    def credited_bytes(self) -> None:
        """Serve again after a worker's credit in bytes has grown."""
        self._context.serve_soon()

    def band(self, name: str) -> Band | None:
        """See `group_bands.band_named`."""
        return band_named(name, self._engine.topic_by_id(self.topic_id), self.queue.settings)

    async def receive(
        self, worker_id: str, max_records: int, wait_seconds: float, band: Band | None = None
    ) -> list[Delivered]:
        """Take up to `max_records` records for a program without a stream; wait for the first of them.

        Raises InvalidRequestError or DiskFullError.
        """
        self._context.check_serving()
        self.check_room()
        check_worker_id(worker_id)
        check_credit(max_records)
        pull = PullRequest(worker_id, band)
        if self.scanner.is_resting:
            wait_seconds = await self.scanner.reached(self.scanner.barrier(), wait_seconds)
            self._context.check_serving()
        self.dispatcher.line.credited(pull, max_records)
        return await self.dispatcher.next(pull, wait_seconds)

    def release(self, worker_id: str, receipts: Sequence[tuple[int, int]], *, are_unseen: bool = True) -> None:
        """Release deliveries that never reached the worker; see `Dispatcher.release`. Does nothing if the group has
        ended or is about to stop, because deliveries that are in flight at a stop count no attempt."""
        if not self._context.is_over:
            self.dispatcher.release(worker_id, receipts, are_unseen=are_unseen)

    def is_void(self, worker_id: str, receipts: tuple[int, int]) -> bool:
        """Return whether some of these receipts, all handed out to the worker, are no longer valid."""
        deliveries = self.queue.deliveries
        refusals: list[Refusal] = []
        for part in deliveries.select(worker_id, *receipts, refusals):
            deliveries.refuse_settled(*part, refusals)
        return bool(refusals)

    def has_session(self, key: bytes, token: int) -> bool:
        """Return whether the ordering key has a session with this token."""
        session = self.queue.sessions.get(key)
        return session is not None and session.token == token

    def excuse(self, worker_id: str, receipts: Sequence[tuple[int, int]]) -> None:
        """See `Queue.excuse`."""
        if not self._context.is_over:
            self.queue.excuse(worker_id, receipts)

    # --- settling ----------------------------------------------------------------------------------------------------

    def settle(self, worker_id: str, settlement: Settlement) -> asyncio.Future[list[Refusal]]:
        """Apply a settlement at once. The future completes with the refusals once all accepted changes are synced."""
        self._check_settling(settlement)
        return self._settle(worker_id, settlement)

    async def settle_with_outputs(
        self,
        worker_id: str,
        settlement: Settlement,
        asked: Sequence[AskedOutput],
        check: Callable[[], None] = lambda: None,
    ) -> asyncio.Future[list[Refusal]]:
        """Apply a settlement together with its outputs. If an output, a state or an ack is refused, the whole
        settlement is refused. The future completes with the refusals once everything is synced and the outputs are
        appended. `check` is called at the last moment, and may raise an error. Raises the errors of `prepared`, of
        `OutputSender.check` and of `check`."""
        sender = self.output_sender
        async with prepared(self._engine, self._clock, asked, sender.refused) as outputs:
            try:
                await sender.prepare()
                sender.check(outputs)
                check()
                settling = self.settle(worker_id, msgspec.structs.replace(settlement, outputs=outputs))
            except LogbrokerError as error:
                for each in asked:
                    sender.refused(each.topic_id, error)
                raise
        for each in asked:
            self.queue.outbox.accepted(each.topic_id)
        return settling

    def _check_settling(self, settlement: Settlement) -> None:
        self._context.check_serving(settling=True)
        if settlement.outputs:
            self.check_room(DiskUse.TAKES_ROOM)
        elif settlement.acks or settlement.nacks or settlement.states:
            self.check_room()

    def _settle(self, worker_id: str, settlement: Settlement) -> asyncio.Future[list[Refusal]]:
        before = self.queue.outbox.last if settlement.outputs else None
        refusals = self.queue.settle(worker_id, settlement, self.moment())
        self._context.touched()
        entry = self.queue.outbox.last if settlement.outputs else None
        if entry is None or entry is before:
            return self._commits.synced(refusals)
        return self.output_sender.expect(entry, refusals)

    async def settle_in_turns(
        self, worker_id: str, settlement: Settlement, check: Callable[[], None] = lambda: None
    ) -> Sequence[asyncio.Future[list[Refusal]]]:
        """Apply a settlement of any size part by part, and return when all parts are applied. The futures, one for each
        part, complete with the refusals once all accepted changes are synced. `check` is called before each part.
        Raises its errors."""
        check()
        if steps_of(settlement) <= SMALL_STEPS:
            return [self.settle(worker_id, settlement)]
        self._check_settling(settlement)
        pace = Pace()
        has_sessions = bool(self.queue.deliveries.worker(worker_id).sessions)
        settling: list[asyncio.Future[list[Refusal]]] = []
        for part in parts_of(settlement, whole_ranges=has_sessions):
            self._context.check_serving(settling=True)
            check()
            settling.append(self._settle(worker_id, part.settlement))
            await pace.step(part.steps)
        return settling

    def letter_ends(self) -> RedriveEnds:
        """See `Redriving.ends`."""
        self._context.check_serving()
        return self.redriving.ends()

    async def redrive(
        self, key: bytes | None, max_records: int, until: RedriveEnds | None = None, *, dry_run: bool = False
    ) -> RedriveOutcome:
        """See `Redriving.redrive`."""
        self._context.check_serving()
        if not dry_run:
            self.check_room(DiskUse.TAKES_ROOM)
        return await self.redriving.redrive(key, max_records, until, dry_run=dry_run)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _is_used(self) -> bool:
        """Return whether any worker is connected or may come back, or any caller waits for records or a session."""
        return bool(self.worker_streams.links or self.dispatcher.line.is_waited_in or self.session_waiters.waiting)

    def _on_removed(self, partition: int) -> None:
        with suppress(LogbrokerError):  # The topic is being deleted.
            start_offset = self._engine.partition_facts(TopicId(self.queue.topic_id), partition).log_start_offset
            self.records.removed(partition, start_offset)
        self.scanner.note_removed(partition)

    def _on_scanned(self) -> None:
        self.worker_streams.scanned()
        self._context.touched()

    def _serve(self) -> None:
        self._context.serving_due = False
        if self._context.is_over:
            return
        if self.queue.splitting.is_changing:
            if self.queue.splitting.step(self.moment()):
                self._context.touched()
            if self.queue.splitting.has_unlooked:
                self._context.serve_soon()
            self.splitter.wake()
        line, openings, offered = self.dispatcher.line, self.session_waiters, self.queue.lanes.offered
        is_due = offered or openings.waiting or self._told_obstacle or self.queue.ready_records()
        if is_due and self._has_room():
            if offered:
                line.serve_sessions()
            if not self.reserved and self._has_numbers():
                openings.serve()
                line.serve()
        self.scanner.wake()
        self._arm()

    def _has_room(self) -> bool:
        """Return whether the disk has room to store settlements. Without room, workers would work in vain and use up
        attempts."""
        if self.dispatcher.line.is_waited_in or self.session_waiters.waiting:
            obstacle = self.obstacle
            if obstacle != self._told_obstacle and not (obstacle and self._told_obstacle):
                self._told_obstacle = obstacle
                for link in self.worker_streams.links.values():
                    if link.connected:
                        link.on_obstacle(obstacle)
            if obstacle:
                self._timer.arm(self._loop.time() + ROOM_SECONDS)
                return False
        return True

    def _has_numbers(self) -> bool:
        """Return whether enough receipts and tokens are reserved for one round of deliveries; reserve more in time."""
        left = self._numbers.reserved - self.queue.next_number
        if left < NUMBERS // 2 and self._reserving is None:
            self._reserving = self._loop.create_task(self._reserve(), name=f"numbers of queue group {self.group_id}")
        return left >= MIN_NUMBERS

    async def _reserve(self) -> None:
        pause_seconds = FIRST_PAUSE_SECONDS
        try:
            while self._context.error is None:
                try:
                    await self._numbers.reserve(self.queue.next_number + NUMBERS)
                    return
                except StorageFailedError:
                    return  # This error stops the broker.
                except LogbrokerError as error:
                    _log.warning("queue group %s has to wait for receipts: %s", self.group_id, error.message)
                    await asyncio.sleep(pause_seconds)
                    pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
        finally:
            self._reserving = None
            self._context.serve_soon()

    def _on_synced(self, outputs: Outputs) -> None:
        if outputs.discarded:
            self._let_go(outputs.discarded)
        if not self._context.is_over:
            self.dead_lettering.send(outputs.dead_letters)
        if outputs.outbox:
            self.output_sender.send(outputs.outbox)
        if outputs.notices:
            self.alarms.tell(outputs.notices)
        if outputs.lost_sessions:
            self.worker_streams.tell_lost(outputs.lost_sessions)

    def _let_go(self, discarded: list[Any]) -> None:
        """Free discarded objects in small steps, beside other work."""
        task = self._loop.create_task(let_go(discarded), name=f"letting go in queue group {self.group_id}")
        self._letting_go.add(task)
        task.add_done_callback(self._letting_go.discard)

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def reserved(self) -> bool:
        """Whether the grace after a start lasts, in which only workers that held records or sessions before are
        served."""
        return self._reserved_until > 0 and self._loop.time() < self._reserved_until

    def _end_reserve(self) -> None:
        if self._reserved_until and not self.reserved:
            self._reserved_until = 0.0
            self.queue.sessions.forget_unclaimed()

    def _arm(self) -> None:
        deadline = self.queue.deadline()
        if self.reserved:
            deadline = min(self._reserved_until, deadline)
        self._timer.arm(deadline)

    def _on_time(self) -> None:
        now = self.moment()
        self.queue.tick(now)
        self.worker_streams.tick(now)
        self._end_reserve()
        self._context.touched()

    # --- lifetime ----------------------------------------------------------------------------------------------------

    async def start(self, *, is_new: bool = False) -> None:
        """Begin to serve once the group epoch is stored: it distinguishes the receipts of this epoch from all
        others."""
        self.hold.open()
        await self._commits.synced(None, self.redriving.begin() if is_new else self.redriving.take_up())
        is_awaited = self.queue.redelivery.marks or self.queue.sessions.have_unclaimed
        grace_seconds = self.queue.settings.grace_seconds if is_awaited else 0.0
        self._reserved_until = self._loop.time() + grace_seconds
        self._end_reserve()
        self._tasks = [
            self._loop.create_task(self._guarded(self.scanner.run()), name=f"scan of queue group {self.group_id}"),
            self._loop.create_task(self._guarded(self.splitter.run()), name=f"splits of queue group {self.group_id}"),
            self._loop.create_task(self._guarded(self.splitter.watch()), name=f"hot lanes of {self.group_id}"),
            self._loop.create_task(self.index_cache.keep(), name=f"index cache of queue group {self.group_id}"),
            self._loop.create_task(self.alarms.watch(), name=f"alarms of queue group {self.group_id}"),
            self._loop.create_task(self.redriving.finish(), name=f"redrive of queue group {self.group_id}"),
        ]
        self.output_sender.start()
        self._has_numbers()  # Reserve numbers now, so that the first worker does not wait for them.
        self._context.serve_soon()

    async def _guarded(self, running: Coroutine[Any, Any, None]) -> None:
        """Run a task that the group needs: if it fails, the group fails."""
        try:
            await running
        except Exception as error:
            _log.exception("queue group %s cannot go on", self.group_id)
            self._fail(LogbrokerError(f"queue group {self.group_id} cannot go on until the next start: {error}"))

    def _fail(self, error: LogbrokerError) -> None:
        if self._context.error is None:
            self.has_failed = True
            if isinstance(error, StorageFailedError):
                # The broker stops; workers that get this error come back to the next one.
                error = BrokerUnavailableError(
                    "the broker's storage failed and it stops; clients can connect again once it is back"
                )
            self._send_home(error)

    async def alter(self, settings: QueueGroupSettings) -> None:
        """Change the settings. Return when they are stored or, if they must wait for deliveries in flight, at once.

        Raises InvalidRequestError.
        """
        self._context.check_serving()
        self.queue.alter(settings)
        name = settings.dead_letter_topic or dead_letter_topic_of(self.group_id)
        rows = self.redriving.turn_to(name)
        self.dead_lettering.topic.name = name
        self.dead_lettering.topics_changed()
        self._context.touched()
        await self._commits.synced(None, rows)

    def topics_changed(self) -> None:
        self.scanner.wake()
        self.dead_lettering.topics_changed()
        self.output_sender.topics_changed()

    def freeze(self, moved: LogbrokerError | None = None) -> None:
        """Stop handing out records; a worker whose stream breaks from now on does not count as lost. `moved` tells
        where the group is now; None: the broker is stopping."""
        error = moved or BrokerUnavailableError("the broker is stopping; clients can connect again once it is back")
        self._context.freeze(error)
        self._timer.stop()
        self.session_waiters.close(error)
        self.dispatcher.line.close(error)
        self.output_sender.freeze()

    async def stop(self, error: LogbrokerError) -> None:
        """Stop the tasks, store what the next start needs, and keep nothing of the engine's and the caches. Whoever
        still uses the group gets the error."""
        if self._context.stopping is None:
            self.freeze(error)
        await self._end_tasks()
        self.index_cache.close()
        with suppress(LogbrokerError):  # The group has failed, or its state is another broker's by now.
            await self._commits.synced(None, self.queue.stop_events())
        error = self._context.error or error
        self._context.end(error)
        self._commits.close(error)
        self.worker_streams.end_all(error)
        await self.hold.close()
        self.records.batches.close()
        self.queue.lanes.successors.close()

    async def end(self, error: LogbrokerError) -> None:
        """End a deleted group: all streams end with the error, and nothing is stored any more."""
        self._send_home(error)
        await self._end_tasks()
        await self.hold.close()
        self.records.batches.close()
        await self._commits.settle()
        self._commits.close(error)
        self._let_go(self.queue.clear())

    def _send_home(self, error: LogbrokerError) -> None:
        self._context.end(error)
        self._timer.stop()
        self.worker_streams.end_all(error)
        self.session_waiters.close(error)
        self.dispatcher.line.close(error)

    async def _end_tasks(self) -> None:
        tasks = [*self._tasks, *([self._reserving] if self._reserving is not None else ())]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.hold.stop()
        await self.dead_lettering.stop()
        await self.output_sender.stop(self._context.error or BrokerUnavailableError("the broker has stopped"))
