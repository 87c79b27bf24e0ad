"""The two effects of Ctrl-C on a command. Before a command has begun its work, and after it has finished, Ctrl-C kills
it without a traceback, as the system kills any program. A KeyboardInterrupt during imports would show a traceback or be
lost. In between, Ctrl-C interrupts the command, which then releases its resources.

Import this module first. It imports almost nothing.
"""

from __future__ import annotations

import signal


def let_ctrl_c_kill() -> None:
    """Let Ctrl-C kill the process if it would interrupt the main thread. Call this in the main thread."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def let_ctrl_c_interrupt() -> None:
    """Let Ctrl-C interrupt the main thread if it would kill the process."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
