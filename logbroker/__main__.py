"""The command `logbroker`, also run by `python -m logbroker`."""

from __future__ import annotations

import sys

from logbroker.cli.common.ctrl_c import let_ctrl_c_kill
from logbroker.cli.common.missing_module import missing_module_text


def main() -> None:
    """Import the command line and run it."""
    let_ctrl_c_kill()
    try:
        from logbroker.cli.main import main  # It takes a while.
    except ImportError as error:
        if text := missing_module_text(error):
            sys.exit(f"logbroker: {text}")
        raise

    main()


if __name__ == "__main__":
    main()
