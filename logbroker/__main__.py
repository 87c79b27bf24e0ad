"""`python -m logbroker` is the command `logbroker`."""

from __future__ import annotations

from logbroker.cli.main import main

if __name__ == "__main__":
    main()
