"""Texts written by users do nothing to the terminal that shows them: every command, with a broker full of them."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from logbroker.cli.common.lines import LogFormatter
from logbroker.cli.main import cli, run
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, QueueSettings, Worker, WorkerDelivery
from logbroker.errors import LogbrokerError
from logbroker.texts import shown, shown_json
from tests.cli.command import ENVIRONMENT, LOGBROKER
from tests.waiting import until

HOSTILE = (
    "[/oops][bold]:boom:\x1b]2;gone\x07\x1b[38;5;99m\x9b31m\t\r\nFORGED all is well"
    "\x85\u2028\u202e\u2066\u200b\x7f\u3164\uffa0"
)
KEY = HOSTILE.encode()
"""Closes markup that is not open, sets the title, rings, colours, forges a line, turns text around, hides itself."""

OBEYED = (
    "\x1b]2;",
    "\x07",
    "\x1b[38;5;99m",
    "\x9b",
    "\x85",
    "\u2028",
    "\u202e",
    "\u2066",
    "\u200b",
    "\x7f",
    "\u3164",
    "\uffa0",
)


def check(text: str) -> None:
    """Fail where a text of several lines holds more than that: what a terminal obeys, or a line of its users'."""
    for line in text.split("\n"):
        assert line.isprintable(), repr(line)
        assert not line.startswith("FORGED")


class State(NamedTuple):
    address: str
    data_dir: Path
    topic: str
    group: str
    """Queue group and consumer group are named alike in two ways: this is the queue group."""
    consumer_group: str


@pytest.fixture(scope="module")
def state(logbroker_session_broker: Any) -> Iterator[State]:
    """A broker whose keys, values, headers, reasons, workers and members are named by somebody with bad intentions."""
    address = logbroker_session_broker.address
    topic, group, consumer_group = (f"{kind}-{uuid.uuid4()}" for kind in "tqc")

    def refuse(delivery: WorkerDelivery) -> None:
        delivery.nack(reason=HOSTILE)

    with (
        Admin(address) as admin,
        QueueAdmin(address) as queues,
        Producer(address) as producer,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(socket, "gethostname", lambda: HOSTILE)
        admin.create_topic(topic, 1)
        queues.create_queue(group, topic, QueueSettings(max_attempts=1, key_header=None))
        for key in (KEY, b"\xff\x1b[2J", None, b"x" * 1000 + KEY):
            for _ in range(2):
                producer.send(topic, KEY, key, headers=((HOSTILE, KEY), ("plain", None)))
        producer.flush()
        with (
            Worker(address, group, worker_id=HOSTILE, client_name=HOSTILE) as worker,
            Consumer(address, group=consumer_group, instance_id=HOSTILE) as consumer,
            ThreadPoolExecutor(1) as pool,
        ):
            running: Future[None] = pool.submit(worker.run, refuse)
            until(lambda: queues.describe_queue(group).counts.blocked_lanes >= 3)
            consumer.subscribe(pattern=f"{topic}|{re.escape(HOSTILE)}")
            until(lambda: consumer.poll(timeout_seconds=0.05))
            yield State(address, logbroker_session_broker.data_dir, topic, group, consumer_group)
            worker.stop()
            running.result(30)


class Command:
    """Runs a command in this process, and checks all that it writes."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._address = address
        self._capsys = capsys

    def __call__(self, *arguments: str, to: str | None = None) -> str:
        """Return what it wrote to standard output and standard error."""
        if to is not None:
            arguments = (*arguments, "--broker", to)
        run(arguments)
        out, err = self._capsys.readouterr()
        check(out + err)
        return out + err


@pytest.fixture
def command(state: State, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(state.address, capsys)


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from leaves(found, (*path, name))
        else:
            yield (*path, name), found


def wrong_calls(path: tuple[str, ...], called: click.Command) -> Iterator[list[str]]:
    """Calls that cannot be right: in each place the hostile text, at last in one that is refused by all."""
    arguments = [each for each in called.params if isinstance(each, click.Argument)]
    options = [each for each in called.params if isinstance(each, click.Option) and not (each.is_flag or each.count)]
    yield [*path, f"--{HOSTILE}"]
    yield [*path[:-1], HOSTILE]
    yield [*path, *[HOSTILE] * (len(arguments) + 1)]
    for option in options:
        yield [*path, *["x"] * len(arguments), option.opts[0], HOSTILE, f"--{HOSTILE}"]
        if path[0] not in ("bench", "demo", "experiment", "serve"):
            yield [*path, *["x"] * len(arguments), option.opts[0], HOSTILE, *_rest(called, option)]


def _rest(called: click.Command, given: click.Option) -> list[str]:
    """Return options that the command needs besides."""
    needed = [each for each in called.params if isinstance(each, click.Option) and each.required and each is not given]
    return [part for each in needed for part in (each.opts[0], "x")]


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize(("path", "called"), [pytest.param(*leaf, id=" ".join(leaf[0])) for leaf in leaves(cli)])
def test_a_wrong_call_of_any_command_is_told_of_in_harmless_words(
    path: tuple[str, ...],
    called: click.Command,
    state: State,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGBROKER_BROKER", state.address)
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        for arguments in wrong_calls(path, called):
            command(*arguments)


def test_every_view_of_a_queue_group_is_harmless(state: State, command: Command) -> None:
    group, key = state.group, repr(KEY)
    for view in ("lanes", "parked", "describe"):
        assert "oops" in command("queue", view, group, to=state.address)
    assert "\\x1b]2;gone\\x07" in command("queue", "explain", group, HOSTILE, to=state.address)
    command("queue", "list", to=state.address)
    command("queue", "explain", group, f"another{HOSTILE}", to=state.address)
    for decision in (("resume",), ("skip",), ("drop", "--yes"), ("replace", "--value", HOSTILE)):
        command("queue", decision[0], group, f"another{HOSTILE}", *decision[1:], to=state.address)
    assert key in command("queue", "resume", group, HOSTILE, to=state.address)
    with QueueAdmin(state.address) as queues:
        until(lambda: queues.explain_lane(group, KEY).state == "blocked")
    assert key in command("queue", "skip", group, HOSTILE, to=state.address)
    with QueueAdmin(state.address) as queues:
        until(lambda: queues.explain_lane(group, KEY).state == "blocked")
    for dry in ("redrive", "rewind"):
        command("queue", dry, group, *(("--to", "earliest") if dry == "rewind" else ()), "--dry-run", to=state.address)


def test_documents_say_the_same_with_escapes(state: State, command: Command) -> None:
    for view in ("lanes", "parked", "describe"):
        document = command("queue", view, state.group, "--json", to=state.address)
        assert json.dumps(HOSTILE)[1:20] in document
        json.loads(document)
    explained = json.loads(command("queue", "explain", state.group, HOSTILE, "--json", to=state.address))
    assert explained["key"] == HOSTILE
    assert explained["reasons"][0] == HOSTILE
    members = json.loads(command("group", "members", state.consumer_group, "--json", to=state.address))
    assert members[0]["client_name"].startswith(HOSTILE)
    consumed = command("consume", state.topic, "--until-end", "--format", "json", to=state.address)
    assert json.loads(consumed.splitlines()[0])["value"] == HOSTILE


def test_every_view_of_topics_and_consumer_groups_is_harmless(state: State, command: Command) -> None:
    assert "oops" in command("group", "describe", state.consumer_group, to=state.address)
    assert "oops" in command("group", "members", state.consumer_group, to=state.address)
    command("group", "list", to=state.address)
    command("group", "reset-offsets", state.consumer_group, "--to", "0", to=state.address)
    command("group", "delete", state.consumer_group, "--yes", to=state.address)
    command("topic", "list", to=state.address)
    command("topic", "describe", state.topic, to=state.address)
    command("topic", "create", "x", "--config", f"{HOSTILE}={HOSTILE}", to=state.address)
    command("topic", "create", "x", "--bands", f"{HOSTILE}=0-9:1", to=state.address)
    command("topic", "alter", state.topic, "--config", f"retention.ms={HOSTILE}", to=state.address)


def test_the_segment_tools_are_harmless(state: State, command: Command, tmp_path: Path) -> None:
    """In a directory that is named by the same hand."""
    there = tmp_path / HOSTILE.replace("/", "")
    there.mkdir()
    source = state.data_dir / f"{state.topic}-0"
    for file in source.iterdir():
        if file.is_file():
            (there / file.name).write_bytes(file.read_bytes())
    log = next(there.glob("*.log"))
    for view in (("list",), ("verify",), ("stats",), ("find", "--key", HOSTILE), ("dump", "--records")):
        for as_json in ((), ("--json",)):
            command("segment", view[0], str(log), *view[1:], *as_json)
    assert "oops" in command("segment", "dump", str(log), "--records")
    command("segment", "rebuild-index", str(log))
    log.write_bytes(log.read_bytes() + b"no batch" * 100)
    for arguments in (("verify",), ("repair", "--dry-run"), ("repair", "--yes")):
        assert "oops" in command("segment", arguments[0], str(log), *arguments[1:])


def test_input_that_is_wrong_is_told_of_in_harmless_words(
    state: State, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form, text, options in (
        ("json", HOSTILE, ()),
        ("json", json.dumps({"value": "x", HOSTILE: 1}), ()),
        ("lines", "no separator", ("--key-separator", HOSTILE)),
        ("csv", f"{json.dumps(HOSTILE)},b\n1,2,3\n", ()),
        ("csv", "a,b\n1,2\n", ("--key-column", HOSTILE)),
        ("csv", f'a,p\n1,"{HOSTILE.replace(chr(34), "")}"\n', ("--priority-column", "p")),
    ):
        source = tmp_path / "input"
        source.write_text(text, encoding="utf-8")
        with source.open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            told = command("produce", state.topic, "--format", form, *options, to=state.address)
        assert "logbroker: " in told, (form, text)


def test_files_of_any_name_are_told_of_in_harmless_words(command: Command, tmp_path: Path) -> None:
    for name in (HOSTILE.replace("/", ""), "\udcff\udc9b"):
        target = tmp_path / name
        assert command("meta", "backup", str(target), "--data-dir", str(tmp_path / f"no{name}"))
        assert command("meta", "restore", str(target), "--data-dir", str(tmp_path))
        assert command("serve", "--config", str(target))
        target.write_text(f"{json.dumps(HOSTILE)} = 1\n", encoding="utf-8")
        assert command("serve", "--config", str(target))
        assert command("serve", "--data-dir", str(target))
        assert command("segment", "list", str(target), "--json")
        assert command("plan", "--from", str(target))


def test_what_a_server_answers_is_harmless(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of several lines becomes one, as those of settings' parsers do."""

    def fail(*_: object, **__: object) -> None:
        raise LogbrokerError(HOSTILE)

    monkeypatch.setattr(cli, "main", fail)
    assert run(["topic", "list"]) == 1
    err = capsys.readouterr().err
    check(err)
    assert err.count("\n") == 1


def crash(path: Path) -> list[str]:
    program = f"""
from logbroker.cli import main
import warnings, threading
def fail(*_, **__):
    warnings.warn({HOSTILE!r})
    thread = threading.Thread(target=exec, args=({f"raise ValueError({HOSTILE!r})"!r},))
    thread.start(); thread.join()
    raise ValueError({HOSTILE!r})
main.cli.main = fail
main.main()
"""
    path.write_text(program, encoding="utf-8")
    return [sys.executable, str(path)]


def test_crashes_and_warnings_are_harmless(tmp_path: Path) -> None:
    result = subprocess.run(crash(tmp_path / "crash.py"), capture_output=True, env=ENVIRONMENT, timeout=60, check=False)
    assert result.returncode == 1
    text = result.stderr.decode()
    check(text)
    assert text.count("oops") >= 3


def test_an_entry_of_a_log_is_one_line() -> None:
    formatter = LogFormatter("%(levelname)s %(name)s: %(message)s")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("x", logging.INFO, __file__, 1, "of %s", (HOSTILE,), sys.exc_info())
    first, *rest = formatter.format(record).split("\n")
    check(first)
    assert first.startswith("INFO x: of [/oops]")
    for line in rest:
        check(line)
        assert line.startswith("  ")


def test_the_log_of_a_broker_is_harmless(state: State, logbroker_session_broker: Any) -> None:
    """A queue group writes the reasons of blocked lanes into it."""
    text = logbroker_session_broker.log_path.read_text(encoding="utf-8")
    check(text)
    assert state.group in text


def test_a_terminal_is_told_nothing_to_obey(state: State) -> None:
    """Only the program's own output is bold or redrawn."""
    for arguments in (
        ("queue", "parked", state.group),
        ("consume", state.topic, "--until-end"),
    ):
        text = on_terminal(*arguments, "--broker", state.address)
        assert "oops" in text, arguments
        for obeyed in OBEYED:
            assert obeyed not in text, (arguments, obeyed)
        assert not re.search(r"^FORGED", text, re.MULTILINE)


def test_values_into_a_pipe_are_as_they_were(state: State) -> None:
    command = [*LOGBROKER, "consume", state.topic, "--until-end", "--broker", state.address]
    result = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=60, check=True)
    assert result.stdout == (KEY + b"\n") * 8


def on_terminal(*arguments: str) -> str:
    """Run a command as a person does; return all that the terminal got."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*LOGBROKER, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=ENVIRONMENT) as of:
        os.close(theirs)
        got = b""
        deadline = time.monotonic() + 60
        try:
            while True:
                readable, _, _ = select.select([ours], [], [], max(0, deadline - time.monotonic()))
                assert readable, f"{arguments} wrote nothing more"
                try:
                    part = os.read(ours, 65536)
                except OSError:  # How Linux tells the end.
                    break
                if not part:
                    break
                got += part
        finally:
            of.send_signal(signal.SIGKILL)
            os.close(ours)
    return got.decode()


def test_every_character_is_printable_or_escaped() -> None:
    """All of the plane that is in use, and some of each other."""
    characters = [chr(code) for code in (*range(0x10000), *range(0x10000, 0x110000, 101))]
    blank = "\u115f\u1160\u3164\uffa0"  # Letters that look like nothing.
    kept = "".join(character for character in characters if character.isprintable() and character not in blank)
    assert shown(kept) == kept
    others = blank + "".join(character for character in characters if not character.isprintable())
    assert shown(others).isprintable()
    assert shown(others).encode().decode("unicode_escape") == others
    whole = "".join(character for character in characters if not 0xD800 <= ord(character) < 0xE000)  # Not in UTF-8.
    text = shown_json(json.dumps(whole, ensure_ascii=False).encode()).decode()
    assert text.isprintable()
    assert json.loads(text) == whole
