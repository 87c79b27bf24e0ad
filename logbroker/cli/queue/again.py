"""`logbroker queue letters|redrive|rewind`: process records again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PARTITION, BytesType, Whole, key_of
from logbroker.cli.common.clients import CommandQueueAdmin
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
from logbroker.cli.common.output_formats import json_record
from logbroker.cli.common.stops import stops_are_interrupts, told_when_stopped
from logbroker.cli.queue.decisions import base64_option
from logbroker.cli.queue.text import key_text, now_ms
from logbroker.client.admin.dead_letters import MAX_LETTERS
from logbroker.client.sync import LetterEnds, LetterList, Record, RewoundPartition
from logbroker.command_line import command_line
from logbroker.errors import LogbrokerError, OffsetOutOfRangeError
from logbroker.record.dead_letter import ATTEMPTS, LAST_FAILURE, ORIGIN_OFFSET, ORIGIN_PARTITION, REASON

_AT_ONCE: Final = 1000
"""The number of dead letters per call, so that the progress bar moves."""
_MAX_COUNTED: Final = 200_000
"""Maximum number of dead letters that a dry run counts, within a few seconds."""


@click.command()
@click.argument("group", metavar="GROUP")
@click.option(
    "--key",
    type=BytesType(),
    metavar="KEY",
    help="Send back the dead letters of this ordering key only.  [default: all]",
)
@base64_option
@number_option("--max-records", kind=Whole(1), help="Send back at most N dead letters.")
@click.option("--dry-run", is_flag=True, help="Count the dead letters, and change nothing.")
@broker_option
@json_option
def redrive(
    group: str, key: str | None, in_base64: bool, max_records: int | None, dry_run: bool, broker: str, as_json: bool
) -> None:
    """Send the dead letters of GROUP back to the topic they came from.

    The records are appended to the end of the topic, each key in its original order. Dead letters that are added while
    the command runs stay. At Ctrl-C (exit code 130), SIGTERM (143) and SIGHUP (129), the command says how many were
    sent back.

    \b
    Examples:
      logbroker queue redrive billing --dry-run
      logbroker queue redrive billing --key customer-7
    """
    wanted = None if key is None else key_of(key, in_base64=in_base64)
    records, keys, more, held, why = 0, 0, True, 0, ""
    asked = 0
    """Number of letters that an unanswered call may have sent back."""

    def how_far() -> str:
        unsure = f"; up to {asked:,} more may have been" if asked else ""
        return f"{counted(records, 'dead letter')} sent back{unsure}"

    with CommandQueueAdmin(broker) as admin:
        if dry_run:
            found = admin.redrive(group, key=wanted, dry_run=True, max_records=max_records or _MAX_COUNTED)
            records, keys, more, held, why = found.records, found.keys, found.more, found.held, found.why_held
        else:
            # Send back only letters that exist at the first call. A worker may dead-letter the same records again while
            # this command runs.
            until: LetterEnds | None = None
            with (
                stops_are_interrupts(),
                told_when_stopped(how_far),
                terminal.progress("sending back", max_records, "records") as count,
            ):
                while more and (max_records is None or records < max_records):
                    asked = _AT_ONCE if max_records is None else min(_AT_ONCE, max_records - records)
                    try:
                        sent = admin.redrive(group, key=wanted, max_records=asked, until=until)
                    except LogbrokerError as error:
                        if not records:
                            raise
                        raise LogbrokerError(f"{how_far()}; then: {error}") from None
                    records, more, held, why = records + sent.records, sent.more, sent.held, sent.why_held
                    asked = 0
                    until = until or sent.until
                    count(records)
                    if not sent.records:
                        break
    if as_json:
        document = {"records": records} | ({"keys": keys} if dry_run else {})
        terminal.write_json({**document, "more": more, "held": held, "why_held": why or None, "dry_run": dry_run})
    else:
        told = f"of {counted(keys, 'key')} would be sent back (--dry-run)" if dry_run else "sent back"
        rest = ""
        if more:
            rest = "; there are more, which were not counted" if dry_run and max_records is None else "; more are left"
        if key is not None and not (records or more or held):
            rest = f"; none with this key is left (`{command_line('queue letters', group)}` lists the keys)"
        tell(f"{counted(records, 'dead letter')} {told}{rest}")
    if held:
        raise LogbrokerError(
            f"{held:,} dead letters stay, because they, or an earlier one of the same key, cannot be sent back: {why}"
        )
    _check_all_read(why)


@click.command()
@click.argument("group", metavar="GROUP")
@click.option(
    "--key", type=BytesType(), metavar="KEY", help="Show the dead letters of this ordering key only.  [default: all]"
)
@base64_option
@number_option("--top", kind=Whole(1, MAX_LETTERS), default=100, help="Number of dead letters to show.")
@broker_option
@json_option
def letters(group: str, key: str | None, in_base64: bool, top: int, broker: str, as_json: bool) -> None:
    """Show the dead letters of GROUP that were not sent back.

    They are listed in the order in which `logbroker queue redrive` sends them. `letter` is the partition and offset in
    the dead-letter topic, `from` those of the record that failed. With --json, the letters have their values and
    headers, as `logbroker consume --format json` writes records. If a part of the dead-letter topic cannot be read, the
    command says why, and exits with 1.

    \b
    Examples:
      logbroker queue letters billing
      logbroker queue letters billing --key customer-7 --json | jq '.letters[].value'
    """
    wanted = None if key is None else key_of(key, in_base64=in_base64)
    with CommandQueueAdmin(broker) as admin:
        found = admin.list_letters(group, key=wanted, max_records=top)
    if as_json:
        document = {"letters": list(map(json_record, found.letters)), "more": found.more}
        terminal.write_json({**document, "held": found.held, "why_held": found.why_held or None})
    else:
        _show_letters(group, wanted, found)
    if found.held:
        raise LogbrokerError(
            f"{found.held:,} dead letters are not shown, because they, or an earlier one of the same key, cannot be"
            f" read: {found.why_held}"
        )
    _check_all_read(found.why_held)


def _check_all_read(why: str) -> None:
    """Raise LogbrokerError if a part of the dead-letter topic cannot be read."""
    if why:
        raise LogbrokerError(f"not all dead letters can be read: {why}")


def _show_letters(group: str, key: bytes | None, found: LetterList) -> None:
    if not found.letters:
        if not found.why_held:
            write_line(f"no dead letter {'' if key is None else 'of this key '}is left")
        return
    numbers = ("letter", "attempts", "failed", "from")
    rows = terminal.table("letter", "key", *numbers[1:], "last reason", numbers=numbers)
    for letter in found.letters:
        rows.add_row(
            f"{letter.partition}:{letter.offset}",
            key_text(letter.key),
            _header_text(letter, ATTEMPTS),
            _failed_text(letter),
            f"{_header_text(letter, ORIGIN_PARTITION)}:{_header_text(letter, ORIGIN_OFFSET)}",
            _header_text(letter, REASON),
        )
    terminal.show(rows)
    if found.more:
        write_line(f"more are left; `{command_line('queue redrive', group, options=['--dry-run'])}` counts them")


def _header_text(letter: Record, name: str) -> str:
    return (letter.header(name) or b"").decode("utf-8", "replace")


def _failed_text(letter: Record) -> str:
    """Write how long ago the last attempt failed. Any program may write to a dead-letter topic."""
    text = _header_text(letter, LAST_FAILURE)
    return f"{terminal.age_text(max(0, now_ms() - int(text)))} ago" if text.isdecimal() and len(text) < 16 else "-"


@click.command()
@click.argument("group", metavar="GROUP")
@click.option(
    "--to",
    "place",
    type=PlaceType(),
    required=True,
    metavar=PLACE_METAVAR,
    help="Where to continue. TIME is ISO 8601, in local time unless it names a zone. OFFSET needs --partition.",
)
@number_option(
    "--partition",
    "partitions",
    kind=PARTITION,
    multiple=True,
    help="Move in this partition only. Repeatable.  [default: all]",
)
@click.option("--include-parked", is_flag=True, help="Resume parked lanes, too.")
@click.option(
    "--drop-standing",
    is_flag=True,
    help="Also mark as done the records before the new place that are in blocked or parked lanes.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@yes_option
@broker_option
@json_option
def rewind(
    group: str,
    place: Place,
    partitions: tuple[int, ...],
    include_parked: bool,
    drop_standing: bool,
    dry_run: bool,
    yes: bool,
    broker: str,
    as_json: bool,
) -> None:
    """Move GROUP to an earlier or a later place in the log.

    Records from the new place on are delivered again, even if they were done, and their attempts begin anew. Workers
    can no longer settle the deliveries that they hold. Sessions keep their state. A record that was replaced comes
    again as it lies in the topic.

    Parked lanes stay parked unless --include-parked is given. If GROUP moves forward, the records of blocked and parked
    lanes before the new place are kept unless --drop-standing is given. All other records before it that are not done
    are skipped: they count as done. Records that cannot be read because the log is damaged are skipped, too. --dry-run
    counts what is skipped and kept. With blocked or parked lanes, it also counts how many of the skipped records cannot
    be read; without them, it reads nothing.

    \b
    Examples:
      logbroker queue rewind billing --to 2026-01-31T12:00:00Z --dry-run
      logbroker queue rewind billing --to earliest --yes
      logbroker queue rewind billing --to latest --drop-standing
      logbroker queue rewind billing --to 1200 --partition 3 --yes
    """
    if isinstance(place, int) and not partitions:
        raise click.UsageError("an offset needs --partition")
    with CommandQueueAdmin(broker) as admin:
        planned: list[RewoundPartition] = []
        if dry_run or not yes or isinstance(place, int):
            planned = admin.rewind(group, place, partitions=partitions, drop_standing=drop_standing, dry_run=True)
        if isinstance(place, int):
            _check_within_log(place, planned)
        if not (dry_run or yes):
            confirm(f"Rewind queue group {group}? {_consequences(planned, drop_standing=drop_standing)}")
        rewound = planned
        if not dry_run:
            rewound = admin.rewind(
                group, place, partitions=partitions, include_parked=include_parked, drop_standing=drop_standing
            )
    failures = [partition.error for partition in rewound if partition.error is not None]
    if as_json:
        terminal.write_json(
            [
                {
                    "partition": partition.partition,
                    "floor_before": partition.floor_before,
                    "floor": partition.floor,
                    "standing_records": partition.standing_records,
                    "skipped_records": partition.skipped_records,
                    "unreadable_records": partition.unreadable_records,
                }
                if partition.error is None
                else {"partition": partition.partition, "error": str(partition.error)}
                for partition in rewound
            ]
        )
    else:
        standing = "standing, dropped" if drop_standing else "standing, kept"
        numbers = ("partition", "done below", "from now on", "skipped", standing)
        rows = terminal.table(*numbers, "", numbers=numbers)
        for partition in rewound:
            error = "" if partition.error is None else str(partition.error)
            rows.add_row(
                str(partition.partition),
                *("-" if offset < 0 else str(offset) for offset in (partition.floor_before, partition.floor)),
                str(partition.skipped_records),
                str(partition.standing_records),
                error,
            )
        terminal.show(rows)
        for partition in rewound:
            if partition.unreadable_records:
                write_line(
                    f"partition {partition.partition}: {counted(partition.unreadable_records, 'skipped record')} cannot"
                    " be read, because the log is damaged there, and may be of blocked and parked lanes"
                )
        if dry_run:
            write_line("nothing was changed (--dry-run)")
    if failures:
        first: LogbrokerError = failures[0]
        raise type(first)(str(first))


def _consequences(planned: Sequence[RewoundPartition], *, drop_standing: bool) -> str:
    skipped = sum(partition.skipped_records for partition in planned)
    standing = sum(partition.standing_records for partition in planned)
    unreadable = sum(partition.unreadable_records for partition in planned)
    told = "Records that were done may come again"
    if skipped:
        told += f"; {counted(skipped, 'record')} not done yet will count as done"
    if unreadable:
        told += f" ({unreadable} of them cannot be read, and may be of blocked and parked lanes)"
    if standing or drop_standing:
        fate = "will count as done" if drop_standing else "will be kept"
        told += f"; {counted(standing, 'record')} of blocked and parked lanes {fate}"
    return told


def _check_within_log(offset: int, planned: Sequence[RewoundPartition]) -> None:
    """Raise OffsetOutOfRangeError if the offset is beyond the end of a partition. The broker would move the group to
    the end instead, and all records would count as done."""
    for partition in planned:
        if partition.error is None and partition.floor < offset:
            raise OffsetOutOfRangeError(
                f"partition {partition.partition} ends at offset {partition.floor}, before {offset}: to move to its"
                " end, give --to latest"
            )
