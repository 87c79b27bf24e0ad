"""The output of every command. The texts of users and programs are escaped here, in `terminal`
and, for whole records, in `output_formats`.

A key, a reason, the name of a client or a header may hold anything: escape sequences, bells, line ends that forge a
line, characters that reverse the direction of the text. Commands pass their texts unescaped to this module and to
`terminal` (tables, progress); both escape them as `logbroker.texts.shown` does. No other module of the package writes
to standard output or standard error, except those that `tests/house/test_output.py` lists.

Bytes for other programs go through `raw_output` unchanged.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO, Final, TextIO

import click
import msgspec

from logbroker.cli.common.standard_output import OutputError, has_room, has_standard_output
from logbroker.errors import LogbrokerError
from logbroker.texts import shown, shown_json

PATIENCE_SECONDS: Final = 2.0
"""How long to wait for a reader of standard error that reads nothing."""
NOTHING_DONE: Final = "nothing was done"
"""Message of a command whose question was not answered with yes."""


def write_line(text: str = "", *, flush: bool = True) -> None:
    """Write one line to standard output."""
    sys.stdout.write(f"{shown(text)}\n")
    if flush:
        sys.stdout.flush()


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write a count with its noun: 1 record, 2,000 records, 2 batches."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def tell(text: str) -> None:
    """Write one line to standard output that says what was done. Do nothing if the process has no standard output."""
    if has_standard_output():
        write_line(text)


def warn(text: str) -> None:
    """Write one line to standard error. If standard error is a full pipe, and its reader reads nothing for
    PATIENCE_SECONDS, the line is dropped."""
    with suppress(
        OSError, ValueError, OutputError
    ):  # Standard output was written before this line, so flush it first. Its errors are reported later.
        sys.stdout.flush()
    with suppress(OSError):  # Standard error may be closed, for example after the end of a terminal.
        if not _takes_more(sys.stderr):
            return
        sys.stderr.write(f"{shown(text)}\n")
        sys.stderr.flush()


def _takes_more(stream: TextIO) -> bool:
    try:
        return has_room(stream.fileno(), PATIENCE_SECONDS)
    except (AttributeError, OSError, ValueError):  # No `poll`, or no descriptor.
        return True


def encoded_line(text: str) -> bytes:
    """Return a line for standard error in bytes, for another thread to write."""
    return f"{shown(text)}\n".encode(sys.stderr.encoding, "backslashreplace")


def confirm(question: str) -> None:
    """Ask on standard error. Raises LogbrokerError if the answer is no, and click.Abort if there is none."""
    if not click.confirm(shown(question), err=True):
        raise LogbrokerError(NOTHING_DONE)


def write_json(document: object) -> None:
    """Write one JSON document to standard output, indented."""
    sys.stdout.buffer.write(_encoded(document, 2) + b"\n")


def write_json_line(document: object) -> None:
    """Write one JSON document to standard output, on one line."""
    sys.stdout.buffer.write(_encoded(document, 0) + b"\n")


def raw_output() -> BinaryIO:
    """Return standard output for unescaped bytes."""
    return sys.stdout.buffer


def raw_errors() -> BinaryIO:
    """Return standard error for unescaped bytes of another program."""
    return sys.stderr.buffer


def shows_output() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def shows_errors() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


def show_wrong_call(error: click.ClickException) -> None:
    """Report a wrong call as click does."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # The help.
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        usage = f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n"
        for line in usage.split("\n"):
            warn(line)
    warn(f"Error: {error.format_message()}")


class LogFormatter(logging.Formatter):
    """Formats each log entry as one line. The lines of a traceback are indented, so that none looks like an entry."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return shown(super().formatMessage(record))

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802 - logging's name
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        return _indented(super().formatStack(stack_info))


def escape_all_errors() -> None:
    """Escape what other code writes to standard error for this process: crashes, warnings, logs without a handler."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogFormatter())
    sys.excepthook = _show_crash
    threading.excepthook = _show_crash_of_thread
    warnings.showwarning = _show_warning
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # For terminals whose encoding lacks characters.


def _encoded(document: object, indent: int) -> bytes:
    """Encode JSON in one line, or indented."""
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:  # The name of a file that is not UTF-8: its bytes are lone surrogates.
        return json.dumps(msgspec.to_builtins(document), indent=indent or None).encode()
    return shown_json(msgspec.json.format(encoded, indent=indent) if indent else encoded)


def _indented(text: str) -> str:
    return "\n".join(f"  {shown(line)}" for line in text.split("\n"))


def _show_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(kind, error, trace)).rstrip("\n")
    warn("logbroker: unexpected error; this is a bug in logbroker:")
    for line in text.split("\n"):
        warn(f"  {line}")


def _show_crash_of_thread(hook: threading.ExceptHookArgs) -> None:
    if hook.exc_value is not None:
        _show_crash(hook.exc_type, hook.exc_value, hook.exc_traceback)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    warn(f"{filename}:{lineno}: {category.__name__}: {message}")
