"""Runs shell commands for `logbroker queue work --exec`, so that no command can hold up the worker.

- A command has ended when its process has ended. Processes that it left in the background go on, and may still write to
  its standard error; their output is passed on, too.
- Standard error is passed on as it arrives, in whole lines, also to a slow reader. Its last few KiB are kept for the
  reason of a failure.
- If the reader of our standard error stops reading, the command blocks, as if it wrote to that reader itself. Its
  timeout still applies. Once the command has ended, or a stop waits for it, output that the reader has no room for is
  dropped, and a line says how much was dropped.
- A command may leave its value unread, or read only a part of it.
- Each command runs in a session of its own. At a timeout, at a stop, or when the lease of its record is lost, all
  processes of that session are killed, also those in process groups that the command made (`timeout`, `set -m`).
- A guard, which is a small separate process, kills the running commands if this process dies without cleaning up
  (SIGKILL). The guard is told of each command before the command begins.
- Each process is started, waited for and killed by one and the same thread. So a signal never reaches another process
  that got the same id.
- No code runs between fork and exec (no `preexec_fn`), because a thread of gRPC may hold any lock at that moment.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from types import TracebackType
from typing import BinaryIO, Final, Literal, NamedTuple, Self

from logbroker.cli.common.error_writer import ErrorWriter

_SHELL: Final = "/bin/sh"
_READ_BYTES: Final = 64 * 1024
_TAIL_BYTES: Final = 4096
"""The last bytes of standard error that are kept."""
_LINE_BYTES: Final = 8192
"""A longer line is passed on in pieces."""
_LAST_READ_BYTES: Final = 1024 * 1024
"""Maximum bytes that are read from the pipe when the process ends. The pipe holds no more."""
_LOOK_SECONDS: Final = 0.25
"""The time between two checks whether the result of a command is still wanted."""
_POLL_SECONDS: Final = 0.02
"""The time between two checks whether a process has ended, on systems that do not report its end (Linux does), and
between two checks whether the reader of our standard error has room again."""
_DEATH_SECONDS: Final = 5.0
"""A process that has not ended this long after it was killed hangs in the system. It is not waited for."""
_MAX_BACKGROUND: Final = 64
"""Maximum number of ended commands whose standard error is still read, so that their background processes can go on
writing to it. The background processes of further commands get an error when they write to it."""
_KILL_ROUNDS: Final = 5

_GUARD: Final = """
running=' '
while read -r sign pid; do
    case $sign in
        +) running="$running$pid " ;;
        -) running="${running%% $pid *} ${running#* $pid }" ;;
    esac
done
for pid in $running; do kill -s KILL -- "-$pid" 2>/dev/null; done
"""
"""Reads which commands begin and which have ended. At the end of its input, it kills the process groups of the commands
that still run."""

_BEGINNING: Final = f'read -r LOGBROKER_GO || exit 1; exec {_SHELL} -c -- "$0"'
"""The command waits for a line, which is sent after the guard was told of the command. A shell reads a line byte by
byte, so it reads nothing of the value, which follows the line. If this process is killed before it sends the line, no
command runs."""

Killer = Literal["timeout", "stop", "loss"]


class CommandOutcome(NamedTuple):
    """The end of a command."""

    status: int
    """The exit code; if negative, the number of the signal."""
    killed_by: Killer | None
    """Why this process killed the command; None if the command ended by itself."""
    last_line: str
    """The last line of its standard error that is not empty."""


def syntax_error(command: str) -> str | None:
    """Return what the shell says about a command that it cannot parse. Raises OSError if there is no shell."""
    parsed = subprocess.run(
        [_SHELL, "-n", "-c", "--", command], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return parsed.stderr.decode(errors="replace").strip() if parsed.returncode else None


class CommandRunner:
    """Runs one shell command repeatedly, in any number of threads at once."""

    def __init__(self, command: str, timeout_seconds: float | None) -> None:
        self._command = command
        self._timeout_seconds = timeout_seconds
        self._stop_read, self._stop_write = os.pipe()
        os.set_blocking(self._stop_write, False)
        self.errors = ErrorWriter()
        self._guard = _Guard()
        self._background = threading.BoundedSemaphore(_MAX_BACKGROUND)
        self._hanging: list[subprocess.Popen[bytes]] = []

    @property
    def timeout_reason(self) -> str:
        return f"the command took more than {self._timeout_seconds:g} s"

    def kill_all(self) -> None:
        """Kill all running commands, and all that are started later. Takes no lock, because a signal handler may call
        it."""
        with suppress(BlockingIOError):
            os.write(self._stop_write, b"x")  # The byte is never read, so every waiter sees it.

    def run(self, value: bytes, environment: Mapping[bytes, bytes], is_wanted: Callable[[], bool]) -> CommandOutcome:
        """Run the command with `value` on its standard input. Kill it at its timeout, at a stop, or when `is_wanted`
        returns False.

        Raises OSError if it cannot be started. E2BIG means that the environment is too large for the system.
        """
        deadline = None if self._timeout_seconds is None else monotonic() + self._timeout_seconds
        process = subprocess.Popen(
            [_SHELL, "-c", _BEGINNING, self._command],
            bufsize=0,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._guard.started(process.pid)
        try:
            running = _Running(process, value, self.errors, self._stop_read)
            killed_by = running.wait(deadline, is_wanted)
            running.drain()
            if process.returncode is None:
                self._hanging.append(process)
            elif running.stderr is not None:
                self._read_on(running.stderr)
            running.close()
        except BaseException:
            # For example, there are no more descriptors. A command that was started must not go on alone.
            if process.returncode is None:
                kill_session(process.pid)
                process.wait()
            for stream in (process.stdin, process.stderr):
                if stream is not None:
                    stream.close()
            raise
        finally:
            self._guard.ended(process.pid)
        return CommandOutcome(
            -signal.SIGKILL if process.returncode is None else process.returncode, killed_by, running.last_line()
        )

    def _read_on(self, stderr: int) -> None:
        """Pass on the output of background processes, if not too many are read already. Without a reader, SIGPIPE would
        kill them when they write."""

        def read_on(stream: BinaryIO) -> None:
            try:
                with stream:
                    while data := stream.read(_READ_BYTES):
                        self.errors.write(data)
            finally:
                self._background.release()

        if not self._background.acquire(blocking=False):
            return
        with suppress(OSError, RuntimeError):  # There are no more descriptors or threads.
            stream = open(os.dup(stderr), "rb", buffering=0)  # noqa: SIM115 - its thread closes it
            os.set_blocking(stream.fileno(), True)
            threading.Thread(target=read_on, args=(stream,), name="logbroker-stderr", daemon=True).start()
            return
        self._background.release()

    def close(self) -> None:
        """Wait until standard error has been written, as long as somebody reads it. No command may be running."""
        self.errors.close()
        self._guard.close()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Running:
    """A running command, with its pipes and the reason why it was killed. Belongs to one thread."""

    def __init__(self, process: subprocess.Popen[bytes], value: bytes, errors: ErrorWriter, stop_fd: int) -> None:
        assert process.stdin is not None
        assert process.stderr is not None
        self._process = process
        self._stdin: int | None = process.stdin.fileno()
        self.stderr: int | None = process.stderr.fileno()
        """The descriptor of its standard error; None if nobody writes there any more."""
        self._value = memoryview(b"\n" + value)  # The line that `_BEGINNING` waits for.
        self._errors = errors
        self._stop_fd = stop_fd
        self._tail = b""
        self._line = b""
        """The unfinished line. It is passed on when it ends."""
        self._behind = b""
        """Output for which our standard error has no room yet."""
        self._selector = selectors.DefaultSelector()
        for fd, event in (
            (process.stdin.fileno(), selectors.EVENT_WRITE),
            (process.stderr.fileno(), selectors.EVENT_READ),
        ):
            os.set_blocking(fd, False)
            self._selector.register(fd, event)
        self._selector.register(stop_fd, selectors.EVENT_READ)

    def close(self) -> None:
        """Close the command's pipes."""
        self._selector.close()
        for stream in (self._process.stdin, self._process.stderr):
            if stream is not None:
                stream.close()

    def wait(self, deadline: float | None, is_wanted: Callable[[], bool]) -> Killer | None:
        """Write to and read from the command until it ends. Kill it if its time is over, at a stop, or if its result is
        not wanted any more."""
        killed_by: Killer | None = None
        given_up_at = 0.0
        look_at = monotonic() + _LOOK_SECONDS
        with _exit_fd(self._process.pid) as exit_fd:
            if exit_fd is not None:
                self._selector.register(exit_fd, selectors.EVENT_READ)
            while True:
                now = monotonic()
                ends = [look_at if killed_by is None else given_up_at]
                if deadline is not None and killed_by is None:
                    ends.append(deadline)
                if exit_fd is None or self._behind:
                    ends.append(now + _POLL_SECONDS)
                ready = {key.fd for key, _ in self._selector.select(max(0.0, min(ends) - now))}
                if self._process.poll() is not None:
                    break
                now = monotonic()
                if killed_by is None:
                    if self._stop_fd in ready:
                        killed_by = "stop"
                    elif deadline is not None and now >= deadline:
                        killed_by = "timeout"
                    elif now >= look_at:
                        look_at = now + _LOOK_SECONDS
                        killed_by = None if is_wanted() else "loss"
                    if killed_by is not None:
                        self._selector.unregister(self._stop_fd)
                        self._close_stdin()
                        kill_session(self._process.pid)
                        given_up_at = now + _DEATH_SECONDS
                elif now >= given_up_at:
                    break
                if self._stdin in ready:
                    self._feed()
                if self.stderr in ready or self._behind:
                    self._read()
        self._close_stdin()
        return killed_by

    def drain(self) -> None:
        """Read what is left in the pipe. Do not wait for processes that may still write, or for a reader of our
        standard error that has stopped reading."""
        left = _LAST_READ_BYTES
        while self.stderr is not None and left > 0:
            try:
                data = os.read(self.stderr, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                self._close_stderr()
            left -= len(data)
            self._behind += self._take(data)
        if self._line or self._behind:
            self._errors.write_last(self._behind + self._line, until=lambda: _is_ready(self._stop_fd))

    def last_line(self) -> str:
        """Return the last line of standard error that is not blank."""
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _feed(self) -> None:
        assert self._stdin is not None
        try:
            written = os.write(self._stdin, self._value[:_READ_BYTES])
        except BlockingIOError:
            return
        except OSError:  # The command does not read its input, which it is free to do.
            written = len(self._value)
        self._value = self._value[written:]
        if not self._value:
            self._close_stdin()

    def _read(self) -> None:
        """Read the available output. Read nothing as long as our standard error has no room."""
        if self._behind:
            if not self._errors.offer(self._behind):
                return
            self._behind = b""
            if self.stderr is not None:
                self._selector.register(self.stderr, selectors.EVENT_READ)
            return
        assert self.stderr is not None
        try:
            data = os.read(self.stderr, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(self.stderr)
            self._close_stderr()
            return
        lines = self._take(data)
        if lines and not self._errors.offer(lines):
            self._behind = lines
            self._selector.unregister(self.stderr)

    def _take(self, data: bytes) -> bytes:
        """Keep the end of the output. Return the complete lines to pass on now."""
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        data = self._line + data
        end = len(data) if len(data) - (data.rfind(b"\n") + 1) > _LINE_BYTES else data.rfind(b"\n") + 1
        self._line = data[end:]
        return data[:end]

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            assert self._process.stdin is not None
            self._selector.unregister(self._stdin)
            self._process.stdin.close()
            self._stdin = None

    def _close_stderr(self) -> None:
        assert self._process.stderr is not None
        self._process.stderr.close()
        self.stderr = None


class _Guard:
    """Kills the running commands if this process is killed. If the guard is missing, everything else still works."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            # It has a session of its own, because a terminal's signals are not meant for it, and it inherits no
            # descriptor.
            self._process = subprocess.Popen(
                [_SHELL, "-c", _GUARD],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)

    def started(self, pid: int) -> None:
        self._tell(b"+ %d\n" % pid)

    def ended(self, pid: int) -> None:
        self._tell(b"- %d\n" % pid)

    def _tell(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):  # The guard was killed, or cannot keep up.
                os.write(self._process.stdin.fileno(), line)

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_DEATH_SECONDS)


def kill_session(leader: int) -> None:
    """Kill all processes of a session. The leader must not have been waited for yet."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(_KILL_ROUNDS):
        others = [pid for pid in _processes() if pid != leader and _session_of(pid) == leader]
        if not others:
            return
        for pid in others:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        try:
            listed = subprocess.run(["/bin/ps", "-A", "-o", "pid="], capture_output=True, check=False, timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            return
        names = listed.stdout.decode("ascii", "replace").split()
    yield from (int(name) for name in names if name.isdigit())


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


@contextmanager
def _exit_fd(pid: int) -> Iterator[int | None]:
    """Yield a descriptor that is readable once a process has ended, or None if the system has none."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _is_ready(fd: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(0))
