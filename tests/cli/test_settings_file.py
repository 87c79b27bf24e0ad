"""A file of settings that is none, or names what cannot be: one line that names the file, at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from logbroker.config import load_broker_config
from logbroker.errors import ConfigFileError
from tests.cli.command import failure_of

WRONG = {
    "nested arrays": b"a = " + b"[" * 100_000,
    "nested arrays in lines": b"a = " + b"[\n" * 20_000,
    "nested tables": b"a = " + b"{a=" * 1_000,
    "arrays that nest within what Python takes": b"data_dir = " + b"[" * 300 + b"]" * 300,
    "dots": b"a" + b".a" * 100_000 + b" = 1",
    "dots of a line": b"a" + b".a" * 1_900 + b" = 1",
    "dots in lines": b"\n".join(b"a%d%s = 1" % (line, b".a" * 1_900) for line in range(15)),
    "dots of a config": b"topic_defaults" + b".a" * 900 + b" = 1",
    "a name of a thousand characters": b"a" * 1_000 + b" = 1",
    "a path with NUL": b'data_dir = "a\\u0000b"',
    "an empty path": b'data_dir = ""',
    "thousands of digits": b"max_groups = " + b"9" * 5_000,
    "digits that Python writes": b"max_groups = " + b"9" * 4_000,
    "digits that Python does not write": b"max_groups = 0x" + b"f" * 4_000,
    "digits of a config": b'[topic_defaults]\n"retention.ms" = 0x' + b"f" * 4_000,
    "a number that is none": b"checkpoint_seconds = nan",
    "a number without end": b"checkpoint_seconds = " + b"9" * 400 + b".0",
    "a program": b"\x7fELF\x02\x01\xff\x00",
    "zeros": bytes(1_000),
    "much": b"# \n" * 1_000_000,
    "escapes": b'"\\u001b[31m\\u202e" = 1',
    "half of a character": b'data_dir = "\\ud800"',
}


def refusal(path: Path) -> str:
    with pytest.raises(ConfigFileError) as failed:
        load_broker_config(path)
    return str(failed.value)


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_holds_no_settings(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_bytes(WRONG[wrong])
    told = refusal(path)
    assert str(path) in told
    assert len(told) < 1_500
    assert "sys." not in told


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe, tmp_path / "none", Path("/dev/zero"), Path("/proc/self/mem"), Path(sys.executable)):
        if path in (tmp_path, pipe) or not path.is_relative_to("/proc") or path.exists():
            assert str(path) in refusal(path)


def test_a_pipe_of_a_shell_is_a_file(tmp_path: Path) -> None:
    """As in `--config <(sops --decrypt logbroker.yaml)`."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"max_groups = 7\n")
    os.close(write_end)
    try:
        assert load_broker_config(Path(f"/dev/fd/{read_end}")).max_groups == 7
    finally:
        os.close(read_end)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('checkpoint_seconds = "x"', "checkpoint_seconds must be a number, not a string"),
        ("default_partitions = true", "default_partitions must be a whole number, not true or false"),
        ("listen = [1]", "listen must be a string, not a list"),
        ("topic_defaults = 1", "topic_defaults must be a table, not a whole number"),
    ],
)
def test_a_wrong_type_is_told_in_plain_words(tmp_path: Path, line: str, wrong: str) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_text(line)
    assert refusal(path) == f"{path}: {wrong}"


def test_what_is_wrong_is_told_by_the_command(tmp_path: Path) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_bytes(WRONG["a path with NUL"])
    assert failure_of("serve", "--config", path) == (f"logbroker: {path}: data_dir is 'a\\x00b': name a directory")
