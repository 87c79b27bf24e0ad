"""A real broker for programs, notebooks and tests: `with logbroker.embedded() as broker: ...`.

The broker is a child process. In the same process, it would share the interpreter lock with the program, and there
would be two gRPC event loops, which grpcio does not support well. The child process runs the same code as in
production, and it can be killed and started again. It holds a pipe to its parent and stops when the pipe closes, so it
never outlives the program, however the program ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from logbroker.child_python import child_command
from logbroker.errors import BrokerUnavailableError, ForkedProcessError, InvalidRequestError, LogbrokerError, quoted
from logbroker.platform_needs import check_broker_platform
from logbroker.private_files import private_opener
from logbroker.program_end import end_brokers_with

_log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 0.2
_MAX_POLL_SECONDS: Final = 86_400.0
"""The longest wait of one call; `poll` takes milliseconds as a C int."""
READY_PREFIX: Final = "ready grpc="


class EmbeddedBroker:
    """A broker process and its data directory. Starts on entering `with`; not thread-safe.

    All methods block: a start takes about half a second, a stop as long as the last sync. A forked child of the program
    may use the address. The broker and its directory belong to the process that made this object: in a forked child,
    `stop` and `kill` do nothing, and `start` raises ForkedProcessError.
    """

    def __init__(self, data_dir: str | os.PathLike[str] | None = None, *, kafka: bool = False, **settings: Any) -> None:
        """See `embedded`."""
        if data_dir == "":
            raise InvalidRequestError("the data directory has no name: give one, or None for a temporary one")
        self._listen = settings.pop("listen", "127.0.0.1:0")
        self._kafka_listen = settings.pop("kafka_listen", "127.0.0.1:0" if kafka else "")
        self._settings_text = _toml(settings)
        self._pid = os.getpid()
        # Not a TemporaryDirectory: when a forked child ends, it would remove the directory of the running broker.
        self._own_dir = tempfile.mkdtemp(prefix="logbroker-")
        self._remove_own_dir = weakref.finalize(self, _remove, self._own_dir, self._pid)
        # At the end of the program, `_at_exit` removes the directory, after the clients have flushed and the broker has
        # stopped.
        self._remove_own_dir.atexit = False
        # Absolute, because the program may change its working directory between two starts.
        self.data_dir: Final = Path(self._own_dir, "data") if data_dir is None else Path(data_dir).absolute()
        """The data directory. It outlasts the broker if the caller gave it; otherwise it is removed with the broker."""
        self.log_path: Final = Path(self._own_dir, "broker.log")
        """The file with the broker's standard error."""
        self._process: subprocess.Popen[bytes] | None = None
        _brokers.add(self)
        self._stopped = threading.Event()
        """Set to end the watch thread before this object ends the process."""
        self.on_end: Callable[[str], None] | None = None
        """Function that is called, in a separate thread, if the broker ends by itself. Its argument is a message with
        the last line of the broker's log."""

    @property
    def address(self) -> str:
        """HOST:PORT, the same after every restart. Raises BrokerUnavailableError if the broker has never started."""
        return self._checked(self._listen)

    @property
    def kafka_address(self) -> str:
        """HOST:PORT for Kafka clients (`bootstrap.servers`), the same after every restart. Raises InvalidRequestError
        if the broker was made without `kafka=True`, and BrokerUnavailableError if it has never started."""
        if not self._kafka_listen:
            raise InvalidRequestError("this broker does not listen for Kafka clients: make it with kafka=True")
        return self._checked(self._kafka_listen)

    def _checked(self, address: object) -> str:
        if str(address).endswith(":0"):
            raise BrokerUnavailableError("the embedded broker was not started: use it in a with block, or start() it")
        return str(address)

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerUnavailableError if the broker does not run."""
        # Only the parent process can ask whether the broker process has ended.
        if self._process is None or (not self._is_forked and self._process.poll() is not None):
            raise BrokerUnavailableError("the embedded broker does not run: start() it")
        return self._process.pid

    def start(self, *, timeout_seconds: float = 30.0) -> None:
        """Start the broker and wait until it serves. If it fails, raises LogbrokerError with the last line of its log.

        Does nothing if the broker runs. If it has ended by itself, or was killed from outside, it is started again.
        """
        if self._is_forked:
            raise ForkedProcessError(
                "this broker belongs to the parent process, before the fork: make another one here"
            )
        if not self._remove_own_dir.alive:
            raise InvalidRequestError(
                "the with block of this broker has ended, and its directory is removed: make another broker"
            )
        if self._process is not None and self._process.poll() is None:
            return
        check_broker_platform()
        self._end(kill=True)  # If the process has ended, this closes its pipes.
        config_path = Path(self._own_dir, "broker.toml")
        with open(config_path, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(self._settings_text)
        command = child_command("logbroker", "serve", "--stop-with-stdin", "--config", str(config_path))
        command += ["--data-dir", str(self.data_dir), "--listen", self._listen]
        if self._kafka_listen:
            command += ["--kafka-listen", self._kafka_listen]
        with open(self.log_path, "ab", opener=private_opener) as log:
            # In its own process group, so that Ctrl-C reaches only the program: the broker ends with the program, not
            # before it.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, process_group=0
            )
        self._process = process
        try:
            addresses = self._wait_until_ready(process, time.monotonic() + timeout_seconds)
            self._listen, self._kafka_listen = addresses["grpc"], addresses.get("kafka", "")
        except BaseException:
            self._end(kill=True)
            raise
        self._stopped = threading.Event()
        # A daemon thread, because a program may end without stopping the broker.
        threading.Thread(target=self._watch, args=(process, self._stopped), name="logbroker-watch", daemon=True).start()

    def leave_to_parent(self) -> None:
        """Close the pipe to the broker in a forked child. The broker stops when the program's end of the pipe is closed
        in all processes."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _watch(self, process: subprocess.Popen[bytes], stopped: threading.Event) -> None:
        """Report at once if the broker ends by itself. Otherwise clients would wait for it until their requests time
        out."""
        while not stopped.wait(_WATCH_SECONDS):
            if (code := process.poll()) is not None:
                if not stopped.is_set():
                    said = f"the embedded broker has ended by itself ({_code_text(code)}){self._last_words()}"
                    if code:
                        _log.error("%s", said)
                    if self.on_end is not None:
                        self.on_end(said)
                return

    def _wait_until_ready(self, process: subprocess.Popen[bytes], deadline: float) -> dict[str, str]:
        """Return the addresses from the broker's `ready` line, by the names of the listeners."""
        assert process.stdout is not None
        line = b""
        poll = select.poll()  # `select.select` takes no descriptor above 1,023.
        poll.register(process.stdout, select.POLLIN)
        while not line.endswith(b"\n"):
            left_seconds = deadline - time.monotonic()
            if not poll.poll(max(0.0, min(left_seconds, _MAX_POLL_SECONDS)) * 1000):
                if left_seconds > _MAX_POLL_SECONDS:
                    continue
                raise BrokerUnavailableError("the embedded broker was not ready in time" + self._last_words())
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                raise LogbrokerError("the embedded broker did not start" + self._last_words())
            line += piece
        return dict(word.split("=", 1) for word in line.decode("ascii").split()[1:])

    def _last_words(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def stop(self) -> None:
        """Stop the broker cleanly. Does nothing if it does not run."""
        self._end(kill=False)

    def kill(self) -> None:
        """Kill the broker (SIGKILL), as a crash would. Does nothing if it does not run."""
        self._end(kill=True)

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def _end(self, *, kill: bool) -> None:
        if self._is_forked:
            return
        self._stopped.set()
        process, self._process = self._process, None
        if process is not None:
            _end(process, kill=kill)

    def restart(self) -> None:
        """Stop the broker cleanly and start it again on the same address and data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove_own_dir()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Stop the broker, and remove its directory. The end of a `with` block calls this. For a broker that was
        started without `with`, the end of the program does."""
        self.stop()
        # At the end of the program, weakref.finalize may have stopped calling functions.
        if self._remove_own_dir.detach() is not None:
            _remove(self._own_dir, self._pid)


_brokers: Final[weakref.WeakSet[EmbeddedBroker]] = weakref.WeakSet()


def _in_child() -> None:
    for broker in list(_brokers):
        broker.leave_to_parent()


def _at_exit() -> None:
    for broker in list(_brokers):
        broker.end()


end_brokers_with(_at_exit)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def embedded(data_dir: str | os.PathLike[str] | None = None, *, kafka: bool = False, **settings: Any) -> EmbeddedBroker:
    """Return a broker, to be used in a `with` statement.

    Without `data_dir`, the data is in a temporary directory, which is removed when the block ends. With `kafka`, the
    broker also listens for Kafka clients, at `broker.kafka_address`. `settings` are settings of the configuration file
    (`logbroker.config.BrokerConfig`), such as `default_partitions=4`. The broker listens on a free port of 127.0.0.1,
    unless `listen` is given. Raises TypeError for a value that no setting can have; the start of the broker refuses all
    other wrong settings.
    """
    return EmbeddedBroker(data_dir, kafka=kafka, **settings)


def _remove(directory: str, pid: int) -> None:
    """Remove the directory, unless this is the child of the process that made it."""
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)


def _end(process: subprocess.Popen[bytes], *, kill: bool, timeout_seconds: float = 30.0) -> None:
    with process:  # closes the pipes and waits
        if kill:
            process.kill()
            return
        if process.stdin is not None:
            process.stdin.close()  # SIGTERM may be blocked: the broker inherits the signal mask.
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout_seconds)
            return
        process.kill()


def _code_text(code: int) -> str:
    return f"exit {code}" if code >= 0 else f"signal {-code}"


def _toml(values: Mapping[str, Any]) -> str:
    return "".join(f"{name} = {_toml_value(name, value)}\n" for name, value in values.items())


def _toml_value(name: str, value: Any) -> str:
    """Return the value of a setting in TOML. Raises TypeError, which names the setting, for a value that no setting can
    have.

    Strings, numbers and booleans are written as in JSON. NaN and infinity are written as TOML has them; the broker
    refuses them with an error that names the setting.
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(name, item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None:
        raise TypeError(f"embedded(): {name} cannot be None; leave it out for its default")
    try:
        return json.dumps(value)
    except TypeError:
        raise TypeError(f"embedded(): {name} cannot be {quoted(repr(value))}") from None
