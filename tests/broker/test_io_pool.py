"""The threads of the group commit: every job runs once, completions run on the loop in order, closing waits."""

from __future__ import annotations

import asyncio
import threading

from logbroker.broker.local_engine.io_pool import IoPool


async def test_every_job_runs_once_and_completes_on_the_loop() -> None:
    pool = IoPool(4)
    loop_thread = threading.get_ident()
    done: list[int] = []
    all_done = asyncio.Event()

    def job(number: int) -> None:
        assert threading.get_ident() != loop_thread
        pool.complete(lambda: finish(number))

    def finish(number: int) -> None:
        assert threading.get_ident() == loop_thread
        done.append(number)
        if len(done) == 2000:
            all_done.set()

    for number in range(2000):
        pool.submit(lambda number=number: job(number))  # type: ignore[misc]
        if number % 7 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await all_done.wait()
    assert sorted(done) == list(range(2000))
    pool.close()


async def test_jobs_run_side_by_side() -> None:
    pool = IoPool(3)
    meeting = threading.Barrier(3, timeout=25)
    finished = threading.Semaphore(0)

    def job() -> None:
        meeting.wait()
        finished.release()

    for _ in range(3):
        pool.submit(job)
    for _ in range(3):
        assert await asyncio.to_thread(finished.acquire, timeout=25)
    pool.close()


async def test_closing_finishes_what_was_submitted() -> None:
    pool = IoPool(1)
    gate = threading.Event()
    done: list[str] = []

    def first() -> None:
        assert gate.wait(25)
        pool.complete(lambda: done.append("first"))

    pool.submit(first)
    pool.submit(lambda: pool.complete(lambda: done.append("second")))
    threading.Timer(0.05, gate.set).start()
    pool.close()
    assert done == ["first", "second"]
