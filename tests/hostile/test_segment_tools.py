"""Mutated segment files: `logbroker segment` says what is wrong, in one line, and takes no memory for it."""

from __future__ import annotations

import random
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from logbroker.cli.main import run
from logbroker.record.compression import Codec
from logbroker.record.header import PREFIX_BYTES, stored_prefix
from tests.hostile.batch_mutants import MIB, NOW_MS, bomb_records, mutated_batch, sealed, sound_batch

FILES: Final = 100
SEED: Final = 1
COMMANDS: Final = (
    ("verify",),
    ("verify", "--json"),
    ("dump", "--records"),
    ("dump", "--records", "--json"),
    ("list", "--json"),
    ("stats", "--json"),
    ("find", "--key", "key-1"),
    ("find", "--time", "2023-11-14T22:13:20Z"),
)
_MEMORY_BYTES: Final = 400 * MIB
_LIMITED: Final = (
    "import resource, sys; from logbroker.cli.main import main; "
    f"resource.setrlimit(resource.RLIMIT_DATA, ({_MEMORY_BYTES}, {_MEMORY_BYTES})); main()"
)


@pytest.mark.prove
def test_mutated_segments_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    codes = set()
    for number in range(FILES):
        rng = random.Random(f"{SEED}-{number}")
        directory = tmp_path / f"t{number}-0"
        directory.mkdir()
        log = directory / f"{0:020d}.log"
        log.write_bytes(_mutated_segment(rng))
        for name in (".index", ".timeindex"):
            log.with_suffix(name).write_bytes(rng.choice((b"", rng.randbytes(rng.randrange(100)), bytes(1024))))
        command, *options = rng.choice(COMMANDS)
        try:
            code = run(["segment", command, str(log), *options])
        except BaseException as error:
            error.add_note(f"seed {SEED}, file {number}: segment {command} {' '.join(options)}")
            raise
        error_text = capsys.readouterr().err
        assert (code, error_text.count("\n")) in ((0, 0), (1, 1)), (number, command, options, error_text)
        codes.add((command, code))
    assert {("verify", 0), ("verify", 1), ("dump", 0), ("dump", 1)} <= codes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 200 * 1024


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_segment_of_bombs_does_not_expand(command: str, tmp_path: Path) -> None:
    log = tmp_path / f"{0:020d}.log"
    parts = [_bomb(codec, offset) for offset, codec in enumerate((Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD))]
    log.write_bytes(b"".join(parts))
    options = ["--records"] if command == "dump" else []
    limited = [sys.executable, "-c", _LIMITED, "segment", command, str(log), *options]
    done = subprocess.run(limited, capture_output=True, timeout=60, check=False)
    error = done.stderr.decode()
    assert "Traceback" not in error, error
    assert (done.returncode, error.count("\n")) in ((0, 0), (1, 1)), error


def _mutated_segment(rng: random.Random) -> bytes:
    """Sound batches, with now and then one that is not, or bytes that are none at all."""
    content = b""
    offset = 0
    for _ in range(rng.choice((1, 3, 8))):
        batch = sound_batch(rng)
        if rng.random() < 0.15:
            batch = mutated_batch(rng, batch)
        count = struct.unpack_from(">i", batch, 57)[0] if len(batch) >= 61 else 1
        length = len(batch) - 12
        content += stored_prefix(offset, length, 0) + batch[PREFIX_BYTES:] if rng.random() < 0.95 else batch
        offset = min(max(offset + max(count, 1), 0), 2**40)
    kind = rng.random()
    if kind < 0.1:
        content = content[: rng.randrange(len(content) + 1)]
    elif kind < 0.2:
        content += rng.choice((bytes(100), rng.randbytes(100), content[:80]))
    return content


def _bomb(codec: Codec, offset: int) -> bytes:
    records = bomb_records(codec)
    batch = sealed([offset, 0, 0, 2, 0, codec, 0, NOW_MS, NOW_MS, -1, -1, -1, 1], records)
    assert len(batch) < 2 * MIB
    return batch
