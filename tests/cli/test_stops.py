"""The fate of records that a stop meets half done."""

from __future__ import annotations

import asyncio
import gc
import io
import itertools
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

import pytest
import uvloop

from logbroker.cli import produce as produce_command
from logbroker.cli.common.clients import CommandConsumer, CommandWorker
from logbroker.cli.common.standard_output import OutputClosedError, TakenOutput
from logbroker.cli.common.stops import Interrupter, Stopped, stops_are_interrupts
from logbroker.cli.main import run
from logbroker.client.admin.groups import PartitionLag
from logbroker.client.sync import Admin, Consumer, Producer
from logbroker.embedded_broker import embedded
from logbroker.errors import RequestTimeoutError, UnknownGroupError
from logbroker.types import TopicPartition
from tests.cli.command import ENVIRONMENT, LOGBROKER, line_of
from tests.cli.queues import Queue
from tests.waiting import until


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4()}"


@pytest.fixture
def empty() -> str:
    """The name of a topic that is not there yet."""
    return f"t-{uuid.uuid4()}"


def lags(admin: Admin, group: str) -> list[PartitionLag]:
    """Return those of the partitions of the group's topic as it is now; none before the group is there."""
    try:
        return [lag for lag in admin.group_lag(group) if lag.error is None]
    except UnknownGroupError:
        return []


def has_all(admin: Admin, group: str) -> bool:
    """Whether one member holds the two partitions of the topic, and nothing is on its way to another."""
    owners = [lag.owner for lag in lags(admin, group)]
    return len(owners) == 2 and len(set(owners)) == 1 and bool(owners[0])


def committed(admin: Admin, partition: TopicPartition, group: str) -> int | None:
    try:
        found = admin.fetch_offsets(group, [partition]).get(partition)
    except UnknownGroupError:
        return None
    return None if found is None else found.offset


def produce(address: str, partition: TopicPartition, count: int, value: bytes = b"v") -> None:
    with Producer(address) as producer:
        for _ in range(count):
            producer.send(partition.topic, value, partition=partition.partition)


@contextmanager
def member(address: str, topic: str, group: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `consume --group`; its output goes nowhere."""
    command = [*LOGBROKER, "consume", topic, "--group", group, "--broker", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            yield process
        finally:
            process.kill()


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a member as a service manager does; it must say nothing."""
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_a_member_has_written_before_a_stop_is_committed(
    address: str, topic: str, stop: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = f"g-{uuid.uuid4()}"
    lines = 0

    def write(output: TakenOutput, data: bytes) -> None:
        nonlocal lines
        lines += data.count(b"\n")
        signal.raise_signal(stop)

    monkeypatch.setattr(TakenOutput, "write", write)
    command = ["consume", topic, "--group", group, "--from", "earliest", "--broker", address]
    assert run(command) == (130 if stop is signal.SIGINT else 0)
    with Admin(address) as admin:
        committed = sum(offset.offset for offset in admin.fetch_offsets(group).values())
    assert committed == lines > 0


@pytest.mark.prove
def test_a_stop_does_not_set_back_what_another_member_committed_meanwhile(address: str, empty: str, group: str) -> None:
    with Admin(address) as admin, member(address, empty_topic(admin, empty), group) as first:
        until(lambda: has_all(admin, group))

        @contextmanager
        def other() -> Iterator[tuple[Consumer, TopicPartition]]:
            with Consumer(address, group=group, start="earliest") as consumer:
                consumer.subscribe(empty)
                until(lambda: consumer.poll(timeout_seconds=0.05) or consumer.assignment())
                (partition,) = consumer.assignment()
                yield consumer, partition
            until(lambda: has_all(admin, group))

        with other() as (_, given):
            pass
        produce(address, given, 10)
        until(lambda: committed(admin, given, group) == 10)
        with other() as (consumer, again):
            assert again == given
            produce(address, given, 40)
            left = 40
            while left:
                left -= len(consumer.poll(timeout_seconds=20))
            consumer.commit()
        assert committed(admin, given, group) == 50
        stop(first)
        assert committed(admin, given, group) == 50


@pytest.mark.prove
def test_a_stop_commits_nothing_of_a_topic_that_was_made_anew(address: str, empty: str, group: str) -> None:
    partition = TopicPartition(empty, 1)
    with Admin(address) as admin, member(address, empty_topic(admin, empty), group) as process:
        until(lambda: has_all(admin, group))
        produce(address, partition, 10)
        until(lambda: committed(admin, partition, group) == 10)
        admin.delete_topic(empty)
        empty_topic(admin, empty)
        until(lambda: committed(admin, partition, group) == 0)  # The member reads the new one.
        stop(process)
        assert committed(admin, partition, group) == 0


def test_no_offset_of_a_deleted_topic_is_committed_in_one_of_its_name(
    address: str, empty: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else records of the new one would be skipped that nobody has seen."""
    first, second = TopicPartition(empty, 0), TopicPartition(empty, 1)

    def write(output: TakenOutput, data: bytes) -> None:
        if data.startswith(b"new"):
            produce(address, second, 30)
            raise OutputClosedError

    def recreate() -> None:
        with Admin(address) as admin:
            until(lambda: committed(admin, second, group) == 10)
            admin.delete_topic(empty)
            empty_topic(admin, empty)
        produce(address, first, 1, b"new")

    monkeypatch.setattr(TakenOutput, "write", write)
    deadline = threading.Timer(60, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    with Admin(address) as admin, ThreadPoolExecutor(1) as pool:
        empty_topic(admin, empty)
        produce(address, second, 10)
        recreated = pool.submit(recreate)
        deadline.start()
        try:
            assert run(["consume", empty, "--group", group, "--broker", address]) == 0
        finally:
            deadline.cancel()
        recreated.result()
        assert not committed(admin, second, group)


def empty_topic(admin: Admin, name: str) -> str:
    admin.create_topic(name, 2)
    return name


def in_weakref_callback(interrupt: Callable[[], None]) -> None:
    def thing() -> None: ...

    reference = weakref.ref(thing, lambda _: interrupt())
    del thing
    assert reference() is None


def in_finalizer(interrupt: Callable[[], None]) -> None:
    class Thing:
        def __del__(self) -> None:
            interrupt()

    Thing()


def in_gc_callback(interrupt: Callable[[], None]) -> None:
    def callback(phase: str, _: object) -> None:
        if phase == "start":
            interrupt()

    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)


Lossy = Callable[[Callable[[], None]], None]
LOSSY = pytest.mark.parametrize("lossy", [in_weakref_callback, in_finalizer, in_gc_callback])
"""Calls a function where Python loses what it raises."""


def lose(lossy: Lossy, *stops: signal.Signals) -> None:
    """Get signals, all at the same time, where what their handlers raise is lost; then wait for the stop."""

    def interrupt() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, stops)
        for stop in stops:
            signal.pthread_kill(threading.get_ident(), stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)

    lossy(interrupt)
    threading.Event().wait(20)
    pytest.fail("the command went on")


@LOSSY
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_whose_exception_is_lost_stops_a_member_all_the_same(
    address: str, topic: str, group: str, lossy: Lossy, stop: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = waits = 0

    def write(output: TakenOutput, data: bytes) -> None:
        nonlocal lines
        lines += data.count(b"\n")

    def wait(output: TakenOutput, patience_seconds: float = 0) -> bool:
        nonlocal waits
        waits += 1
        if waits == 1:
            lose(lossy, stop)
        return True

    monkeypatch.setattr(TakenOutput, "write", write)
    monkeypatch.setattr(TakenOutput, "wait", wait)
    command = ["consume", topic, "--group", group, "--from", "earliest", "--broker", address]
    assert run(command) == (130 if stop is signal.SIGINT else 0)
    with Admin(address) as admin:
        assert sum(offset.offset for offset in admin.fetch_offsets(group).values()) == lines > 0


@LOSSY
def test_ctrl_c_whose_exception_is_lost_ends_any_command(
    address: str, topic: str, lossy: Lossy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TakenOutput, "write", lambda *_: lose(lossy, signal.SIGINT))
    assert run(["consume", topic, "--broker", address]) == 130


@pytest.mark.parametrize("way", [["--print"], ["--exec", "true"]], ids=["print", "exec"])
def test_a_stop_whose_exception_is_lost_stops_a_worker(
    queue: Queue, topic: str, name: str, way: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue("create", name, "--topic", topic)
    monkeypatch.setattr(CommandWorker, "run", lambda *_, **__: lose(in_finalizer, signal.SIGTERM))
    monkeypatch.setattr(TakenOutput, "while_read", lambda *_: lose(in_finalizer, signal.SIGTERM))
    assert run(["queue", "work", name, *way, "--broker", queue.address]) == 0


def test_a_stop_that_meets_the_hook_for_lost_exceptions_is_not_lost_there() -> None:
    """Some service managers send SIGHUP right after SIGTERM: one is lost, and the other interrupts its hook."""
    with pytest.raises(Stopped), stops_are_interrupts():
        lose(in_weakref_callback, signal.SIGTERM, signal.SIGHUP)


def test_a_lost_stop_comes_once() -> None:
    """The clean-up because of it is not interrupted."""
    with stops_are_interrupts():
        with pytest.raises(Stopped):
            lose(in_weakref_callback, signal.SIGTERM)
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
        assert not threading.Event().wait(0.1)


def test_a_lost_stop_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    done = False
    interrupter = Interrupter()
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)

    def work() -> None:
        nonlocal done
        in_weakref_callback(lambda: signal.raise_signal(signal.SIGTERM))
        with interrupter.put_off():
            signal.raise_signal(signal.SIGALRM)
            done = True

    with pytest.raises(Stopped), stops_are_interrupts(interrupter):
        work()
    assert done


def test_a_lost_stop_is_raised_at_the_end_at_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    with pytest.raises(Stopped), stops_are_interrupts():
        in_weakref_callback(lambda: signal.raise_signal(signal.SIGTERM))


@pytest.fixture
def signals_as_before() -> Iterator[None]:
    """Restore what a command that is about to end leaves ignored; children of this process would ignore it, too."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_as_before")
def test_the_clean_up_after_a_delayed_stop_is_not_interrupted() -> None:
    interrupter = Interrupter(clean_up_seconds=60)
    cleaned_up = False
    with stops_are_interrupts(interrupter):
        try:
            with interrupter.put_off():
                signal.raise_signal(signal.SIGTERM)
        except Stopped:
            signal.raise_signal(signal.SIGTERM)
            cleaned_up = True
    assert cleaned_up


LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


@pytest.mark.usefixtures("signals_as_before")
@LOOPS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_of_an_event_loop_lets_every_task_end_its_step(
    number: signal.Signals, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Even the task in whose step it arrives: the end of the work may wait for that task."""
    interrupter = Interrupter(clean_up_seconds=60)
    done = asyncio.Event()

    async def step() -> None:
        signal.raise_signal(number)
        done.set()

    async def work() -> None:
        task = asyncio.create_task(step())
        try:
            await asyncio.sleep(3600)
        finally:
            signal.raise_signal(number)  # Ignored during the clean-up.
            async with asyncio.timeout(10):
                await done.wait()
            await task

    with pytest.raises(KeyboardInterrupt) as stopped, stops_are_interrupts(interrupter):
        interrupter.run(work(), new_loop)
    assert getattr(stopped.value, "number", signal.SIGINT) == number
    assert done.is_set()
    assert interrupter.stops == [number]


@pytest.mark.usefixtures("signals_as_before")
@LOOPS
def test_a_stop_is_raised_in_an_event_loop_that_is_blocked(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logbroker.cli.common.stops._PUT_OFF_SECONDS", 0.05)
    interrupter = Interrupter(clean_up_seconds=60)

    async def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(60)

    start = time.monotonic()
    with pytest.raises(Stopped), stops_are_interrupts(interrupter):
        interrupter.run(work(), new_loop)
    assert time.monotonic() - start < 30


@pytest.mark.usefixtures("signals_as_before")
@LOOPS
def test_a_second_stop_of_an_event_loop_is_raised_at_once(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    interrupter = Interrupter()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(3600)

    def stop() -> None:
        signal.raise_signal(signal.SIGTERM)

    async def stopped_work() -> None:
        asyncio.get_running_loop().call_soon(stop)
        await work()

    with pytest.raises(Stopped), stops_are_interrupts(interrupter):
        interrupter.run(stopped_work(), new_loop)
    assert len(interrupter.stops) == 2


def test_work_in_an_event_loop_returns_or_fails_as_ever() -> None:
    async def work(error: Exception | None) -> int:
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return 7

    with stops_are_interrupts() as interrupter:
        assert interrupter.run(work(None)) == 7
        with pytest.raises(ValueError, match="other"):
            interrupter.run(work(ValueError("other")))
        assert interrupter.run(work(None)) == 7


def test_other_lost_exceptions_are_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(str(lost.exc_value)))

    def fail() -> None:
        raise ValueError("other")

    with stops_are_interrupts():
        in_finalizer(fail)
    assert told == ["other"]


@pytest.mark.prove
def test_ctrl_c_during_imports_kills_the_command_without_a_traceback() -> None:
    """A shell tells that by exit code 130."""
    program = (
        "import signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == {module!r}: signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['logbroker', 'topic', 'list']\n"
        "from logbroker.__main__ import main\n"
        "main()\n"
    )
    for module in ("click", "logbroker.cli.main", "logbroker.cli.topic", "logbroker.cli.common.clients"):
        command = [sys.executable, "-c", program.format(module=module)]
        result = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=60, check=False)
        assert (result.returncode, result.stderr) == (-signal.SIGINT, b""), module


@pytest.mark.prove
@pytest.mark.parametrize(("stop", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_a_stop_beside_a_frozen_broker_has_the_exit_code_that_it_should(stop: signal.Signals, exit_code: int) -> None:
    """The last commit fails. Ctrl-C is told from that, and SIGTERM, which would be no failure, is not."""
    with embedded() as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", 1)
        produce(broker.address, TopicPartition("t", 0), 1)
        command = [*LOGBROKER, "consume", "t", "--group", "g", "--broker", broker.address]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=ENVIRONMENT) as process:
            try:
                # A record is committed only after it was read from the pipe.
                assert process.stdout is not None
                assert select.select([process.stdout], [], [], 60)[0]
                os.kill(broker.pid, signal.SIGSTOP)
                assert line_of(process) == b"v\n"
                process.send_signal(stop)
                _, err = process.communicate(timeout=150)  # Its requests run out of time one after the other.
            finally:
                process.kill()
                os.kill(broker.pid, signal.SIGCONT)
    assert process.returncode == exit_code
    assert err.decode().startswith("logbroker: the ")
    assert len(err.strip().splitlines()) == 1


UNCONFIRMED = "the broker has not answered"
STOPS = pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])


def stopped_while_it_ends(
    client: type, method: str, monkeypatch: pytest.MonkeyPatch, *stops: signal.Signals, confirms: bool
) -> None:
    """Let stops arrive while a command makes the last call to its broker."""
    call = getattr(client, method)

    def interrupted(self: object, *arguments: object) -> None:
        try:
            for stop in stops:
                signal.raise_signal(stop)
        finally:
            call(self, *arguments)
        if not confirms:
            raise RequestTimeoutError(UNCONFIRMED)

    monkeypatch.setattr(client, method, interrupted)


@STOPS
@pytest.mark.parametrize("confirms", [True, False])
@pytest.mark.parametrize("way", [["--print"], ["--exec", "true"]], ids=["print", "exec"])
def test_a_stop_while_a_worker_closes_hides_no_missing_confirmation(
    queue: Queue,
    topic: str,
    name: str,
    way: list[str],
    confirms: bool,
    stop: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue("create", name, "--topic", topic)
    stopped_while_it_ends(CommandWorker, "close", monkeypatch, stop, confirms=confirms)
    command = ["queue", "work", name, *way, "--max-records", "1", "--broker", queue.address]
    assert run(command) == (0 if confirms else 1)
    assert (UNCONFIRMED in capsys.readouterr().err) != confirms
    assert queue.json("describe", name)["counts"]["acked"] == 1


@pytest.mark.parametrize("way", [["--print"], ["--exec", "true"]], ids=["print", "exec"])
def test_a_second_stop_while_a_worker_closes_ends_it(
    queue: Queue, topic: str, name: str, way: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue("create", name, "--topic", topic)
    stopped_while_it_ends(CommandWorker, "close", monkeypatch, signal.SIGTERM, signal.SIGHUP, confirms=True)
    command = ["queue", "work", name, *way, "--max-records", "1", "--broker", queue.address]
    assert run(command) == 128 + signal.SIGHUP


@STOPS
@pytest.mark.parametrize("confirms", [True, False])
@pytest.mark.parametrize("call", ["commit", "close"])
def test_a_stop_while_a_member_ends_hides_no_missing_confirmation(
    address: str,
    topic: str,
    group: str,
    call: str,
    confirms: bool,
    stop: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped_while_it_ends(CommandConsumer, call, monkeypatch, stop, confirms=confirms)
    command = ["consume", topic, "--group", group, "--max-records", "3", "--broker", address]
    assert run(command) == (130 if stop is signal.SIGINT else 0 if confirms else 1)
    assert (UNCONFIRMED in capsys.readouterr().err) != confirms
    with Admin(address) as admin:
        assert sum(offset.offset for offset in admin.fetch_offsets(group).values()) == 3


def test_a_second_stop_ends_the_last_commit_of_a_member(
    address: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_while_it_ends(CommandConsumer, "commit", monkeypatch, signal.SIGTERM, signal.SIGHUP, confirms=True)
    command = ["consume", topic, "--group", group, "--max-records", "3", "--broker", address]
    assert run(command) == 128 + signal.SIGHUP
    err = capsys.readouterr().err
    assert err.strip() == "logbroker: stopped: it is not known whether the last commit took effect"


def stopped_while_finishing(after: int, calls: list[str]) -> None:
    """Let a stop arrive after so many instructions since the work began. Note in `calls` what was done."""
    interrupter = Interrupter()
    steps = 0

    def work() -> None:
        calls.append("work")

    def finish() -> None:
        calls.append("finish")
        calls.append("finished")

    traced = (work.__code__, finish.__code__, Interrupter.finish_after.__code__)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        if frame.f_code not in traced:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == after:
                signal.raise_signal(signal.SIGTERM)
        return trace

    def all_of_it() -> Iterator[None]:
        with stops_are_interrupts(interrupter):
            sys.settrace(trace)
            try:
                stop = interrupter.finish_after(work)
                calls.append("stopped" if stop else "ended")
                finish()
            finally:
                sys.settrace(before)
            calls.append("end")
        yield

    before = sys.gettrace()
    try:
        next(all_of_it())  # See `stopped_in_produce`.
    finally:
        sys.settrace(before)


def test_a_stop_at_any_instruction_lets_the_work_be_finished_once() -> None:
    """The stop ends the work, or it is raised after everything is finished."""
    seen = set()
    for after in itertools.count(1):
        calls: list[str] = []
        try:
            stopped_while_finishing(after, calls)
        except Stopped:
            if not calls:
                continue  # The work had not begun.
            assert "ended" in calls
        else:
            if "ended" in calls:
                break  # The stop would have come later.
        assert calls[-3:] == ["finish", "finished", "end"], (after, calls)
        seen.add("ended" in calls)
    assert seen == {True, False}


class NoBroker:
    """Clients of a broker that takes each record at once."""

    def __init__(self, *_: object, **options: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_topic(self, topic: str) -> None:
        pass


class Answered:
    def done(self) -> bool:
        return True

    def result(self, timeout_seconds: float | None = None) -> None:
        pass


def stopped_in_produce(monkeypatch: pytest.MonkeyPatch, records: int, stops: int, after: int) -> tuple[int, int]:
    """Let stops arrive in `produce`, after so many bytecode instructions of its own module since its producer was
    opened. Return how many records were stored, and its exit code."""
    stored = steps = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != produce_command.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if after <= steps < after + stops:
                signal.raise_signal(signal.SIGTERM)
        return trace

    class FakeProducer(NoBroker):
        def send(self, *_: object, **__: object) -> Answered:
            nonlocal stored
            stored += 1
            return Answered()

        def flush(self) -> None:
            pass

        def __enter__(self) -> Self:
            sys.settrace(trace)
            return self

        def __exit__(self, *_: object) -> None:
            sys.settrace(None)

    monkeypatch.setattr(produce_command, "CommandAdmin", NoBroker)
    monkeypatch.setattr(produce_command, "CommandProducer", FakeProducer)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"v\n" * records)))

    def exit_code() -> Iterator[int]:
        yield run(["produce", "t"])

    before = sys.gettrace()
    try:
        # Where a stop comes between the instructions of a handler, Python goes on handling its exception forever. A
        # generator has such a state of its own, so the tests after this one do not inherit it.
        (code,) = exit_code()
    finally:
        sys.settrace(before)
    return stored, code


@pytest.mark.prove
@pytest.mark.parametrize("stops", [1, 2])
def test_produce_tells_at_a_stop_no_fewer_records_than_are_stored(
    stops: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stop arrives between any two instructions. A first stop waits for the count, so that it is exact; a second one
    does not."""
    for after in itertools.count(1):
        stored, code = stopped_in_produce(monkeypatch, 3, stops, after)
        err = capsys.readouterr().err.rstrip("\n")
        if code == 0:
            break
        told = re.fullmatch(
            r"logbroker: stopped: (\d+) records? (?:was|were) acknowledged(?:; (\d+) more may have arrived)?", err
        )
        assert told, (after, err)
        acknowledged, unsure = int(told[1]), int(told[2] or 0)
        assert acknowledged <= stored <= acknowledged + unsure, (after, err)
        assert unsure <= stops - 1, (after, err)
    assert after > 100
