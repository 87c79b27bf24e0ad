"""The synchronous QueueAdmin."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from logbroker.client.admin import queue_admin
from logbroker.client.admin.dead_letters import LetterList
from logbroker.client.admin.groups import GroupInfo
from logbroker.client.admin.queue_admin import Lane, QueueStart
from logbroker.client.admin.queue_descriptions import (
    DecidedAll,
    Decision,
    LaneDescription,
    LaneList,
    LaneOrder,
    LetterEnds,
    QueueDescription,
    QueueSettings,
    Redriven,
    RewoundPartition,
)
from logbroker.client.runtime.arguments import checks_arguments
from logbroker.client.runtime.lifetime import Uncopied
from logbroker.client.runtime.sync_loop import run
from logbroker.errors import LogbrokerError
from logbroker.record.codec import Headers


@checks_arguments()
class QueueAdmin(Uncopied):
    """Creates, describes, alters and deletes queue groups; shows lanes, and decides what happens to stalled lanes.

    A `lane` is named by its ordering key (bytes) or, for a record without a key, by that record's (partition, offset).

    For programs without an event loop; may be used by many threads at once. All methods raise BrokerUnavailableError if
    the broker cannot be reached or the connection breaks, and RequestTimeoutError if it does not answer within
    `request_timeout_seconds`. If the broker was reached, the change may have been made nevertheless; the message says
    so.
    """

    def __init__(self, broker: str, *, request_timeout_seconds: float = 10.0) -> None:
        """`broker` is "HOST:PORT" or "HOST:PORT,HOST:PORT".

        Calls that change nothing are repeated while the broker is away.
        """
        self._admin = queue_admin.QueueAdmin(broker, request_timeout_seconds=request_timeout_seconds)

    def create_queue(
        self, group: str, topic: str, settings: QueueSettings | None = None, *, start: QueueStart = "earliest"
    ) -> tuple[QueueDescription, bool]:
        """Create a queue group durably. Return its description, and True if it was created or False if it existed with
        the same settings.

        Raises GroupExistsError if it exists with other settings, UnknownTopicError, or InvalidRequestError.
        """
        return run(self._admin.create_queue(group, topic, settings, start=start))

    def list_queues(self) -> list[GroupInfo]:
        """Return all queue groups, sorted by id."""
        return run(self._admin.list_queues())

    def describe_queue(self, group: str, *, oldest: bool = False) -> QueueDescription:
        """Return the description of a queue group; see `describe_queues`. Raises UnknownGroupError."""
        return run(self._admin.describe_queue(group, oldest=oldest))

    def describe_queues(
        self, groups: Sequence[str], *, oldest: bool = False
    ) -> list[QueueDescription | LogbrokerError]:
        """Return the description or the error of each queue group. With `oldest`, it has the timestamp of the oldest
        record of each partition that is not done, which takes a read of each such partition."""
        return run(self._admin.describe_queues(groups, oldest=oldest))

    def alter_queue(self, group: str, settings: QueueSettings) -> tuple[QueueDescription, bool]:
        """Change settings while the group runs. Return the group's description, and whether a change of ordering has to
        wait until all deliveries in flight are settled.

        Raises UnknownGroupError or InvalidRequestError.
        """
        return run(self._admin.alter_queue(group, settings))

    def delete_queue(self, group: str) -> None:
        """Delete a queue group and its state durably. The topic stays. Raises UnknownGroupError."""
        run(self._admin.delete_queue(group))

    def list_lanes(self, group: str, *, order: LaneOrder = "hottest", top: int = 20) -> LaneList:
        """Return up to `top` lanes as `lanes`, the total number of lanes, and whether the list may be incomplete. Each
        lane has only the last reason of its failures.

        `order` is "hottest" (lanes with the most records first), "oldest" (lanes with the oldest head first), "held"
        (only lanes that need an operator: blocked, parked or refused by the dead-letter topic, the longest held first),
        or "waiting" (only lanes that wait for a retry, a not-before time or the dead-letter topic, or whose head cannot
        be read from the log now; the next due first).
        """
        return run(self._admin.list_lanes(group, order=order, top=top))

    def explain_lane(self, group: str, key: bytes) -> LaneDescription:
        """Return the description of the lane of an ordering key, with the failures of its first record."""
        return run(self._admin.explain_lane(group, key))

    def resume_lane(self, group: str, lane: Lane) -> None:
        """Let a stalled lane (blocked, parked, waiting, or refused by the dead-letter topic) continue with its head.
        The attempts of the head are counted from 0 again.

        Raises UnknownGroupError, UnknownLaneError or LaneNotHeldError.
        """
        run(self._admin.resume_lane(group, lane))

    def skip_head(self, group: str, lane: Lane) -> int:
        """Count the head of a lane as done, so that the lane continues behind it. Return the number of records that
        count as done by this call.

        Raises UnknownGroupError, UnknownLaneError or LaneNotHeldError.
        """
        return run(self._admin.skip_head(group, lane))

    def drop_lane(self, group: str, lane: Lane) -> int:
        """Count all scanned records of a lane as done. Return their number.

        Raises UnknownGroupError, UnknownLaneError or LaneNotHeldError.
        """
        return run(self._admin.drop_lane(group, lane))

    def split_lane(self, group: str, key: bytes, by: str, *, into: int = 16) -> None:
        """Split the lane of an ordering key. Its waiting and later records go in `into` sub-lanes, 2 to 1,000, by a
        second key. The sub-lanes begin once the lane's deliveries in flight are settled. Order holds among records with
        the same second key.

        `by` is "header:NAME", "key-suffix:SEPARATOR" (the end of the record's key), or "none", which gives up the order
        of the lane. Raises UnknownGroupError, or InvalidRequestError if the lane is split already.
        """
        run(self._admin.split_lane(group, key, by=by, into=into))

    def join_lane(self, group: str, key: bytes) -> None:
        """Undo the split of the lane of an ordering key. New records wait until the sub-lanes are empty, then go on in
        one lane. Raises UnknownGroupError, or InvalidRequestError if the lane is not split."""
        run(self._admin.join_lane(group, key))

    def decide_all(self, group: str, decision: Decision) -> DecidedAll:
        """Make the same decision for all lanes that are blocked, parked, or refused by the dead-letter topic.

        `decision` is "resume", "skip" or "drop".
        """
        return run(self._admin.decide_all(group, decision))

    def replace_head(
        self, group: str, lane: Lane, value: bytes | None, *, key: bytes | None = None, headers: Headers = ()
    ) -> None:
        """Let a lane continue with another record in place of its head, for this group only. The new record must have
        the same key; None takes that key. Without `headers`, the record keeps the headers of the head. Raises
        UnknownGroupError, UnknownLaneError, LaneNotHeldError or InvalidRequestError."""
        run(self._admin.replace_head(group, lane, value, key=key, headers=headers))

    def list_letters(self, group: str, *, key: bytes | None = None, max_records: int = 100) -> LetterList:
        """Return the dead letters of a queue group that were not sent back: their records as `letters`, and as `more`
        whether there are others. `letters` has at most `max_records`, which may be up to 1,000; with `key`, only those
        of this ordering key. Raises UnknownGroupError, or UnknownTopicError if the group has no dead-letter topic.
        """
        return run(self._admin.list_letters(group, key=key, max_records=max_records))

    def redrive(
        self,
        group: str,
        *,
        key: bytes | None = None,
        dry_run: bool = False,
        max_records: int | None = None,
        until: LetterEnds | None = None,
    ) -> Redriven:
        """Send dead letters, at most `max_records` in one call (None: 10,000; at most 1,000,000), back to the end of
        their original topic, each key in its original order. A letter that cannot be sent back is reported, and holds
        back only its own key. `dry_run` only counts the letters, also up to `max_records`.

        Only letters below `until` are sent back; None: below the current ends of the dead-letter topic. Workers may
        fail records again while letters are sent back. To send back each letter once, pass `Redriven.until` of the
        first call to further calls, until `Redriven.more` is false. Raises UnknownTopicError if `until` belongs to a
        topic that is not the group's dead-letter topic any more.
        """
        return run(self._admin.redrive(group, key=key, dry_run=dry_run, max_records=max_records, until=until))

    def rewind(
        self,
        group: str,
        to: QueueStart | int,
        *,
        partitions: Sequence[int] = (),
        include_parked: bool = False,
        drop_standing: bool = False,
        dry_run: bool = False,
    ) -> list[RewoundPartition]:
        """Move the group to earlier or later offsets in these partitions. Without `partitions`, move it in all.

        Receipts and attempts become invalid, and records from the new offset on are no longer done. Parked lanes stay
        parked unless `include_parked` is set. If the group moves to a later offset, the records of blocked and parked
        lanes below it stay unless `drop_standing` is set. The result has their number.
        """
        return run(
            self._admin.rewind(
                group,
                to,
                partitions=partitions,
                include_parked=include_parked,
                drop_standing=drop_standing,
                dry_run=dry_run,
            )
        )

    def close(self) -> None:
        """Close the connection."""
        if not self._admin._lifetime.is_forked:
            run(self._admin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
