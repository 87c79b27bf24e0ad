"""Runs a broker with its listeners, and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from logbroker import __version__
from logbroker.broker.broker import open_broker
from logbroker.broker.frozen_heap import FrozenHeap
from logbroker.broker.listener import ProtocolListener
from logbroker.broker.process_tuning import tune_process
from logbroker.config import BrokerConfig
from logbroker.errors import StorageFailedError

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def serve(
    config: BrokerConfig,
    listeners: Sequence[ProtocolListener],
    *,
    on_ready: Callable[[Mapping[str, str]], None],
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set. `on_ready` is called with HOST:PORT of each listener once all of them answer.

    Raises ListenError, DataDirError or CorruptLogError at start. Raises StorageFailedError if storage fails later:
    nothing more is acknowledged then, and the process must end.
    """
    for listener in listeners:
        await listener.check()  # Before a data directory is made.
    tune_process(config.thread_switch_interval_seconds)
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with AsyncExitStack() as stack:
        opened = stack.enter_async_context(open_broker(config, failure))
        # A gateway may wait for its cluster.
        broker = await (_unless_stopped(opened, stop) if config.cluster else opened)
        if broker is None:
            _log.info("stopped before it has served")
            return
        addresses: dict[str, str] = {}
        heap = FrozenHeap()
        try:
            for listener in listeners:
                addresses[listener.name] = str(await listener.start(broker))
            await _unless_stopped(broker.homes.join(addresses.get("grpc", "")), stop)
            heap.start()
            try:
                if not stop.is_set():
                    _log.info(
                        "logbroker %s serves on %s: %s, process %d",
                        *(__version__, ", ".join(addresses.values()), _kept_in(config), os.getpid()),
                    )
                    on_ready(addresses)
                failure.add_done_callback(lambda _: stop.set())
                await stop.wait()
            finally:
                heap.stop()
        finally:
            for home in broker.homes.all():
                home.freeze()
            await asyncio.gather(*(listener.stop(failed=failure.done()) for listener in listeners))
    if failure.done():
        raise StorageFailedError(f"the broker stopped because its storage failed: {failure.exception()}")
    _log.info("stopped cleanly")


async def _unless_stopped(work: Awaitable[T], stop: asyncio.Event) -> T | None:
    """Return the result of `work`, or None if `stop` is set before: `work` is cancelled then."""
    task = asyncio.current_task()
    assert task is not None
    watching = asyncio.create_task(stop.wait())
    watching.add_done_callback(lambda done: None if done.cancelled() else task.cancel())
    try:
        return await work
    except asyncio.CancelledError:
        if not watching.done() or watching.cancelled():
            raise
        task.uncancel()
        return None
    finally:
        watching.cancel()


def _kept_in(config: BrokerConfig) -> str:
    return f"cluster {config.cluster}" if config.cluster else f"data directory {Path(config.data_dir).absolute()}"
