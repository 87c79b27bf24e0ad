"""kcat, which has no program here: it is one."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.interop.kafka.toolchains import MissingToolError
from tests.kafka_api.clients import CODECS, SECONDS, Found, Keyed
from tests.kafka_api.group_checks import Member
from tests.kafka_api.group_member import HEARTBEAT_MS, SESSION_MS

_COMMON: Final = ("-E", "-X", "partitioner=murmur2_random", "-X", "reconnect.backoff.max.ms=200")


def _command(*arguments: str | int) -> list[str]:
    path = shutil.which("kcat")
    if path is None:
        raise MissingToolError("not installed here: kcat")
    return [path, *map(str, arguments)]


class Kcat:
    """Produces and reads as the programs of other languages do."""

    name: Final = "kcat"
    command: Final = property(lambda _: _command())
    codecs: Final = CODECS
    reads: Final = CODECS

    def __repr__(self) -> str:
        return self.name

    def produce(
        self, address: str, topic: str, records: Sequence[Keyed], *,
        codec: str = "none", acks: int = -1, idempotent: bool = False, burst: int = 100, pause_ms: int = 0,
    ) -> list[tuple[int, int, int]]:  # fmt: skip
        """Return the numbers of all records: it does not say which were acknowledged, but fails if any was not."""
        command = _command(
            "-P", "-b", address, "-t", topic, "-K", "\t", "-z", codec, *_COMMON, "-X", f"acks={acks}",
            "-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "linger.ms=5",
        )  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            for first in range(0, len(records), burst):
                for key, value in records[first : first + burst]:
                    process.stdin.write((key or b"") + b"\t" + value + b"\n")
                process.stdin.flush()
                time.sleep(pause_ms / 1000)
            process.stdin.close()
            said = process.stderr.read()
        assert process.returncode == 0, said
        return [(number, -1, -1) for number in range(len(records))]

    def read(self, address: str, topic: str, partitions: int, position: int | str, count: int) -> list[Found]:
        start = {"earliest": "beginning", "latest": "end"}[position] if isinstance(position, str) else f"s@{position}"
        done = subprocess.run(
            _command(
                "-C", "-b", address, "-t", topic, "-o", start, "-c", count, "-q", "-u", "-f", "%p\t%o\t%k\t%s\n",
                "-X", "fetch.wait.max.ms=100",
            ),
            stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=True,
        )  # fmt: skip
        rows = [line.split(b"\t") for line in done.stdout.splitlines()]
        return [Found(int(partition), int(offset), key, value) for partition, offset, key, value in rows]


class KcatMember(Member):
    """A member of a group. It does not say what it is assigned, nor when it handles a record: that is noted here."""

    def __init__(
        self, client: Kcat, address: str, topic: str, group: str, path: Path, *, session_ms: int = SESSION_MS
    ) -> None:
        super().__init__(path)
        command = _command(
            "-G", group, "-b", address, "-q", "-u", "-f", "%p %o %s\n", *_COMMON, "-X", "auto.offset.reset=earliest",
            "-X", f"session.timeout.ms={session_ms}", "-X", f"heartbeat.interval.ms={HEARTBEAT_MS}",
            "-X", "auto.commit.interval.ms=100", "-X", "fetch.wait.max.ms=50", topic,
        )  # fmt: skip
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._noting = threading.Thread(target=self._note)
        self._noting.start()

    def _note(self) -> None:
        assert self._process.stdout is not None
        with self.path.open("a", buffering=1) as notes:
            for line in self._process.stdout:
                notes.write(f"R {time.monotonic_ns()} {line}")
        self._process.stdout.close()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def leave(self) -> None:
        self._process.terminate()
        assert self._end() == 0, f"{self.path.name} ended with {self._process.returncode}"

    def _end(self) -> Any:
        code = self._process.wait(30)
        self._noting.join()
        return code


KCAT: Final = Kcat()
