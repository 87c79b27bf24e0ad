"""Log files as Kafka's own code reads them: the FileRecords of its Java client, in a process of its own.

Needs Java 11 with its compiler, Maven, and once the registry that Maven is set up with; `trouble` says what is missing.
"""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import google_crc32c
import msgspec

from logbroker.record.codec import LogRecord, decode_batch
from logbroker.record.compression import Codec
from logbroker.record.header import LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from logbroker.tools.segments.locate import segment_file
from logbroker.tools.segments.reading import SegmentReading

_HERE: Final = Path(__file__).resolve().parent
_RESOLVE: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
_DOWNLOAD_SECONDS: Final = 30
_READ_SECONDS: Final = 300
_BATCH: Final = struct.Struct(">qqiqhiqb???")


class ReadFile(msgspec.Struct):
    """Contents of one log file, as a reader found them. Equal where two readers saw the same."""

    batches: int = 0
    records: int = 0
    next_offset: int = -1
    """-1: there is no batch."""
    digest: int = 0
    """CRC-32C over all fields of batches and records, in the order that ReadLog.java has."""
    codecs: list[str] = []
    error: str = ""
    """Why it read no further, in its own words."""


def trouble() -> str:
    """Say why Kafka's reader cannot be asked; empty: it can."""
    return _class_path()[1]


def read_with_kafka(paths: Sequence[Path]) -> list[ReadFile]:
    """Read log files with Kafka's code, in one run of Java. Only where there is no `trouble`."""
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", _class_path()[0]]
    done = subprocess.run(
        [*command, str(_HERE / "ReadLog.java")],
        input="".join(f"{path}\n" for path in paths),
        capture_output=True,
        encoding="utf-8",
        timeout=_READ_SECONDS,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == len(paths)
    return [msgspec.json.decode(line, type=ReadFile) for line in lines]


def read_with_ours(path: Path) -> ReadFile:
    """Read a log file with the segment tools."""
    reading = SegmentReading(segment_file(path), lambda _bytes: None)
    found = ReadFile()
    codecs = set()
    for batch in reading.batches():
        header = batch.header
        codecs.add(Codec(header.codec).name.lower())
        records = list(decode_batch(batch.log.read(batch.position, header.size_bytes)))
        found.batches += 1
        found.records += len(records)
        found.next_offset = header.next_offset
        found.digest = google_crc32c.extend(found.digest, _seen(header, records))
    found.codecs = sorted(codecs)
    found.error = "; ".join(f"byte {fault.position}: {fault.reason}" for fault in reading.faults)
    return found


def compare(paths: Iterable[Path]) -> int:
    """Read files with both; returns their number. Raises AssertionError where Kafka's code reads anything else."""
    files = sorted(paths)
    for path, theirs in zip(files, read_with_kafka(files), strict=True):
        ours = read_with_ours(path)
        assert not theirs.error, f"{path}: Kafka's reader says: {theirs.error}"
        assert theirs == ours, f"{path}: Kafka's reader sees {theirs}, ours {ours}"
    return len(files)


def _seen(header: BatchHeader, records: Sequence[LogRecord]) -> bytes:
    parts = [
        _BATCH.pack(
            header.base_offset,
            header.next_offset - 1,
            header.leader_epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.max_timestamp_ms,
            header.codec,
            bool(header.attributes & LOG_APPEND_TIME_FLAG),
            bool(header.attributes & TRANSACTIONAL_FLAG),
            header.is_control,
        )
    ]
    for record in records:
        parts += [struct.pack(">qq", record.offset, record.timestamp_ms), _blob(record.key), _blob(record.value)]
        parts.append(struct.pack(">i", len(record.headers)))
        for name, value in record.headers:
            parts += [_blob(name.encode("utf-8")), _blob(value)]
    return b"".join(parts)


def _blob(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


@functools.cache
def _class_path() -> tuple[str, str]:
    """The jars to run with, and what is missing for that; found out once a process."""
    for program, name in (("java", "Java"), ("mvn", "Maven")):
        if shutil.which(program) is None:
            return "", f"{name} is not installed, so Kafka's own reader cannot be asked"
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, encoding="utf-8", check=False)
    if modules.returncode or "jdk.compiler" not in modules.stdout:
        return "", "this Java is older than 11 or has no compiler, so Kafka's own reader cannot be asked"
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "class-path")
        command = ["mvn", "--quiet", "--batch-mode", "--strict-checksums", "--file", str(_HERE / "pom.xml")]
        try:
            done = subprocess.run(
                [*command, _RESOLVE, f"-Dmdep.outputFile={output}"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_DOWNLOAD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "", f"Maven did not get the kafka-clients jar within {_DOWNLOAD_SECONDS} s"
        if done.returncode:
            return "", "Maven cannot get the kafka-clients jar; is its registry in reach?"
        return output.read_text(encoding="utf-8").strip(), ""
