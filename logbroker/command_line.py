"""The text of `logbroker` commands in messages, so that an operator can copy and run them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def command_line(command: str, *operands: str, options: Iterable[str] = ()) -> str:
    """Return a command, such as "queue delete", as a shell runs it. Operands come from users and may have any
    characters; if one begins with "-", all of them follow "--", behind the options."""
    words = ["logbroker", *command.split()]
    if any(operand.startswith("-") for operand in operands):
        return shlex.join([*words, *options, "--", *operands])
    return shlex.join([*words, *operands, *options])
