"""`logbroker serve`: run a broker until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import msgspec
import uvloop

from logbroker.broker.listener import ProtocolListener
from logbroker.broker.process_tuning import check_descriptors, check_threads
from logbroker.broker.serving import serve as serve_listeners
from logbroker.cli.common.arguments import PathType
from logbroker.cli.common.error_writer import ErrorWriter
from logbroker.cli.common.lines import LogFormatter, tell
from logbroker.cli.common.standard_output import OutputClosedError
from logbroker.config import BrokerConfig, load_broker_config
from logbroker.grpc_api.server import GrpcListener

_LOG_LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.option(
    "--data-dir",
    metavar="DIR",
    type=PathType(path_type=str),
    help=f"Directory for records and metadata.  [default: {BrokerConfig().data_dir}]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help=f"Address to listen on; port 0 picks a free port.  [default: {BrokerConfig().listen}]",
)
@click.option(
    "--kafka-listen",
    metavar="HOST:PORT",
    help="Address to listen on for Kafka clients, too (experimental); '' for none, whatever the"
    " settings file says.  [default: none]",
)
@click.option(
    "--cluster",
    metavar="HOST:PORT,...",
    help="Serve the log and the state of a cluster that speaks Kafka's protocol (experimental), instead of a data"
    " directory; name some of its nodes.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="With --cluster: address under which clients and other gateways reach this one, if it differs from --listen.",
)
@click.option(
    "--config",
    "config_path",
    metavar="FILE.toml",
    type=PathType(),
    help="Settings file; `logbroker config --kind broker` lists the settings. --data-dir, --listen,"
    " --kafka-listen, --cluster and --advertise override it.",
)
@click.option(
    "--log-level", type=click.Choice(_LOG_LEVELS), default="info", show_default=True, help="Least severe level to log."
)
@click.option("--stop-with-stdin", is_flag=True, hidden=True, help="Stop when standard input closes.")
def serve(
    data_dir: str | None,
    listen: str | None,
    kafka_listen: str | None,
    cluster: str | None,
    advertise: str | None,
    config_path: Path | None,
    log_level: str,
    stop_with_stdin: bool,
) -> None:
    """Run a broker.

    The broker prints one line, `ready grpc=HOST:PORT`, once it serves; with --kafka-listen, ` kafka=HOST:PORT` follows.
    Logs go to standard error. SIGTERM and Ctrl-C stop the broker cleanly: it answers the requests in flight and syncs
    everything. A second signal ends it at once.

    \b
    Examples:
      logbroker serve
      logbroker serve --data-dir /var/lib/logbroker --listen 0.0.0.0:9192
      logbroker serve --kafka-listen 127.0.0.1:9092
      logbroker serve --config logbroker.toml
    """
    check_descriptors()
    config = _config(
        config_path,
        data_dir=data_dir,
        listen=listen,
        kafka_listen=kafka_listen,
        cluster=cluster,
        advertise=advertise,
    )
    check_threads(config)
    with _logging(log_level):
        uvloop.run(_serve(config, stop_with_stdin=stop_with_stdin))


class _LogHandler(logging.Handler):
    """Writes the log in a thread of its own. Otherwise the broker would wait whenever nobody reads a full pipe."""

    def __init__(self, errors: ErrorWriter) -> None:
        super().__init__()
        self._errors = errors
        self.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._errors.offer_or_drop(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except Exception:
            self.handleError(record)


@contextmanager
def _logging(level: str) -> Iterator[None]:
    """Log to standard error within the block."""
    root = logging.getLogger()
    with ErrorWriter() as errors:
        handler = _LogHandler(errors)
        before = root.level
        root.addHandler(handler)
        root.setLevel(level.upper())
        try:
            yield
        finally:
            root.setLevel(before)
            root.removeHandler(handler)


def _config(config_path: Path | None, **overrides: str | None) -> BrokerConfig:
    if config_path is not None:
        return load_broker_config(config_path, **overrides)
    return msgspec.structs.replace(
        BrokerConfig(), **{name: text for name, text in overrides.items() if text is not None}
    )


async def _serve(config: BrokerConfig, *, stop_with_stdin: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    stops = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # It is ignored under nohup.
        stops.append(signal.SIGHUP)

    def on_signal(_number: int, _frame: object) -> None:
        for number in stops:
            signal.signal(number, signal.SIG_DFL)  # A second signal then ends a stop that hangs.
        loop.call_soon_threadsafe(stop.set)

    # Not by the loop, which handles nothing while a start opens many partitions.
    for number in stops:
        signal.signal(number, on_signal)

    def on_stdin() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            stop.set()

    if stop_with_stdin:
        stdin = sys.stdin.fileno()
        loop.add_reader(stdin, on_stdin)
    await serve_listeners(config, _listeners(config, stop), on_ready=_print_ready, stop=stop)


def _listeners(config: BrokerConfig, stop: asyncio.Event) -> list[ProtocolListener]:
    listeners: list[ProtocolListener] = [GrpcListener(config, stop)]
    if config.kafka_listen:
        from logbroker.kafka_api.server import KafkaListener  # A listener that is off takes no memory.

        listeners.append(KafkaListener(config))
    return listeners


def _print_ready(addresses: Mapping[str, str]) -> None:
    with suppress(OutputClosedError):  # Nobody reads it, but the broker serves.
        tell("ready " + " ".join(f"{name}={address}" for name, address in addresses.items()))
