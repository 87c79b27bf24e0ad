"""Views of experiments: the strips of the lanes in the terminal, and tables at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Final, Protocol

from rich.console import Group
from rich.live import Live
from rich.text import Text

from logbroker.cli.common import terminal
from logbroker.cli.common.lines import shows_errors, warn
from logbroker.tools.experiments.capacity import QUEUE
from logbroker.tools.experiments.lane_strip import Strip, StripMetrics
from logbroker.tools.experiments.palette import key_colour
from logbroker.tools.experiments.scaling_run import ScalingRun

_PLAIN_SECONDS: Final = 2.0
"""The time between two plain lines."""
_BARS: Final = "▁▂▃▄▅▆▇█"
_LABEL_WIDTH: Final = 10
_DOTS: Final = ((0.65, "●", "bold green"), (0.3, "◐", "green"), (0.02, "◔", "green"), (0.0, "○", "dim"))
"""Symbols for workers, each with the minimum share of time that the worker is busy. A worker gets the first symbol that
fits."""
_MAX_WIDTH: Final = 160


class Look(Protocol):
    """A view that is called with the current strips."""

    def __call__(self, strips: list[Strip]) -> None: ...


@contextmanager
def shown(*, plain: bool) -> Iterator[Look]:
    """Show strips on standard error. On a terminal they are updated in place. Otherwise, or with `plain`, a line is
    written every two seconds."""
    console = terminal.new_console(stderr=True)
    if plain or not shows_errors():
        yield _Lines()
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda strips: live.update(strips_text(strips, monotonic(), console.width - 1), refresh=True)


class _Lines:
    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, strips: list[Strip]) -> None:
        now = monotonic()
        is_over = all(strip.is_done for strip in strips)
        if now < self._next and not is_over:
            return
        self._next = now + _PLAIN_SECONDS
        counts = "; ".join(f"{strip.plan.name}: {len(strip.finishes):,} of {strip.total:,}" for strip in strips)
        warn(f"{now - strips[0].begun:.0f} s: {counts}")


def strips_text(strips: Sequence[Strip], now: float, width: int) -> Group:
    """Return all strips, `width` columns wide and three lines each, so that they fit a terminal of 24 lines."""
    columns = min(width, _MAX_WIDTH) - _LABEL_WIDTH
    lines: list[Text] = []
    for strip in strips:
        busy = strip.recent_busy(now)
        pace = f"in {strip.seconds:,.1f} s" if strip.is_done else f"{strip.recent_rate(now):,.0f}/s"
        facts = f"{len(strip.finishes):>6,} of {strip.total:,} {pace:>9}"
        head = Text.assemble((f"{strip.plan.name:<12}", "bold"), facts)
        head.append(f"  disorder {strip.violations:<5,} ", "bold red" if strip.violations else "green")
        head.append_text(_workers(busy))
        lines.append(head)
        lines.append(_labelled("waiting", _waiting(strip, columns)))
        lines.append(_labelled("finished", _tracer(strip, columns)))
    lines.append(Text("waiting: the head on the left, a colour for each key (a split key: second key)", "dim"))
    lines.append(Text("finished: a rising ramp is order (with keys: within one colour); red: disorder", "dim"))
    lines.append(Text("hot key: one key has 80 % of the records. split: the same, with sub-lanes", "dim"))
    for line in lines:
        line.no_wrap = True
        line.truncate(width)
    return Group(*lines)


def _labelled(label: str, content: Text) -> Text:
    return Text.assemble((f"{label:<{_LABEL_WIDTH}}", "dim"), content)


def _waiting(strip: Strip, columns: int) -> Text:
    text = Text()
    for position in strip.waiting(columns):
        text.append("█", _colour(strip, position))
    return text


def _workers(busy: Sequence[float]) -> Text:
    text = Text()
    for share in busy:
        dot, style = next((dot, style) for least, dot, style in _DOTS if share >= least)
        text.append(dot, style)
    return text.append(f" {sum(busy):.1f} busy")


def _tracer(strip: Strip, columns: int) -> Text:
    """Return the records that were finished last, the newest on the right. The height of each shows its position in the
    order of sending."""
    recent = list(strip.recent)[-columns:]
    places = {position: place for place, position in enumerate(sorted(position for position, _ in recent))}
    text = Text()
    for position, is_late in recent:
        bar = _BARS[places[position] * len(_BARS) // len(recent)]
        text.append(bar, "white on red" if is_late else _colour(strip, position))
    return text


def _colour(strip: Strip, position: int) -> str:
    return key_colour(strip.plan.keys[position], strip.plan.key_count)


def show_lanes(metrics: Sequence[StripMetrics]) -> None:
    """Write the metrics and their explanation to standard output."""
    numbers = ("rec/s", "disorder", "idle", "wait p50", "p99", "end p50", "end p99")
    table = terminal.table("ordering", *numbers, numbers=numbers)
    for each in metrics:
        table.add_row(
            each.name,
            f"{each.records_per_second:,.0f}",
            f"{each.violations:,}",
            f"{each.idle_share:.0%}",
            *(_seconds(ms) for ms in (each.wait_ms_p50, each.wait_ms_p99, each.finish_ms_p50, each.finish_ms_p99)),
        )
    terminal.show(table)
    terminal.say(
        "disorder: records that were finished after a later record of the same key, or, if it is split, of the same"
        " second key. wait, end: the time from the sending of all records"
        " until the work on a record began or ended (p50: for half of them, p99: for 99 of 100)."
    )


def _seconds(ms: float) -> str:
    return f"{ms / 1e3:,.1f} s"


def show_scaling(runs: Sequence[ScalingRun]) -> None:
    """Write a row for each run to standard output."""
    numbers = ("parts", "cons", "work", "rec/s", "idle", "p99", "join", "disorder")
    table = terminal.table("group", "keys", *numbers, numbers=numbers)
    for run in runs:
        table.add_row(
            "queue" if run.mode == QUEUE else "consumer",
            run.skew if not run.split_into else f"{run.skew}/{run.split_into}",
            str(run.partitions),
            str(run.consumers),
            f"{run.work_ms:g} ms",
            f"{run.records_per_second:,.0f}",
            f"{run.idle_share:.0%}",
            f"{run.p99_ms:,.0f} ms",
            "-" if run.rebalance_ms is None else f"{run.rebalance_ms:,.0f} ms",
            f"{run.violations:,}",
        )
    terminal.show(table)
    if any(run.split_into for run in runs):
        terminal.say("hot/8: the hot key is split into 8 sub-lanes, by a second key.")
