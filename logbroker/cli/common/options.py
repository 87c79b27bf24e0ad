"""Options that several commands share."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import click

from logbroker.address import parse_addresses
from logbroker.cli.common.arguments import Real, Whole
from logbroker.config import MAX_INT64, MAX_SECONDS, BrokerConfig
from logbroker.errors import quoted
from logbroker.texts import whole_number

F = TypeVar("F", bound=Callable[..., Any])


def _addresses(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        return ",".join(map(str, parse_addresses(value)))
    except ValueError as error:
        raise click.BadParameter(f"{quoted(value)} {error}") from None


_BROKER: Final = click.option(
    "--broker",
    metavar="HOST:PORT,...",
    envvar="LOGBROKER_BROKER",
    default=BrokerConfig().listen,
    show_default=True,
    show_envvar=True,
    callback=_addresses,
    help="Address of the broker, or those of several gateways to one cluster.",
)


def number_option(*names: str, kind: Whole | Real, metavar: str = "N", **more: Any) -> Callable[[F], F]:
    """Return an option that takes a number of this kind. A default is shown; `more` goes to click."""
    return click.option(*names, type=kind, metavar=metavar, show_default="default" in more, **more)


WAIT_SECONDS: Final = "logbroker.wait_seconds"
"""The key in a command's context under which --wait is kept."""


def _keep_wait(ctx: click.Context, parameter: click.Parameter, value: float) -> None:
    ctx.meta[WAIT_SECONDS] = value


_WAIT: Final = click.option(
    "--wait",
    type=Real(most=MAX_SECONDS),
    default=0,
    metavar="SECONDS",
    callback=_keep_wait,
    expose_value=False,
    help="Maximum time to wait for a broker that is not up yet.  [default: no wait]",
)


def broker_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --broker, which the command receives as `broker`, and --wait, which its clients apply (see `clients`)."""
    return _BROKER(_WAIT(command))


json_option: Final = click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text.")
yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")

Place = Literal["earliest", "latest"] | int | datetime.datetime


class PlaceType(click.ParamType[Place]):
    """A position in a log: earliest, latest, an offset, or a time in ISO 8601, which is local if it has no zone."""

    name = "place"

    def convert(self, value: str | Place, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        if not isinstance(value, str):
            return value
        if value == "earliest":
            return "earliest"
        if value == "latest":
            return "latest"
        offset = whole_number(value)
        if offset is not None and 0 <= offset <= MAX_INT64:
            return offset
        try:
            return datetime.datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError):
            self.fail(
                f"{quoted(value)} is not earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z",
                param,
                ctx,
            )


PLACE_METAVAR: Final = "earliest|latest|OFFSET|TIME"
