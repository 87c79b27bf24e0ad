"""Programs with Kafka clients of other languages, and how they are told what to do.

A program reads commands from its standard input, one line of JSON each, carries them out one after the other, and
answers each with a line: {"answer": ...} or {"error": "..."}. Each command names what to do and the address.

    produce   topic, records ([key, value] each), codec, acks, idempotent; it rests for `pause_ms` after each `burst`
              of records, waits for the answers after each `wait_every` records, and answers which were acknowledged:
              [number, partition, offset] each, -1 where it cannot know
    consume   topic, partitions, from ("earliest", "latest" or a time in ms), count; it answers with the records, as
              soon as there are as many: [partition, offset, key, value] each
    group     topic, group, session_ms, protocol, instance_id, assignor ("range", "cooperative-sticky" or "", which is
              the client's own); it is a member until another line comes, or no more can come, and writes the lines of
              tests/kafka_api/group_member.py meanwhile
    create    topic, partitions, configs
    manage    topic, retention_ms, partitions; it alters the retention, tries to alter a config that does not exist,
              grows the topic, deletes records, and answers what it sees, with the names of test_admin_clients.Report
    delete    topic
    tool      tool, arguments, input; the program for Java runs one of Kafka's tools, and answers with its exit code
              and what it wrote
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from tests.interop.kafka.toolchains import program_command
from tests.kafka_api import test_admin_clients as admins
from tests.kafka_api.clients import CODECS, Found, Keyed
from tests.kafka_api.group_checks import Member
from tests.kafka_api.group_member import SESSION_MS

ANSWER_SECONDS: Final = 90.0


class Program:
    """A program that runs, and works for as many tests as it may."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, encoding="utf-8", bufsize=1
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def ask(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        try:
            said = json.loads(self._lines.get(timeout=ANSWER_SECONDS) or "{}")
        except queue.Empty:
            said = {"error": "no answer came"}
        assert "answer" in said, f"{command['do']}: {said.get('error', 'it has ended')}\n{self._last_errors()}"
        return said["answer"]

    def _last_errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode(errors="replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reading.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._errors.close()


@dataclass(frozen=True)
class ForeignClient:
    """A Kafka client of another language."""

    name: str
    language: str
    codecs: Sequence[str] = CODECS
    """Those in which it writes, and reads what it has written."""
    reads: Sequence[str] = CODECS
    """Those in which it reads what other clients have written."""
    describes_more: bool = False
    """Whether its report has log directories and producers."""

    def __repr__(self) -> str:
        return self.name

    @property
    def command(self) -> list[str]:
        return [*program_command(self.language), self.name]

    def ask(self, **command: Any) -> Any:
        program = _running.get(self.name)
        if program is None:
            program = _running[self.name] = Program(self.command)
        try:
            return program.ask(**command)
        except BaseException:
            del _running[self.name]  # The next test gets one that does as it is told.
            program.close()
            raise

    def produce(
        self, address: str, topic: str, records: Sequence[Keyed], *,
        codec: str = "none", acks: int = -1, idempotent: bool = False, burst: int = 100, pause_ms: int = 0,
    ) -> list[tuple[int, int, int]]:  # fmt: skip
        """Return number, partition and offset of each record that was acknowledged."""
        sent = [(None if key is None else key.decode(), value.decode()) for key, value in records]
        acknowledged = self.ask(
            do="produce", address=address, topic=topic, records=sent, codec=codec, acks=acks, idempotent=idempotent,
            burst=burst, pause_ms=pause_ms, wait_every=10 * burst,
        )  # fmt: skip
        return [(number, partition, offset) for number, partition, offset in acknowledged]

    def create(self, address: str, topic: str) -> None:
        self.ask(do="create", address=address, topic=topic, partitions=admins.PARTITIONS, configs=admins.CREATED)

    def manage(self, address: str, topic: str) -> admins.Report:
        retention_ms = admins.ALTERED["retention.ms"]
        seen = self.ask(do="manage", address=address, topic=topic, partitions=admins.GROWN, retention_ms=retention_ms)
        latest = seen.get("latest")
        return admins.Report(
            nodes=seen["nodes"],
            configs=seen["configs"],
            refusal=seen["refusal"],
            partitions=seen["partitions"],
            low_watermarks=_by_number(seen["low_watermarks"]),
            log_dirs={path: _by_number(sizes) for path, sizes in seen.get("log_dirs", {}).items()},
            producers=[(producer_id, sequence) for producer_id, sequence in seen.get("producers", [])],
            latest=(latest[0], latest[1]) if latest else None,
        )

    def delete(self, address: str, topic: str) -> None:
        self.ask(do="delete", address=address, topic=topic)

    def read(self, address: str, topic: str, partitions: int, position: int | str, count: int) -> list[Found]:
        rows = self.ask(
            do="consume", address=address, topic=topic, partitions=partitions, count=count, **{"from": position}
        )
        return [
            Found(partition, offset, None if key is None else key.encode(), value.encode())
            for partition, offset, key, value in rows
        ]


def _by_number(found: dict[str, int]) -> dict[int, int]:
    return {int(partition): value for partition, value in found.items()}


_running: Final[dict[str, Program]] = {}
"""Running programs by client."""


def end_programs() -> None:
    while _running:
        _running.popitem()[1].close()


class MemberProgram(Member):
    """A member of a group in a program of its own."""

    def __init__(
        self, client: ForeignClient, address: str, topic: str, group: str, path: Path, *,
        instance_id: str = "", protocol: str = "classic", assignor: str = "", session_ms: int = SESSION_MS,
    ) -> None:  # fmt: skip
        super().__init__(path)
        with path.open("a") as notes, path.with_suffix(".errors").open("w") as errors:
            self._process = subprocess.Popen(
                client.command, stdin=subprocess.PIPE, stdout=notes, stderr=errors, encoding="utf-8", bufsize=1
            )
        assert self._process.stdin is not None
        self._orders = self._process.stdin
        command = {
            "do": "group", "address": address, "topic": topic, "group": group, "session_ms": session_ms,
            "protocol": protocol, "instance_id": instance_id, "assignor": assignor,
        }  # fmt: skip
        self._orders.write(json.dumps(command) + "\n")

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._orders.close()

    def leave(self) -> None:
        self._orders.write("leave\n")
        self._orders.close()
        assert self._process.wait(60) == 0, f"{self.path.name} ended with {self._process.returncode}"
        assert '{"answer":"left"}' in self.path.read_text(), f"{self.path.name} did not leave"


CLIENTS: Final = (
    ForeignClient("java", "java", describes_more=True),
    ForeignClient("franz-go", "go", describes_more=True),
    ForeignClient("sarama", "go"),
    ForeignClient("kafkajs", "node"),
    # Node.js knows zstd from 22.15 on. The client does not know the blocks in which others write snappy.
    ForeignClient("@platformatic/kafka", "node", ("none", "gzip", "snappy", "lz4"), ("none", "gzip", "lz4")),
)
