"""Whatever stands on the command line, what is wrong with it is told in one line: all options of all commands."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import uuid
from pathlib import Path

import click
import pytest

from logbroker.cli.common.arguments import Whole
from logbroker.cli.main import run
from logbroker.client.sync import Admin, Producer, QueueAdmin
from tests.cli.command import ENVIRONMENT, LOGBROKER, line_of
from tests.cli.commands import Parameter, parameters

ALL = list(parameters())
_TEXTS = (click.types.StringParamType, click.Path, click.File, click.Choice, click.types.BoolParamType)
NUMBERS = [each for each in ALL if not isinstance(each.parameter.type, _TEXTS)]
"""Counts, offsets, seconds, shares, and types of their own that numbers are part of."""
HOSTILE_NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1e400",
    str(2**63),
    str(-(2**63) - 1),
    str(2**64),
    "9" * 5000,
    "1_0",
    "\u0663",
    " 5",
    "0x10",
    "",
    "five",
    "\udcff",
    "1:" + str(2**63),
    str(2**31) + ":0",
    "hot=" + str(2**31),
    "1,nan,2",
    "1,2",
)
NOT_UTF8 = os.fsdecode(b"a\xff\x1b[31m")
ANY_BYTES = {
    "queue explain key",
    "queue resume keys",
    "queue skip keys",
    "queue drop keys",
    "queue replace key",
    "queue split key",
    "queue unsplit key",
    "queue replace --value",
    "queue redrive --key",
    "queue letters --key",
    "queue work --exec",
    "segment find --key",
    "produce --key-separator",
}
"""Keys and values of records, and commands of the shell. All other texts are names that the broker takes in UTF-8."""
TEXTS = [
    each
    for each in ALL
    if isinstance(each.parameter.type, (click.types.StringParamType, click.Choice)) and str(each) not in ANY_BYTES
]


def refusal(capsys: pytest.CaptureFixture[str], each: Parameter, value: str) -> str:
    """Run a command line that is wrong in one argument; return what is told of it."""
    arguments = each.called_with(value)
    assert run(arguments) == 2, arguments
    out, err = capsys.readouterr()
    assert not out
    (line,) = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert line == err.splitlines()[-1]
    named = (
        each.parameter.opts[0]
        if isinstance(each.parameter, click.Option)
        else each.parameter.make_metavar(click.Context(each.command)).rstrip(".").strip("[]")
    )
    assert line.startswith("Error: Invalid value for "), line
    assert named in line, line
    assert line.isprintable(), line
    assert len(line) < 500, line
    return line


def test_no_help_shows_a_bound_that_is_none() -> None:
    for each in ALL:
        assert "=None" not in str(each.parameter.get_help_record(click.Context(each.command))), each


def test_the_walk_finds_the_commands() -> None:
    assert len(NUMBERS) > 100
    assert len(TEXTS) > 50
    assert {str(each) for each in ALL} >= ANY_BYTES


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("each", NUMBERS, ids=str)
def test_a_number_that_none_can_hold_is_a_wrong_argument(capsys: pytest.CaptureFixture[str], each: Parameter) -> None:
    for value in HOSTILE_NUMBERS:
        refusal(capsys, each, value)


@pytest.mark.parametrize("each", NUMBERS, ids=str)
def test_a_default_is_within_its_own_bounds(each: Parameter) -> None:
    context = click.Context(each.command)
    default = each.parameter.get_default(context)
    if isinstance(default, int | float | str | tuple):
        each.parameter.type_cast_value(context, default)


_IS_OFFSET = re.compile("(first|below this) offset", re.IGNORECASE)


def test_every_offset_can_be_named() -> None:
    """Offsets are 64 bits wide; a number that need not fit there has 32."""
    named = [
        each
        for each in NUMBERS
        if isinstance(each.parameter.type, Whole) and _IS_OFFSET.search(getattr(each.parameter, "help", None) or "")
    ]
    assert {"segment dump --from", "topic delete-records --before"} <= set(map(str, named))
    for each in named:
        assert each.parameter.type.convert(str(2**63 - 1), each.parameter, None) == 2**63 - 1, each


@pytest.mark.parametrize("each", TEXTS, ids=str)
def test_a_text_that_is_not_utf8_is_a_wrong_argument(capsys: pytest.CaptureFixture[str], each: Parameter) -> None:
    refusal(capsys, each, NOT_UTF8)


@pytest.mark.parametrize(
    "each",
    [each for each in ALL if isinstance(each.parameter.type, click.Path)],
    ids=str,
)
def test_an_empty_path_is_a_wrong_argument(capsys: pytest.CaptureFixture[str], each: Parameter) -> None:
    refusal(capsys, each, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("queue", "create", "g", "--topic", "t", "--dead-letter-topic", ""),
        ("queue", "alter", "g", "--dead-letter-topic", ""),
        ("queue", "work", "g", "--print", "--band", ""),
        ("topic", "create", "t", "--bands", ""),
    ],
)
def test_an_empty_name_is_no_default(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Most likely a variable is not set."""
    assert run([*arguments, "--broker", "127.0.0.1:1"]) == 2
    told = capsys.readouterr().err
    assert f"Invalid value for '{arguments[-2]}': it is empty: give a value, or leave the option out" in told


def test_the_environment_is_read_as_arguments_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (NOT_UTF8, "host:99999999999999999999", "\u0663:1", "x" * 100_000):
        monkeypatch.setenv("LOGBROKER_BROKER", value)
        assert run(["topic", "list"]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert "LOGBROKER_BROKER" in line
        assert line.isprintable()
        assert len(line) < 1000


@pytest.mark.prove
def test_keys_of_any_bytes_and_base64_that_is_none(address: str, topic: str, name: str) -> None:
    """The bytes of a key are those that were given."""
    key = b"\xff\x9b k"
    with Producer(address) as producer, QueueAdmin(address) as queues:
        queues.create_queue(name, topic)
        producer.send(topic, b"v", key)

    def command(*arguments: str | bytes, code: int = 0) -> tuple[str, str]:
        done = subprocess.run(
            [*LOGBROKER, *arguments, "--broker", address], capture_output=True, env=ENVIRONMENT, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout.decode(), done.stderr.decode()

    plain, _ = command("queue", "explain", name, key, "--json")
    encoded, _ = command("queue", "explain", name, base64.b64encode(key), "--base64", "--json")
    assert base64.b64encode(key).decode() in plain
    assert json.loads(plain)["key"] == json.loads(encoded)["key"]
    for wrong in ("\u00e9\u00e9\u00e9\u00e9", "a", "?", b"\xff"):
        _, said = command("queue", "explain", name, wrong, "--base64", code=2)
        assert "is not base64" in said
        assert "Traceback" not in said


@pytest.mark.prove
def test_files_whose_names_are_no_text(tmp_path: Path) -> None:
    """A broker, its backups and the tools for segments take any name that the system takes."""
    directory = os.fsencode(tmp_path) + b"/data-\xff"
    backup = os.fsencode(tmp_path) + b"/\xfe.backup"
    settings = os.fsencode(tmp_path) + b"/\xfd.toml"
    try:
        with open(settings, "wb") as file:
            file.write(b'listen = "127.0.0.1:0"\n')
    except OSError:
        pytest.skip("the file system takes names in UTF-8 only")

    def command(*arguments: str | bytes, code: int = 0) -> bytes:
        done = subprocess.run([*LOGBROKER, *arguments], capture_output=True, env=ENVIRONMENT, timeout=60, check=False)
        assert done.returncode == code, done.stderr
        assert len(done.stderr.splitlines()) == (code != 0), done.stderr
        return done.stdout

    serve: list[str | bytes] = [*LOGBROKER, "serve", "--data-dir", directory, "--config", settings]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        try:
            address = line_of(process).decode().strip().removeprefix("ready grpc=")
            topic = f"t-{uuid.uuid4()}"
            with Admin(address) as admin, Producer(address) as producer:
                admin.create_topic(topic, 1)
                producer.send(topic, b"v", b"k").result()
            command("meta", "backup", "--data-dir", directory, backup)
            command("meta", "backup", "--data-dir", directory, backup, code=1)
            command("segment", "verify", directory, "--json")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    partition = directory + f"/{topic}-0".encode()
    log = partition + b"/00000000000000000000.log"
    for arguments in (
        ("list", directory),
        ("list", directory, "--json"),
        ("verify", directory),
        ("stats", directory, "--json"),
        ("find", directory, "--key", "k"),
        ("find", directory, "--key", "k", "--json"),
        ("dump", log, "--records"),
        ("rebuild-index", partition),
        ("repair", partition),
        ("repair", log, "--dry-run"),
    ):
        assert command("segment", *arguments)
    command("meta", "restore", backup, "--data-dir", directory, "--dry-run")
    command("meta", "restore", backup, "--data-dir", directory, "--yes", "--json")
    command("segment", "verify", os.fsencode(tmp_path) + b"/\xfc", code=1)
