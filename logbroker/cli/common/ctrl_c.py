"""The two meanings of Ctrl-C to a command. While it has begun nothing, or has nothing left to end, Ctrl-C kills it as
the system kills any program, without a traceback: a KeyboardInterrupt in the middle of imports would show one, or be
lost there. In between it interrupts the command, which lets go of what it holds.

To be imported first: it imports next to nothing.
"""

from __future__ import annotations

import signal


def let_ctrl_c_kill() -> None:
    """Let Ctrl-C kill the process, if it would interrupt it. For the main thread."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def let_ctrl_c_interrupt() -> None:
    """Let Ctrl-C interrupt the main thread, if it would kill the process."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
