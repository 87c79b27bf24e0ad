"""`logbroker queue work`: the records of a queue group to a command, or to standard output."""

from __future__ import annotations

import base64
import itertools
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import Final

import click

from logbroker.cli.clients import Worker
from logbroker.cli.lines import raw_errors
from logbroker.cli.options import broker_option
from logbroker.cli.output_formats import json_delivery
from logbroker.cli.standard_output import TakenOutput
from logbroker.client.sync import QueueAdmin, QueueDescription, WorkerDelivery
from logbroker.errors import LogbrokerError

_MAX_VARIABLE_BYTES: Final = 64 * 1024
"""What is larger does not get into the environment: the system takes 128 KiB a variable, and 2 MiB in all."""
_MAX_REASON_CHARACTERS: Final = 256
_LOOK_SECONDS: Final = 0.2
_WAITING: Final = b"logbroker: waiting for the commands that run; Ctrl-C again kills them\n"


@click.command()
@click.argument("group", metavar="GROUP")
@click.option(
    "--exec", "command", metavar="CMD", help="Run CMD in a shell for each record; exit 0 acks, else it nacks."
)
@click.option(
    "--print",
    "printed",
    is_flag=True,
    help="Write each record as a JSON line; what was written, and taken out of a pipe, is acked.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=1,
    show_default=True,
    help="How many commands run at once.",
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Kill CMD after it.")
@click.option("--band", metavar="NAME", help="Only the records of this band, of a group with priorities.")
@click.option("--max-records", type=click.IntRange(min=1), metavar="N", help="Stop after so many.")
@click.option(
    "--until-end",
    is_flag=True,
    help="Stop when no record is ready or in flight. What waits for a retry, is blocked or parked is left.",
)
@broker_option
def work(
    group: str,
    command: str | None,
    printed: bool,
    concurrency: int,
    timeout: float | None,
    band: str | None,
    max_records: int | None,
    until_end: bool,
    broker: str,
) -> None:
    """Work on the records of GROUP as they come, until Ctrl-C, which waits for the commands that run; Ctrl-C again
    kills them, and gives their records back.

    \b
    CMD has the value on its standard input, and in its environment
      LOGBROKER_TOPIC, LOGBROKER_PARTITION, LOGBROKER_OFFSET,
      LOGBROKER_TIMESTAMP (ms), LOGBROKER_PRIORITY (0 to 9),
      LOGBROKER_ATTEMPT (1 at first),
      LOGBROKER_REDELIVERED (1 where it may have been handed out before),
      LOGBROKER_KEY, LOGBROKER_KEY_BASE64 (none where there is no key),
      LOGBROKER_HEADER_NAME of each header, in capitals, with _ for all
      that is no letter or digit.
    The last line of its standard error is the reason of a nack.

    \b
    JSON lines are those of `consume --format json`, with attempt and redelivered.

    \b
    Examples:
      logbroker queue work mail --exec 'sendmail -t' --concurrency 8
      logbroker queue work billing --exec './bill.sh "$LOGBROKER_KEY"' --timeout 60
      logbroker queue work billing --print --max-records 10 | jq .key
      logbroker queue work alerts --band hot --exec ./page.sh
    """
    if (command is None) != printed:
        raise click.UsageError("give either --exec or --print")
    if until_end and band is not None:
        raise click.UsageError("--until-end is about all records of the group: leave out --band")
    with (
        _stops_are_interrupts(),
        Worker(broker, group, band=band) as worker,
        _stopped_at_end(worker, broker, group) if until_end else nullcontext(),
    ):
        if command is None:
            out = TakenOutput()
            for delivery in itertools.islice(worker, max_records):
                out.write(json_delivery(delivery))
                out.wait()
                with suppress(LogbrokerError):  # Lost meanwhile: it comes again, and is written again.
                    delivery.ack()
        else:
            _Runner(worker, command, timeout, max_records).run(concurrency)


@contextmanager
def _stops_are_interrupts() -> Iterator[None]:
    """A service manager's stop is a goodbye, too: what the worker holds goes to others at once."""
    default = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, default)


@contextmanager
def _stopped_at_end(worker: Worker, broker: str, group: str) -> Iterator[None]:
    """Stop the worker when nothing is left that could be handed out."""
    over = threading.Event()

    def look() -> None:
        with QueueAdmin(broker) as admin:
            while not over.wait(_LOOK_SECONDS):
                # Where the broker is away, the worker rides it out, or ends.
                with suppress(LogbrokerError):
                    if _is_worked_off(admin.describe_queue(group)):
                        worker.stop()
                        return

    thread = threading.Thread(target=look, name="until-end")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _is_worked_off(queue: QueueDescription) -> bool:
    counts = queue.counts
    return queue.state in ("serving", "paused") and not (counts.ready or counts.in_flight or counts.unscanned)


class _Runner:
    """Runs a command for each delivery, in the threads of a worker."""

    def __init__(self, worker: Worker, command: str, timeout_seconds: float | None, max_records: int | None) -> None:
        self._worker = worker
        self._command = command
        self._timeout_seconds = timeout_seconds
        self._left = max_records
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._in_hand = 0
        self._interrupts = 0

    def run(self, concurrency: int) -> None:
        before = {
            number: signal.signal(number, self._interrupt)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN  # As a shell's background jobs do.
        }
        try:
            self._worker.run(self._handle, concurrency=concurrency)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """At first, wait for the commands that run; then no longer. No locks: any code may be interrupted by this."""
        self._interrupts += 1
        if self._interrupts == 1:
            if self._in_hand:
                os.write(raw_errors().fileno(), _WAITING)
            raise KeyboardInterrupt
        for process in list(self._running):
            _kill(process)

    def _handle(self, delivery: WorkerDelivery) -> None:
        with self._lock:
            if self._left == 0 or self._interrupts > 1:
                delivery.release()
                return
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    self._worker.stop()
            self._in_hand += 1
        try:
            reason = self._work_on(delivery)
        finally:
            with self._lock:
                self._in_hand -= 1
        if self._interrupts > 1:
            delivery.release()
        elif reason is not None:
            delivery.nack(reason=reason[:_MAX_REASON_CHARACTERS])

    def _work_on(self, delivery: WorkerDelivery) -> str | None:
        """Run the command; return why it failed, or None."""
        try:
            # In a session of its own: Ctrl-C is for this program, which waits for it.
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(delivery),
                start_new_session=True,
            )
        except OSError as error:
            return f"the command could not be started: {error}"
        self._running.add(process)
        if self._interrupts > 1:
            _kill(process)
        try:
            _, errors = process.communicate(delivery.value or b"", self._timeout_seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            _, errors = process.communicate()
            self._show(errors)
            return f"the command took more than {self._timeout_seconds:g} s"
        finally:
            self._running.discard(process)
        self._show(errors)
        if process.returncode == 0:
            return None
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        status = f"exit {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        return f"{status}: {lines[-1]}" if lines else status

    def _show(self, errors: bytes) -> None:
        if errors:
            with self._lock:
                raw_errors().write(errors)
                raw_errors().flush()


def environment(delivery: WorkerDelivery) -> dict[bytes, bytes]:
    """Return the environment of the command."""
    facts: dict[bytes, bytes] = {
        b"TOPIC": delivery.topic.encode(),
        b"PARTITION": b"%d" % delivery.partition,
        b"OFFSET": b"%d" % delivery.offset,
        b"TIMESTAMP": b"%d" % delivery.timestamp_ms,
        b"PRIORITY": b"%d" % delivery.priority,
        b"ATTEMPT": b"%d" % delivery.attempt,
        b"REDELIVERED": b"1" if delivery.redelivered else b"0",
    }
    for name, content in delivery.headers:
        variable = re.sub(r"[^A-Z0-9]", "_", name.upper())
        if content is not None:
            facts[b"HEADER_" + variable.encode()] = content
    if delivery.key is not None:
        facts[b"KEY"] = delivery.key
        facts[b"KEY_BASE64"] = base64.b64encode(delivery.key)
    inherited = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    return inherited | {
        b"LOGBROKER_" + name: value
        for name, value in facts.items()
        if b"\0" not in value and len(value) <= _MAX_VARIABLE_BYTES
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
