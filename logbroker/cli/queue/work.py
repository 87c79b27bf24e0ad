"""`logbroker queue work`: passes the records of a queue group to a command or to standard output."""

from __future__ import annotations

import base64
import errno
import itertools
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from queue import SimpleQueue
from time import monotonic
from types import FrameType, TracebackType
from typing import Final, Self, cast

import click

from logbroker.cli.common.arguments import COUNT, BytesType, NameType, Real, Whole
from logbroker.cli.common.child_process import CommandRunner, syntax_error
from logbroker.cli.common.clients import CommandWorker
from logbroker.cli.common.error_writer import ErrorWriter
from logbroker.cli.common.lines import counted, encoded_line
from logbroker.cli.common.options import broker_option, number_option
from logbroker.cli.common.output_formats import json_delivery
from logbroker.cli.common.standard_output import OutputClosedError, TakenOutput, has_lost_reader, output_trouble
from logbroker.cli.common.stops import Interrupter
from logbroker.client.runtime.sync_loop import Latch
from logbroker.client.sync import QueueAdmin, QueueCounts, QueueDescription, WorkerDelivery
from logbroker.client.worker import settlements
from logbroker.client.worker.worker_connection import OBSTACLES
from logbroker.client.worker.worker_core import DEFAULT_MAX_EXTENSION_SECONDS
from logbroker.command_line import command_line
from logbroker.config import MAX_SECONDS
from logbroker.errors import BrokerUnavailableError, LeaseLostError, LogbrokerError, quoted
from logbroker.errors.system import system_error_text

_PREFIX: Final = b"LOGBROKER_"
_LOOK_SECONDS: Final = 0.2
_PAUSED_SECONDS: Final = 5.0
"""The time after which a paused scan counts as the end, if nothing has changed."""
_WAITING: Final = "logbroker: waiting for the commands that run; Ctrl-C again kills them"
_STOPS: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)  # Windows has only two of them.
)
MAX_TIMEOUT_SECONDS: Final = 7 * MAX_SECONDS
_ANSWER_SECONDS: Final = 4.0
"""How long a stopping worker waits for the broker's answers to its last settlements, so that it can report refusals.
Closing the worker waits for the answers as well, but counts refusals as failures."""
_SILENT_SECONDS: Final = 1.0
"""The time for which a stopping worker waits silently. Then it tells the user."""
_GOODBYE_SECONDS: Final = 3
"""The time from the signal that kills the commands to the end of the process, even if the broker does not answer."""
_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127
_TOO_LONG: Final = os.strerror(errno.E2BIG)
"""The shell's message when a record makes a command line too long, as in `x "$(cat)"`. The exit code is also 126."""


@click.command()
@click.argument("group", metavar="GROUP")
@click.option(
    "--exec",
    "command",
    type=BytesType(),
    metavar="CMD",
    help="Run CMD in a shell for each record. Exit code 0 acks the record; any other nacks it.",
)
@click.option(
    "--print",
    "printed",
    is_flag=True,
    help="Write each record as a JSON line. A record is acked when it is written; in a pipe, when the reader has taken "
    "it.",
)
@number_option(
    "--concurrency", kind=Whole(1, 1000), help="Number of commands of --exec that run at once.  [default: 1]"
)
@number_option(
    "--timeout",
    kind=Real(most=MAX_TIMEOUT_SECONDS, min_open=True),
    metavar="SECONDS",
    help="Kill CMD after this time, and nack the record.  [default: no limit]",
)
@click.option(
    "--band", type=NameType(), metavar="NAME", help="Process the records of this band only, in a group with priorities."
)
@number_option("--max-records", kind=COUNT, help="Stop after N records.")
@click.option(
    "--until-end",
    is_flag=True,
    help="Stop when no record is ready or in flight. Records that wait for a retry, are blocked or are parked stay.",
)
@broker_option
def work(
    group: str,
    command: str | None,
    printed: bool,
    concurrency: int | None,
    timeout: float | None,
    band: str | None,
    max_records: int | None,
    until_end: bool,
    broker: str,
) -> None:
    """Process the records of GROUP as they arrive, until Ctrl-C.

    Ctrl-C waits for the commands that run; a second Ctrl-C kills them and releases their records. SIGTERM and SIGHUP do
    the same. After the first signal the exit code is 0, or 1 if the broker does not confirm the last settlements. After
    a second signal it is 128 plus the number of the signal.

    \b
    CMD reads the value of the record from standard input. Its environment:
      LOGBROKER_BROKER       as --broker; `logbroker` in CMD uses it, too
      LOGBROKER_TOPIC, LOGBROKER_PARTITION, LOGBROKER_OFFSET
      LOGBROKER_TIMESTAMP    milliseconds since 1970
      LOGBROKER_PRIORITY     0 to 9
      LOGBROKER_ATTEMPT      1 at first
      LOGBROKER_REDELIVERED  1 if it may have been delivered before, else 0
      LOGBROKER_KEY, LOGBROKER_KEY_BASE64
                             both unset if the record has no key
      LOGBROKER_HEADER_NAME  the value of the last header NAME; NAME is in
                             capitals, with _ for each other character than
                             A-Z, 0-9
      LOGBROKER_HEADER_NAME_BASE64
                             instead, if the header has a NUL byte

    A record is nacked if its key or a header is too large for the environment (about 128 KiB each).

    A record is settled when CMD itself ends, even if CMD left processes in the background. After --timeout, or when the
    record is lost to another worker, CMD is killed with all processes of its session. The standard error of CMD is
    passed on, and its last line is the reason of a nack. If CMD cannot be found or run (exit code 127 or 126), the
    record is released, no attempt is counted, and the worker ends with exit code 1. The same applies if CMD fails while
    standard output of the worker cannot be written, for example because its disk is full.

    With --print, the lines are as in `logbroker consume --format json`, plus attempt and redelivered.

    \b
    Examples:
      logbroker queue work mail --exec 'sendmail -t' --concurrency 8
      logbroker queue work billing --exec './bill.sh "$LOGBROKER_KEY"' --timeout 60
      logbroker queue work billing --print --max-records 10 | jq .key
      logbroker queue work alerts --band hot --exec ./page.sh
    """
    if (command is None) != printed:
        raise click.UsageError("give either --exec or --print")
    if printed and (timeout is not None or concurrency is not None):
        option = "--concurrency" if timeout is None else "--timeout"
        raise click.UsageError(f"{option} is about commands: with --print leave it out")
    if command is not None and all(line.strip()[:1] in ("", "#") for line in command.split("\n")):
        # A shell would run an empty command with success, so every record would be acked. Most likely a variable is not
        # set.
        raise click.UsageError("--exec needs a command, and this one is empty or a comment")
    if until_end and band is not None:
        raise click.UsageError("--until-end is about all records of the group: leave out --band")
    if command is None:
        with (
            ErrorWriter() as errors,
            errors.telling(OBSTACLES),
            _Stops(None) as stops,
            stops.interrupter.raising_again(),
            CommandWorker(broker, group, band=band) as worker,
            _Refusals(errors) as refusals,
        ):
            out = TakenOutput(lambda text: errors.offer(encoded_line(text)))

            def print_all() -> None:
                with _stopped_at_end(worker, broker, group, errors) if until_end else nullcontext():
                    for delivery in out.while_read(itertools.islice(worker, max_records)):
                        with stops.interrupter.put_off():
                            out.write(json_delivery(delivery))
                            out.wait()
                            refusals.settle(delivery, delivery.ack)

            stops.end(print_all)
        return
    if not hasattr(os, "killpg"):
        raise LogbrokerError("--exec needs a POSIX system: use --print here, or a Worker")
    if (error := syntax_error(command)) is not None:
        # Otherwise it would fail for every record of the group, and use up their attempts.
        raise click.UsageError(f"--exec: the shell cannot read the command: {error}")
    longest = max(DEFAULT_MAX_EXTENSION_SECONDS, (timeout or 0) + 60)
    with CommandRunner(command, timeout) as commands, _Stops(commands) as stops, stops.interrupter.raising_again():
        with (
            commands.errors.telling(OBSTACLES),
            CommandWorker(broker, group, band=band, max_extension_seconds=longest) as worker,
            _Refusals(commands.errors) as refusals,
        ):
            handler = _Handler(worker, commands, stops, refusals, broker, max_records)

            def run_all() -> None:
                at_end = _stopped_at_end(worker, broker, group, commands.errors) if until_end else nullcontext()
                with stops.that_wait(), at_end:
                    worker.run(handler.handle, concurrency=concurrency or 1)

            stops.end(run_all)
        if handler.failure:
            raise LogbrokerError(handler.failure)
        if handler.has_lost_reader:
            raise OutputClosedError


class _Stops:
    """Signal handlers that stop the worker.

    SIGTERM from a service manager and the end of a terminal stop the worker as Ctrl-C does: the broker gives the
    worker's records to other workers at once.
    """

    def __init__(self, commands: CommandRunner | None) -> None:
        self._commands = commands
        self._before: dict[signal.Signals, object] = {}
        self._waits = False
        self._signals = 0
        self.interrupter = Interrupter()
        self.count = 0
        """Number of stops that arrived while a stop had to wait for commands."""
        self.last = 0

    def __enter__(self) -> Self:
        for number in _STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # Ignored under nohup, and in a shell's background.
                self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Restore the handlers. A single stop is not a failure, even before any record was taken."""
        if self.count > 1 and self._commands is not None:
            # End at once: all messages are written, and the interpreter might wait for threads that never end.
            self._commands.close()
            os._exit(128 + self.last)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else cast(signal.Handlers, handler))
        return isinstance(error, KeyboardInterrupt) and self._signals == 1

    def end(self, work: Callable[[], None]) -> None:
        """Call `work` until it ends or a stop ends it. See `Interrupter.finish_after`. Raises a second stop."""
        stop = self.interrupter.finish_after(work)
        if stop is not None and self._signals > 1:
            raise stop

    @contextmanager
    def that_wait(self) -> Iterator[None]:
        """Make stops wait for running commands during the context. A second stop never waits, not even afterwards."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = self.count > 0

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. It takes no locks, because it may interrupt code that holds them."""
        self._signals += 1
        if not self._waits:
            self.interrupter.interrupt(number, frame)
            return
        self.count += 1
        self.last = number
        assert self._commands is not None
        if self.count == 1:
            self._commands.errors.is_stopping = True
            self.interrupter.interrupt(number, frame)
            return
        self._commands.kill_all()
        # Limit everything that may still wait, such as a call to a broker that is away.
        signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + self.last))
        signal.setitimer(signal.ITIMER_REAL, _GOODBYE_SECONDS)


@contextmanager
def _stopped_at_end(worker: CommandWorker, broker: str, group: str, errors: ErrorWriter) -> Iterator[None]:
    """Stop the worker when no record is left to deliver, and say which records stay. Raises LogbrokerError at the end
    if records could not be scanned."""
    over, ended = Latch(), Latch()
    left = stalled = ""

    def look() -> None:
        nonlocal left, stalled
        pause = _Pause()
        try:
            with QueueAdmin(broker) as admin:
                while not over.wait(_LOOK_SECONDS):
                    # If the broker is away, the worker decides whether to wait for it or to end.
                    with suppress(LogbrokerError):
                        queue = admin.describe_queue(group)
                        if _is_worked_off(queue) and pause.lasts(queue):
                            left, stalled = _unscanned_text(queue), _stalled_text(queue)
                            worker.stop()
                            return
        finally:
            ended.set()

    looking = threading.Thread(target=look, name="until-end")
    try:
        looking.start()  # A signal may interrupt this call. The thread is then running or about to run.
        yield
    finally:
        over.set()
        while looking.ident is not None and not ended.wait(_LOOK_SECONDS):
            pass
    if stalled:
        errors.tell(f"logbroker: {stalled}")
    if left:
        raise LogbrokerError(left)


class _Pause:
    """Finds out whether a paused scan stays paused. A scan goes on when a retry is due, or when an operator decides
    about a lane."""

    def __init__(self) -> None:
        self._since = monotonic()
        self._counts: QueueCounts | None = None

    def lasts(self, queue: QueueDescription) -> bool:
        """Return False while a paused scan may still go on: until nothing has changed for some seconds."""
        if queue.state != "paused":
            return True
        now = monotonic()
        if queue.counts != self._counts:
            self._since, self._counts = now, queue.counts
        return now - self._since >= _PAUSED_SECONDS


def _is_worked_off(queue: QueueDescription) -> bool:
    counts = queue.counts
    if counts.ready or counts.in_flight or counts.moving_lanes or queue.state not in ("serving", "paused"):
        return False
    if not counts.unscanned or queue.state == "paused":
        return True
    errors = [partition.error for partition in queue.partitions if partition.error is not None]
    return bool(errors) and all(partition.error or partition.scanned >= partition.end for partition in queue.partitions)


def _stalled_text(queue: QueueDescription) -> str:
    """Return how many scanned records stay, and why; "" if there are none."""
    counts = queue.counts
    held = counts.blocked_lanes + counts.parked_lanes
    if not counts.waiting or not counts.held_lanes:
        return ""
    reasons = []
    if held:
        reasons.append(f"{counted(held, 'lane')} blocked or parked (`{command_line('queue parked', queue.id)}`)")
    if others := counts.held_lanes - held:
        reasons.append(f"{counted(others, 'lane')} waiting for a retry, a time or the dead-letter topic")
    return f"{counted(counts.waiting, 'record')} of queue group {queue.id} left: {', '.join(reasons)}"


def _unscanned_text(queue: QueueDescription) -> str:
    """Return why records are left that the group has not scanned or cannot read; "" if there are none."""
    for partition in queue.partitions:
        if partition.error is not None:
            return f"partition {partition.partition} is not served to its end: {partition.error}"
    if not queue.counts.unscanned:
        return ""
    return (
        f"{counted(queue.counts.unscanned, 'record')} not scanned: too many lanes are stalled, or too many records are"
        " delayed (--max-held-lanes and --max-delayed)"
    )


class _Refusals:
    """Reports each settlement that the broker refused, because the record was lost to another worker, and each whose
    answer was lost with the connection.

    Neither is a failure of this worker, so they do not change the exit code. Settlements that are unanswered when the
    worker is closed are not reported here: the close raises an error that tells of them.
    """

    def __init__(self, errors: ErrorWriter) -> None:
        self._errors = errors
        self._settled: SimpleQueue[tuple[WorkerDelivery, bool] | None] = SimpleQueue()
        """Settled deliveries in order, each with whether its loss was already reported; None: the end."""
        self._ended = Latch()
        self._log = logging.getLogger(settlements.__name__)
        self._silent = logging.NullHandler()

    def settle(
        self, delivery: WorkerDelivery, say: Callable[[], object], *, is_told: bool = False
    ) -> LogbrokerError | None:
        """Settle a record by `say`, without waiting for the broker's answer. Return the error if the record is lost.
        `is_told`: the caller reports the loss."""
        try:
            say()
        except LogbrokerError as error:
            if not is_told:
                self._tell(delivery, error)
            return error.as_value()
        self._settled.put((delivery, is_told))
        return None

    def __enter__(self) -> Self:
        # On a terminal, the log of the client is shown. Its line about a refusal would repeat the one of `_hear`.
        self._log.addHandler(self._silent)
        # A daemon thread, because the broker may never answer.
        threading.Thread(target=self._hear, name="refusals", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._settled.put(None)
        if not self._ended.wait(_SILENT_SECONDS):
            self._errors.tell("logbroker: the broker does not answer; waiting some seconds for its last answers")
            self._ended.wait(_ANSWER_SECONDS - _SILENT_SECONDS)
        self._log.removeHandler(self._silent)

    def _hear(self) -> None:
        try:
            for delivery, is_told in iter(self._settled.get, None):
                try:
                    delivery.result()
                except BrokerUnavailableError:  # The worker was closed. No broker has answered.
                    pass
                except LogbrokerError as error:
                    if not is_told:
                        self._tell(delivery, error)
        finally:
            self._ended.set()

    def _tell(self, delivery: WorkerDelivery, error: LogbrokerError) -> None:
        record_text = _record_text(delivery)
        if delivery.in_doubt:
            self._errors.tell(f"logbroker: the broker did not confirm the settlement of {record_text}: {error}")
        else:
            self._errors.tell(f"logbroker: the settlement of {record_text} was refused: {error}")


def _record_text(delivery: WorkerDelivery) -> str:
    return f"{delivery.topic}-{delivery.partition}, offset {delivery.offset}"


class _Handler:
    """Runs a command for each delivery, in the threads of a worker."""

    def __init__(
        self,
        worker: CommandWorker,
        commands: CommandRunner,
        stops: _Stops,
        refusals: _Refusals,
        broker: str,
        max_records: int | None,
    ) -> None:
        self._worker = worker
        self._commands = commands
        self._stops = stops
        self._refusals = refusals
        self._broker = broker
        self._left = max_records
        self._has_told_stop = False
        self._lock = threading.Lock()
        self.failure = ""
        """The reason why the command cannot be run, or fails, for any record; empty if there is none."""
        self.has_lost_reader = False
        """Whether a command failed when the reader of standard output was gone."""

    def handle(self, delivery: WorkerDelivery) -> None:
        with self._lock:
            is_over = self._left == 0 or self._stops.count > 1 or bool(self.failure) or self.has_lost_reader
            if not is_over and self._left is not None:
                self._left -= 1
                if not self._left:
                    self._worker.stop()
        if is_over:
            # If a stop was delayed, the broker would deliver the released record to this worker again and again. So
            # stop the worker now.
            self._worker.stop()
            self._release(delivery)
            return
        self._work_on(delivery)

    def _work_on(self, delivery: WorkerDelivery) -> None:
        """Run the command, and settle the delivery."""
        variables = record_variables(delivery)
        try:
            ended = self._commands.run(
                delivery.value or b"", _environment(variables, self._broker), lambda: self._is_wanted(delivery)
            )
        except OSError as error:
            if error.errno == errno.E2BIG:
                self._nack(delivery, _too_large(variables))
            else:
                self._fail(f"the command cannot be started: {system_error_text(error)}")
                self._release(delivery)
            return
        status = f"exit {ended.status}" if ended.status >= 0 else f"signal {-ended.status}"
        reason = f"{status}: {ended.last_line}" if ended.last_line else status
        if ended.status == 0:
            self._refusals.settle(delivery, delivery.ack)
        elif ended.killed_by == "timeout":
            self._nack(delivery, self._commands.timeout_reason)
        elif ended.killed_by == "loss":
            lost = self._refusals.settle(delivery, delivery.release, is_told=True)
            # If the group or the topic was deleted, the record does not come again.
            fate = "the record comes again" if lost is None or isinstance(lost, LeaseLostError) else str(lost)
            self._commands.errors.tell(
                f"logbroker: the lease of {_record_text(delivery)} was lost, and its command was killed: {fate}"
            )
        elif ended.killed_by == "stop":
            self._release(delivery)
        elif ended.status in (_NOT_EXECUTABLE, _NOT_FOUND) and _TOO_LONG not in reason:
            # This machine is at fault, not the record: another worker may have the command, or it may be installed here
            # later.
            self._fail(f"the command cannot be run ({reason}): correct it, and start again")
            self._release(delivery)
        elif has_lost_reader():
            # The signal SIGPIPE kills the command whenever it writes, so it would fail for every record.
            self.has_lost_reader = True
            self._worker.stop()
            self._release(delivery)
        elif trouble := output_trouble():
            # No record is at fault when the disk of this worker is full.
            self._fail(trouble)
            self._release(delivery)
        else:
            self._nack(delivery, reason)

    def _is_wanted(self, delivery: WorkerDelivery) -> bool:
        """Whether the command should go on. It is called a few times a second.

        It also writes a message to standard error if a stop waits for the command and there is room.
        """
        if self._stops.count == 1:
            with self._lock:
                self._has_told_stop = self._has_told_stop or self._commands.errors.offer(encoded_line(_WAITING))
        return not delivery.lost

    def _release(self, delivery: WorkerDelivery) -> None:
        self._refusals.settle(delivery, delivery.release)

    def _nack(self, delivery: WorkerDelivery, reason: str) -> None:
        self._refusals.settle(delivery, lambda: delivery.nack(reason=reason))

    def _fail(self, why: str) -> None:
        with self._lock:
            self.failure = self.failure or why
        self._worker.stop()


def record_variables(delivery: WorkerDelivery) -> dict[bytes, bytes]:
    """Return the variables that describe the record to the command."""
    facts: dict[bytes, bytes] = {
        b"TOPIC": delivery.topic.encode(),
        b"PARTITION": b"%d" % delivery.partition,
        b"OFFSET": b"%d" % delivery.offset,
        b"TIMESTAMP": b"%d" % delivery.timestamp_ms,
        b"PRIORITY": b"%d" % delivery.priority,
        b"ATTEMPT": b"%d" % delivery.attempt,
        b"REDELIVERED": b"1" if delivery.redelivered else b"0",
    }
    headers = {re.sub(r"[^A-Z0-9]", "_", name.upper()).encode(): content for name, content in delivery.headers}
    for name, content in headers.items():
        if content is not None and b"\0" in content:
            facts[b"HEADER_" + name + b"_BASE64"] = base64.b64encode(content)
        elif content is not None:
            facts[b"HEADER_" + name] = content
    if delivery.key is not None:
        facts[b"KEY_BASE64"] = base64.b64encode(delivery.key)
        if b"\0" not in delivery.key:
            facts[b"KEY"] = delivery.key
    return {_PREFIX + name: value for name, value in facts.items()}


def _environment(variables: Mapping[bytes, bytes], broker: str) -> dict[bytes, bytes]:
    """Return the whole environment of a command.

    It has no variables of another record, even if the command of another record started this program. `logbroker`
    within the command uses the same broker.
    """
    inherited = {name: value for name, value in os.environb.items() if not name.startswith(_PREFIX)}
    return {**inherited, _PREFIX + b"BROKER": broker.encode(), **variables}


def _too_large(variables: Mapping[bytes, bytes]) -> str:
    largest = max(variables, key=lambda name: len(variables[name]))
    size_bytes = sum(len(name) + len(value) + 2 for name, value in variables.items())
    return (
        f"the record's key and headers are too large for the environment of a command: {size_bytes:,} bytes, of which "
        f"{quoted(largest.decode())} has {len(variables[largest]):,}: use a Worker or --print for such records"
    )
