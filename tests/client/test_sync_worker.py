"""The synchronous worker: threads that work, a stream in the background."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

import pytest

from logbroker.client.blocking import worker as sync_worker
from logbroker.client.sync import (
    Admin,
    Producer,
    QueueAdmin,
    QueueDescription,
    QueueSettings,
    Session,
    Worker,
    WorkerDelivery,
)
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    LeaseLostError,
    SessionHeldError,
    UnknownGroupError,
)
from tests.client.worker_helpers import in_order
from tests.waiting import until


def create(address: str, group: str, records: int, keys: int = 10, **settings: str | float) -> None:
    with Admin(address) as admin, QueueAdmin(address) as queues, Producer(address) as producer:
        admin.create_topic(group, 2)
        queues.create_queue(group, group, QueueSettings(**settings))  # type: ignore[arg-type]
        for number in range(records):
            producer.send(group, b"%d" % number, b"k%d" % (number % keys))


def describe(address: str, group: str) -> QueueDescription:
    with QueueAdmin(address) as queues:
        return queues.describe_queue(group)


def test_a_loop_takes_everything_in_order(address: str, topic: str) -> None:
    create(address, topic, 500)
    values = []
    with Worker(address, topic) as worker:
        for delivery in worker:
            with delivery:
                values.append(int(delivery.value or b""))
            if len(values) == 500:
                break
        worker.flush()
        counts = describe(address, topic).counts
    assert sorted(values) == list(range(500))
    assert in_order(values)
    assert (counts.acked, counts.open) == (500, 0)


def test_run_works_in_threads_and_goes_on_after_an_exception(address: str, topic: str) -> None:
    create(address, topic, 200, backoff_initial_seconds=0.01)
    lock = threading.Lock()
    running: Counter[bytes | None] = Counter()
    done = []
    threads = set()

    def handle(delivery: WorkerDelivery) -> None:
        with lock:
            running[delivery.key] += 1
            assert running[delivery.key] == 1, "two of one key at once"
            threads.add(threading.get_ident())
        try:
            time.sleep(0.001)
            if delivery.value == b"17" and delivery.attempt < 3:
                raise ValueError("not yet")
            with lock:
                done.append(int(delivery.value or b""))
                if len(done) == 200:
                    worker.stop()
        finally:
            with lock:
                running[delivery.key] -= 1

    with Worker(address, topic) as worker:
        worker.run(handle, concurrency=4)
    assert sorted(done) == list(range(200))
    assert in_order(done)
    assert len(threads) == 4
    counts = describe(address, topic).counts
    assert (counts.acked, counts.nacked) == (200, 2)


def test_a_result_waits_for_the_broker_and_raises_what_it_refused(address: str, topic: str) -> None:
    create(address, topic, 2, keys=1, lease_seconds=0.8, backoff_initial_seconds=0)
    with Worker(address, topic, max_extension_seconds=0, prefetch=1) as worker:
        deliveries = iter(worker)
        next(deliveries).ack().result()
        assert describe(address, topic).counts.acked == 1
        late = next(deliveries)
        time.sleep(1.2)
        with pytest.raises(LeaseLostError):
            late.ack().result(25)
        assert next(deliveries).attempt > 1


def test_an_exception_nacks_and_ends_the_loop(address: str, topic: str) -> None:
    create(address, topic, 1, backoff_initial_seconds=0)

    def fail_once(worker: Worker) -> None:
        for delivery in worker:
            with delivery:
                if delivery.attempt == 1:
                    raise ValueError("no good")
            return

    with Worker(address, topic) as worker:
        with pytest.raises(ValueError, match="no good"):
            fail_once(worker)
        fail_once(worker)
    counts = describe(address, topic).counts
    assert (counts.nacked, counts.acked) == (1, 1)


def test_sessions_go_on_in_threads(address: str, topic: str) -> None:
    create(address, topic, 100)
    seen: dict[bytes, list[int]] = {}

    def handle(session: Session) -> None:
        for delivery in session:
            with delivery:
                seen.setdefault(session.key, []).append(int(delivery.value or b""))
                session.state = b"%d" % len(seen[session.key])
        if sum(map(len, seen.values())) == 100:
            worker.stop()

    with Worker(address, topic) as worker:
        worker.sessions(handle, concurrency=3, idle_seconds=0.1)
        assert seen == {b"k%d" % key: list(range(key, 100, 10)) for key in range(10)}
    with Worker(address, topic) as worker, Worker(address, topic) as other, worker.session(b"k3") as session:
        assert (session.key, session.state, session.lost) == (b"k3", b"10", False)
        with pytest.raises(SessionHeldError), other.session(b"k3", wait_seconds=0):
            pass


def test_a_stop_counts_where_a_thread_is_about_to_ask_for_a_session(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(address, topic, 1)
    with Worker(address, topic) as worker:
        core, start, starts = worker._core, worker._core.start, []

        async def start_late(prefetch: int | None = None) -> None:
            starts.append(prefetch)
            while len(starts) > 2 and not core.stopping:
                await asyncio.sleep(0.01)
            await start(prefetch)

        monkeypatch.setattr(core, "start", start_late)
        handled: list[Session] = []

        def handle(session: Session) -> None:
            handled.append(session)
            if len(handled) == 1:
                worker.stop()

        worker.sessions(handle, concurrency=2)
        assert core.stopping


@pytest.mark.parametrize("use", ["run", "sessions", "loop", "batches"])
def test_a_stop_counts_that_came_before(address: str, topic: str, use: str) -> None:
    """SIGTERM may arrive between the handler that stops the worker and the call that works, and end no wait."""
    create(address, topic, 10)
    uses: dict[str, Callable[[Worker], object]] = {
        "run": lambda worker: worker.run(_unexpected, concurrency=2),
        "sessions": lambda worker: worker.sessions(_unexpected, concurrency=2),
        "loop": lambda worker: list(map(_unexpected, worker)),
        "batches": lambda worker: list(map(_unexpected, worker.batches())),
    }
    with Worker(address, topic) as worker:
        worker.stop()
        for _ in range(2):
            uses[use](worker)
        assert not describe(address, topic).workers


def _unexpected(work: object) -> object:
    raise AssertionError(f"a stopped worker got {work}")


def test_a_stopped_worker_still_opens_sessions_whose_loops_end_at_once(address: str, topic: str) -> None:
    create(address, topic, 10)
    with Worker(address, topic) as worker:
        worker.stop()
        with worker.session(b"k3") as session:
            assert list(session) == []
            session.state = b"kept"
        with worker.session(b"k3") as session:
            assert session.state == b"kept"


class EndsItAllError(BaseException):
    pass


def test_the_end_of_a_failed_call_counts_although_a_handler_begins_something_else(address: str, topic: str) -> None:
    """And the program may go on with the worker."""
    create(address, topic, 2)
    both_begun = threading.Barrier(2)
    failing: list[threading.Thread] = []

    def handle(session: Session) -> None:
        if session.key == b"k0":
            failing.append(threading.current_thread())
        both_begun.wait(10)
        if session.key == b"k0":
            raise EndsItAllError
        failing[0].join(10)
        with worker.session(b"another"):
            pass

    with Worker(address, topic) as worker:
        with pytest.raises(EndsItAllError):
            worker.sessions(handle, concurrency=2)
        done: list[bytes | None] = []
        for delivery in worker:
            with delivery:
                done.append(delivery.value)
            if len(done) == 2:
                break


def test_what_ends_one_thread_ends_them_all(address: str, topic: str) -> None:
    create(address, topic, 0)

    def handle(delivery: WorkerDelivery) -> None:
        raise AssertionError("there is nothing to work on")

    def delete_when_it_works() -> None:
        while not describe(address, topic).workers:
            time.sleep(0.02)
        with QueueAdmin(address) as admin:
            admin.delete_queue(topic)

    deleting = threading.Thread(target=delete_when_it_works)
    deleting.start()
    with Worker(address, topic) as worker, pytest.raises(UnknownGroupError):
        worker.run(handle, concurrency=3)
    deleting.join()


def test_ctrl_c_ends_a_run_after_what_is_in_hand(address: str, topic: str) -> None:
    create(address, topic, 10)
    begun = []
    finished = []

    def handle(delivery: WorkerDelivery) -> None:
        begun.append(delivery)
        # In the midst of the start of a thread it would leave that thread alone.
        time.sleep(0.3)
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.5)
        finished.append(delivery)

    def interrupted(worker: Worker) -> None:
        with worker:
            worker.run(handle, concurrency=1)

    # A shell lets what it starts in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(Worker(address, topic))
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) == len(finished) == 1
    counts = describe(address, topic).counts
    assert (counts.acked, counts.in_flight) == (1, 0)


def test_a_signal_is_heard_while_what_is_in_hand_is_waited_for(address: str, topic: str) -> None:
    """Also one that came a moment before the wait, or to another thread, and so does not end it."""
    create(address, topic, 1)
    stops = []
    heard = []
    again = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stops.append(number)
        if len(stops) == 1:
            raise KeyboardInterrupt
        again.set()

    def frame_of_main_thread(code: CodeType) -> FrameType | None:
        frame: FrameType | None = sys._current_frames()[threading.main_thread().ident or 0]
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        return frame

    def main_thread_is_in(code: CodeType) -> bool:
        return frame_of_main_thread(code) is not None

    def is_ending() -> bool:
        frame = frame_of_main_thread(Worker._in_threads.__code__)
        return frame is not None and bool(frame.f_locals["over"].is_set())

    def handle(delivery: WorkerDelivery) -> None:
        until(lambda: main_thread_is_in(sync_worker._wait_for_all.__code__))
        signal.raise_signal(signal.SIGUSR1)  # To this thread.
        until(lambda: is_ending() and main_thread_is_in(sync_worker._wait_for_all.__code__))
        signal.raise_signal(signal.SIGUSR1)
        heard.append(again.wait(10))

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with Worker(address, topic) as worker, pytest.raises(KeyboardInterrupt):
            worker.run(handle)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [True]


def test_a_closed_worker_is_of_no_use(address: str, topic: str) -> None:
    create(address, topic, 1)
    with Worker(address, topic) as worker:
        pass
    with pytest.raises(BrokerUnavailableError, match="closed"):
        next(iter(worker))
    worker.close()


@pytest.mark.parametrize(
    "start",
    [
        lambda worker: worker.run(lambda delivery: None),
        lambda worker: worker.sessions(lambda session: None),
        list,
        lambda worker: list(worker.batches()),
    ],
    ids=["run", "sessions", "loop", "batches"],
)
def test_a_stop_ends_the_wait_for_the_first_connection(unused_tcp_port: int, start: Callable[[Worker], object]) -> None:
    with Worker(f"127.0.0.1:{unused_tcp_port}", "g", request_timeout_seconds=600) as worker:

        def stop() -> None:
            until(lambda: worker._core.link.begun)
            worker.stop()

        stopping = threading.Thread(target=stop)
        stopping.start()
        assert start(worker) in (None, [])
        stopping.join()


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("outer", ["run", "sessions"])
@pytest.mark.parametrize("inner", ["run", "sessions"])
def test_run_in_a_handler_of_the_same_worker_is_refused(address: str, topic: str, outer: str, inner: str) -> None:
    create(address, topic, 3)
    refusals = []
    with Worker(address, topic) as worker:

        def handle(delivery: WorkerDelivery) -> None:
            with pytest.raises(InvalidRequestError, match="in a handler") as refusal:
                getattr(worker, inner)(handle)
            refusals.append(refusal)
            if len(refusals) == 3:
                worker.stop()

        def handle_session(session: Session) -> None:
            for delivery in session:
                with delivery:
                    handle(delivery)

        if outer == "run":
            worker.run(handle)
        else:
            worker.sessions(handle_session)
    assert len(refusals) == 3
    assert describe(address, topic).counts.acked == 3
