"""The file that says which numbers may have been given out: whole, or as good as lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from logbroker.errors.system import system_error_text
from logbroker.storage.files import RealFiles
from logbroker.storage.handles import HandleCache
from logbroker.storage.metadata.issued_numbers import (
    ISSUED_NAME,
    IssuedNumbers,
    decode_issued,
    encode_issued,
    read_issued,
    write_issued,
)
from tests.storage.faulty_files import FaultyFiles

SOME = IssuedNumbers(7_291_338_260_480, 2001)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    files = RealFiles()
    assert read_issued(str(tmp_path), files) is None
    for issued in (SOME, IssuedNumbers((1 << 63) - 1, 1 << 62), IssuedNumbers(1, 1)):
        write_issued(str(tmp_path), issued, files, HandleCache(files, 4))
        assert read_issued(str(tmp_path), files) == issued
    assert [path.name for path in tmp_path.iterdir()] == [ISSUED_NAME]


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = encode_issued(SOME)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_issued(bytes(damaged)) is None
    for size_bytes in range(len(content)):
        assert decode_issued(content[:size_bytes]) is None
    (tmp_path / ISSUED_NAME).write_bytes(content[1:])
    assert read_issued(str(tmp_path), RealFiles()) is None
    assert "is damaged" in caplog.text


def test_a_failed_read_names_the_file(tmp_path: Path) -> None:
    files = FaultyFiles()
    write_issued(str(tmp_path), SOME, files, HandleCache(files, 4))
    files.fail("pread", errno.EIO)
    with pytest.raises(OSError, match="Input/output") as failed:
        read_issued(str(tmp_path), files)
    assert system_error_text(failed.value).startswith(f"cannot use {tmp_path / ISSUED_NAME}: Input/output error; check")
