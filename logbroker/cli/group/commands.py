"""`logbroker group`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import click
import msgspec

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PARTITION, Whole
from logbroker.cli.common.clients import CommandAdmin, CommandQueueAdmin
from logbroker.cli.common.lines import confirm, counted, tell, write_line
from logbroker.cli.common.options import (
    PLACE_METAVAR,
    Place,
    PlaceType,
    broker_option,
    json_option,
    number_option,
    yes_option,
)
from logbroker.cli.group.reset import Move, plan
from logbroker.client.sync import (
    GenerationDescription,
    GroupDescription,
    GroupInfo,
    MemberDescription,
    PartitionLag,
    QueueDescription,
    TopicPartition,
)
from logbroker.config import MAX_INT64
from logbroker.errors import UnknownGroupError

_NAMED_PARTITIONS: Final = 10
_CLASSIC_TYPE: Final = "classic"
"""Type of the groups of Kafka clients."""


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups.

    \b
    Examples:
      logbroker group list
      logbroker group describe reports
      logbroker group reset-offsets reports --to 2026-01-31T12:00:00Z --dry-run
      logbroker group reset-offsets reports --topic orders --shift-by -100
    """


class _Lag(NamedTuple):
    """The lag of a consumer group or a queue group."""

    behind: int
    """Number of records that are not done."""
    unknown_partitions: int
    """Number of partitions that `behind` leaves out, because nothing is committed or they cannot be asked."""
    oldest_ms: int | None
    """Timestamp of the oldest record that is not done."""


@group.command(name="list")
@click.option(
    "--lag",
    "with_lag",
    is_flag=True,
    help="Also show how many records each group is behind, and the age of its oldest record that is not done.",
)
@broker_option
@json_option
def list_groups(with_lag: bool, broker: str, as_json: bool) -> None:
    """List all groups with their types.

    The types are consumer, classic (a group of Kafka clients) and queue. With --lag, `behind` is the number of records
    that are not done. For a queue group they may wait, be in flight, or be blocked or parked. For a consumer group they
    are the records after the committed offsets. `at least` before the number means that it leaves out partitions of
    the group, because nothing is committed there or because they cannot be asked. A group without members counts all
    partitions of each topic in which it has committed.

    \b
    Examples:
      logbroker group list
      logbroker group list --lag
      logbroker group list --lag --json | jq '.[] | {id, behind, oldest_age_ms}'
    """
    with CommandAdmin(broker) as admin:
        infos = admin.list_groups()
        lags = _lags(admin, broker, infos) if with_lag else None
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        documents = [msgspec.structs.asdict(info) for info in infos]
        for document in documents if lags is not None else ():
            document |= _group_lag_document((lags or {}).get(document["id"]), now_ms)
        terminal.write_json(documents)
        return
    columns = ("group", "type", "state", "members", *(("behind", "oldest") if with_lag else ()))
    rows = terminal.table(*columns, numbers=columns[3:])
    for info in infos:
        lag_columns = () if lags is None else _lag_columns(lags.get(info.id), now_ms)
        rows.add_row(info.id, info.type, info.state, str(info.members), *lag_columns)
    terminal.show(rows)


def _lags(admin: CommandAdmin, broker: str, infos: Sequence[GroupInfo]) -> dict[str, _Lag]:
    """Return the lag of each group that still exists."""
    lags: dict[str, _Lag] = {}
    for info in infos:
        if info.type != "queue":
            with suppress(UnknownGroupError):
                lags[info.id] = _lag_of_consumers(admin.group_lag(info.id))
    names = [info.id for info in infos if info.type == "queue"]
    with CommandQueueAdmin(broker) as queue_admin:
        for queue in queue_admin.describe_queues(names, oldest=True):
            if isinstance(queue, QueueDescription):
                behind = queue.counts.open + queue.counts.unscanned
                stopped = sum(partition.error is not None for partition in queue.partitions)
                lags[queue.id] = _Lag(behind, stopped, queue.oldest_timestamp_ms)
    return lags


def _lag_of_consumers(lags: Sequence[PartitionLag]) -> _Lag:
    known = [lag.records for lag in lags if lag.records is not None]
    oldest = [lag.oldest_unread_ms for lag in lags if lag.oldest_unread_ms is not None]
    return _Lag(sum(known), len(lags) - len(known), min(oldest, default=None))


def _lag_columns(lag: _Lag | None, now_ms: int) -> tuple[str, str]:
    if lag is None:
        return "-", "-"
    behind = f"{'at least ' if lag.unknown_partitions else ''}{lag.behind:,}"
    return behind, "-" if lag.oldest_ms is None else terminal.age_text(max(0, now_ms - lag.oldest_ms))


def _group_lag_document(lag: _Lag | None, now_ms: int) -> dict[str, Any]:
    if lag is None:
        return {"behind": None, "unknown_partitions": None, "oldest_timestamp_ms": None, "oldest_age_ms": None}
    return {
        "behind": lag.behind,
        "unknown_partitions": lag.unknown_partitions,
        "oldest_timestamp_ms": lag.oldest_ms,
        "oldest_age_ms": None if lag.oldest_ms is None else max(0, now_ms - lag.oldest_ms),
    }


@group.command()
@click.argument("name", metavar="GROUP")
@broker_option
@json_option
def describe(name: str, broker: str, as_json: bool) -> None:
    """Show the offset, owner and lag of GROUP in each partition.

    The lag is the number of records between the committed offset and the end of the partition. Those of them that are
    no longer in the log are shown separately, too. The lag in time is the age of the oldest record that is left. Where
    nothing is committed, the lag is unknown. A group without members shows all partitions of each topic in which it
    has committed.

    A topic to which partitions were added has several generations, and the group finishes one before it begins the
    next. The command shows which generation the group reads, and which partitions the next generation waits for.

    \b
    Examples:
      logbroker group describe reports
      logbroker group describe reports --json | jq '.partitions[].lag_records'
    """
    with CommandAdmin(broker) as admin:
        description = admin.describe_group(name)
        lags = admin.group_lag(name)
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        terminal.write_json(_document(description, lags, now_ms))
    else:
        _show(description, lags, now_ms)


@group.command()
@click.argument("name", metavar="GROUP")
@broker_option
@json_option
def members(name: str, broker: str, as_json: bool) -> None:
    """Show the members of GROUP and their partitions.

    For each member, the command shows the partitions that it holds and the partitions that are assigned to it. The
    epoch of a Kafka client is the generation of its group.

    \b
    Examples:
      logbroker group members reports
      logbroker group members reports --json
    """
    with CommandAdmin(broker) as admin:
        description = admin.describe_group(name)
    if as_json:
        terminal.write_json([_member_document(member) for member in description.members])
        return
    columns = ("member", "instance", "client", "state", "epoch", "subscription", "holds", "is to hold")
    rows = terminal.table(*columns, numbers=("epoch",))
    for member in description.members:
        subscription = [*member.topics, *([f"/{member.topic_pattern}/"] if member.topic_pattern else [])]
        bands = f" (bands {', '.join(member.bands)})" if member.bands else ""
        rows.add_row(
            member.id,
            member.instance_id or "-",
            member.client_name or "-",
            "connected" if member.connected else "away",
            str(member.epoch),
            ", ".join(subscription) + bands,
            _partitions_text(member.owned),
            "the same" if set(member.owned) == set(member.target) else _partitions_text(member.target),
        )
    terminal.show(rows)


@group.command(name="reset-offsets")
@click.argument("name", metavar="GROUP")
@click.option(
    "--to",
    "place",
    type=PlaceType(),
    metavar=PLACE_METAVAR,
    help="Where to continue. TIME is ISO 8601, in local time unless it names a zone.",
)
@number_option(
    "--shift-by",
    kind=Whole(-MAX_INT64, MAX_INT64),
    help="Move the committed offsets forward by N records, or back if N is negative.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Set the offsets of this topic only. Repeatable.  [default: all topics with committed offsets]",
)
@number_option(
    "--partition",
    "partitions",
    kind=PARTITION,
    multiple=True,
    help="Set the offset of this partition only; needs one --topic. Repeatable.  [default: all]",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@broker_option
@json_option
def reset_offsets(
    name: str,
    place: Place | None,
    shift_by: int | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    dry_run: bool,
    broker: str,
    as_json: bool,
) -> None:
    """Set the committed offsets of GROUP.

    GROUP must have no members. An offset must lie within the log; --shift-by stops at the start and the end of the log.
    With --topic and --to, partitions without a committed offset are set, too, and the group need not exist yet.

    \b
    Examples:
      logbroker group reset-offsets reports --to earliest --dry-run
      logbroker group reset-offsets reports --topic orders --partition 3 --to 1200
      logbroker group reset-offsets reports --shift-by -100
    """
    if (place is None) == (shift_by is None):
        raise click.UsageError("give either --to or --shift-by")
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition needs one --topic")
    with CommandAdmin(broker) as admin:
        moves = plan(admin, name, topics, partitions, place, shift_by)
        if not dry_run:
            outcomes = admin.commit_offsets(name, {move.partition: move.new for move in moves})
            for error in outcomes.values():
                if error is not None:
                    raise error
    if as_json:
        terminal.write_json([_move_document(move) for move in moves])
        return
    rows = terminal.table("topic", "partition", "old", "new", numbers=("partition", "old", "new"))
    for move in moves:
        rows.add_row(move.partition.topic, str(move.partition.partition), _offset_text(move.old), str(move.new))
    terminal.show(rows)
    if dry_run:
        write_line("nothing was changed (--dry-run)")


@group.command()
@click.argument("name", metavar="GROUP")
@yes_option
@broker_option
@json_option
def delete(name: str, yes: bool, broker: str, as_json: bool) -> None:
    """Delete GROUP and its committed offsets. It must have no members.

    \b
    Examples:
      logbroker group delete reports
      logbroker group delete reports --yes
    """
    with CommandAdmin(broker) as admin:
        if not yes:
            admin.describe_group(name)  # A group that does not exist is reported before the question.
            confirm(f"Delete group {name} and its committed offsets?")
        admin.delete_group(name)
    if as_json:
        terminal.write_json({"id": name})
    else:
        tell(f"deleted group {name}")


def _partitions_text(partitions: tuple[TopicPartition, ...]) -> str:
    by_topic: dict[str, list[str]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(str(partition))
    return "; ".join(f"{_topic_text(topic)} {', '.join(numbers)}" for topic, numbers in by_topic.items()) or "-"


def _topic_text(topic: str) -> str:
    return topic or "(deleted)"


def _offset_text(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


def _age_ms(lag: PartitionLag, now_ms: int) -> int | None:
    return None if lag.oldest_unread_ms is None else max(0, now_ms - lag.oldest_unread_ms)


def _show(description: GroupDescription, lags: list[PartitionLag], now_ms: int) -> None:
    info = description.info
    whole, removed = _lag_of_consumers(lags), sum(lag.removed or 0 for lag in lags)
    failed = sum(lag.error is not None for lag in lags)
    uncommitted = whole.unknown_partitions - failed
    is_classic = info.type == _CLASSIC_TYPE
    write_line(
        f"group {info.id}: {'of Kafka clients, ' if is_classic else ''}{info.state}, "
        f"{counted(info.members, 'member')}, {description.assignor or 'no assignor yet'}, "
        f"{'generation' if is_classic else 'epoch'} {description.epoch}, "
        f"{'at least ' if whole.unknown_partitions else ''}{counted(whole.behind, 'record')} behind"
        f"{f', {removed:,} of them no longer in the log' if removed else ''}"
        f"{f', {failed:,} of {len(lags):,} partitions cannot be asked' if failed else ''}"
        f"{f', nothing committed in {uncommitted:,} of {len(lags):,} partitions' if uncommitted else ''}"
    )
    write_line()
    names = {member.id: member.instance_id or member.id for member in description.members}
    numbers = ("partition", "committed", "end", "lag", *(("removed",) if removed else ()), "lag in time")
    rows = terminal.table("topic", "partition", "owner", *numbers[1:], numbers=numbers)
    for lag in lags:
        place = (_topic_text(lag.partition.topic), str(lag.partition.partition), names.get(lag.owner, lag.owner) or "-")
        committed = _offset_text(None if lag.committed is None else lag.committed.offset)
        if lag.error is not None:
            rows.add_row(*place, committed, str(lag.error))
            continue
        age_ms = _age_ms(lag, now_ms)
        age = "-" if age_ms is None else terminal.age_text(age_ms)
        gone = (_offset_text(lag.removed),) if removed else ()
        rows.add_row(*place, committed, str(lag.end_offset), _offset_text(lag.records), *gone, age)
    terminal.show(rows)
    for generation in description.generations:
        write_line()
        write_line(_generation_text(generation))


def _generation_text(generation: GenerationDescription) -> str:
    """Return which generation of a topic is read, and which partitions the next one waits for."""
    which = f"topic {generation.topic}: reads generation {generation.generation} of {generation.last_generation}"
    if not generation.waiting:
        return which
    named = ", ".join(
        f"{awaited.partition.partition} (at {_offset_text(awaited.finished_offset)} of {awaited.end_offset})"
        for awaited in generation.waits_for[:_NAMED_PARTITIONS]
    )
    more = generation.waiting - min(len(generation.waits_for), _NAMED_PARTITIONS)
    return (
        f"{which}; the next one begins when partition{'' if generation.waiting == 1 else 's'} {named}"
        f"{f' and {more} more' if more else ''} {'is' if generation.waiting == 1 else 'are'} finished"
    )


def _document(description: GroupDescription, lags: list[PartitionLag], now_ms: int) -> dict[str, Any]:
    return {
        "id": description.info.id,
        "type": description.info.type,
        "state": description.info.state,
        "members": description.info.members,
        "assignor": description.assignor,
        "epoch": description.epoch,
        "partitions": [_lag_document(lag, now_ms) for lag in lags],
        "growth_order": description.growth_order,
        "generations": [_generation_document(generation) for generation in description.generations],
    }


def _generation_document(generation: GenerationDescription) -> dict[str, Any]:
    return {
        "topic": generation.topic,
        "generation": generation.generation,
        "last_generation": generation.last_generation,
        "waiting": generation.waiting,
        "waits_for": [
            {
                "partition": awaited.partition.partition,
                "finished_offset": awaited.finished_offset,
                "end_offset": awaited.end_offset,
            }
            for awaited in generation.waits_for
        ],
    }


def _lag_document(lag: PartitionLag, now_ms: int) -> dict[str, Any]:
    where = {"topic": lag.partition.topic or None, "partition": lag.partition.partition, "owner": lag.owner or None}
    committed = None if lag.committed is None else lag.committed.offset
    if lag.error is not None:
        return {**where, "committed_offset": committed, "error": str(lag.error)}
    return {
        **where,
        "committed_offset": committed,
        "committed_at_ms": None if lag.committed is None else lag.committed.commit_time_ms,
        "metadata": None if lag.committed is None else lag.committed.metadata,
        "log_start_offset": lag.log_start_offset,
        "end_offset": lag.end_offset,
        "lag_records": lag.records,
        "removed_records": lag.removed,
        "lag_ms": _age_ms(lag, now_ms),
    }


def _member_document(member: MemberDescription) -> dict[str, Any]:
    return {
        "id": member.id,
        "instance_id": member.instance_id or None,
        "client_name": member.client_name or None,
        "connected": member.connected,
        "epoch": member.epoch,
        "topics": member.topics,
        "topic_pattern": member.topic_pattern or None,
        "bands": member.bands,
        "owned": [{"topic": topic or None, "partition": partition} for topic, partition in member.owned],
        "target": [{"topic": topic or None, "partition": partition} for topic, partition in member.target],
    }


def _move_document(move: Move) -> dict[str, Any]:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "old_offset": move.old,
        "new_offset": move.new,
    }
