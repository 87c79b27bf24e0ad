"""The results of a comparison, as lines of a table and as Markdown for the docs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from compare.peers.peer import WORKLOADS, Peer
from compare.run import Comparison
from compare.workloads import Figure
from logbroker.types import Durability

OURS: Final = "logbroker"
COLUMNS: Final = ("measured", "peer", "durability", "median", "range", "unit", "logbroker is")
_WORKLOADS: Final = tuple(WORKLOADS)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """All rounds of one measurement on one side."""

    workload: str
    measured: str
    peer: str
    durability: Durability
    unit: str
    rounds: list[float]
    lower_is_better: bool
    advantage: float | None
    """How many times better logbroker's median is, at the durability in `against`; below 1 it is behind."""
    against: Durability | None
    overlaps: bool = False
    """Whether the rounds of the two sides overlap, so that the medians tell little."""

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def cells(self, title: str) -> tuple[str, ...]:
        """The columns of a table, in the order of `COLUMNS`."""
        durability = self.durability.value
        if self.against not in (None, self.durability):
            durability += f" (logbroker: {self.against.value})"
        spread = f"{number_text(min(self.rounds))} - {number_text(max(self.rounds))}"
        return (self.measured, title, durability, number_text(self.median), spread, self.unit, self._verdict())

    def _verdict(self) -> str:
        if self.advantage is None:
            return "-"
        verdict = f"{self.advantage:.2f}x ahead" if self.advantage >= 1 else f"{1 / self.advantage:.2f}x behind"
        return f"{verdict}, ranges overlap" if self.overlaps else verdict


def lines_of(figures: Sequence[Figure]) -> list[Line]:
    """One line for each measurement on each side: by workload, measurement and durability, the best first."""
    first_seen = {figure.measured: number for number, figure in reversed(list(enumerate(figures)))}

    def place(figure: Figure) -> tuple[int, int, str, str]:
        return _WORKLOADS.index(figure.workload), first_seen[figure.measured], figure.durability.value, figure.peer

    ordered = sorted(figures, key=place)
    found = [_line(list(group)) for _, group in groupby(ordered, key=place)]
    return [line for _, group in groupby(found, key=lambda line: line.measured) for line in _compared(list(group))]


def _line(figures: list[Figure]) -> Line:
    first = figures[0]
    return Line(
        workload=first.workload,
        measured=first.measured,
        peer=first.peer,
        durability=first.durability,
        unit=first.unit,
        rounds=[figure.value for figure in figures],
        lower_is_better=first.lower_is_better,
        advantage=None,
        against=None,
    )


def _compared(lines: list[Line]) -> Iterator[Line]:
    """The lines of one measurement, each held against logbroker's at the same durability, or the one that there is."""
    ours = {line.durability: line for line in lines if line.peer == OURS}
    best_first = sorted(lines, key=lambda line: line.median if line.lower_is_better else -line.median)
    for line in sorted(best_first, key=lambda line: line.durability is Durability.SYNCED):
        own = ours.get(line.durability) or next(iter(ours.values()), None)
        if own is None or line.peer == OURS:
            yield line
        else:
            ratio = line.median / own.median if line.lower_is_better else own.median / line.median
            overlaps = min(line.rounds) <= max(own.rounds) and min(own.rounds) <= max(line.rounds)
            yield msgspec.structs.replace(line, advantage=ratio, against=own.durability, overlaps=overlaps)


def number_text(value: float) -> str:
    """Three digits or more."""
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def markdown(comparison: Comparison, peers: Sequence[Peer]) -> str:
    """Tables for the docs, one for each workload, and what each side's settings mean."""
    titles = {peer.name: peer.title for peer in peers}
    text = [f"Measured on: {comparison.machine}.", ""]
    for workload, lines in groupby(lines_of(comparison.figures), key=lambda line: line.workload):
        text += [f"### {workload.capitalize()}", "", f"{WORKLOADS[workload][0].upper()}{WORKLOADS[workload][1:]}.", ""]
        text += _table(COLUMNS, [line.cells(titles[line.peer]) for line in lines])
        text += [f"- {peer.title}: {peer.notes[workload]}." for peer in _with_note(comparison, peers, workload)]
        text.append("")
    present = [peer for peer in peers if peer.name in comparison.versions]
    text += ["### What the settings mean", ""]
    for peer in present:
        text.append(f"- {peer.title} {comparison.versions[peer.name]}. Client: {peer.client_settings}.")
        text += [f"  {durability.value}: {promise}." for durability, promise in peer.promises.items()]
    if comparison.left_out:
        text += ["", "### Left out", "", *(f"- {each}." for each in comparison.left_out)]
    return "\n".join(text) + "\n"


def _with_note(comparison: Comparison, peers: Sequence[Peer], workload: str) -> list[Peer]:
    measured = {figure.peer for figure in comparison.figures if figure.workload == workload}
    return [peer for peer in peers if workload in peer.notes and peer.name in measured]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]
