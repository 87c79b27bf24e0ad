"""The settings of a queue group as command-line options. Their help comes from the descriptions of the settings."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import click

from logbroker.cli.common.arguments import NameType, Real, Whole, real_number, utf8
from logbroker.client.sync import QueueSettings
from logbroker.command_line import command_line
from logbroker.config import MAX_INT32
from logbroker.errors import quoted
from logbroker.queues.model.settings import QUEUE_SETTINGS, OnExhausted, Priority, dead_letter_topic_of
from logbroker.settings import DescribedSetting
from logbroker.texts import whole_number

F = TypeVar("F", bound=Callable[..., Any])


_DESCRIBED: Final = {each.name: each for each in QUEUE_SETTINGS}


def _number(name: str) -> click.ParamType[Any]:
    """Return the parameter type of a number, with the limits of the setting."""
    described = _DESCRIBED[name]
    least, most = described.setting.least, described.setting.most
    assert least is not None
    assert most is not None
    return Whole(int(least), int(most)) if described.type is int else Real(least, most)


class _Option(NamedTuple):
    """The option of one setting. Help and default come from the setting."""

    flag: str
    name: str
    """The name of the setting."""
    type: Any
    metavar: str | None = None


class _Weights(click.ParamType[dict[str, int]]):
    """Parameter type for the weights of bands, written NAME=N,..."""

    name = "weights"

    def convert(
        self, value: str | dict[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, int]:
        if not isinstance(value, str):
            return value
        weights: dict[str, int] = {}
        for item in value.split(","):
            name, _, weight = item.strip().partition("=")
            number = whole_number(weight)
            if not name or utf8(name) is None or name in weights or number is None or not 0 <= number <= MAX_INT32:
                self.fail(f"{quoted(value)} is not NAME=N for each band, such as hot=6,warm=3,cold=1", param, ctx)
            weights[name] = number
        return weights


_OPTIONS: Final = (
    _Option("--ordering", "ordering", click.Choice(_DESCRIBED["ordering"].choices)),
    _Option("--key-header", "key_header", str, "NAME"),
    _Option("--priority", "priority", click.Choice(_DESCRIBED["priority"].choices)),
    _Option("--priority-rank", "priority_rank", click.Choice(_DESCRIBED["priority_rank"].choices)),
    _Option("--weights", "weights", _Weights(), "BAND=N,..."),
    _Option("--age-seconds", "age_seconds", _number("age_seconds"), "SECONDS"),
    _Option("--lease", "lease_seconds", _number("lease_seconds"), "SECONDS"),
    _Option("--max-attempts", "max_attempts", _number("max_attempts"), "N"),
    _Option("--on-exhausted", "on_exhausted", click.Choice(_DESCRIBED["on_exhausted"].choices)),
    _Option("--dead-letter-topic", "dead_letter_topic", NameType(), "TOPIC"),
    _Option("--jitter", "backoff_jitter", _number("backoff_jitter"), "SHARE"),
    _Option("--grace", "grace_seconds", _number("grace_seconds"), "SECONDS"),
    _Option("--alarm-share", "alarm_share", _number("alarm_share"), "SHARE"),
    _Option("--alarm-age", "alarm_age_seconds", _number("alarm_age_seconds"), "SECONDS"),
    _Option("--max-parked", "max_parked_records", _number("max_parked_records"), "N"),
    _Option("--max-in-flight", "max_in_flight", _number("max_in_flight"), "N"),
    _Option("--max-ready", "max_ready_records", _number("max_ready_records"), "N"),
    _Option("--max-held-lanes", "max_held_lanes", _number("max_held_lanes"), "N"),
    _Option("--max-delayed", "max_delayed_records", _number("max_delayed_records"), "N"),
    _Option("--split-by", "split_by", str, "WHERE"),
    _Option("--split-into", "split_into", _number("split_into"), "N"),
    _Option("--split-share", "split_share", _number("split_share"), "SHARE"),
    _Option("--split-age", "split_age_seconds", _number("split_age_seconds"), "SECONDS"),
    _Option("--on-undecodable", "on_undecodable", click.Choice(_DESCRIBED["on_undecodable"].choices)),
)


def _default_text(described: DescribedSetting) -> str:
    """Return the default as the option accepts it, or in words."""
    return f"{described.value:.12g}" if described.is_number else described.default_text()


_BACKOFF: Final = ("backoff_initial_seconds", "backoff_factor", "backoff_cap_seconds")
_BACKOFF_DEFAULT: Final = ",".join(_default_text(_DESCRIBED[name]) for name in _BACKOFF)


class _Backoff(click.ParamType[tuple[float, float, float]]):
    """Parameter type for a backoff, written INITIAL,FACTOR,CAP."""

    name = "backoff"

    def convert(
        self, value: str | tuple[float, float, float], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float, float]:
        if not isinstance(value, str):
            return value
        numbers = [real_number(part.strip()) for part in value.split(",")]
        if len(numbers) != 3 or None in numbers:
            self.fail(f"{quoted(value)} is not INITIAL,FACTOR,CAP, such as 1,2,300", param, ctx)
        initial, factor, cap = (number or 0.0 for number in numbers)
        return initial, factor, cap


def settings_options(*, for_creation: bool) -> Callable[[F], F]:
    """Add an option for each setting. The help shows the defaults if the command creates a group."""

    def decorate(function: F) -> F:
        default = "  [default: {}]" if for_creation else ""
        options = [
            click.option(
                each.flag,
                each.name,
                type=each.type,
                metavar=each.metavar,
                help=_DESCRIBED[each.name].setting.effect + default.format(_default_text(_DESCRIBED[each.name])),
            )
            for each in _OPTIONS
        ]
        backoff = click.option(
            "--backoff",
            type=_Backoff(),
            metavar="INITIAL,FACTOR,CAP",
            help="Delay before the second attempt in seconds, factor by which it grows with each further attempt, and"
            " maximum delay." + default.format(_BACKOFF_DEFAULT),
        )
        for option in reversed([*options[:8], backoff, *options[8:]]):
            function = option(function)
        return function

    return decorate


def settings_of(values: Mapping[str, Any]) -> QueueSettings:
    """Return the settings that the options of a command gave."""
    settings = dict(values)
    backoff = settings.pop("backoff") or (None,) * len(_BACKOFF)
    return QueueSettings(**settings, **dict(zip(_BACKOFF, backoff, strict=True)))


def creation_command(group: str, topic: str, settings: QueueSettings) -> str:
    """Return the command that creates a group with these settings. It names those that differ from the defaults, and
    the priority, whose default depends on the topic."""
    differing = set(_differing(group, settings))
    words = ["--topic", topic]
    for option in _OPTIONS:
        if option.name in differing:
            words += [option.flag, _option_text(getattr(settings, option.name))]
    if differing.intersection(_BACKOFF):
        words += ["--backoff", ",".join(_option_text(getattr(settings, name)) for name in _BACKOFF)]
    return command_line("queue create", group, options=words)


def _differing(group: str, settings: QueueSettings) -> Iterator[str]:
    """Yield the names of the settings that a command has to give."""
    yield "priority"
    for each in QUEUE_SETTINGS:
        default = each.value.value if isinstance(each.value, enum.Enum) else each.value
        # A group may keep these from an earlier policy. A creation refuses them, because they are of no use.
        if each.name == "age_seconds" and settings.priority != Priority.AGEING.value:
            continue
        if each.name == "dead_letter_topic":
            if OnExhausted.DEAD_LETTER.value not in (settings.on_exhausted, settings.on_undecodable):
                continue
            default = dead_letter_topic_of(group)
        if getattr(settings, each.name) != default:
            yield each.name


def _option_text(value: str | float | Mapping[str, int]) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={weight}" for name, weight in value.items())
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
