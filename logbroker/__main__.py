"""The command `logbroker`, also run by `python -m logbroker`."""

from __future__ import annotations

from logbroker.cli.common.ctrl_c import let_ctrl_c_kill


def main() -> None:
    """Import the command line and run it."""
    let_ctrl_c_kill()
    from logbroker.cli.main import main  # It takes a while.

    main()


if __name__ == "__main__":
    main()
