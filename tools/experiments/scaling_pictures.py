"""The pictures of the scaling experiment, by matplotlib, which comes with the extra `logbroker[experiments]`."""

from __future__ import annotations

import importlib.util
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from logbroker.tools.experiments.capacity import GROUP, MODES
from logbroker.tools.experiments.keys import SKEWS
from logbroker.tools.experiments.scaling_run import Scaling, ScalingRun

HOW_TO_INSTALL: Final = "no pictures without matplotlib: pip install 'logbroker[experiments]'"
_TITLES: Final = {"uniform": "all keys alike", "zipf": "keys by Zipf's law", "hot": "one key has 80 %"}
_COLOURS: Final = ("#2f7ed8", "#e8912d", "#1c7c4a", "#c0509f", "#5a6775")
_FORMATS: Final = ("svg", "png")


class Picture(msgspec.Struct, frozen=True):
    """One picture, as files."""

    svg: bytes
    png: bytes


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(found: Scaling) -> dict[str, Picture]:
    """Return the pictures by their names. This needs matplotlib."""
    import matplotlib

    # Keep text as text, and make the same file from the same metrics.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "logbroker", "font.size": 9}):
        return {
            "throughput": _by_partitions(found.runs, "records/s", lambda run: run.records_per_second),
            "latency": _by_partitions(found.runs, "p99, ms", lambda run: run.p99_ms),
            "idle": _by_partitions(found.runs, "idle share", lambda run: run.idle_share),
            "model": _model(found.runs),
        }


def _by_partitions(runs: Sequence[ScalingRun], unit: str, metric_of: Callable[[ScalingRun], float]) -> Picture:
    """Return a picture with a row of charts for each work time, a column for each skew, and a line for each mode and
    number of consumers, and for those with a split key."""
    works = sorted({run.work_ms for run in runs})
    skews = [skew for skew in SKEWS if any(run.skew == skew for run in runs)]
    counts = sorted({run.partitions for run in runs})
    colours = dict(zip(sorted({run.consumers for run in runs}), itertools.cycle(_COLOURS), strict=False))
    named: dict[str, Any] = {}
    figure, rows = _charts(len(works), len(skews))
    for work, charts in zip(works, rows, strict=True):
        for skew, chart in zip(skews, charts, strict=True):
            of_chart = [run for run in runs if (run.work_ms, run.skew) == (work, skew)]
            named |= _lines(chart, of_chart, metric_of, colours)
            chart.set_title(f"{_TITLES[skew]}, {work:g} ms of work", fontsize=9)
            chart.set_xscale("log", base=2)
            chart.set_xticks(counts, [str(count) for count in counts])
        charts[0].set_ylabel(unit)
        # Set the limit after all lines are drawn, because the charts of a row share their scale.
        charts[0].set_ylim(bottom=0)
    for chart in rows[-1]:
        chart.set_xlabel("partitions")
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4, frameon=False)
    return _drawn(figure)


def _lines(
    chart: Any, runs: Sequence[ScalingRun], metric_of: Callable[[ScalingRun], float], colours: Mapping[int, str]
) -> dict[str, Any]:
    """Draw the lines, and return them by their names."""
    drawn = {}
    for mode in MODES:
        for count, colour in colours.items():
            of_count = [run for run in runs if (run.mode, run.consumers) == (mode, count)]
            for split_into in sorted({run.split_into for run in of_count}):
                line = sorted((run.partitions, metric_of(run)) for run in of_count if run.split_into == split_into)
                style = ":D" if split_into else "-o" if mode == GROUP else "--s"
                name = f"{'consumer' if mode == GROUP else 'queue'} group of {count}"
                name += f", split into {split_into}" if split_into else ""
                (drawn[name],) = chart.plot(*zip(*line, strict=True), style, markersize=4, color=colour)
    return drawn


def _model(runs: Sequence[ScalingRun]) -> Picture:
    figure, ((chart,),) = _charts(1, 1)
    most = 1.1 * max(max(run.records_per_second, run.predicted_records_per_second) for run in runs)
    chart.plot((0, most), (0, most), "-", color="#b6c0ca")
    for factor in (0.8, 1.2):
        chart.plot((0, most), (0, factor * most), ":", color="#b6c0ca")
    for mode, colour in zip(MODES, _COLOURS, strict=False):
        points = [(run.records_per_second, run.predicted_records_per_second) for run in runs if run.mode == mode]
        if points:
            name = "consumer group" if mode == GROUP else "queue group by key"
            chart.plot(*zip(*points, strict=True), "o", color=colour, markersize=5, label=name)
    chart.set(xlabel="measured, records/s", ylabel="predicted, records/s", xlim=(0, most), ylim=(0, most))
    chart.legend(frameon=False)
    return _drawn(figure)


def _charts(rows: int, columns: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    # Do not use pyplot, which keeps figures and needs a display.
    figure = Figure(figsize=(max(5.0, 3.2 * columns), 2.6 * rows + 0.8), layout="constrained")
    charts = figure.subplots(rows, columns, squeeze=False, sharey="row")
    for chart in charts.flat:
        chart.grid(visible=True, color="#e6eaee")
        chart.spines[["top", "right"]].set_visible(False)
    return figure, charts


def _drawn(figure: Any) -> Picture:
    files = {}
    for kind in _FORMATS:
        out = io.BytesIO()
        figure.savefig(out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
        files[kind] = out.getvalue()
    return Picture(**files)
