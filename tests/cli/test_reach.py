"""Commands given an invalid address, or one without a broker behind it: what they say, and how soon."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import pytest

from logbroker.cli.common.reach import reach
from logbroker.cli.main import cli
from logbroker.client import sync
from logbroker.embedded_broker import embedded
from logbroker.errors import BrokerUnavailableError, InvalidRequestError
from tests.cli.command import ENVIRONMENT, LOGBROKER, failure_of, logbroker

NO_ADDRESSES = [
    ("http://localhost:9192", "localhost:9192"),
    ("https://user:word@host:1/path?x", "host:1"),
    ("unix:/tmp/socket", "HOST:PORT"),
    ("localhost:9192/topics", "localhost:9192"),
    ("user@localhost:9192", "localhost:9192"),
    ("one:9192,two", "two:9192"),
    ("one:9192,", "address 2 of 2"),
    (",", "address 1 of 2"),
    ("::1:9192", "[::1]:9192"),
    ("::1", "[::1]:9192"),
    ("[::1]", "[::1]:9192"),
    ("[::1", "[::1]:9192"),
    ("[localhost]:9192", "[::1]:9192"),
    ("localhost", "localhost:9192"),
    ("localhost:", "localhost:9192"),
    ("localhost:99999", "65535"),
    ("localhost:-1", "65535"),
    ("localhost:kafka", "65535"),
    ("localhost:\u0661", "65535"),
    (":9192", "HOST:PORT"),
    ("local host:9192", "space"),
    (" localhost:9192", "space"),
    ("localhost:9192\n", "space"),
    ("", "empty"),
    ("127.0.0.256:9192", "IPv4"),
    ("127.0.0.1.1:9192", "IPv4"),
    ("-host:9192", "HOST:PORT"),
    ("one..two:9192", "HOST:PORT"),
    ("x" * 300 + ":9192", "HOST:PORT"),
]


@pytest.mark.parametrize(("text", "advice"), NO_ADDRESSES)
def test_what_is_no_address_is_refused_with_the_right_form(text: str, advice: str) -> None:
    """Every client refuses it before it connects, and so do commands, from the option and from the environment."""
    for client in (sync.Admin, sync.Producer, sync.Consumer):
        with pytest.raises(InvalidRequestError) as caught:
            client(text)
        assert advice in str(caught.value)
    with pytest.raises(click.BadParameter) as wrong:
        cli.main(["topic", "list", "--broker", text], standalone_mode=False)
    assert advice in wrong.value.message


def test_an_address_in_the_environment_is_read_as_the_options_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGBROKER_BROKER", "http://localhost:9192")
    with pytest.raises(click.BadParameter, match="such as localhost:9192"):
        cli.main(["group", "list"], standalone_mode=False)


@pytest.mark.prove
@pytest.mark.parametrize("address", ["http://127.0.0.1:0", "::1:0", "127.0.0.1", "", "/tmp/socket"])
def test_an_address_to_listen_on_is_refused_before_anything_is_made(tmp_path: Path, address: str) -> None:
    line = failure_of("serve", "--data-dir", tmp_path / "data", "--listen", address)
    assert "HOST:PORT" in line or "[::1]:0" in line
    assert not (tmp_path / "data").exists()


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.prove
@pytest.mark.parametrize(
    "listen", [pytest.param("[::1]:0", marks=pytest.mark.skipif(not _has_ipv6(), reason="no IPv6")), "localhost:0"]
)
def test_names_and_ipv6_addresses_in_brackets_are_reached(listen: str) -> None:
    with embedded(listen=listen) as broker:
        assert logbroker("topic", "list", "--broker", broker.address).returncode == 0


def test_one_address_of_several_has_to_answer(address: str, unused_tcp_port: int) -> None:
    dead = f"127.0.0.1:{unused_tcp_port}"
    with listener(nothing) as silent, listener(web) as other:
        addresses = f"{dead}, {other},{address},{silent}"
        assert reach(addresses) == address
        cli.main(["topic", "list", "--broker", addresses], standalone_mode=False)
        with pytest.raises(BrokerUnavailableError) as caught:
            cli.main(["topic", "list", "--broker", f"{dead},{other}"], standalone_mode=False)
    assert str(caught.value) == (
        f"no broker of {dead},{other} can be reached: {dead}: connection refused; is it running?;"
        f" {other}: a web server listens there, not a broker; is the port right?"
        " (--wait SECONDS waits for one that is starting)"
    )


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of what does this with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.settimeout(30)
                    serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def web(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def tls(connection: socket.socket) -> None:
    with ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_socket(connection, server_side=True):
        pass


def alert(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x15\x03\x01\x00\x02\x02\x46")


def nothing(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def hang_up(connection: socket.socket) -> None:
    connection.recv(4096)


def greet(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-\x1b[31m\r\n")
    connection.recv(4096)


def http2(connection: socket.socket) -> None:
    connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    connection.recv(4096)


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        (web, "a web server"),
        (tls, "TLS"),
        (alert, "TLS"),
        (nothing, "sent nothing"),
        (hang_up, "without an answer"),
        (greet, r"answers 'SSH-2.0-\x1b[31m'"),
    ],
)
def test_what_else_listens_there_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[[socket.socket], None], words: str
) -> None:
    monkeypatch.setattr("logbroker.cli.common.reach.ANSWER_SECONDS", 0.5 if serve is nothing else 30)
    with listener(serve) as address, pytest.raises(BrokerUnavailableError) as caught:
        reach(address)
    assert words in str(caught.value)
    assert address in str(caught.value)


def test_a_broker_that_does_not_run_is_told_after_one_attempt(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    def no_wait(seconds: float) -> None:
        raise AssertionError("it waits, and nobody asked it to")

    monkeypatch.setattr("logbroker.cli.common.reach.sleep", no_wait)
    for address in (f"127.0.0.1:{unused_tcp_port}", f"localhost:{unused_tcp_port}"):
        with pytest.raises(BrokerUnavailableError, match=f"{address} cannot be reached: connection refused; is it run"):
            reach(address)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("arguments", [("topic", "list"), ("produce", "t"), ("consume", "t"), ("queue", "list")])
def test_commands_say_in_one_line_that_the_broker_does_not_run(
    arguments: tuple[str, ...], unused_tcp_port: int
) -> None:
    line = failure_of(*arguments, "--broker", f"127.0.0.1:{unused_tcp_port}")
    assert "connection refused; is it running?" in line
    assert "--wait" in line


def test_a_name_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, *_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, f"no {host}")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(BrokerUnavailableError, match=r"the name nowhere\.invalid cannot be looked up"):
        reach("nowhere.invalid:9192")


def test_a_name_server_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60))
    monkeypatch.setattr("logbroker.cli.common.reach.ANSWER_SECONDS", 0.05)
    with pytest.raises(BrokerUnavailableError, match="could not be looked up within"):
        reach("slow.invalid:9192")
    over.set()


def test_wait_tries_again_for_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    now = [1000.0]
    monkeypatch.setattr("logbroker.cli.common.reach.monotonic", lambda: now[0])
    monkeypatch.setattr("logbroker.cli.common.reach.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(BrokerUnavailableError, match="waited 7 s"):
        reach(f"127.0.0.1:{unused_tcp_port}", 7)
    assert now[0] == pytest.approx(1007.0)


def test_the_time_that_was_waited_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last attempt may take longer than the wait."""
    now = [1000.0]

    def attempt(*_: object) -> str:
        now[0] += 5
        return "silent"

    monkeypatch.setattr("logbroker.cli.common.reach.monotonic", lambda: now[0])
    monkeypatch.setattr("logbroker.cli.common.reach._attempt", attempt)
    with pytest.raises(BrokerUnavailableError, match=r"silent \(waited 5 s\)"):
        reach("127.0.0.1:9192", 3)


@pytest.mark.prove
def test_wait_begins_when_the_broker_does(unused_tcp_port: int) -> None:
    """A script starts both at once: the command's first attempt comes too early."""
    with socket.create_server(("127.0.0.1", 0)) as early:
        port = early.getsockname()[1]
        command = [*LOGBROKER, "topic", "list", "--json", "--wait", "60", "--broker", f"127.0.0.1:{port}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
        early.settimeout(30)
        connection, _ = early.accept()
        connection.close()
    with process, embedded(listen=f"127.0.0.1:{port}"):
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert b"[]" in out


def test_every_command_that_talks_to_a_broker_can_wait_for_it() -> None:
    def commands(command: click.Command, context: click.Context) -> Iterator[click.Command]:
        yield command
        if isinstance(command, click.Group):
            for name in set(command.list_commands(context)) - {"bench", "experiment", "plan"}:  # Slow to import.
                found = command.get_command(context, name)
                assert found is not None
                yield from commands(found, context)

    talking = 0
    for command in commands(cli, click.Context(cli)):
        options = {name for parameter in command.params for name in parameter.opts}
        if "--broker" in options:
            talking += 1
            assert "--wait" in options, command.name
    assert talking > 15


def test_an_address_is_read_as_what_it_is_also_where_grpc_knows_a_scheme_of_that_name(unused_tcp_port: int) -> None:
    """`dns:9192` names the machine dns, as a service in a container network may be called."""
    message = f"dns:{unused_tcp_port} cannot be reached.*lookup"
    with sync.Admin(f"dns:{unused_tcp_port}", request_timeout_seconds=0.2) as admin:  # noqa: SIM117
        with pytest.raises(BrokerUnavailableError, match=message):
            admin.list_topics()
    assert not os.path.lexists(str(unused_tcp_port))
