"""Options that several commands share."""

from __future__ import annotations

from typing import Final

import click

from logbroker.config import BrokerConfig


def _address(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    host, separator, port = value.rpartition(":")
    if not (host and separator and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    return value


broker_option: Final = click.option(
    "--broker",
    metavar="HOST:PORT",
    envvar="LOGBROKER_BROKER",
    default=BrokerConfig().listen,
    show_default=True,
    show_envvar=True,
    callback=_address,
    help="The broker to talk to.",
)

json_option: Final = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
