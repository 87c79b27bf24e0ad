"""Options that several commands share."""

from __future__ import annotations

import datetime
from typing import Final, Literal

import click

from logbroker.config import BrokerConfig
from logbroker.texts import is_address, whole_number


def _address(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not is_address(value):
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

Place = Literal["earliest", "latest"] | int | datetime.datetime


class PlaceType(click.ParamType[Place]):
    """A place in a log: earliest, latest, an offset, or a time in ISO 8601; a time without a zone is local."""

    name = "place"

    def convert(self, value: str | Place, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        if not isinstance(value, str):
            return value
        if value == "earliest":
            return "earliest"
        if value == "latest":
            return "latest"
        offset = whole_number(value)
        if offset is not None and offset >= 0:
            return offset
        try:
            return datetime.datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is none of earliest, latest, an offset, a time such as 2026-01-31T12:00:00Z", param, ctx
            )


PLACE_METAVAR: Final = "earliest|latest|OFFSET|TIME"
