"""`logbroker produce`: sends standard input to a topic, record by record."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PARTITION, BytesType, Whole, raw_bytes
from logbroker.cli.common.clients import CommandAdmin, CommandProducer
from logbroker.cli.common.error_writer import ErrorWriter
from logbroker.cli.common.input_formats import InputRecord, read_csv, read_json, read_lines
from logbroker.cli.common.lines import counted, shows_errors, warn
from logbroker.cli.common.options import broker_option, json_option, number_option
from logbroker.cli.common.stops import Interrupter, stops_are_interrupts, told_when_stopped
from logbroker.client.producer.sender import REFUSALS
from logbroker.client.sync import Delivery
from logbroker.config import MAX_BATCH_BYTES
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.errors.system import reason_of
from logbroker.record.message_headers import MAX_PRIORITY, MIN_PRIORITY
from logbroker.texts import size_text

MAX_LINE_BYTES: Final = 8 * MAX_BATCH_BYTES
"""A value may take six times its bytes in JSON."""
PROGRESS_RECORDS: Final = 1000
"""The progress is shown each time this many records are sent."""


@click.command()
@click.argument("topic")
@broker_option
@click.option(
    "--format",
    "input_format",
    type=click.Choice(["lines", "json", "csv"]),
    default="lines",
    show_default=True,
    help="Format of the input, as described above.",
)
@click.option(
    "--key-separator",
    type=BytesType(),
    metavar="TEXT",
    help="With --format lines, split each line into key and value at the first TEXT.",
)
@click.option("--key-column", metavar="NAME", help="With --format csv, the column that holds the key.")
@number_option(
    "--priority",
    kind=Whole(MIN_PRIORITY, MAX_PRIORITY),
    help="Priority of all records, whatever the input says; 9 is the most urgent.",
)
@click.option(
    "--priority-column",
    metavar="NAME",
    help="With --format csv, the column that holds the priority. An empty field means no priority.",
)
@click.option("--raw", is_flag=True, help="With --format lines, accept bytes that are not UTF-8.")
@number_option("--partition", kind=PARTITION, help="Send all records to this partition, whatever their keys.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression of record batches.",
)
@json_option
def produce(
    topic: str,
    broker: str,
    input_format: str,
    key_separator: str | None,
    key_column: str | None,
    priority: int | None,
    priority_column: str | None,
    raw: bool,
    partition: int | None,
    compression: str,
    as_json: bool,
) -> None:
    """Send standard input to TOPIC, one record for each line or row.

    Records are sent as they are read, and records with the same key stay in order. If the broker restarts, the command
    waits for it and goes on; no record is stored twice. The command stops at a fault in the input or at a refused
    record, and says how many records were acknowledged. It does the same at Ctrl-C (exit code 130), SIGTERM (143) and
    SIGHUP (129).

    \b
    lines  Each line is a value, without its line feed.
    json   Each line is an object as `consume --format json` writes them:
           value, key, value_encoding, key_encoding ("base64"), headers,
           timestamp (ms), partition, priority. Only value is needed. A
           record with a partition goes to that partition. Otherwise its
           key chooses the partition. In a topic that routes by priority,
           the priority chooses the band first.
    csv    The first row names the columns. Each further row becomes a JSON
           object from column to text, in the order of the columns.

    \b
    Examples:
      echo 'order-7:paid' | logbroker produce orders --key-separator :
      logbroker produce flights --format csv --key-column tailnum < flights.csv
      logbroker produce alerts --format csv --priority-column severity < alerts.csv
      logbroker consume old --until-end --format json | logbroker produce new --format json
      echo '{"key": "order-7", "value": "paid", "headers": [{"key": "trace", "value": "17"}]}' |
        logbroker produce orders --format json
    """
    for option, value, needed in (
        ("--key-separator", key_separator, "lines"),
        ("--key-column", key_column, "csv"),
        ("--priority-column", priority_column, "csv"),
        ("--raw", raw or None, "lines"),
    ):
        if value is not None and input_format != needed:
            raise click.UsageError(f"{option} is for --format {needed}, not {input_format}")
    if key_separator == "":
        raise click.UsageError("--key-separator cannot be empty")
    if priority is not None and priority_column is not None:
        raise click.UsageError("--priority is for all records; leave out --priority-column")
    source = _standard_input()
    if input_format == "lines":
        records = read_lines(source, key_separator=raw_bytes(key_separator) if key_separator else None, raw=raw)
    elif input_format == "json":
        records = read_json(source)
    else:
        records = read_csv(source, key_column=key_column, priority_column=priority_column)

    started = time.perf_counter()
    interrupter = Interrupter()
    sending = _Sending(topic, partition, priority, interrupter)
    # At a stop, the producer is closed before the counts are reported, so that the last answers have arrived.
    with (
        ErrorWriter() as errors,
        errors.telling(REFUSALS),
        stops_are_interrupts(interrupter),
        told_when_stopped(sending.told_how_far),
    ):
        with CommandAdmin(broker) as admin:
            admin.describe_topic(topic)  # A topic that does not exist is reported even if the input has no records.
        with (
            CommandProducer(broker, compression=compression) as producer,
            terminal.progress(f"to {topic}", None, "records") as count,
        ):
            sending.send_all(producer, records, count)
    seconds = time.perf_counter() - started
    if as_json:
        terminal.write_json(
            {"records": sending.acknowledged, "bytes": sending.size_bytes, "seconds": round(seconds, 3)}
        )
    elif shows_errors():
        warn(
            f"{counted(sending.acknowledged, 'record')}, {size_text(sending.size_bytes)}, in {seconds:.1f} s"
            f" ({sending.acknowledged / seconds:,.0f} records/s)"
        )


def _standard_input() -> Iterator[bytes]:
    """Yield the lines of standard input. Raises LogbrokerError if they cannot be read, and InvalidRequestError if a
    line is longer than any record, as in a file without line feeds."""
    number = 0
    try:
        while line := sys.stdin.buffer.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise InvalidRequestError(
                    f"line {number} has more than {size_text(MAX_LINE_BYTES)}: the input needs a line feed"
                    " after each record"
                )
            yield line
    except OSError as error:
        raise LogbrokerError(f"standard input cannot be read: {reason_of(error)}") from None


class _Sending:
    """Sends records in order, and counts those that are acknowledged.

    A stop is put off while a record is sent and counted. A second stop, or a stop during a long wait for room, is not
    put off. So a record is counted as begun before it is sent. From then until it is counted as acknowledged, it is
    reported as one that may have arrived.
    """

    def __init__(self, topic: str, partition: int | None, priority: int | None, interrupter: Interrupter) -> None:
        self._topic = topic
        self._partition = partition
        self._priority = priority
        self._interrupter = interrupter
        self._begun = 0
        self._unanswered: deque[Delivery] = deque()
        self._refused = False
        self.acknowledged = 0
        self.size_bytes = 0
        """Total size of the keys and values that were sent."""

    def send_all(self, producer: CommandProducer, records: Iterable[InputRecord], count: terminal.Counter) -> None:
        """Send all records and wait for the answers. Raises LogbrokerError with the number of acknowledged records."""
        put_off = self._interrupter.put_off()
        try:
            for number, record in enumerate(records, 1):
                with put_off:
                    self._begun = number
                    self._send(producer, record)
                if number % PROGRESS_RECORDS == 0:
                    count(number)
            _flush(producer)
            with put_off:
                self._settle_answered()
        except LogbrokerError as error:
            _flush(producer)
            if self._refused:
                before = self.acknowledged
                self._settle_rest()
                after = self.acknowledged - before
                where = f"record {before + 1:,} of the input; {before:,} before it and {after:,} after it were sent"
            else:
                self._settle_rest()
                where = f"{counted(self.acknowledged, 'record')} before it {self._were()} sent"
            raise type(error)(f"{error} ({where})") from None
        count(self.acknowledged)

    def _send(self, producer: CommandProducer, record: InputRecord) -> None:
        partition = record.partition if self._partition is None else self._partition
        delivery = producer.send(
            self._topic,
            record.value,
            record.key,
            headers=record.headers,
            partition=partition,
            timestamp_ms=record.timestamp_ms,
            priority=record.priority if self._priority is None else self._priority,
        )
        self.size_bytes += len(record.value or b"") + len(record.key or b"")
        self._unanswered.append(delivery)
        self._settle_answered()

    def told_how_far(self) -> str:
        """Return a text that says how many of the sent records were acknowledged. Call it after the producer is
        closed."""
        self._settle_rest()
        unsure = self._begun - self.acknowledged
        more = f"; {unsure:,} more may have arrived" if unsure else ""
        return f"{counted(self.acknowledged, 'record')} {self._were()} acknowledged{more}"

    def _were(self) -> str:
        return "was" if self.acknowledged == 1 else "were"

    def _settle_answered(self) -> None:
        """Count the acknowledged records at the front of the queue. Raises the error of a refused record."""
        unanswered = self._unanswered
        while unanswered and unanswered[0].done():
            try:
                unanswered.popleft().result(0)
            except LogbrokerError:
                self._refused = True
                raise
            self.acknowledged += 1

    def _settle_rest(self) -> None:
        """Count all acknowledged records, also after refused records."""
        while self._unanswered:
            with contextlib.suppress(LogbrokerError):
                self._unanswered.popleft().result(0)
                self.acknowledged += 1


def _flush(producer: CommandProducer) -> None:
    """Wait for all answers. Failures are ignored here, because each delivery reports its own."""
    with contextlib.suppress(LogbrokerError):
        producer.flush()
