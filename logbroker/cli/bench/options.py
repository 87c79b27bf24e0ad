"""Options that all commands of `logbroker bench` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from logbroker.cli.common.arguments import PathType, Whole
from logbroker.cli.common.options import json_option, number_option
from logbroker.tools.bench.harness.measure import Setup


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        click.option(
            "--directory",
            type=PathType(exists=True, file_okay=False),
            metavar="DIR",
            help="Directory for the data; its disk is measured.  [default: the temporary directory]",
        ),
        number_option("--rounds", kind=Whole(1), default=3, help="Rounds of each measurement; the median is shown."),
    ):
        command = option(command)
    return command


def setup_of(shared: dict[str, Any], seconds: float) -> Setup:
    """Return the setup of a measurement. `shared` has the values of `shared_options`; a round takes `seconds`."""
    ceiling = shared.get("ceiling", False)
    return Setup(rounds=shared["rounds"], seconds=seconds, ceiling=ceiling, directory=shared["directory"])
