"""`logbroker demo`: sends a month of real flights through a broker and restarts the broker in between."""

from __future__ import annotations

import gzip
import shutil
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO, Final

import click
import msgspec

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PathType
from logbroker.cli.common.input_formats import InputRecord, read_csv
from logbroker.cli.common.lines import raw_output, write_line
from logbroker.cli.common.options import json_option
from logbroker.cli.common.standard_output import OutputClosedError
from logbroker.cli.common.stops import CLEAN_UP_SECONDS, Interrupter, Stopped, stops_are_interrupts
from logbroker.client import Record
from logbroker.client.sync import Admin, Consumer, Producer
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import LogbrokerError
from logbroker.texts import size_text

TOPIC: Final = "flights"
KEY_COLUMN: Final = "tailnum"
PARTITIONS: Final = 8
PROGRESS_RECORDS: Final = 500


class _Outcome(msgspec.Struct, kw_only=True):
    """The results of the demo, as --json prints them."""

    records: int
    aircraft: int
    bytes: int
    """Total size of the keys and values."""
    partition_records: list[int]
    partition_bytes: list[int]
    """Size of the segment files of each partition."""
    seconds_in: float
    seconds_out: float
    restart_seconds: float


@click.command()
@click.option(
    "--csv",
    "csv_file",
    type=PathType(),
    metavar="FILE",
    help="Write the flights as CSV to FILE, a new file, or to standard output if FILE is -, and start no broker.",
)
@json_option
def demo(csv_file: Path | None, as_json: bool) -> None:
    """Send a month of flights through a broker and check what comes back.

    The command starts a broker in a temporary directory and sends it 27,004 departures from New York in January 2013,
    keyed by aircraft, in 8 partitions. After a restart, all records must be there, and the records of each aircraft
    must be in order.

    \b
    Examples:
      logbroker demo
      logbroker demo --csv flights.csv
      logbroker demo --csv - | head -3
    """
    if csv_file is not None:
        if as_json:
            raise click.UsageError("--csv starts no broker and measures nothing: leave out --json")
        with stops_are_interrupts(), _flights_as_csv() as rows, _new_file(csv_file) as file:
            shutil.copyfileobj(rows, file)
        return
    flights = read_flights()
    with stops_are_interrupts(Interrupter(CLEAN_UP_SECONDS)), embedded() as broker, _ended_with(broker):
        with Admin(broker.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        seconds_in = _send(broker.address, flights)
        started = time.perf_counter()
        broker.restart()
        restart_seconds = time.perf_counter() - started
        records, seconds_out = _read_back(broker.address, len(flights))
        aircraft = check_order(flights, records)
        with Admin(broker.address) as admin:
            partitions = admin.describe_topic(TOPIC).partitions
    outcome = _Outcome(
        records=len(records),
        aircraft=aircraft,
        bytes=sum(len(flight.key or b"") + len(flight.value or b"") for flight in flights),
        partition_records=[item.high_watermark - item.log_start_offset for item in partitions],
        partition_bytes=[item.size_bytes for item in partitions],
        seconds_in=seconds_in,
        seconds_out=seconds_out,
        restart_seconds=restart_seconds,
    )
    if as_json:
        terminal.write_json(outcome)
    else:
        _show(outcome)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file, standard output, or a path that can be written but is not a regular file, such as a pipe. If the
    block fails, a new file is removed. Raises OSError, or OutputClosedError if the reader of a pipe is gone."""
    if str(path) == "-":
        yield raw_output()
        return
    if path.is_file():
        raise LogbrokerError(f"{path} exists; name another file, or remove it")
    is_new = not path.exists()
    try:
        with path.open("xb" if is_new else "wb") as file:
            yield file
    except BrokenPipeError:
        raise OutputClosedError from None
    except BaseException as error:
        if is_new and not isinstance(error, FileExistsError):
            path.unlink(missing_ok=True)
        raise


@contextmanager
def _ended_with(broker: EmbeddedBroker) -> Iterator[None]:
    """If the broker ends by itself, end the command with the broker's last message. Otherwise the clients would wait
    for the broker for minutes."""
    main = threading.main_thread().ident
    assert main is not None
    words: list[str] = []

    def interrupt(said: str) -> None:
        words.append(said)
        signal.pthread_kill(main, signal.SIGTERM)

    broker.on_end = interrupt
    try:
        yield
    except Stopped:
        if words:
            raise LogbrokerError(words[0]) from None
        raise
    finally:
        broker.on_end = None


def read_flights() -> list[InputRecord]:
    """Return the flights that come with the package, in time order, keyed by aircraft."""
    with _flights_as_csv() as rows:
        return list(read_csv(rows, key_column=KEY_COLUMN))


@contextmanager
def _flights_as_csv() -> Iterator[gzip.GzipFile]:
    """Open the CSV file of flights that comes with the package."""
    data = files("logbroker.cli.demo_data").joinpath("flights-2013-01.csv.gz")
    with data.open("rb") as compressed, gzip.open(compressed) as rows:
        yield rows


def _send(address: str, flights: list[InputRecord]) -> float:
    """Send all flights and wait until they are synced. Return the seconds that this took."""
    started = time.perf_counter()
    with Producer(address) as producer, terminal.progress("sending", len(flights), "flights") as count:
        for number, flight in enumerate(flights, 1):
            producer.send(TOPIC, flight.value, flight.key)
            if number % PROGRESS_RECORDS == 0:
                count(number)
        producer.flush()
        seconds = time.perf_counter() - started
        count(len(flights))
    return seconds


def _read_back(address: str, expected: int) -> tuple[list[Record], float]:
    """Read the topic to its end. Return the records and the seconds that this took."""
    started = time.perf_counter()
    records: list[Record] = []
    with Consumer(address) as consumer, terminal.progress("reading", expected, "flights") as count:
        consumer.assign(TOPIC, "earliest")
        for batch in consumer.batches(until_end=True):
            records += batch
            count(len(records))
        seconds = time.perf_counter() - started
    return records, seconds


def check_order(sent: Iterable[InputRecord], received: Iterable[Record]) -> int:
    """Check that the flights of each aircraft came back complete, unchanged, in the order in which they were sent, and
    from one partition. Return the number of aircraft. Raises LogbrokerError if the check fails."""
    expected: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for flight in sent:
        expected[flight.key].append(flight.value)
    found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    partitions: dict[bytes | None, set[int]] = defaultdict(set)
    for record in received:
        found[record.key].append(record.value)
        partitions[record.key].add(record.partition)
    for key in expected | found:
        name = (key or b"").decode()
        if len(found[key]) != len(expected[key]):
            raise LogbrokerError(
                f"aircraft {name}: {len(expected[key])} flights were sent, {len(found[key])} came back"
            )
        if found[key] != expected[key]:
            raise LogbrokerError(f"the flights of aircraft {name} came back in another order or altered")
        if len(partitions[key]) > 1:
            raise LogbrokerError(f"the flights of aircraft {name} lie in several partitions")
    return len(expected)


def _show(outcome: _Outcome) -> None:
    rows = terminal.table("partition", "records", "size", numbers=("partition", "records", "size"))
    for number, (records, size_bytes) in enumerate(
        zip(outcome.partition_records, outcome.partition_bytes, strict=True)
    ):
        rows.add_row(str(number), f"{records:,}", size_text(size_bytes))
    rows.add_section()
    rows.add_row("all", f"{outcome.records:,}", size_text(sum(outcome.partition_bytes)))
    terminal.show(rows)
    facts = terminal.table("fact", "figure", numbers=("figure",), header=False)
    facts.add_row("records", f"{outcome.records:,}")
    facts.add_row("bytes (keys and values)", size_text(outcome.bytes))
    facts.add_row("in, synced", f"{outcome.records / outcome.seconds_in:,.0f} records/s")
    facts.add_row("out", f"{outcome.records / outcome.seconds_out:,.0f} records/s")
    facts.add_row("restart", f"{outcome.restart_seconds:.2f} s")
    terminal.show(facts)
    write_line(
        f"All {outcome.records:,} flights of {outcome.aircraft:,} aircraft came back after the restart,"
        " each aircraft's in order."
    )
