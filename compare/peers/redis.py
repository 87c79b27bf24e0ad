"""Redis Streams, by redis-py with hiredis."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from compare.load import (
    Job,
    Load,
    Published,
    Stopwatch,
    Worked,
    WorkLog,
    pace,
    shard_names,
    shard_of,
)
from compare.peers.peer import Peer
from compare.peers.server import HOST, ServerProcess, free_port
from compare.tally import Tally
from logbroker.errors import LogbrokerError
from logbroker.types import Durability

READ_COUNT: Final = 1000
_GROUP: Final = "workers"
_BLOCK_MS: Final = 20
_FSYNC: Final = {Durability.WRITTEN: "everysec", Durability.SYNCED: "always"}


class RedisClient:
    """Pipelines of up to 1,000 XADD, one for each record. A shard is a stream of its own."""

    def __init__(self, address: str) -> None:
        # Only the processes that use a client library import it.
        import redis

        self._address = address
        self._module = redis

    def _connect(self) -> Any:
        host, _, port = self._address.rpartition(":")
        return self._module.Redis(host=host, port=int(port))

    def create(self, topic: str, shards: int, durability: Durability) -> None:
        """A stream is made by its first record."""

    def publish(self, load: Load) -> Published:
        names = shard_names(load.topic, load.shards)
        with self._connect() as connection:
            connection.ping()
            records, start = 0, time.perf_counter()
            for chunk in load.chunks():
                pipe = connection.pipeline(transaction=False)
                add = pipe.execute_command
                for value in chunk:
                    add("XADD", names[shard_of(value, load.shards)] if load.keyed else load.topic, "*", "v", value)
                pipe.execute()
                records += len(chunk)
            return Published(records, time.perf_counter() - start)

    def count(self, topic: str, shards: int) -> int:
        with self._connect() as connection:
            return sum(int(connection.xlen(name)) for name in shard_names(topic, shards))

    def replay(self, topic: str, records: int) -> float:
        with self._connect() as connection:
            connection.ping()
            count, last = 0, b"0"
            start = time.perf_counter()
            while count < records:
                # Raw: without redis-py's callback, which would make a dictionary of each record.
                [[_, entries]] = self._read(connection, [topic], [last])
                for _entry, (_field, _value) in entries:
                    count += 1
                last = entries[-1][0]
            return time.perf_counter() - start

    @staticmethod
    def _read(connection: Any, names: Sequence[str], last: Sequence[bytes], block_ms: int | None = None) -> Any:
        block = () if block_ms is None else ("BLOCK", block_ms)
        return _raw(connection, "XREAD", "COUNT", READ_COUNT, *block, "STREAMS", *names, *last)

    def latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        watch = Stopwatch(records)

        def receive() -> None:
            last = b"0"
            with self._connect() as connection:
                while True:
                    for _, entries in self._read(connection, [topic], [last], 1000) or ():
                        last = entries[-1][0]
                        if [watch.see(value) for _, (_, value) in entries][-1]:
                            return

        receiving = threading.Thread(target=receive, daemon=True)
        receiving.start()
        with self._connect() as connection:
            for due in pace(records, per_second):
                pipe = connection.pipeline(transaction=False)
                for number, sent in due:
                    pipe.execute_command("XADD", topic, "*", "v", watch.value(number, sent))
                pipe.execute()
        receiving.join(60)
        return watch.result()

    def prepare(self, job: Job) -> None:
        with self._connect() as connection:
            for name in shard_names(job.topic, job.shards):
                connection.xgroup_create(name, _GROUP, id="0", mkstream=True)

    def work(self, job: Job, tally: Tally) -> Worked:
        seen = WorkLog(tally.handed)
        names = shard_names(job.topic, job.shards)
        if job.kind == "ordered":
            names = [names[shard] for shard in job.own_shards]
        group = ("XREADGROUP", "GROUP", _GROUP, f"worker-{job.worker}", "COUNT", READ_COUNT)
        ids = [">"] * len(names)
        with self._connect() as connection:
            while not tally.done:
                streams = _raw(connection, *group, "BLOCK", _BLOCK_MS, "STREAMS", *names, *ids)
                pipe = connection.pipeline(transaction=False)
                for name, entries in streams or ():
                    for _, (_, value) in entries:
                        seen.see(value)
                    pipe.execute_command("XACK", name, _GROUP, *(entry for entry, _ in entries))
                if streams:
                    acknowledged = sum(pipe.execute())
                    seen.last = time.monotonic()
                    tally.add(acknowledged)
        return seen.result()


def _raw(connection: Any, *command: Any) -> Any:
    """A command's answer as hiredis parsed it."""
    pool = connection.connection_pool
    link = pool.get_connection()
    try:
        link.send_command(*command)
        answer = link.read_response()
    finally:
        pool.release(link)
    if isinstance(answer, Exception):
        raise LogbrokerError(f"redis refused {command[0]}: {answer}")
    return list(answer.items()) if isinstance(answer, dict) else answer


def _server(directory: Path, durability: Durability) -> ServerProcess:
    port = free_port()
    command = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(directory), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", _FSYNC[durability]]
    return ServerProcess(command, address=f"{HOST}:{port}", directory=directory)


def _version() -> str:
    words = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout.split()
    return next(word.removeprefix("v=") for word in words if word.startswith("v="))


PEER: Final = Peer(
    name="redis",
    title="Redis Streams",
    promises={
        Durability.WRITTEN: "appendonly yes, appendfsync everysec: synced once a second; answered after write, but "
        "while a sync lasts up to 2 s before it",
        Durability.SYNCED: "appendonly yes, appendfsync always: synced once for all that a turn of its loop has read",
    },
    client_settings="redis-py with hiredis, pipelines of 1,000 XADD one after the other; XREAD and XREADGROUP with "
    f"COUNT {READ_COUNT:,}",
    notes={
        "work": "one XACK with the ids of all records that an XREADGROUP gave",
        "ordered": "8 streams by key, each read by one worker that the program appoints; nobody takes over "
        "where it dies",
        "memory": "Redis keeps all data in memory",
    },
    cannot={"group": "a stream has no partitions"},
    binaries=("redis-server",),
    modules=("redis", "hiredis"),
    install="make peers; apt-get install redis-server",
    version=_version,
    server=_server,
    client=RedisClient,
)
