"""Lives of a broker's engine on one directory: one that a fault ends, and the next, which must have all it promised.

`python -m tests.faults.engine_lives [PLANT]` kills a life at every call which changes a file, and its
successor at a call of its recovery. Each is a process of its own, forked from one that has all modules loaded: a start
from scratch would take ten times as long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.broker.local_engine.state_store import LocalStateStore
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.errors import LogbrokerError
from logbroker.storage.metadata.metadata_store import MetadataReader
from tests.fast_directory import fast_directory
from tests.faults.engine_checker import Expected, check_files
from tests.faults.engine_plants import PLANTS
from tests.faults.engine_trace import STEPS, Step, Trace, read_notes
from tests.faults.hooked_files import CALLS, SHORT, Fail, Kill, install

_ENDED: Final = 7
"""The exit code of a life that came to its end."""
_STRIDE_WITH_PLANT: Final = 3

Work = Callable[[LocalEngine, LocalStateStore], Awaitable[Any]]


async def with_engine(data_dir: Path, work: Work, failures: list[Exception] | None = None) -> Any:
    """Open an engine, work with it, stop it. Where `failures` is given they are added there, else none may be."""
    reported: list[Exception] = [] if failures is None else failures
    # One thread: the calls of two lives come in the same order. No upkeep but what the steps ask for.
    config = BrokerConfig(data_dir=str(data_dir), sync_threads=1, checkpoint_seconds=3600.0, min_free_disk_bytes=0)
    async with open_engine(config, SystemClock(), reported.append) as opened:
        result = await work(*opened)
    assert failures is not None or not reported, reported
    return result


def traced(notes: Path, steps: Sequence[Step]) -> Work:
    """The work of the first life."""
    return lambda engine, state: Trace(engine, state, notes).run(steps)


async def only_start(_engine: LocalEngine, _state: LocalStateStore) -> None:
    """The work of a life in which nothing but recovery happens."""


def check_life(data_dir: Path, notes: Path, *, files: bool = True) -> None:
    """Compare what the next life has with the notes of those before; `files`: and verify its files after its stop."""
    expected = Expected(read_notes(notes) if notes.exists() else [])
    contents = asyncio.run(with_engine(data_dir, expected.check))
    if files:
        check_files(data_dir, set(contents))


# --- killed --------------------------------------------------------------------------------------------------------


def killed_life(data_dir: Path, nth: int, work: Work) -> bool:
    """Live in a process that is killed at the Nth call; returns whether it came to that."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            install(Kill(nth))
            asyncio.run(with_engine(data_dir, work))
            code = _ENDED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (-signal.SIGKILL, _ENDED), f"the process ended with {code}"
    return code != _ENDED


def kill_everywhere(
    directory: Path,
    steps: Sequence[Step],
    nth_in_recovery: Callable[[int], int],
    *,
    stride: int = 1,
    verify_each: int = 1,
) -> Counter[str]:
    """Kill a life at every `stride`th call, and its successor at a call of its recovery (0: not); returns figures.

    The files of every `verify_each`th are verified. Raises AssertionError or LogbrokerError where a promise is broken.
    """
    figures: Counter[str] = Counter()
    data_dir, notes = directory / "data", directory / "notes"
    for nth in count(stride, stride):
        again = nth_in_recovery(nth)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        try:
            if not killed_life(data_dir, nth, traced(notes, steps)):
                break
            figures["kills"] += 1
            figures["kills in recovery"] += bool(again) and killed_life(data_dir, again, only_start)
            check_life(data_dir, notes, files=nth % verify_each == 0)
        except Exception as error:
            error.add_note(f"killed at call {nth}, and in the recovery at call {again}; see {directory}")
            raise
    return figures


# --- failing -------------------------------------------------------------------------------------------------------


def failing_life(directory: Path, steps: Sequence[Step], kind: str, error_number: int, nth: int) -> bool:
    """Let the Nth call of a kind fail, and check what the next life has; returns whether it came to that."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    data_dir, notes = directory / "data", directory / "notes"
    fault = Fail(CALLS[kind], error_number, nth)
    failures: list[Exception] = []
    raised: LogbrokerError | None = None
    remove = install(fault)
    try:
        asyncio.run(with_engine(data_dir, traced(notes, steps), failures))
    except LogbrokerError as error:
        raised = error
    finally:
        remove()
    try:
        assert not (fault.failed and error_number == SHORT and failures), "a short write is gone on with"
        assert fault.failed or not (failures or raised)
        if failures or raised:
            assert not clean_stop_is_marked(data_dir), "a clean stop is marked"
        check_life(data_dir, notes)
    except Exception as error:
        error.add_note(f"call {nth} of {kind} failed with {error_number}: {raised or failures or 'refused'}")
        raise
    return fault.failed


def clean_stop_is_marked(data_dir: Path) -> bool:
    reader = MetadataReader.open(data_dir / "meta")
    try:
        return reader.get("broker", b"clean-stop") is not None
    finally:
        reader.close()


def main() -> None:
    logging.getLogger("logbroker").setLevel(logging.CRITICAL)
    plants = sys.argv[1:]
    for plant in plants:
        PLANTS[plant]()
    stride = _STRIDE_WITH_PLANT if plants else 1
    with fast_directory() as directory:
        figures = kill_everywhere(
            directory / "life", STEPS, lambda nth: (nth % 3 == 0) * (1 + nth % 23), stride=stride, verify_each=4
        )
    print(dict(figures))  # noqa: T201


if __name__ == "__main__":
    main()
