"""`logbroker queue`: create, describe, alter and delete queue groups, inspect their lanes, process their records."""

from __future__ import annotations

import importlib
from typing import Any, Final

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import take_texts_as_utf8
from logbroker.cli.common.clients import CommandAdmin, CommandQueueAdmin
from logbroker.cli.common.lines import confirm, counted, tell, write_line
from logbroker.cli.common.options import Place, PlaceType, broker_option, json_option, yes_option
from logbroker.cli.queue.options import settings_of, settings_options
from logbroker.cli.queue.text import (
    description_document,
    halt_text,
    indexed_text,
    key_text,
    letters_kept_text,
    moment_text,
    now_ms,
    oldest_text,
    settings_rows,
    share_text,
)
from logbroker.client.sync import QueueDescription
from logbroker.errors import UnknownTopicError
from logbroker.texts import size_text

_ELSEWHERE: Final = {
    "lanes": "lanes",
    "explain": "lanes",
    "parked": "lanes",
    "resume": "decisions",
    "skip": "decisions",
    "drop": "decisions",
    "replace": "decisions",
    "split": "splits",
    "unsplit": "splits",
    "letters": "again",
    "redrive": "again",
    "rewind": "again",
    "work": "work",
}
"""The module of each subcommand that is defined elsewhere."""


class _QueueGroup(click.Group):
    """Imports a subcommand when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["create", "list", "describe", "alter", "delete", *_ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        command = getattr(importlib.import_module(f"logbroker.cli.queue.{_ELSEWHERE[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        take_texts_as_utf8(command)
        return command


@click.group(cls=_QueueGroup)
def queue() -> None:
    """Create queue groups, explain why a key waits, and process records.

    The workers of a queue group share the records of a topic one by one, in order for each key.

    \b
    Examples:
      logbroker queue create billing --topic orders --max-attempts 5
      logbroker queue work billing --exec 'curl --fail -d @- http://127.0.0.1:8080/bill'
      logbroker queue describe billing
      logbroker queue explain billing customer-7
      logbroker queue resume billing customer-7
    """


@queue.command()
@click.argument("group", metavar="GROUP")
@click.option("--topic", required=True, metavar="TOPIC", help="Topic whose records the workers share.")
@click.option(
    "--from",
    "start",
    type=PlaceType(),
    metavar="earliest|latest|TIME",
    default="earliest",
    show_default=True,
    help="Where the group begins. TIME is ISO 8601, in local time unless it names a zone.",
)
@settings_options(for_creation=True)
@broker_option
@json_option
def create(group: str, topic: str, start: Place, broker: str, as_json: bool, **values: Any) -> None:
    """Create queue group GROUP for the records of a topic.

    `logbroker config --kind queue` explains all settings; `logbroker queue alter` changes them later.

    \b
    Examples:
      logbroker queue create billing --topic orders
      logbroker queue create mail --topic mails --ordering none --on-exhausted dead-letter
      logbroker queue create export --topic orders --backoff 5,3,3600 --on-exhausted park
      logbroker queue create alerts --topic alerts --priority weighted --weights hot=6,warm=3,cold=1
    """
    if isinstance(start, int):
        raise click.UsageError("--from takes earliest, latest or a time; see `logbroker queue rewind` for offsets")
    with CommandQueueAdmin(broker) as admin:
        description, created = admin.create_queue(group, topic, settings_of(values), start=start)
    if as_json:
        terminal.write_json({**description_document(description), "created": created})
    else:
        there = "created" if created else "nothing to do, it exists with these settings:"
        tell(f"{there} queue group {group} on topic {topic}, ordering {description.settings.ordering}")


@queue.command(name="list")
@broker_option
@json_option
def list_queues(broker: str, as_json: bool) -> None:
    """List all queue groups.

    `waiting` is the number of records that no worker has. `oldest` is the age of the oldest record that is not done: it
    may wait, be in flight, or be blocked or parked. Records that were deleted from the log do not count; the alarms and
    `logbroker queue lanes --order oldest` know them.

    \b
    Examples:
      logbroker queue list
      logbroker queue list --json | jq '.[] | {id, waiting: .counts.waiting, oldest_age_ms}'
    """
    with CommandQueueAdmin(broker) as admin:
        names = [info.id for info in admin.list_queues()]
        found = [queue for queue in admin.describe_queues(names, oldest=True) if isinstance(queue, QueueDescription)]
    if as_json:
        terminal.write_json([description_document(queue) for queue in found])
        return
    numbers = ("waiting", "oldest", "in flight", "blocked lanes", "parked lanes", "workers")
    rows = terminal.table("queue group", "topic", "ordering", "state", *numbers, "", numbers=numbers)
    for queue in found:
        counts = queue.counts
        rows.add_row(
            queue.id,
            queue.topic,
            queue.settings.ordering or "",
            queue.state,
            f"{counts.waiting:,}",
            oldest_text(queue),
            f"{counts.in_flight:,}",
            f"{counts.blocked_lanes:,}",
            f"{counts.parked_lanes:,}",
            str(sum(worker.connected for worker in queue.workers)),
            f"{counted(len(queue.alarms), 'alarm')}" if queue.alarms else "",
        )
    terminal.show(rows)


@queue.command()
@click.argument("group", metavar="GROUP")
@broker_option
@json_option
def describe(group: str, broker: str, as_json: bool) -> None:
    """Show the state, workers, settings and alarms of GROUP.

    The state has counts of records and lanes, and how far each partition is done. Stalled lanes are blocked or parked,
    or their first record waits for its next attempt, for its not-before time or for the dead-letter topic, or cannot be
    read from the log now. All records below the offset `done below` are done; `done` is the share of the partition that
    is done, including records above that offset; `oldest` is the age of the oldest record in the log that is
    not done. `credit` is how many more records a worker may be given before it asks again. `copied` is the size of the
    records of stalled lanes that are kept beside the log, because they were deleted from it. With --json,
    `create_command` is the command that creates such a group again.

    \b
    Examples:
      logbroker queue describe billing
      logbroker queue describe billing --json | jq .counts
    """
    with CommandQueueAdmin(broker) as admin:
        description = admin.describe_queue(group, oldest=True)
    if as_json:
        terminal.write_json(description_document(description))
    else:
        _show(description, _letters_kept(broker, description.settings.dead_letter_topic))


@queue.command()
@click.argument("group", metavar="GROUP")
@settings_options(for_creation=False)
@broker_option
@json_option
def alter(group: str, broker: str, as_json: bool, **values: Any) -> None:
    """Change settings of GROUP while it runs.

    Settings that are not given keep their values. A new ordering takes effect when all records in flight are settled;
    nothing is redelivered.

    \b
    Examples:
      logbroker queue alter billing --max-attempts 10 --backoff 1,2,600
      logbroker queue alter export --ordering key
    """
    if all(value is None for value in values.values()):
        raise click.UsageError("name a setting to change; see --help")
    with CommandQueueAdmin(broker) as admin:
        description, draining = admin.alter_queue(group, settings_of(values))
    if as_json:
        terminal.write_json({**description_document(description), "draining": draining})
    elif draining:
        tell(f"altered queue group {group}; the ordering changes when all deliveries in flight are settled")
    else:
        tell(f"altered queue group {group}")


@queue.command()
@click.argument("group", metavar="GROUP")
@yes_option
@broker_option
@json_option
def delete(group: str, yes: bool, broker: str, as_json: bool) -> None:
    """Delete GROUP and all its state; its topic stays.

    The group forgets which records are done, their attempts, parked lanes and sessions.

    \b
    Examples:
      logbroker queue delete billing
      logbroker queue delete billing --yes
    """
    with CommandQueueAdmin(broker) as admin:
        if not yes:
            admin.describe_queue(group)  # A group that does not exist is reported before the question.
            confirm(f"Delete queue group {group} and all its state?")
        admin.delete_queue(group)
    if as_json:
        terminal.write_json({"id": group})
    else:
        tell(f"deleted queue group {group}")


def _letters_kept(broker: str, topic: str | None) -> str:
    """Return how long the dead-letter topic keeps letters, for people; "": there is no such topic."""
    if not topic:
        return ""
    try:
        with CommandAdmin(broker) as admin:
            return letters_kept_text(admin.describe_topic(topic).configs)
    except UnknownTopicError:
        return ""


def _show(queue: QueueDescription, letters_kept: str) -> None:
    counts = queue.counts
    write_line(
        f"queue group {queue.id} on topic {queue.topic}: {queue.state}, ordering {queue.settings.ordering}, "
        f"{counts.waiting:,} waiting, {counts.in_flight:,} in flight, oldest {oldest_text(queue)}"
    )
    write_line()
    if lost := counts.removed + counts.expired:
        write_line(
            f"records deleted before the group had finished them: about {lost:,}; if they were not deleted on request,"
            f" raise retention.hold.bytes of topic {queue.topic}, or its retention, to keep more of them"
        )
        write_line()
    if queue.state == "indexing":
        write_line(f"indexing: {indexed_text(queue)}; deliveries begin after that, the most urgent records first")
        write_line()
    elif queue.state == "failed":
        write_line("failed: see the broker's log for the reason, and restart the broker to serve the group again")
        write_line()
    elif queue.state == "paused":
        unscanned = counted(counts.unscanned, "record")
        write_line(
            f"paused: too many lanes are stalled, or too many records are delayed, to scan {unscanned} more"
            + ("" if queue.settings.priority == "none" else "; priority order covers scanned records only")
        )
        write_line()
    elif halt := halt_text(queue):
        write_line(f"{queue.state}: {halt}")
        write_line()
    if queue.obstacle:
        write_line(queue.obstacle)
        write_line()
    for alarm in queue.alarms:
        key = "" if alarm.key is None else f" (key {key_text(alarm.key)})"
        write_line(f"ALARM {alarm.kind}{key}: {alarm.message}")
    if queue.alarms:
        write_line()
    numbers = (
        "ready",
        "in flight",
        "parked",
        "not scanned",
        "lanes",
        "stalled",
        "blocked lanes",
        "parked lanes",
        "sessions",
        "copied",
    )
    rows = terminal.table(*numbers, numbers=numbers, title="now")
    rows.add_row(
        *(
            f"{number:,}"
            for number in (
                counts.ready,
                counts.in_flight,
                counts.parked,
                counts.unscanned,
                counts.lanes,
                counts.held_lanes,
                counts.blocked_lanes,
                counts.parked_lanes,
                counts.sessions,
            )
        ),
        size_text(counts.copied_bytes),
    )
    terminal.show(rows)
    since = ("delivered", "acked", "nacked", "dead-lettered", "leases lost", "expired")
    rows = terminal.table(*since, numbers=since, title="since the broker started")
    totals = (
        counts.delivered,
        counts.acked,
        counts.nacked,
        counts.dead_lettered,
        counts.leases_lost,
        counts.expired,
    )
    rows.add_row(*(f"{number:,}" for number in totals))
    terminal.show(rows)
    _show_priorities(queue)
    _show_splits(queue)
    _show_workers(queue)
    _show_partitions(queue)
    rows = terminal.table("setting", "value")
    for name, value in settings_rows(queue.settings, letters_kept):
        rows.add_row(name, value)
    terminal.show(rows)


def _show_priorities(queue: QueueDescription) -> None:
    if not queue.priorities:
        return
    numbers = ("priority", "waiting", "oldest", "delivered", "overtaken")
    rows = terminal.table(*numbers, numbers=numbers)
    for priority in queue.priorities:
        oldest_ms = priority.oldest_timestamp_ms
        rows.add_row(
            str(priority.priority),
            f"{priority.waiting:,}",
            "-" if oldest_ms is None else terminal.age_text(max(0, now_ms() - oldest_ms)),
            f"{priority.delivered:,}",
            f"{priority.overtaken:,}",
        )
    terminal.show(rows)


def _show_splits(queue: QueueDescription) -> None:
    if not queue.splits:
        return
    numbers = ("into", "waiting")
    rows = terminal.table("split key", "state", "by", *numbers, "since", "", numbers=numbers)
    for split in queue.splits:
        rows.add_row(
            key_text(split.key),
            split.state,
            split.by,
            f"{split.into:,}",
            f"{split.waiting:,}",
            moment_text(split.since_ms),
            "because it was hot" if split.automatic else "",
        )
    terminal.show(rows)


def _show_workers(queue: QueueDescription) -> None:
    if not queue.workers:
        write_line("no workers")
        write_line()
        return
    numbers = ("in flight", "credit", "sessions")
    rows = terminal.table("worker", "client", "state", "band", *numbers, numbers=numbers)
    for worker in queue.workers:
        rows.add_row(
            worker.id,
            worker.client_name or "-",
            "connected" if worker.connected else "away",
            worker.band or "all",
            f"{worker.in_flight:,}",
            f"{worker.credit:,}",
            str(worker.sessions),
        )
    terminal.show(rows)


def _show_partitions(queue: QueueDescription) -> None:
    numbers = ("partition", "done below", "scanned to", "end", "done", "oldest")
    rows = terminal.table(*numbers, "", numbers=numbers)
    for partition in queue.partitions:
        rows.add_row(
            str(partition.partition),
            # An offline partition has no end, and perhaps no floor.
            *("-" if offset < 0 else str(offset) for offset in (partition.floor, partition.scanned, partition.end)),
            share_text(partition.done, partition.end),
            oldest_text(partition),
            "" if partition.error is None else f"stopped: {partition.error}",
        )
    terminal.show(rows)
