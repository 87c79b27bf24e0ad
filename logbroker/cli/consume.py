"""`logbroker consume`: the records of a topic to standard output."""

from __future__ import annotations

import datetime
import sys
from typing import Literal

import click

from logbroker.cli.options import broker_option
from logbroker.cli.output_formats import FORMATS
from logbroker.client.sync import Consumer
from logbroker.types import TopicPartition

Start = Literal["earliest", "latest"] | int | datetime.datetime


class _StartType(click.ParamType[Start]):
    """earliest, latest, an offset, or a time in ISO 8601; a time without a zone is local."""

    name = "start"

    def convert(self, value: str | Start, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if not isinstance(value, str):
            return value
        if value == "earliest":
            return "earliest"
        if value == "latest":
            return "latest"
        if value.isascii() and value.isdigit():
            return int(value)
        try:
            return datetime.datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is none of earliest, latest, an offset, a time such as 2026-01-31T12:00:00Z", param, ctx
            )


@click.command()
@click.argument("topic")
@broker_option
@click.option(
    "--from",
    "start",
    type=_StartType(),
    metavar="earliest|latest|OFFSET|TIME",
    default="earliest",
    show_default=True,
    help="Where to begin; TIME is ISO 8601, local unless it names its zone.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Read only this partition. Repeatable.",
)
@click.option("--max-records", type=click.IntRange(min=1), metavar="N", help="Stop after so many.")
@click.option("--until-end", is_flag=True, help="Stop at what the end was when the command began.")
@click.option("--format", "output_format", type=click.Choice(list(FORMATS)), default="lines", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def consume(
    topic: str,
    broker: str,
    start: Start,
    partitions: tuple[int, ...],
    max_records: int | None,
    until_end: bool,
    output_format: str,
    as_json: bool,
) -> None:
    """Write the records of TOPIC to standard output, as they come, until Ctrl-C.

    Within a partition records come in the order of their offsets; partitions come interleaved.

    \b
    lines  Each value, with a line feed.
    json   One object a line: topic, partition, offset, timestamp (ms), key,
           value, headers. A key or value is text or, where it is not UTF-8,
           base64 with key_encoding or value_encoding "base64" beside it.

    \b
    Examples:
      logbroker consume orders --from latest
      logbroker consume orders --from 2026-01-31T12:00:00Z --max-records 10
      logbroker consume flights --until-end --format json | jq -r .key
    """
    to_bytes = FORMATS["json" if as_json else output_format]
    out = sys.stdout.buffer
    with Consumer(broker) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in partitions] or topic, start)
        left = max_records
        for batch in consumer.batches(until_end=until_end):
            records = batch if left is None else batch[:left]
            out.write(to_bytes(records))
            # Whoever reads along sees each batch as it comes; a batch is large where much comes at once.
            out.flush()
            if left is not None:
                left -= len(records)
                if not left:
                    break
