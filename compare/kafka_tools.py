"""`make compare-kafka-tools`: Kafka's own performance tools, in Java, against logbroker's Kafka listener and against
Apache Kafka. It runs from a checkout.

The tools are `kafka-producer-perf-test`, `kafka-consumer-perf-test` and Kafka's `EndToEndLatency`. Each run has a JVM
and a topic with one partition of its own. The producer tool warms up with a tenth of its records, which do not count.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec

from compare import machine
from compare.peers import kafka_server, logbroker_kafka
from compare.peers.kafka_confluent import ConfluentClient
from compare.peers.server import ServerProcess
from compare.report import number_text
from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PathType, Whole
from logbroker.cli.common.lines import write_line
from logbroker.cli.common.options import json_option
from logbroker.cli.main import main
from logbroker.errors import LogbrokerError
from logbroker.types import Durability

OURS: Final = "logbroker"
KAFKA: Final = "Apache Kafka"
COLUMNS: Final = ("measured", "durability", "unit", OURS, "range", KAFKA, "range of Kafka", "logbroker is")
RATE_PER_SECOND: Final = 2_000
LARGE_BATCH_BYTES: Final = 256 * 1024
TOOL_SECONDS: Final = 300
_TOOLS: Final = "org.apache.kafka.tools"
_SENT: Final = re.compile(r"([\d.]+) records/sec .*?([\d.]+) ms 99th")
_PERCENTILES: Final = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+)")

_Client = Callable[[str], ConfluentClient]
SIDES: Final[dict[str, tuple[Callable[[Path, Durability], ServerProcess], _Client]]] = {
    OURS: (logbroker_kafka.server, logbroker_kafka.ListenerClient),
    KAFKA: (kafka_server.server, ConfluentClient),
}


class Measured(msgspec.Struct, frozen=True):
    """One figure of one round."""

    what: str
    unit: str
    value: float
    lower_is_better: bool = False


class Row(msgspec.Struct, frozen=True):
    """All rounds of one figure, of both sides at the same durability."""

    what: str
    durability: Durability
    unit: str
    rounds: dict[str, list[float]]
    lower_is_better: bool

    def median(self, side: str) -> float:
        """Return the median of a side."""
        ordered = sorted(self.rounds[side])
        return ordered[len(ordered) // 2]

    @property
    def advantage(self) -> float | None:
        """How many times better logbroker's median is; None if a median is 0, since the tools count whole
        milliseconds."""
        ours, theirs = self.median(OURS), self.median(KAFKA)
        if not (ours and theirs):
            return None
        return theirs / ours if self.lower_is_better else ours / theirs

    def cells(self) -> tuple[str, ...]:
        """Return the columns of a table, in the order of `COLUMNS`."""
        text: list[str] = [self.what, self.durability.value, self.unit]
        for side in SIDES:
            rounds = self.rounds[side]
            text += [number_text(self.median(side)), f"{number_text(min(rounds))} - {number_text(max(rounds))}"]
        better = self.advantage
        if better is None:
            return (*text, "-")
        return (*text, f"{better:.2f}x ahead" if better >= 1 else f"{1 / better:.2f}x behind")


def run_tool(tool: str, *arguments: str) -> str:
    """Run one of Kafka's tools, and return what it printed. Raises LogbrokerError if it fails."""
    command = ["java", "-Xmx512M", "-cp", f"{kafka_server.JARS.resolve()}/*", f"{_TOOLS}.{tool}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS)
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise LogbrokerError(f"{tool} failed: {' / '.join(last)}")
    return done.stdout


def produced(
    address: str, topic: str, records: int, size_bytes: int, *settings: str, rate: int = -1
) -> tuple[float, float]:
    """Return the records per second and the p99 of the latency, in milliseconds, of kafka-producer-perf-test."""
    text = run_tool(
        "ProducerPerformance",
        *("--bootstrap-server", address, "--topic", topic, "--num-records", str(records)),
        *("--record-size", str(size_bytes), "--throughput", str(rate), "--warmup-records", str(records // 10)),
        *(("--command-property", *settings) if settings else ()),
    )
    found = _SENT.findall(text)
    if not found:
        raise LogbrokerError(f"kafka-producer-perf-test printed no result: {text[-300:]}")
    return float(found[-1][0]), float(found[-1][1])


def consumed(address: str, topic: str, records: int) -> float:
    """Return the records per second of kafka-consumer-perf-test, without the time for joining its group."""
    text = run_tool(
        "ConsumerPerformance",
        *("--bootstrap-server", address, "--topic", topic, "--num-records", str(records), "--timeout", "60000"),
    )
    # The last column is fetch.nMsg.sec.
    return float(text.strip().splitlines()[-1].rsplit(",", 1)[1])


def end_to_end(address: str, topic: str, records: int) -> tuple[float, float]:
    """Return p50 and p99, in milliseconds, of the time from the send of one record to its receipt."""
    text = run_tool("EndToEndLatency", address, topic, str(records), "all", "100")
    found = _PERCENTILES.search(text)
    if found is None:
        raise LogbrokerError(f"EndToEndLatency printed no percentiles: {text[-300:]}")
    return float(found[1]), float(found[2])


def measure(server: ServerProcess, client: ConfluentClient, durability: Durability, records: int) -> Iterator[Measured]:
    """Run all tools once."""
    topics = iter(range(1_000))

    def topic() -> str:
        name = f"tools-{next(topics)}"
        client.create(name, 1, durability)
        return name

    for size_bytes, count in ((100, records), (1024, records // 4)):
        name = topic()
        rate, _ = produced(server.address, name, count, size_bytes)
        yield Measured(f"produce, {size_bytes} B, settings by default", "records/s", rate)
        yield Measured(f"consume, {size_bytes} B", "records/s", consumed(server.address, name, count))
    rate, _ = produced(server.address, topic(), records // 4, 1024, f"batch.size={LARGE_BATCH_BYTES}")
    yield Measured("produce, 1024 B, batches of 256 KiB", "records/s", rate)
    at_rate = f"produce, 1024 B, {RATE_PER_SECOND:,} records/s"
    _, p99_ms = produced(server.address, topic(), 5 * RATE_PER_SECOND, 1024, rate=RATE_PER_SECOND)
    yield Measured(f"{at_rate}: p99", "ms", p99_ms, True)
    # By default the client waits for up to 5 ms (linger.ms) before it sends, whatever the server does.
    _, p99_ms = produced(server.address, topic(), 5 * RATE_PER_SECOND, 1024, "linger.ms=0", rate=RATE_PER_SECOND)
    yield Measured(f"{at_rate}, linger.ms=0: p99", "ms", p99_ms, True)
    p50_ms, p99_ms = end_to_end(server.address, topic(), 2_000)
    yield Measured("send to receipt, one record at a time: p50", "ms", p50_ms, True)
    yield Measured("send to receipt, one record at a time: p99", "ms", p99_ms, True)
    yield Measured("resident memory of the server, after all of this", "MiB", server.resident_bytes() / 2**20, True)


@contextmanager
def running(
    side: str, durability: Durability, directory: Path | None
) -> Iterator[tuple[ServerProcess, ConfluentClient]]:
    """Run the server of a side on data of its own."""
    start, client = SIDES[side]
    with tempfile.TemporaryDirectory(prefix="logbroker-compare-", dir=directory) as temporary:
        server = start(Path(temporary), durability)
        try:
            server.start()
            yield server, client(server.address)
        finally:
            server.kill()


def compare(durabilities: Sequence[Durability], rounds: int, records: int, directory: Path | None) -> list[Row]:
    """Measure both sides in turn. Raises LogbrokerError."""
    rows: dict[tuple[Durability, str], Row] = {}
    steps = rounds * len(durabilities) * len(SIDES)
    with terminal.progress("comparing", steps, "servers") as count:
        done = 0
        for _ in range(rounds):
            for durability in durabilities:
                for side in SIDES:
                    with running(side, durability, directory) as (server, client):
                        for each in measure(server, client, durability, records):
                            key = durability, each.what
                            empty: dict[str, list[float]] = {name: [] for name in SIDES}
                            new = Row(each.what, durability, each.unit, empty, each.lower_is_better)
                            rows.setdefault(key, new).rounds[side].append(each.value)
                    done += 1
                    count(done)
    return list(rows.values())


@click.command("compare-kafka-tools")
@click.option("--rounds", type=Whole(1), default=3, show_default=True, help="Rounds; the median counts.")
@click.option(
    "--records",
    type=Whole(1000),
    default=1_000_000,
    show_default=True,
    help="Records of 100 B; a fourth of it of 1 KiB.",
)
@click.option(
    "--durability",
    type=click.Choice([each.value for each in Durability]),
    multiple=True,
    default=["written"],
    show_default=True,
    help="Durability of both sides. Repeatable.",
)
@click.option(
    "--directory",
    type=PathType(exists=True, file_okay=False),
    help="Directory for the data; its disk is measured.  [default: the temporary directory]",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown, as in docs/COMPARISON.md.")
@json_option
def tools_command(
    rounds: int, records: int, durability: Sequence[str], directory: Path | None, as_markdown: bool, as_json: bool
) -> None:
    """Run Kafka's own performance tools against logbroker's Kafka listener and against Apache Kafka, in turn.

    \b
    Examples:
      make compare-kafka-tools
      make compare-kafka-tools ARGS="--durability synced --rounds 1 --records 100000"
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if (lacks := kafka_server.lacking_jars()) is not None:
        raise LogbrokerError(f"{lacks} not found; {kafka_server.INSTALL}")
    rows = compare([Durability(each) for each in durability], rounds, records, directory)
    versions = f"Kafka {kafka_server.version()}, {machine.words(directory or Path(tempfile.gettempdir()))}"
    if as_json:
        terminal.write_json({"machine": versions, "rows": [msgspec.to_builtins(row) for row in rows]})
        return
    if as_markdown:
        write_line(f"Measured on: {versions}.")
        write_line()
        for cells in (COLUMNS, ["---"] * len(COLUMNS), *(row.cells() for row in rows)):
            write_line(f"| {' | '.join(cells)} |")
        return
    table = terminal.table(*COLUMNS, numbers=(OURS, KAFKA))
    for row in rows:
        table.add_row(*row.cells())
    terminal.show(table)
    write_line(f"Measured on: {versions}")


if __name__ == "__main__":
    main(tools_command, "compare-kafka-tools")
