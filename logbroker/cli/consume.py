"""`logbroker consume`: writes the records of a topic to standard output."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import click

from logbroker.cli.common.arguments import COUNT, PARTITION
from logbroker.cli.common.clients import CommandAdmin, CommandConsumer
from logbroker.cli.common.lines import shows_output, warn
from logbroker.cli.common.options import PLACE_METAVAR, Place, PlaceType, broker_option, number_option
from logbroker.cli.common.output_formats import FORMATS, lines, shown_lines
from logbroker.cli.common.standard_output import OutputClosedError, OutputError, TakenOutput
from logbroker.cli.common.stops import Interrupter, Stopped, stops_are_interrupts, told_when_stopped
from logbroker.client.consumer.cursor import Record
from logbroker.client.consumer.offset_reset import reset_policy
from logbroker.client.transport.metadata import check_bands
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.types import TopicPartition

_LAST_WAIT_SECONDS: Final = 0.5
"""The time for the reader of a pipe to take the last records before the command ends at a signal."""


def _policy(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        reset_policy(value or "none", "--auto-offset-reset")
    except InvalidRequestError as error:
        raise click.BadParameter(error.message) from None
    return value


@click.command()
@click.argument("topic")
@broker_option
@click.option(
    "--from",
    "start",
    type=PlaceType(),
    metavar=PLACE_METAVAR,
    show_default="earliest",
    help="Where to begin. TIME is ISO 8601, in local time unless it names a zone. With --group, only earliest or "
    "latest; it applies to partitions where the group has not committed an offset.",
)
@click.option(
    "--group",
    metavar="GROUP",
    help="Join this consumer group: share the partitions with its other members, and begin at its committed offsets.",
)
@click.option(
    "--auto-offset-reset",
    "reset",
    metavar="POLICY",
    callback=_policy,
    help="Where to continue if the log no longer holds the position: earliest, latest, none (fail), or a duration back"
    " from now, such as by_duration:PT1H. With --group and without --from, also where to begin if the group has not "
    "committed an offset.  [default: none; with --group: earliest]",
)
@number_option("--partition", "partitions", kind=PARTITION, multiple=True, help="Read only this partition. Repeatable.")
@click.option(
    "--band",
    "bands",
    multiple=True,
    metavar="NAME",
    help="Read only this band of a topic that has bands. Repeatable.",
)
@number_option("--max-records", kind=COUNT, help="Stop after N records.")
@click.option(
    "--until-end",
    is_flag=True,
    help="Stop at the end that the log had when the command began. With --group, the command reads only the partitions"
    " assigned to this member.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(list(FORMATS)),
    default="lines",
    show_default=True,
    help="Format of the output, as described above.",
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
def consume(
    topic: str,
    broker: str,
    start: Place | None,
    group: str | None,
    reset: str | None,
    partitions: tuple[int, ...],
    bands: tuple[str, ...],
    max_records: int | None,
    until_end: bool,
    output_format: str,
    as_json: bool,
) -> None:
    """Write the records of TOPIC to standard output as they arrive, until Ctrl-C.

    The records of one partition come in the order of their offsets; partitions are interleaved.

    With --group, the command commits the offsets of the records that it has written, once a second and at the end. In a
    pipe, only records that the reader has taken count as written. After a crash, records whose offsets were not
    committed come again. With --group, SIGTERM and SIGHUP end the command with exit code 0, so that a service manager
    can stop it, or with 1 if the last commit fails. A second signal does not wait for the last commit.

    Ctrl-C always ends the command with exit code 130, so that a script knows that it was interrupted.

    \b
    lines  Each value as it is, with a line feed. On a terminal, control
           characters are escaped (\\x1b); in a pipe or a file they are not.
    json   One object on each line: topic, partition, offset, timestamp (ms),
           key, value, headers, and priority if the record has one. A key or
           value that is not UTF-8 is base64, and key_encoding or
           value_encoding is "base64".

    \b
    Examples:
      logbroker consume orders --from latest
      logbroker consume orders --group reports
      logbroker consume alerts --band hot --band warm
      logbroker consume orders --from 2026-01-31T12:00:00Z --max-records 10
      logbroker consume flights --until-end --format json | jq -r .key
    """
    to_bytes = FORMATS["json" if as_json else output_format]
    if to_bytes is lines and shows_output():
        to_bytes = shown_lines
    out = TakenOutput(warn)
    if partitions and bands:
        raise click.UsageError("--band already chooses partitions: give --partition or --band, not both")
    interrupter = Interrupter()
    try:
        with _open(topic, broker, start, group, reset, partitions, bands, interrupter) as consumer:
            delivery = None if group is None else _MemberDelivery(topic, consumer, out)

            def write_all() -> None:
                left = max_records
                batches = consumer.batches(until_end=until_end)
                for batch in out.while_read(batches if delivery is None else delivery.each(batches)):
                    records = batch if left is None else batch[:left]
                    for piece in out.pieces(records) if delivery is not None else (records,):
                        # Without a group, a piece is the whole batch. For a group that writes to a pipe, the first
                        # pieces are small, so that few records come again after a crash.
                        with interrupter.put_off():
                            out.write(to_bytes(piece))
                            if delivery is not None:
                                delivery.put_in_pipe(piece)
                        if delivery is not None:
                            delivery.wait()
                    if left is not None:
                        left -= len(records)
                        if not left:
                            break
                if until_end and delivery is not None and not consumer.assignment():
                    warn(
                        "logbroker: this member has no partition of the group: other members own all partitions, or"
                        " have lost their connection and may still return; the remaining records were not read"
                    )

            try:
                stop = interrupter.finish_after(write_all)
            finally:
                if delivery is not None:
                    with told_when_stopped(lambda: "it is not known whether the last commit took effect"):
                        delivery.commit()
            if stop is not None and not isinstance(stop, Stopped):
                raise stop
    except Stopped:
        if len(interrupter.stops) > 1:
            raise
    except (LogbrokerError, OutputError) as error:
        if interrupter.stops[:1] != [signal.SIGINT]:
            raise
        if not isinstance(error, OutputClosedError):
            warn(f"logbroker: {error}")
        raise KeyboardInterrupt from None


class _MemberDelivery:
    """Tracks how much of its current batch a member of a group has written.

    The offsets are valid until the next batch is requested; then the consumer itself counts the whole batch as
    finished. They must not be used later: the partition may have gone to another member and come back, or the topic may
    have been created again, with other records at the same offsets.
    """

    def __init__(self, topic: str, consumer: CommandConsumer, out: TakenOutput) -> None:
        self._topic = topic
        self._consumer = consumer
        self._out = out
        self._has_batch = False
        self._written: dict[TopicPartition, int] = {}
        self._in_pipe: dict[TopicPartition, int] = {}
        """End offsets of the records that were written to the pipe and not read from it yet."""

    def each(self, batches: Iterable[list[Record]]) -> Iterator[list[Record]]:
        """Yield batches. Each is the current batch until the next one is requested."""
        for batch in batches:
            self._has_batch = True
            yield batch
            self._has_batch = False
            self._written = {}

    def put_in_pipe(self, piece: Sequence[Record]) -> None:
        """Note that a piece of the current batch was written."""
        self._in_pipe = {TopicPartition(self._topic, piece[-1].partition): piece[-1].offset + 1}

    def wait(self) -> None:
        """Wait for the reader of the pipe to take the piece. Raises OutputClosedError."""
        self._out.wait()
        self._written, self._in_pipe = self._in_pipe, {}

    def commit(self) -> None:
        """Commit the written records. Raises LogbrokerError."""
        consumer = self._consumer
        with suppress(OutputClosedError):
            if self._in_pipe and self._out.wait(_LAST_WAIT_SECONDS):
                self._written = self._in_pipe
        held = consumer.assignment()
        if not self._has_batch:
            if held:
                consumer.commit()
            return
        # Earlier batches are finished. The consumer does not know which records of this batch were written.
        consumer.commit({partition: offset for partition, offset in self._written.items() if partition in held})


@contextmanager
def _open(
    topic: str,
    broker: str,
    start: Place | None,
    group: str | None,
    reset: str | None,
    partitions: tuple[int, ...],
    bands: tuple[str, ...],
    interrupter: Interrupter,
) -> Iterator[CommandConsumer]:
    """Yield a consumer that reads as the options say."""
    if group is None:
        with CommandConsumer(broker, auto_offset_reset=reset) as consumer:
            numbered = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(numbered or topic, "earliest" if start is None else start, bands=bands)
            yield consumer
        return
    if partitions:
        raise click.UsageError("with --group the broker assigns the partitions; leave out --partition")
    if not isinstance(start, str | None):
        raise click.UsageError("with --group, --from takes earliest or latest; see `logbroker group reset-offsets`")
    with CommandAdmin(broker) as admin:
        # A group member may wait for its topic or bands to be created. Here an unknown band is a typing mistake.
        check_bands([admin.describe_topic(topic).info], bands)
    # At a stop by a service manager, written records are committed, and other members take over the partitions at once.
    # With `earliest`, records that were deleted before the group read them are skipped.
    with (
        stops_are_interrupts(interrupter),
        CommandConsumer(broker, group=group, start=start, auto_offset_reset=reset or "earliest") as consumer,
    ):
        consumer.subscribe(topic, bands=bands)
        yield consumer
