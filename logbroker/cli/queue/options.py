"""The settings of a queue group as options of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import click

from logbroker.cli.common.arguments import Real, Whole, real_number, utf8
from logbroker.client.sync import QueueSettings
from logbroker.config import MAX_INT32, MAX_INT64
from logbroker.errors import quoted
from logbroker.texts import whole_number

_BIG: Final = Whole(most=MAX_INT64)
F = TypeVar("F", bound=Callable[..., Any])


class _Setting(NamedTuple):
    flag: str
    name: str
    type: Any
    metavar: str | None
    default: str
    """As help shows it."""
    help: str


class _Weights(click.ParamType[dict[str, int]]):
    """NAME=N,..."""

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


_SETTINGS: Final = (
    _Setting(
        "--ordering",
        "ordering",
        click.Choice(["none", "key", "single"]),
        None,
        "key",
        "none: any record to any worker. key: one record of a key at a time, in order. single: one record at a time.",
    ),
    _Setting("--key-header", "key_header", str, "NAME", "the record key", "The header that holds the ordering key."),
    _Setting(
        "--priority",
        "priority",
        click.Choice(["none", "strict", "weighted", "ageing"]),
        None,
        "strict where the topic has bands, else none",
        "none: first come, first served. strict: the most urgent first, then the oldest. weighted: each band has its "
        "share. ageing: what waits gains a level again and again.",
    ),
    _Setting(
        "--priority-rank",
        "priority_rank",
        click.Choice(["lane", "head"]),
        None,
        "lane",
        "A key is as urgent as its most urgent record that waits, or as its first.",
    ),
    _Setting(
        "--weights",
        "weights",
        _Weights(),
        "BAND=N,...",
        "6, 3, 1 for three bands",
        "With weighted, the shares of bands: those of the topic, else hot (7-9), warm (4-6), cold (0-3).",
    ),
    _Setting("--age-seconds", "age_seconds", Real(), "S", "60", "With ageing, how long it takes to gain a level."),
    _Setting(
        "--lease",
        "lease_seconds",
        Real(),
        "SECONDS",
        "30",
        "How long a record is a worker's before it comes again; workers prolong it while they work.",
    ),
    _Setting("--max-attempts", "max_attempts", Whole(), "N", "5", "How often a record may fail."),
    _Setting(
        "--on-exhausted",
        "on_exhausted",
        click.Choice(["block", "dead-letter", "park"]),
        None,
        "block",
        "When a record's attempts are used up. block: its lane waits for an operator. dead-letter: it goes to another "
        "topic, and the lane goes on. park: its lane goes aside with all that follows.",
    ),
    _Setting(
        "--dead-letter-topic", "dead_letter_topic", str, "TOPIC", "GROUP.dead-letters", "Created where it is not there."
    ),
    _Setting(
        "--jitter", "backoff_jitter", Real(), "SHARE", "0.2", "The share of a backoff that is drawn by lot, 0 to 1."
    ),
    _Setting(
        "--grace",
        "grace_seconds",
        Real(),
        "SECONDS",
        "2",
        "How long a worker whose connection broke keeps what it had.",
    ),
    _Setting(
        "--alarm-share",
        "alarm_share",
        Real(),
        "SHARE",
        "0.5",
        "Alarm where one lane has more of what waits, and over 512 records; 1: never.",
    ),
    _Setting(
        "--alarm-age",
        "alarm_age_seconds",
        Real(),
        "SECONDS",
        "3600",
        "Alarm where a lane stands or fails for longer, or a record waits for longer, if only for a worker.",
    ),
    _Setting("--max-parked", "max_parked_records", _BIG, "N", "100000", "Alarm where more records are parked."),
    _Setting("--max-in-flight", "max_in_flight", _BIG, "N", "10000", "Records that one worker may have."),
    _Setting("--max-ready", "max_ready_records", _BIG, "N", "100000", "The scan of the log pauses above it."),
    _Setting("--max-held-lanes", "max_held_lanes", _BIG, "N", "500000", "The scan pauses above it."),
    _Setting("--max-delayed", "max_delayed_records", _BIG, "N", "500000", "The scan pauses above it."),
    _Setting(
        "--on-undecodable",
        "on_undecodable",
        click.Choice(["stop", "dead-letter"]),
        None,
        "stop",
        "A batch that cannot be decoded stops its partition, or goes to the dead-letter topic as it is.",
    ),
)


class _Backoff(click.ParamType[tuple[float, float, float]]):
    """INITIAL,FACTOR,CAP."""

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
    """Add an option for each setting; where a group is created, with the defaults in the help."""

    def decorate(function: F) -> F:
        default = "  [default: {}]" if for_creation else ""
        options = [
            click.option(
                setting.flag,
                setting.name,
                type=setting.type,
                metavar=setting.metavar,
                help=setting.help + default.format(setting.default),
            )
            for setting in _SETTINGS
        ]
        backoff = click.option(
            "--backoff",
            type=_Backoff(),
            metavar="INITIAL,FACTOR,CAP",
            help="Seconds before the second attempt, by what it grows, and the longest." + default.format("1,2,300"),
        )
        for option in reversed([*options[:8], backoff, *options[8:]]):
            function = option(function)
        return function

    return decorate


def settings_of(values: Mapping[str, Any]) -> QueueSettings:
    """Return the settings that options gave."""
    settings = dict(values)
    initial, factor, cap = settings.pop("backoff") or (None, None, None)
    return QueueSettings(backoff_initial_seconds=initial, backoff_factor=factor, backoff_cap_seconds=cap, **settings)
